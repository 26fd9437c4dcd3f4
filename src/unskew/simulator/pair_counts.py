"""Which keys of a stage are followed by which of another: counted at every instance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.balance import KeyPairs
from unskew.sketches.pair_sketch import PairSketch


class PairCounts:
    """Count pairs of keys at each instance by itself, in bounded memory.

    Parameters
    ----------
    instances, counters : int
        How many there are, and pairs that each may keep.

    Examples
    --------
    >>> pairs, keys = PairCounts(instances=2, counters=8), np.array([1, 1, 2], dtype=np.uint64)
    >>> pairs.add(np.array([0, 1, 1], dtype=np.int32), keys, keys + np.uint64(6))
    >>> found = pairs.counted()
    >>> found.first.tolist(), found.second.tolist(), found.counts.tolist()
    ([1, 2], [7, 8], [2, 1])
    """

    def __init__(self, instances: int, counters: int) -> None:
        self._sketches = [PairSketch(counters) for _ in range(instances)]

    def add(
        self,
        instances: NDArray[np.int32],
        first: NDArray[np.uint64],
        second: NDArray[np.uint64],
    ) -> None:
        """Count tuples that these instances had, each with its two keys."""
        for number, sketch in enumerate(self._sketches):
            own = instances == number
            sketch.add(first[own], second[own])

    def counted(self) -> KeyPairs:
        """Return the pairs that instances kept, added up."""
        return KeyPairs.together([KeyPairs(*sketch.counted()) for sketch in self._sketches])
