"""Pd-Stream: Figures 4 to 13, Tables II to V."""

from __future__ import annotations

from unskew.experiments import pd_stream_balance, pd_stream_latency, pd_stream_tables
from unskew.experiments.base import Experiment, Sizes
from unskew.experiments.pd_stream_findings import findings

FULL = Sizes(
    name="the paper's sizes",
    zipf_messages=10_000_000,
    dataset_messages=None,
    simulated=400_000,
    exponents=(1.0, 1.2, 1.4, 1.6, 1.8, 2.0),
    counts=(16, 32, 64, 128),
    seeds=3,
)
QUICK = Sizes(
    name="quick",
    zipf_messages=300_000,
    dataset_messages=500_000,
    simulated=60_000,
    exponents=(1.0, 1.2, 1.4, 1.6, 1.8, 2.0),
    counts=(16, 32, 64, 128),
)

EXPERIMENT = Experiment(
    name="pd-stream",
    reference="Pd-Stream, Section VI: Figures 4 to 13, Tables II to V",
    figures=(
        *pd_stream_tables.TABLES,
        *pd_stream_latency.FIGURES,
        *pd_stream_balance.FIGURES,
    ),
    full=FULL,
    quick=QUICK,
    findings=findings,
    caution=(
        "A quick run, with fewer messages than the paper's, which moves imbalance (one tuple is a "
        "larger part), replication (fewer rare keys are seen) and most of all throughput and "
        "latency, as groupings that learn by intervals have hardly begun and there is one seed. "
        "Quote the full run."
    ),
)
