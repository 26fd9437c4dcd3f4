"""The pairs of keys that occur together most often, in bounded memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.kernel import kernel
from unskew.mixing import mix
from unskew.sketches.space_saving import USED, Counters, new_counters, observe


class PairSketch:
    """Count pairs of keys as `SpaceSaving` counts keys: by a hash of the two.

    Parameters
    ----------
    counters : int
        Pairs to keep; about 70 bytes each.

    Examples
    --------
    >>> sketch = PairSketch(counters=2)
    >>> pairs = np.array([[1, 1, 2, 1], [7, 7, 8, 9]], dtype=np.uint64)
    >>> sketch.add(*pairs)
    >>> sketch.top()
    [(1, 7, 2), (1, 9, 2)]
    """

    def __init__(self, counters: int) -> None:
        self._counters = new_counters(counters)
        self._keys = np.zeros((2, counters), dtype=np.uint64)

    def add(self, first: NDArray[np.uint64], second: NDArray[np.uint64]) -> None:
        """Count a pair for each two keys in the same place."""
        _observe_pairs(self._counters, self._keys[0], self._keys[1], first, second)

    def counted(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]]:
        """Return the kept pairs and their counts, which are never too low."""
        used = int(self._counters.scalars[USED])
        return self._keys[0, :used], self._keys[1, :used], self._counters.counts[:used]

    def top(self) -> list[tuple[int, int, int]]:
        """Return (first, second, count) of every kept pair, the largest count first."""
        first, second, counts = self.counted()
        order = np.lexsort((second, first, -counts))
        columns = (each[order].tolist() for each in (first, second, counts))
        return list(zip(*columns, strict=True))


@kernel
def _observe_pairs(
    counters: Counters,
    firsts: NDArray[np.uint64],
    seconds: NDArray[np.uint64],
    first: NDArray[np.uint64],
    second: NDArray[np.uint64],
) -> None:
    for i in range(first.size):
        # Not symmetric: the two are keys of different stages.
        slot = observe(counters, mix(first[i]) + second[i])
        firsts[slot] = first[i]
        seconds[slot] = second[i]
