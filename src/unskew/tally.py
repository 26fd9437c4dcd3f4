"""Count what a grouping did to a stream, exactly: loads, keys, and the keys of each instance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.errors import BadParameter
from unskew.kernel import compiled
from unskew.metrics import MOST_INSTANCES, imbalance, memory, replication_factor
from unskew.parameters import key_hashes, whole_number

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ONE = np.uint64(1)
_FIRST, _STEP = np.int64(0), np.int64(1)
_MOST_KEYS = 2**32 - 1


class KeyIndex:
    """Number the keys of a stream 0, 1, 2, ... in the order in which they first appear.

    Exact, with 40 to 80 bytes a key; 5 ns a tuple where few keys carry the stream, 100 ns where
    they do not fit the cache. Numbers stay the same as the stream goes on, however it is cut into
    calls.

    Examples
    --------
    >>> index = KeyIndex()
    >>> index.ids(np.array([70, 80, 70], dtype=np.uint64)).tolist()
    [0, 1, 0]
    >>> index.ids(np.array([90, 80], dtype=np.uint64)).tolist()
    [2, 1]
    >>> len(index), index.counts.tolist()
    (3, [2, 2, 1])
    """

    def __init__(self) -> None:
        # A slot is a key beside its number plus one, so that 0 is an empty slot and any key,
        # 0 included, can be told from it; both lie in one cache line.
        self._slots = np.zeros((1 << 10, 2), dtype=np.uint64)
        self._counts = np.zeros(1 << 9, dtype=np.int64)
        self._size = 0

    def __len__(self) -> int:
        """Return the number of distinct keys so far."""
        return self._size

    @property
    def counts(self) -> NDArray[np.int64]:
        """Tuples of each key so far, by its number."""
        return self._counts[: self._size].copy()

    def ids(self, keys: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Return the number of each key, giving the next one to a key that is new.

        Parameters
        ----------
        keys : array of uint64
            Hashes of the keys.
        """
        hashes = key_hashes("ids", keys)
        ids = np.empty(hashes.size, dtype=np.uint32)
        done = 0
        while True:
            done, self._size = _number(hashes, done, ids, self._slots, self._counts, self._size)
            if done == hashes.size:
                return ids
            self._grow()

    def _grow(self) -> None:
        room = 2 * self._counts.size
        if room > _MOST_KEYS:
            raise BadParameter(f"a KeyIndex holds at most {_MOST_KEYS} keys; tally a part of them")
        self._slots = _rehash(self._slots, 2 * room)
        counts = np.zeros(room, dtype=np.int64)
        counts[: self._size] = self._counts[: self._size]
        self._counts = counts


