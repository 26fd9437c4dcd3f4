"""The tuples that a windowed join keeps: how many of each side, in parts that can move."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.kernel import kernel
from unskew.mixing import counter_bits
from unskew.simulator.copies import Copies
from unskew.tally import KeyIndex

HOME = -1
"""What stands for an instance where tuples of a key are with its shard, wherever that is."""

_ROOM = 1 << 10


class Parts:
    """Number the parts: the tuples of a key that are with its shard, or at an instance.

    Examples
    --------
    >>> parts, keys = Parts(), np.array([7, 8, 7], dtype=np.uint64)
    >>> parts.home(keys).tolist(), parts.at(keys, np.array([0, 0, 1])).tolist()
    ([0, 1, 0], [2, 3, 4])
    >>> parts.keys.tolist(), parts.instances.tolist()
    ([7, 8, 7, 8, 7], [-1, -1, 0, 0, 1])
    """

    def __init__(self) -> None:
        self._index = KeyIndex()
        self._keys = np.empty(_ROOM, dtype=np.uint64)
        self._instances = np.empty(_ROOM, dtype=np.int32)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._index)

    @property
    def keys(self) -> NDArray[np.uint64]:
        """Key of each part."""
        return self._keys[: len(self)]

    @property
    def instances(self) -> NDArray[np.int32]:
        """Instance of each part, HOME for those that are with their shard."""
        return self._instances[: len(self)]

    def home(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the part of each key that goes with its shard."""
        return self._number(keys, keys, np.full(keys.size, HOME, dtype=np.int32))

    def at(
        self, keys: NDArray[np.uint64], instances: NDArray[np.signedinteger[Any]]
    ) -> NDArray[np.int64]:
        """Return the part of each key at an instance."""
        # One index numbers both: a part has a hash of its own, as if it were another key.
        names = np.empty_like(keys)
        _name_parts(keys, instances, names)
        return self._number(names, keys, instances)

    def _number(
        self,
        names: NDArray[np.uint64],
        keys: NDArray[np.uint64],
        instances: NDArray[np.signedinteger[Any]],
    ) -> NDArray[np.int64]:
        ids = self._index.ids(names).astype(np.int64)
        if len(self) > self._keys.size:
            self._keys = np.resize(self._keys, 2 * len(self))
            self._instances = np.resize(self._instances, 2 * len(self))
        self._keys[ids] = keys
        self._instances[ids] = instances
        return ids


