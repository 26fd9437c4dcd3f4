"""LS-Stream: what its figures share: rows of a line, and rows of one series against another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unskew.experiments.base import Row
from unskew.experiments.ls_stream_topology import OWN, SERIES

BOTTLENECK = "bottleneck, tuples/s"
LATENCY = "latency, ms"
LI = "load imbalance"
WORK_LI = "load imbalance of the seconds of service"
LOWER = "latency lower by, %"
HIGHER = "bottleneck higher by, %"

Lines = Mapping[str, Mapping[float, float]]
"""For each series its number at each x."""


def lines(
    seed: int,
    figure: str,
    case: str,
    metric: str,
    numbers: Lines,
    *,
    stated: Mapping[tuple[str, float], float] | None = None,
    notes: Mapping[tuple[str, float], str] | None = None,
    panel: str = "",
) -> list[Row]:
    """Return the rows of the lines of a chart.

    Parameters
    ----------
    seed, figure, metric, panel
        As of `Row`.
    case : str
        With places for `series` and `x`.
    numbers : mapping
        What is drawn.
    stated, notes : mapping, optional
        What the paper states, and what a reader has to know, by series and x.
    """
    return [
        Row(
            *(seed, figure, case.format(series=series, x=x), metric),
            *((stated or {}).get((series, x)), ours, (notes or {}).get((series, x), "")),
            *(panel, x, series),
        )
        for series, line in numbers.items()
        for x, ours in line.items()
    ]


def against(
    seed: int,
    figure: str,
    where: str,
    metric: str,
    percent: Mapping[tuple[str, str], float],
    stated: Mapping[str, float],
) -> list[Row]:
    """Return the rows of one series against another; the paper's are those of ls-stream."""
    return [
        Row(
            *(seed, figure, f"{own} against {other}, {where}", metric),
            *(stated.get(other) if own == "ls-stream" else None, value),
            series=own,
        )
        for (own, other), value in percent.items()
    ]


def duels() -> Sequence[tuple[str, str]]:
    """Return which series is held against which."""
    return [(own, other) for own in OWN for other in SERIES if other not in OWN]


def lower(own: float, other: float) -> float:
    """Return by how many percent one number is below another.

    Examples
    --------
    >>> lower(3.0, 4.0)
    25.0
    """
    return 100 * (1 - own / other)


def higher(own: float, other: float) -> float:
    """Return by how many percent one number is above another.

    Examples
    --------
    >>> higher(5.0, 4.0)
    25.0
    """
    return 100 * (own / other - 1)


def by_seed(limits: Sequence[float]) -> str:
    """Return how far seeds differ: which keys meet on an instance is chance."""
    if len(limits) < 2:
        return ""
    return f"{min(limits):,.0f} to {max(limits):,.0f} by seed"
