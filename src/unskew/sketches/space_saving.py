"""SpaceSaving: the most frequent keys of a stream, in bounded memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.kernel import kernel
from unskew.mixing import counter_bits
from unskew.parameters import key_hashes, whole_number
from unskew.sketches.slots import Slots, empty_index, find, remove

TOTAL, USED, LEAST, NEXT, CHANCES = 0, 1, 2, 3, 4
"""Places in `Counters.scalars`: tuples seen, slots in use, least count, slot to look at next,
random numbers drawn."""


class Counters(NamedTuple):
    """The arrays of one sketch; kernels pass them on, snapshots copy them."""

    places: Slots
    keys: NDArray[np.uint64]
    counts: NDArray[np.int64]
    errors: NDArray[np.int64]
    scalars: NDArray[np.int64]


def new_counters(slots: int) -> Counters:
    """Return the arrays of an empty sketch."""
    return Counters(
        empty_index(slots),
        np.zeros(slots, dtype=np.uint64),
        np.zeros(slots, dtype=np.int64),
        np.zeros(slots, dtype=np.int64),
        np.zeros(5, dtype=np.int64),
    )


class SpaceSaving:
    """Count the most frequent keys of a stream with a fixed number of counters.

    A key that has no counter takes over the smallest one and inherits its count, as its error. So
    the count of a kept key is never too low and at most `error` too high, no error is above
    messages / counters, and every key with a larger share than 1 / counters is kept. O(1) a tuple,
    amortised: counts only grow, so the search for the smallest goes on where it stopped, at most
    once round per step of the least count. Of equal counters the first slot is taken over.

    Parameters
    ----------
    counters : int
        Keys to keep, at least 1; 40 to 56 bytes each, more from 32,768 on.

    Examples
    --------
    >>> sketch = SpaceSaving(counters=2)
    >>> sketch.add(np.array([5, 5, 5, 7, 8], dtype=np.uint64))
    >>> sketch.top()
    [(5, 3, 0), (8, 2, 1)]

    References
    ----------
    Metwally, Agrawal, El Abbadi: Efficient computation of frequent and top-k elements in data
    streams, ICDT 2005. Its linked summary of buckets is an array with a cursor here.
    """

    def __init__(self, counters: int) -> None:
        self.counters = whole_number("counters", counters, least=1, most=2**30)
        self.state = new_counters(self.counters)

    def add(self, keys: NDArray[np.uint64]) -> None:
        """Count every tuple of an array of key hashes."""
        _observe_all(self.state, key_hashes("add", keys))

    @property
    def messages(self) -> int:
        """Tuples counted so far, halved as often as `halve` was called."""
        return int(self.state.scalars[TOTAL])

    def top(self) -> list[tuple[int, int, int]]:
        """Return (key, count, error) of every kept key, the largest count first."""
        used = self.state.scalars[USED]
        order = np.argsort(-self.state.counts[:used], kind="stable")
        columns = (self.state.keys, self.state.counts, self.state.errors)
        return [
            (int(key), int(count), int(error))
            for key, count, error in zip(*(column[order] for column in columns), strict=True)
        ]

    def halve(self) -> None:
        """Halve every count and error: what was frequent long ago fades."""
        halve(self.state)


@kernel
def observe(counters: Counters, key: np.uint64) -> int:
    """Count one tuple and return the slot of its key."""
    slot = count(counters, key)
    return slot if slot >= 0 else take_over(counters, key, smallest(counters))


@kernel
def admit_by_chance(counters: Counters, key: np.uint64, seed: np.uint64) -> int:
    """Return the slot of a key that `count` found no slot for, or -1 if it is not let in.

    The key takes over the smallest counter, of count c, with a chance of 1 / (c + 1) only, drawn by
    `seed` and the number of chances so far: rare keys, of which there are many, then seldom push
    each other out, and few counts are too high (randomised admission, Ben Basat et al., INFOCOM
    2017). The errors are no bounds then.
    """
    slot = smallest(counters)
    counters.scalars[CHANCES] += 1
    bits = counter_bits(seed, np.uint64(counters.scalars[CHANCES]))
    if (bits >> np.uint64(32)) * np.uint64(counters.counts[slot] + 1) >= np.uint64(1 << 32):
        return -1
    return take_over(counters, key, slot)


@kernel
def count(counters: Counters, key: np.uint64) -> int:
    """Count one tuple and return the slot of its key, or -1 if all slots belong to others."""
    places, keys, counts, errors, scalars = counters
    scalars[TOTAL] += 1
    place = find(places, keys, key)
    if places[place] != 0:
        slot = np.int64(places[place]) - 1
        counts[slot] += 1
    elif scalars[USED] < counts.size:
        slot = scalars[USED]
        scalars[USED] += 1
        places[place] = slot + 1
        keys[slot] = key
        counts[slot] = 1
        errors[slot] = 0
    else:
        slot = np.int64(-1)
    return int(slot)


@kernel
def smallest(counters: Counters) -> int:
    """Return the first slot of the least count; only for a sketch whose slots are all in use."""
    counts, scalars = counters.counts, counters.scalars
    slot = scalars[NEXT]
    while counts[slot] > scalars[LEAST]:
        slot += 1
        if slot == counts.size:
            slot = 0
            scalars[LEAST] += 1
    scalars[NEXT] = slot
    return int(slot)


@kernel
def take_over(counters: Counters, key: np.uint64, slot: int) -> int:
    """Give a slot to another key, which inherits its count as its error."""
    places, keys, counts, errors, _ = counters
    remove(places, keys, find(places, keys, keys[slot]))
    places[find(places, keys, key)] = slot + 1
    keys[slot] = key
    errors[slot] = counts[slot]
    counts[slot] += 1
    return slot


@kernel
def halve(counters: Counters) -> None:
    """Halve every count, every error and the total."""
    _, _, counts, errors, scalars = counters
    for slot in range(scalars[USED]):
        counts[slot] >>= 1
        errors[slot] >>= 1
    scalars[TOTAL] >>= 1
    scalars[LEAST] >>= 1
    scalars[NEXT] = 0


@kernel
def restart(counters: Counters) -> None:
    """Count from 0 again; the keys keep their slots and are the first to be replaced."""
    _, _, counts, errors, scalars = counters
    counts[: scalars[USED]] = 0
    errors[: scalars[USED]] = 0
    scalars[TOTAL] = 0
    scalars[LEAST] = 0
    scalars[NEXT] = 0


@kernel
def _observe_all(counters: Counters, keys: NDArray[np.uint64]) -> None:
    for key in keys:
        observe(counters, key)
