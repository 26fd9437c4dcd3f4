"""What happens over time: arrivals, departures and busy time by slice of time and instance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.simulator.queues import tally

SLICES = 512
"""Slices at the most; a power of two."""


class Series:
    """Counts by slice of time and instance, in bounded memory.

    When the simulation takes longer than there are slices, each two neighbours become one.

    Parameters
    ----------
    instances : int
        Number of instances.
    width : float
        Seconds of a slice.

    Examples
    --------
    >>> series = Series(instances=1, width=1.0)
    >>> come, left = np.array([0.1, 0.2]), np.array([0.5, 1.5])
    >>> series.add(come, left, np.array([0.4, 1.0]), np.zeros(2, dtype=np.int32))
    >>> series.queues().tolist(), series.utilisation().tolist()
    ([[1], [0]], [[0.9], [0.5]])
    """

    def __init__(self, instances: int, width: float) -> None:
        self.width = width
        self._came = np.zeros((SLICES, instances), dtype=np.int64)
        self._left = np.zeros((SLICES, instances), dtype=np.int64)
        self._busy = np.zeros((SLICES, instances))
        self._last = 0.0

    def add(
        self,
        came: NDArray[np.float64],
        left: NDArray[np.float64],
        busy: NDArray[np.float64],
        targets: NDArray[np.int32],
    ) -> None:
        """Count tuples by when they came and left, and the time that they were served between."""
        if came.size == 0:
            return
        self._last = max(self._last, float(left.max()))
        while self._slices > SLICES:
            self.width *= 2
            for counts in (self._came, self._left, self._busy):
                counts[: SLICES // 2] = counts[::2] + counts[1::2]
                counts[SLICES // 2 :] = 0
        tally(came, left, busy, targets, self.width, self._came, self._left, self._busy)

    @property
    def _slices(self) -> int:
        """Slices up to the last departure."""
        return 1 + int(self._last / self.width)

    @property
    def times(self) -> NDArray[np.float64]:
        """When each slice ends."""
        times: NDArray[np.float64] = np.arange(1.0, self._slices + 1.0) * self.width
        return times

    @property
    def loads(self) -> NDArray[np.int64]:
        """Tuples of each instance."""
        loads: NDArray[np.int64] = self._came.sum(axis=0)
        return loads

    def came(self) -> NDArray[np.int64]:
        """Return the tuples that came to each instance in each slice."""
        return self._came[: self._slices].copy()

    def completed(self) -> NDArray[np.int64]:
        """Return the tuples that left in each slice."""
        completed: NDArray[np.int64] = self._left[: self._slices].sum(axis=1)
        return completed

    def queues(self) -> NDArray[np.int64]:
        """Return the tuples at each instance at the end of each slice."""
        queues: NDArray[np.int64] = np.cumsum(self._came - self._left, axis=0)[: self._slices]
        return queues

    def utilisation(self) -> NDArray[np.float64]:
        """Return the part of each slice that each instance was busy."""
        return self._busy[: self._slices] / self.width