class Stored:
    """Count the tuples of each side and part that are in the window.

    A tuple that comes at t meets those that came at t - window or later, both ends included. They
    leave in the order in which they came, so that each costs O(1), whatever the window.

    Parameters
    ----------
    window : float
        Seconds.

    Examples
    --------
    >>> stored, once = Stored(window=1.0), np.zeros(3, dtype=np.int64)
    >>> rows, kept = np.arange(3), np.ones(3, dtype=bool)
    >>> copies = Copies(rows, once.astype(np.int32), once, once - 1, kept)
    >>> times, sides = np.array([0.0, 1.0, 1.5]), np.array([0, 1, 1], dtype=np.int8)
    >>> stored.meet(times, sides, copies, parts=1).tolist(), stored.counts.tolist()
    ([0, 1, 0], [[0], [2]])
    """

    def __init__(self, window: float) -> None:
        self.window = window
        self._counts = np.zeros((2, _ROOM), dtype=np.int64)
        self._parts = 0
        # The first and the one after the last tuple in the window.
        self._ends = np.zeros(2, dtype=np.int64)
        self._times = np.empty(_ROOM)
        self._sides = np.empty(_ROOM, dtype=np.int8)
        self._places = np.empty(_ROOM, dtype=np.int64)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Tuples of each side and part."""
        return self._counts[:, : self._parts]

    def meet(
        self,
        times: NDArray[np.float64],
        sides: NDArray[np.int8],
        copies: Copies,
        parts: int,
    ) -> NDArray[np.int64]:
        """Let tuples look for partners, in order, and keep one copy of each.

        Parameters
        ----------
        times, sides : array
            Of each tuple.
        copies : Copies
            Where they look.
        parts : int
            How many there are.

        Returns
        -------
        array of int64
            Partners that each copy found.
        """
        self.make_room(parts)
        self._make_room_for(times.size)
        pairs = np.empty(copies.rows.size, dtype=np.int64)
        _meet(
            *(times, sides, copies.rows, copies.parts, copies.also, copies.is_kept),
            *(self.window, self._counts, self._ends, self._times, self._sides, self._places),
            pairs,
        )
        return pairs

    def expire(self, now: float) -> None:
        """Forget what is not in the window any more."""
        _expire(
            *(now - self.window, self._counts, self._ends, self._times, self._sides),
            self._places,
        )

    def merge(self, gone: NDArray[np.int64], into: NDArray[np.int64]) -> NDArray[np.int64]:
        """Put the tuples of parts into others; return how many those were."""
        moved: NDArray[np.int64] = self._counts[:, gone].sum(axis=0)
        for side in (0, 1):
            np.add.at(self._counts[side], into, self._counts[side, gone])
        self._counts[:, gone] = 0
        names = np.arange(self._counts.shape[1])
        names[gone] = into
        first, last = self._ends
        self._places[first:last] = names[self._places[first:last]]
        return moved

    def make_room(self, parts: int) -> None:
        """Have counts for so many parts."""
        self._parts = max(self._parts, parts)
        if self._parts > self._counts.shape[1]:
            wider = np.zeros((2, 2 * self._parts), dtype=np.int64)
            wider[:, : self._counts.shape[1]] = self._counts
            self._counts = wider

    def _make_room_for(self, tuples: int) -> None:
        first, last = self._ends.tolist()
        if last + tuples > self._times.size:
            # Twice what is needed, so that this copying is rare.
            room = 2 * (last - first + tuples)
            for name in ("_times", "_sides", "_places"):
                old = getattr(self, name)
                new = np.empty(room, dtype=old.dtype)
                new[: last - first] = old[first:last]
                setattr(self, name, new)
            self._ends[:] = 0, last - first


@kernel
def _meet(
    times: NDArray[np.float64],
    sides: NDArray[np.int8],
    rows: NDArray[np.int64],
    parts: NDArray[np.int64],
    also: NDArray[np.int64],
    is_kept: NDArray[np.bool_],
    window: float,
    counts: NDArray[np.int64],
    ends: NDArray[np.int64],
    kept_times: NDArray[np.float64],
    kept_sides: NDArray[np.int8],
    places: NDArray[np.int64],
    pairs: NDArray[np.int64],
) -> None:
    for i in range(rows.size):
        now, side = times[rows[i]], sides[rows[i]]
        _expire(now - window, counts, ends, kept_times, kept_sides, places)
        pairs[i] = counts[1 - side, parts[i]]
        if also[i] >= 0:
            pairs[i] += counts[1 - side, also[i]]
        if is_kept[i]:
            counts[side, parts[i]] += 1
            kept_times[ends[1]] = now
            kept_sides[ends[1]] = side
            places[ends[1]] = parts[i]
            ends[1] += 1


@kernel
def _expire(
    before: float,
    counts: NDArray[np.int64],
    ends: NDArray[np.int64],
    times: NDArray[np.float64],
    sides: NDArray[np.int8],
    places: NDArray[np.int64],
) -> None:
    while ends[0] < ends[1] and times[ends[0]] < before:
        counts[sides[ends[0]], places[ends[0]]] -= 1
        ends[0] += 1


@kernel
def _name_parts(
    keys: NDArray[np.uint64],
    instances: NDArray[np.signedinteger[Any]],
    names: NDArray[np.uint64],
) -> None:
    for i in range(keys.size):
        names[i] = counter_bits(keys[i], np.uint64(instances[i] + 1))
