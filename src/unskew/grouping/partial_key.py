"""Partial key grouping: the less loaded of two choices."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.grouping.base import Grouping
from unskew.grouping.choices import home_of, key_bits, second_of
from unskew.kernel import kernel


class PartialKey(Grouping):
    """Send each tuple to the less loaded of the two choices of its key.

    A key is on two instances at most, so the imbalance is at least p n / 2 - 1 for the share p of
    the hottest key and n instances. O(1) a tuple, no state but the loads. The two choices differ.

    Parameters
    ----------
    instances, seed, source
        As of `Grouping`.

    Examples
    --------
    >>> PartialKey(4).route(np.array([9, 9, 9], dtype=np.uint64)).tolist()
    [3, 1, 3]
    """

    name: ClassVar[str] = "partial-key"
    reference: ClassVar[str] = "PKG: Nasir et al., ICDE 2015"

    @property
    def fan_out(self) -> int:
        """The two choices."""
        return min(2, self.instances)

    def _route(self, keys: NDArray[np.uint64], chosen: NDArray[np.int32]) -> None:
        _kernel(keys, chosen, self._loads, self._key_seed)


@kernel
def _kernel(
    keys: NDArray[np.uint64],
    chosen: NDArray[np.int32],
    loads: NDArray[np.int64],
    seed: np.uint64,
) -> None:
    for i in range(keys.size):
        bits = key_bits(keys[i], seed)
        place = home_of(bits, loads.size)
        other = second_of(bits, loads.size)
        if loads[other] < loads[place]:
            place = other
        loads[place] += 1
        chosen[i] = place
