"""Find the least loaded instance, or the least loaded of some, without looking at all of them.

Loads grow by one. So it is enough to know, in a bit for each instance, which ones are above the
least load and which ones are exactly one above it; a tuple changes one bit of each, without a
branch. Only when every instance is above the least load are the loads looked at again. After m
tuples on n instances that has happened m / n times at the most: O(1) a tuple, amortised.

A set of instances is a row of bits too, so its least loaded member is found 64 instances at a time;
only if none is near the least load are the members looked at one by one. Of equal loads the first
instance is taken.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.kernel import kernel, lowest_bit

LEAST, ABOVE, WORD = 0, 1, 2
"""Places in `Levels.scalars`: the least load, how many instances are above it, and the first word
of `above` that may have one which is not."""

_ONE, _SIX, _WORD = np.uint64(1), np.uint64(6), np.uint64(63)


class Levels(NamedTuple):
    """Which instances are above the least load, and which are above it by one. Starts as zeros."""

    above: NDArray[np.uint64]
    by_one: NDArray[np.uint64]
    scalars: NDArray[np.int64]


class Sets(NamedTuple):
    """Sets of instances, a row of bits each, and their sizes."""

    bits: NDArray[np.uint64]
    sizes: NDArray[np.int32]


def new_levels(instances: int) -> Levels:
    """Return the levels of loads that are all 0."""
    words = (instances + 63) // 64
    return Levels(
        np.zeros(words, dtype=np.uint64),
        np.zeros(words, dtype=np.uint64),
        np.zeros(3, dtype=np.int64),
    )


def new_sets(rows: int, instances: int) -> Sets:
    """Return empty sets."""
    return Sets(
        np.zeros((rows, (instances + 63) // 64), dtype=np.uint64),
        np.zeros(rows, dtype=np.int32),
    )


@kernel
def send(loads: NDArray[np.int64], levels: Levels, instance: int) -> None:
    """Count one tuple of an instance."""
    above, by_one, scalars = levels
    loads[instance] += 1
    word = np.uint64(instance) >> _SIX
    bit = _ONE << (np.uint64(instance) & _WORD)
    was_least = ~above[word] & bit
    by_one[word] = (by_one[word] & ~bit) | was_least
    above[word] |= bit
    scalars[ABOVE] += was_least != 0
    if scalars[ABOVE] == loads.size:
        _raise(loads, levels)


@kernel
def _raise(loads: NDArray[np.int64], levels: Levels) -> None:
    """Go to the next least load, now that no instance is left at the old one."""
    above, by_one, scalars = levels
    scalars[LEAST] += 1
    scalars[ABOVE] = 0
    scalars[WORD] = 0
    for word in range(above.size):
        above[word] = ~by_one[word]
        by_one[word] = 0
    for instance in range(loads.size):
        higher = loads[instance] - scalars[LEAST]
        scalars[ABOVE] += higher > 0
        if higher == 1:
            by_one[instance >> 6] |= _ONE << (np.uint64(instance) & _WORD)


@kernel
def look_anew(loads: NDArray[np.int64], levels: Levels) -> None:
    """Have the levels of loads that are there already."""
    above, by_one, scalars = levels
    for word in range(above.size):
        above[word] = 0
        by_one[word] = 0
    scalars[LEAST], scalars[ABOVE], scalars[WORD] = loads[0], 0, 0
    for instance in range(loads.size):
        scalars[LEAST] = min(scalars[LEAST], loads[instance])
    for instance in range(loads.size):
        higher = loads[instance] - scalars[LEAST]
        bit = _ONE << (np.uint64(instance) & _WORD)
        if higher > 0:
            above[instance >> 6] |= bit
            scalars[ABOVE] += 1
        if higher == 1:
            by_one[instance >> 6] |= bit


@kernel
def least_loaded(levels: Levels) -> int:
    """Return the first of the least loaded instances."""
    above, _, scalars = levels
    # Until the least load rises no instance comes back to it, so the search never goes back.
    while ~above[scalars[WORD]] == 0:
        scalars[WORD] += 1
    return int((scalars[WORD] << 6) + lowest_bit(~above[scalars[WORD]]))


@kernel
def least_of(sets: Sets, row: int, loads: NDArray[np.int64], levels: Levels) -> int:
    """Return the first of the least loaded members of a set that is not empty."""
    bits, above, by_one = sets.bits, levels.above, levels.by_one
    for word in range(above.size):
        least = bits[row, word] & ~above[word]
        if least:
            return int((word << 6) + lowest_bit(least))
    for word in range(above.size):
        least = bits[row, word] & by_one[word]
        if least:
            return int((word << 6) + lowest_bit(least))
    best = np.int64(-1)
    for word in range(above.size):
        rest = bits[row, word]
        while rest:
            member = (word << 6) + lowest_bit(rest)
            if best < 0 or loads[member] < loads[best]:
                best = np.int64(member)
            rest &= rest - _ONE
    return int(best)


@kernel
def include(sets: Sets, row: int, instance: int) -> None:
    """Add an instance that the set does not have yet."""
    sets.bits[row, instance >> 6] |= _ONE << (np.uint64(instance) & _WORD)
    sets.sizes[row] += 1


@kernel
def clear(sets: Sets, row: int) -> None:
    """Empty a set."""
    for word in range(sets.bits.shape[1]):
        sets.bits[row, word] = 0
    sets.sizes[row] = 0
