"""The papers' experiments: each figure and table, ours beside the paper's."""

from unskew.errors import BadParameter
from unskew.experiments import consistent_grouping, locality, ls_stream, pd_stream, st_stream
from unskew.experiments.base import Experiment, Figure, Row, Sizes

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (pd_stream, ls_stream, locality, consistent_grouping, st_stream)
}
"""By name."""


def experiment(name: str) -> Experiment:
    """Return an experiment by its name.

    Examples
    --------
    >>> experiment("pd-stream").figures[0].heading
    'Table II: Limit of the chance to miss a hot key'
    """
    if name not in EXPERIMENTS:
        raise BadParameter(
            f"there is no experiment {name!r}; choose one of {', '.join(EXPERIMENTS)}"
        )
    return EXPERIMENTS[name]


__all__ = ["EXPERIMENTS", "Experiment", "Figure", "Row", "Sizes", "experiment"]
