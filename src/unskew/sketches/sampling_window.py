"""The sampling window: the last keys of a stream, and how often each of them is among them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.kernel import kernel
from unskew.parameters import whole_number
from unskew.sketches.slots import Slots, empty_index, find, remove, slot_type

OLDEST, FILLED, FREE = 0, 1, 2
"""Places in `Window.scalars`: where the oldest tuple lies in the ring, tuples, slots in `free`."""


class Window(NamedTuple):
    """The arrays of one window; kernels pass them on, snapshots copy them.

    Each distinct key has a slot while it is in the window; `ring` holds the slot of each tuple,
    `free` the slots that no key has.
    """

    places: Slots
    keys: NDArray[np.uint64]
    counts: NDArray[np.int32]
    ring: Slots
    free: Slots
    scalars: NDArray[np.int64]


def new_window(length: int) -> Window:
    """Return the arrays of an empty window."""
    return Window(
        empty_index(length),
        np.zeros(length, dtype=np.uint64),
        np.zeros(length, dtype=np.int32),
        np.zeros(length, dtype=slot_type(length)),
        np.arange(length - 1, -1, -1, dtype=slot_type(length)),
        np.array([0, 0, length], dtype=np.int64),
    )


class SamplingWindow:
    """Hold the last `length` keys of a stream and count each of them, O(1) a tuple.

    Memory is bounded by the length, whatever the number of keys: only what is in the window is
    stored, 32 to 52 bytes a place, more from 32,768 on.

    Parameters
    ----------
    length : int
        Tuples to hold, at least 1.

    Examples
    --------
    >>> window = SamplingWindow(length=3)
    >>> [window.slide(key) for key in (7, 7, 8, 7, 9)]
    [1, 2, 1, 2, 1]
    >>> window.counts()
    {8: 1, 7: 1, 9: 1}

    References
    ----------
    Pd-Stream, Section V-B. The paper scans the window for each tuple; a count per key spares that.
    """

    def __init__(self, length: int) -> None:
        self.length = whole_number("length", length, least=1, most=2**30)
        self.state = new_window(self.length)

    def slide(self, key: int) -> int:
        """Take in one key hash and return how often the window holds it then."""
        make_room(self.state, self.length)
        return int(self.state.counts[enter(self.state, np.uint64(key))])

    def counts(self) -> dict[int, int]:
        """Return how often each key is in the window, oldest key first."""
        oldest, filled = self.state.scalars[OLDEST], self.state.scalars[FILLED]
        places = (oldest + np.arange(filled)) % self.length
        slots = dict.fromkeys(self.state.ring[places].tolist())
        return {int(self.state.keys[slot]): int(self.state.counts[slot]) for slot in slots}


@kernel
def make_room(window: Window, length: int) -> int:
    """Let the oldest tuple go if the window holds `length` of them or more.

    Returns the slot of its key if that has left the window with it, else -1.
    """
    places, keys, counts, ring, free, scalars = window
    if scalars[FILLED] < length:
        return -1
    slot = np.int64(ring[scalars[OLDEST]])
    scalars[OLDEST] += 1
    if scalars[OLDEST] == ring.size:
        scalars[OLDEST] = 0
    scalars[FILLED] -= 1
    counts[slot] -= 1
    if counts[slot] > 0:
        return -1
    remove(places, keys, find(places, keys, keys[slot]))
    free[scalars[FREE]] = slot
    scalars[FREE] += 1
    return int(slot)


@kernel
def enter(window: Window, key: np.uint64) -> int:
    """Take in one tuple and return the slot of its key; there must be room."""
    places, keys, counts, ring, free, scalars = window
    place = find(places, keys, key)
    if places[place] == 0:
        scalars[FREE] -= 1
        slot = np.int64(free[scalars[FREE]])
        places[place] = slot + 1
        keys[slot] = key
    else:
        slot = np.int64(places[place]) - 1
    counts[slot] += 1
    newest = scalars[OLDEST] + scalars[FILLED]
    if newest >= ring.size:
        newest -= ring.size
    ring[newest] = slot
    scalars[FILLED] += 1
    return int(slot)
