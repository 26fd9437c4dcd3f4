"""The power of two choices: two random instances for each tuple, whatever its key."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.grouping.base import Grouping
from unskew.grouping.choices import home_of, second_of
from unskew.kernel import kernel
from unskew.mixing import counter_bits


class TwoChoices(Grouping):
    """Draw two instances at random for each tuple and take the less loaded.

    The largest load is above the mean by O(log log n) tuples for n instances with high probability,
    and every key ends up everywhere. O(1) a tuple.

    Parameters
    ----------
    instances, seed, source
        As of `Grouping`; each source draws other instances.

    Examples
    --------
    >>> router = TwoChoices(4)
    >>> np.ptp(np.bincount(router.route(np.zeros(1000, dtype=np.uint64)))) < 10
    np.True_
    """

    name: ClassVar[str] = "two-choices"
    reference: ClassVar[str] = "PoTC: Mitzenmacher, TPDS 2001; Consistent Grouping, baseline"

    def __init__(self, instances: int, *, seed: int = 0, source: int = 0) -> None:
        super().__init__(instances, seed=seed, source=source)
        self._state["drawn"] = self._drawn = np.zeros(1, dtype=np.int64)

    @property
    def fan_out(self) -> int:
        """Every instance."""
        return self.instances

    def _route(self, keys: NDArray[np.uint64], chosen: NDArray[np.int32]) -> None:
        _kernel(chosen, self._loads, self._drawn, self._chance_seed)


@kernel
def _kernel(
    chosen: NDArray[np.int32],
    loads: NDArray[np.int64],
    drawn: NDArray[np.int64],
    seed: np.uint64,
) -> None:
    for i in range(chosen.size):
        drawn[0] += 1
        bits = counter_bits(seed, np.uint64(drawn[0]))
        place = home_of(bits, loads.size)
        other = second_of(bits, loads.size)
        if loads[other] < loads[place]:
            place = other
        loads[place] += 1
        chosen[i] = place
