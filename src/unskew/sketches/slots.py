"""Find the slot of a key: the hash index that the sketches share, in numba.

A sketch keeps at most as many keys as it has slots. The index is an array of a power of two, eight
times the slots or more so that the first place is nearly always the right one. A place holds a slot
number plus one, 0 is empty, and keys are searched linearly from the place that their mixed bits
name. Removal closes the gap, so that no tombstones pile up. Places are unsigned: numba takes a
signed index for one that may count from the end, and checks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.kernel import kernel

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_ONE = np.uint64(1)


Slots = NDArray[np.signedinteger[Any]]
"""An array of slot numbers, as narrow as their number allows: a router should fit the cache."""


def slot_type(slots: int) -> type[np.signedinteger[Any]]:
    """Return the type of an array that holds numbers up to `slots`.

    Examples
    --------
    >>> slot_type(1000), slot_type(40_000)
    (<class 'numpy.int16'>, <class 'numpy.int32'>)
    """
    return np.int16 if slots < 2**15 else np.int32


def empty_index(slots: int) -> Slots:
    """Return an index for this many slots, all places empty.

    Examples
    --------
    >>> empty_index(5).size
    64
    """
    return np.zeros(1 << max(2, (8 * slots - 1).bit_length()), dtype=slot_type(slots))


@kernel
def _start(key: np.uint64) -> np.uint64:
    """Return 32 bits that depend on all bits of the key, also where it is no hash."""
    return (key * _GOLDEN) >> _HALF


@kernel
def find(index: Slots, keys: NDArray[np.uint64], key: np.uint64) -> np.uint64:
    """Return the place of a key in the index, or the empty place where it belongs."""
    last = np.uint64(index.size - 1)
    place = _start(key) & last
    while index[place] != 0 and keys[np.uint64(index[place] - 1)] != key:
        place = (place + _ONE) & last
    return place


@kernel
def remove(index: Slots, keys: NDArray[np.uint64], gap: np.uint64) -> None:
    """Empty a place, and move up the keys behind it that would no longer be found."""
    last = np.uint64(index.size - 1)
    place = gap
    while True:
        place = (place + _ONE) & last
        if index[place] == 0:
            break
        wanted = _start(keys[np.uint64(index[place] - 1)]) & last
        if (place - wanted) & last >= (place - gap) & last:
            index[gap] = index[place]
            gap = place
    index[gap] = 0
