"""The distribution of latencies, of any number of tuples in bounded memory."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from unskew.simulator.queues import tally_latencies

_LEAST = 1e-9
_MOST = 1e6
_PRECISION = 0.005


class Latencies:
    """Count, mean and largest latency exactly, quantiles within half a percent.

    A histogram of 7,000 bins from a nanosecond to eleven days, each half a percent wider than the
    one before.

    Examples
    --------
    >>> latencies = Latencies()
    >>> latencies.add(np.linspace(0.0, 1.0, 1001))
    >>> latencies.count, round(latencies.mean, 6), latencies.largest
    (1001, 0.5, 1.0)
    >>> abs(latencies.quantile(0.95) / 0.95 - 1) < 0.005
    True
    """

    def __init__(self) -> None:
        bins = 2 + int(math.log(_MOST / _LEAST) / math.log1p(_PRECISION))
        self._counts = np.zeros(bins, dtype=np.int64)
        self._sum = 0.0
        self.count = 0
        self.largest = 0.0

    def add(self, latencies: NDArray[np.float64]) -> None:
        """Count some more latencies, in seconds."""
        if latencies.size == 0:
            return
        tally_latencies(latencies, _LEAST, 1 / math.log1p(_PRECISION), self._counts)
        self._sum += float(latencies.sum())
        self.count += latencies.size
        self.largest = max(self.largest, float(latencies.max()))

    @property
    def mean(self) -> float:
        """The mean, 0 if there are none."""
        return self._sum / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """Return the latency that this share of all are at most."""
        if not self.count:
            return 0.0
        rank = math.ceil(share * self.count)
        place = int(np.searchsorted(np.cumsum(self._counts), max(rank, 1)))
        # The middle of the bin, in the sense of a factor.
        middle = _LEAST * (1 + _PRECISION) ** (place - 0.5)
        return min(middle, self.largest) if place else min(_LEAST, self.largest)
