"""LS-Stream: Figures 1, 2 and 7 to 15."""

from __future__ import annotations

from unskew.experiments import ls_stream_rides, ls_stream_skew
from unskew.experiments.base import Experiment, Sizes
from unskew.experiments.ls_stream_findings import findings

FULL = Sizes(
    name="full",
    zipf_messages=200_000,
    dataset_messages=None,
    simulated=200_000,
    exponents=(0.2, 0.4, 0.6, 0.8, 1.0),
    counts=(16, 20, 28, 36, 48, 56, 64),
    seeds=5,
)
QUICK = Sizes(
    name="quick",
    zipf_messages=100_000,
    dataset_messages=480_000,
    simulated=100_000,
    exponents=(0.2, 0.6, 1.0),
    counts=(16, 28, 48, 64),
)

EXPERIMENT = Experiment(
    name="ls-stream",
    reference="LS-Stream, Section VI: Figures 1, 2 and 7 to 15",
    figures=(
        *ls_stream_rides.HASHING,
        *ls_stream_skew.FIGURES,
        *ls_stream_rides.FIGURES,
        *ls_stream_skew.PARAMETERS,
    ),
    full=FULL,
    quick=QUICK,
    findings=findings,
    caution=(
        "A quick run, with fewer tuples and one seed. Which keys meet on an instance is chance "
        "and moves bottlenecks by a tenth and more; balancers have hardly begun. Quote the full "
        "run."
    ),
)
