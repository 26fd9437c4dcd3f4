"""Cardinality-aware grouping: of two choices, the one that knows the key."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.errors import BadParameter
from unskew.grouping.base import Grouping
from unskew.grouping.choices import home_of, key_bits, second_of
from unskew.kernel import kernel
from unskew.parameters import whole_number

_WAYS = 4


class CardinalityAware(Grouping):
    """Prefer, of the two choices of a key, the one that has seen it; else the less loaded.

    So a key stays where its first tuple went: balance over the keys, not over hot ones. The paper
    remembers every key; here only the latest are kept, `remembered` of them, and a forgotten key
    chooses anew, so memory is bounded and a key is on two instances at most. O(1) a tuple.

    Parameters
    ----------
    instances, seed, source
        As of `Grouping`.
    remembered : int, default 4096
        Keys to remember, a multiple of 4; 8 bytes each.

    Examples
    --------
    >>> CardinalityAware(4).route(np.array([9, 9, 9], dtype=np.uint64)).tolist()
    [3, 3, 3]
    """

    name: ClassVar[str] = "cardinality-aware"
    reference: ClassVar[str] = "cAM: Katsipoulakis et al., VLDB 2017"

    def __init__(
        self, instances: int, *, seed: int = 0, source: int = 0, remembered: int = 4096
    ) -> None:
        super().__init__(instances, seed=seed, source=source)
        self.remembered = whole_number("remembered", remembered, least=_WAYS, most=2**30)
        if self.remembered % _WAYS:
            raise BadParameter(f"remembered must be a multiple of {_WAYS}, not {remembered}")
        sets = self.remembered // _WAYS
        self._state["seen"] = self._seen = np.zeros((sets, _WAYS), dtype=np.uint64)

    @property
    def fan_out(self) -> int:
        """The two choices."""
        return min(2, self.instances)

    def _route(self, keys: NDArray[np.uint64], chosen: NDArray[np.int32]) -> None:
        _kernel(keys, chosen, self._loads, self._seen, self._key_seed)


@kernel
def _kernel(
    keys: NDArray[np.uint64],
    chosen: NDArray[np.int32],
    loads: NDArray[np.int64],
    seen: NDArray[np.uint64],
    seed: np.uint64,
) -> None:
    one = np.uint64(1)
    for i in range(keys.size):
        bits = key_bits(keys[i], seed)
        home = home_of(bits, loads.size)
        second = second_of(bits, loads.size)
        # A memory is the mixed key, a bijection, with its lowest bit telling which choice it was:
        # two keys that differ in that bit alone share it. The set is chosen by the lower half.
        row = seen[np.int64(bits & np.uint64(0xFFFFFFFF)) % seen.shape[0]]
        memory = bits | one
        way = 0
        while way < row.size - 1 and row[way] | one != memory:
            way += 1
        known = row[way] != 0 and row[way] | one == memory
        use_second = row[way] != memory if known else loads[second] < loads[home]
        # The latest key comes first, the one used least lately goes.
        for j in range(way, 0, -1):
            row[j] = row[j - 1]
        row[0] = memory - one if use_second else memory
        place = second if use_second else home
        loads[place] += 1
        chosen[i] = place
