"""Shuffle grouping: round robin, whatever the key."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.grouping.base import Grouping
from unskew.kernel import kernel


class Shuffle(Grouping):
    """Send tuples to all instances in turn: perfect balance, every key everywhere.

    No two instances differ by more than one tuple per source. O(1) a tuple.

    Parameters
    ----------
    instances, seed, source
        As of `Grouping`; each source begins at another instance.

    Examples
    --------
    >>> Shuffle(3).route(np.array([9, 9, 9, 9], dtype=np.uint64)).tolist()
    [0, 1, 2, 0]
    """

    name: ClassVar[str] = "shuffle"
    reference: ClassVar[str] = "Consistent Grouping, baseline SG"

    def __init__(self, instances: int, *, seed: int = 0, source: int = 0) -> None:
        super().__init__(instances, seed=seed, source=source)
        self._first = self._place_of_source()

    @property
    def fan_out(self) -> int:
        """Every instance."""
        return self.instances

    def _route(self, keys: NDArray[np.uint64], chosen: NDArray[np.int32]) -> None:
        _kernel(chosen, self._loads)


@kernel
def _kernel(chosen: NDArray[np.int32], loads: NDArray[np.int64]) -> None:
    # Round robin leaves the loads non-increasing: the turn is where they step down.
    place = 0
    while place < loads.size and loads[place] > loads[-1]:
        place += 1
    for i in range(chosen.size):
        if place == loads.size:
            place = 0
        loads[place] += 1
        chosen[i] = place
        place += 1
