"""Consistent Grouping: Figures 4 and 6 to 15."""

from __future__ import annotations

from unskew.experiments import consistent_grouping_days as days
from unskew.experiments import consistent_grouping_schemes as schemes
from unskew.experiments import consistent_grouping_storm as storm
from unskew.experiments.base import Experiment, Sizes
from unskew.experiments.consistent_grouping_findings import findings

FULL = Sizes(
    name="full",
    zipf_messages=4_000_000,
    dataset_messages=None,
    simulated=1_000_000,
    exponents=(0.4, 0.8, 1.2, 1.6, 2.0),
    counts=(),
)
QUICK = Sizes(
    name="quick",
    zipf_messages=200_000,
    dataset_messages=1_000_000,
    simulated=100_000,
    exponents=(0.8, 2.0),
    counts=(),
)

EXPERIMENT = Experiment(
    name="consistent-grouping",
    reference="Consistent Grouping, Section VII: Figures 4 and 6 to 15",
    figures=(
        schemes.FIGURE_4,
        *schemes.FIGURES,
        *days.FIGURES,
        schemes.FIGURE_11,
        *days.LATER,
        *storm.FIGURES,
    ),
    full=FULL,
    quick=QUICK,
    findings=findings,
    caution=(
        "A quick run, with fewer messages: in a short interval chance alone makes utilisations "
        "differ by more than the thresholds do. Quote the full run."
    ),
)