class KeyTally:
    """Count, for one routed stream, the tuples and the distinct keys of each instance.

    Exact. It holds one bit for each key and instance, and takes 3 to 30 ns a tuple at 128
    instances. Tuples of several sources go into one tally: a key then counts once per instance, as
    it should.

    Parameters
    ----------
    instances : int
        Number of instances, at least 1.

    Examples
    --------
    >>> tally = KeyTally(instances=3)
    >>> tally.add(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2], dtype=np.int32))
    >>> tally.loads.tolist(), tally.keys_per_instance.tolist(), tally.distinct_keys
    ([1, 2, 1], [1, 2, 1], 3)
    >>> round(tally.imbalance, 2), round(tally.replication_factor, 2), tally.memory_keys
    (0.5, 1.33, 4)
    """

    def __init__(self, instances: int) -> None:
        self.instances = whole_number("instances", instances, least=1, most=MOST_INSTANCES)
        self._loads = np.zeros(self.instances, dtype=np.int64)
        self._keys = np.zeros(self.instances, dtype=np.int64)
        self._held = np.zeros((0, (self.instances + 7) // 8), dtype=np.uint8)
        self._copies = np.zeros(0, dtype=np.int32)

    def add(
        self, key_ids: NDArray[np.uint32] | NDArray[np.int64], chosen: NDArray[np.int32]
    ) -> None:
        """Count tuples: the number of each tuple's key and the instance it went to.

        Parameters
        ----------
        key_ids : array of uint32 or int64
            Numbers of the keys, dense from 0, as `KeyIndex` gives them.
        chosen : array of int32
            Instances, as `route` of a grouping returns them.
        """
        ids, targets = key_ids, chosen
        if ids.dtype not in (np.uint32, np.int64) or ids.ndim != 1:
            raise BadParameter(
                f"key_ids must be one uint32 or int64 for each tuple, not {ids.ndim} dimension(s) "
                f"of {ids.dtype}; make them with KeyIndex"
            )
        if targets.dtype != np.int32 or targets.shape != ids.shape:
            raise BadParameter(
                f"chosen must be one int32 for each of the {ids.size} tuples, not "
                f"{targets.dtype} of shape {targets.shape}"
            )
        if ids.size == 0:
            return
        # Both are looked at before anything is counted: an error leaves the tally as it was.
        if int(targets.min()) < 0 or int(targets.max()) >= self.instances:
            outside = targets[(targets < 0) | (targets >= self.instances)][0]
            raise BadParameter(
                f"chosen has instance {outside}, outside 0 to {self.instances - 1}; give the tally "
                f"as many instances as the grouping"
            )
        if int(ids.min()) < 0 or int(ids.max()) > _MOST_KEYS:
            outside = ids[(ids < 0) | (ids > _MOST_KEYS)][0]
            raise BadParameter(
                f"key_ids must be from 0 to {_MOST_KEYS}, dense, not {outside}; make them with "
                f"KeyIndex"
            )
        self._make_room(int(ids.max()) + 1)
        _count(ids, targets, self._loads, self._keys, self._held, self._copies)

    @property
    def loads(self) -> NDArray[np.int64]:
        """Tuples of each instance."""
        return self._loads.copy()

    @property
    def keys_per_instance(self) -> NDArray[np.int64]:
        """Distinct keys of each instance."""
        return self._keys.copy()

    @property
    def distinct_keys(self) -> int:
        """Distinct keys of the whole stream."""
        return int(np.count_nonzero(self._copies))

    @property
    def imbalance(self) -> float:
        """Imbalance of the loads; see `unskew.metrics.imbalance`."""
        return imbalance(self._loads)

    @property
    def replication_factor(self) -> float:
        """Instances per key; see `unskew.metrics.replication_factor`."""
        return replication_factor(self._keys, self.distinct_keys)

    @property
    def memory_keys(self) -> int:
        """Keys held by all instances together; see `unskew.metrics.memory`."""
        return memory(self._keys)

    def _make_room(self, keys: int) -> None:
        if keys <= self._copies.size:
            return
        room = max(keys, 2 * self._copies.size, 1 << 10)
        held = np.zeros((room, self._held.shape[1]), dtype=np.uint8)
        held[: self._held.shape[0]] = self._held
        copies = np.zeros(room, dtype=np.int32)
        copies[: self._copies.size] = self._copies
        self._held, self._copies = held, copies


@compiled
def _place(key: np.uint64, slots: NDArray[np.uint64], shift: np.uint64) -> int:
    """Return the slot of a key, or the empty one where it belongs."""
    # Keys that are no hashes, such as 1, 2, 3 or multiples of 1024, are spread too: in the upper
    # bits of the product every bit of the key has arrived.
    slot = np.int64((key * _GOLDEN) >> shift)
    last = slots.shape[0] - 1
    while slots[slot, 1] != 0 and slots[slot, 0] != key:
        slot = slot + _STEP if slot < last else _FIRST
    return int(slot)


@compiled
def _upper_bits(slots: NDArray[np.uint64]) -> np.uint64:
    """Return the shift that leaves as many bits as it takes to number the slots, a power of 2."""
    shift = 64
    while slots.shape[0] >> (64 - shift) > 1:
        shift -= 1
    return np.uint64(shift)


@compiled
def _number(
    keys: NDArray[np.uint64],
    start: int,
    ids: NDArray[np.uint32],
    slots: NDArray[np.uint64],
    counts: NDArray[np.int64],
    size: int,
) -> tuple[int, int]:
    """Return how far it came, for lack of room for a new key, and the number of keys then."""
    shift = _upper_bits(slots)
    for i in range(start, keys.size):
        key = keys[i]
        slot = _place(key, slots, shift)
        if slots[slot, 1] == 0:
            if size == counts.size:
                return i, size
            size += 1
            slots[slot, 0] = key
            slots[slot, 1] = size
        number = slots[slot, 1] - _ONE
        ids[i] = number
        counts[number] += 1
    return keys.size, size


@compiled
def _rehash(slots: NDArray[np.uint64], capacity: int) -> NDArray[np.uint64]:
    """Return the same keys in a larger table."""
    larger = np.zeros((capacity, 2), dtype=np.uint64)
    shift = _upper_bits(larger)
    for i in range(slots.shape[0]):
        if slots[i, 1] != 0:
            slot = _place(slots[i, 0], larger, shift)
            larger[slot, 0] = slots[i, 0]
            larger[slot, 1] = slots[i, 1]
    return larger


@compiled
def _count(
    ids: NDArray[np.uint32] | NDArray[np.int64],
    chosen: NDArray[np.int32],
    loads: NDArray[np.int64],
    keys: NDArray[np.int64],
    held: NDArray[np.uint8],
    copies: NDArray[np.int32],
) -> None:
    """Count each tuple, and its key where it is the first on its instance."""
    for i in range(ids.size):
        key, instance = ids[i], chosen[i]
        loads[instance] += 1
        bit = np.uint8(1 << (instance & 7))
        if held[key, instance >> 3] & bit == 0:
            held[key, instance >> 3] |= bit
            keys[instance] += 1
            copies[key] += 1
