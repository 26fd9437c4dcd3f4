"""How even instances were used, and after how many batches that began."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from unskew.metrics import utilisation_spread
from unskew.spark import BatchReport, Speeds

EVEN = 0.15
"""Spread of utilisations below which instances are used evenly."""


def spread_of(report: BatchReport) -> float:
    """Return the spread of utilisations in a batch: 0 if all instances were busy equally long.

    A batch is as long as its busiest instance is busy: what Spark takes beside does not make the
    others look busier, or idler, than they are.
    """
    busy = np.array([task["busy"] for task in report.facts["tasks"] if task["stage"] == 0])
    return utilisation_spread(busy / max(float(busy.max()), 1e-9))


def convergence(
    reports: Sequence[BatchReport], speeds: Speeds | None, even: float = EVEN
) -> list[int | None]:
    """Return how many batches it took until instances were used evenly.

    Parameters
    ----------
    reports : sequence of BatchReport
        Of the batches of a run.
    speeds : Speeds, optional
        That executors had.
    even : float
        Spread to come below.

    Returns
    -------
    list of int or None
        From the first batch, then from each change of speeds within the run; None where it has not
        come below.
    """
    if not reports:
        return []
    first, last = reports[0].batch, reports[-1].batch
    changes = () if speeds is None else speeds.changes
    starts = [first, *(batch for batch in changes if first < batch <= last), last + 1]
    spreads = {report.batch: spread_of(report) for report in reports}
    found: list[int | None] = []
    for start, end in pairwise(starts):
        times = (b - start for b in range(start, end) if spreads.get(b, 1.0) < even)
        found.append(next(times, None))
    return found
