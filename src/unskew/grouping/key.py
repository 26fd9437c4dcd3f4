"""Key grouping: one home for each key, as in Spark's hash partitioning."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.grouping.base import Grouping
from unskew.grouping.choices import home_of, key_bits
from unskew.kernel import kernel


class Key(Grouping):
    """Send every tuple of a key to the key's home: no key is split, hot keys overload their home.

    The imbalance is at least p n - 1 for the share p of the hottest key and n instances. O(1) a
    tuple, no state but the loads.

    Parameters
    ----------
    instances, seed, source
        As of `Grouping`.

    Examples
    --------
    >>> Key(4).route(np.array([9, 9, 9], dtype=np.uint64)).tolist()
    [3, 3, 3]
    """

    name: ClassVar[str] = "key"
    reference: ClassVar[str] = "Consistent Grouping, baseline KG; Spark's hash partitioning"

    @property
    def fan_out(self) -> int:
        """The home alone."""
        return 1

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
        home = home_of(key_bits(keys[i], seed), loads.size)
        loads[home] += 1
        chosen[i] = home
