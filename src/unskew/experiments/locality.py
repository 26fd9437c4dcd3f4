"""Locality-aware routing: Figures 7 to 14."""

from __future__ import annotations

from unskew.experiments import locality_runs, locality_synthetic, locality_weeks
from unskew.experiments.base import Experiment, Sizes
from unskew.experiments.locality_chain import PER_WEEK
from unskew.experiments.locality_findings import findings
from unskew.experiments.locality_weeks import WEEKS

FULL = Sizes(
    name="full",
    zipf_messages=0,
    dataset_messages=WEEKS * PER_WEEK,
    simulated=100_000,
    exponents=(),
    counts=(1, 2, 3, 4, 5, 6),
)
QUICK = Sizes(
    name="quick",
    zipf_messages=0,
    dataset_messages=WEEKS * PER_WEEK // 8,
    simulated=15_000,
    exponents=(),
    counts=(1, 2, 4, 6),
)

EXPERIMENT = Experiment(
    name="locality",
    reference="Locality-aware routing, Section 4: Figures 7 to 14",
    figures=(
        *locality_synthetic.FIGURES,
        *locality_weeks.FIGURES,
        *locality_runs.FIGURES,
    ),
    full=FULL,
    quick=QUICK,
    findings=findings,
    caution=(
        "A quick run, with fewer posts and, for as many of each, fewer hashtags: a plan has fewer "
        "of them to place, and the parts of the pairs of Figure 12 are a handful. Quote the full "
        "run."
    ),
)
