"""St-Stream: Figures 10 to 17."""

from __future__ import annotations

from unskew.experiments.base import Experiment, Sizes
from unskew.experiments.st_stream_figures import FIGURES
from unskew.experiments.st_stream_findings import findings
from unskew.experiments.st_stream_topology import RATE

FULL = Sizes(
    name="full",
    zipf_messages=0,
    dataset_messages=0,
    simulated=int(900 * RATE),
    exponents=(),
    counts=(),
)
QUICK = Sizes(
    name="quick",
    zipf_messages=0,
    dataset_messages=0,
    simulated=int(360 * RATE),
    exponents=(),
    counts=(),
)

EXPERIMENT = Experiment(
    name="st-stream",
    reference="St-Stream, Section 5: Figures 10 to 17",
    figures=FIGURES,
    full=FULL,
    quick=QUICK,
    findings=findings,
    caution="A quick run, of six minutes of words in place of fifteen. Quote the full run.",
)
