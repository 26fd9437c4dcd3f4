"""What a stage measures between two looks of its balancer: tuples and service, by shard and key."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.balance import Plan
from unskew.tally import KeyIndex


class Meter:
    """Add up the tuples of one interval in their order, so that no cut of the stream shows.

    Parameters
    ----------
    shards : int
        How many. Tuples of hot keys, which are in none, count for one shard more.
    by_key : bool
        Whether to add up by key, too; takes time, and memory for the keys of the interval.

    Examples
    --------
    >>> meter = Meter(shards=2, by_key=True)
    >>> keys = np.array([7, 8, 7, 5], dtype=np.uint64)
    >>> meter.add(keys, np.array([1, 2, 1, 0]), np.array([0.5, 4.0, 0.25, 0.1]))
    >>> meter.rows.tolist(), meter.busy.tolist()
    ([1, 2], [0.1, 0.75])
    >>> meter.hottest(1, also=[7]), meter.rows_of([7, 9])
    ({8: 4.0, 7: 0.75}, {7: 2, 9: 0})
    """

    def __init__(self, shards: int, *, by_key: bool) -> None:
        self._by_key = by_key
        self._rows = np.zeros(shards + 1, dtype=np.int64)
        self._busy = np.zeros(shards + 1)
        self._index = KeyIndex()
        self._keys = np.empty(0, dtype=np.uint64)
        self._key_busy = np.empty(0)

    @property
    def rows(self) -> NDArray[np.int64]:
        """Tuples of each shard."""
        return self._rows[:-1]

    @property
    def busy(self) -> NDArray[np.float64]:
        """Seconds of service of each shard."""
        return self._busy[:-1]

    def add(
        self,
        keys: NDArray[np.uint64],
        shards: NDArray[np.signedinteger[Any]],
        busy: NDArray[np.float64],
    ) -> None:
        """Count tuples of these keys, in these shards, that were served for so long."""
        np.add.at(self._rows, shards, 1)
        np.add.at(self._busy, shards, busy)
        if self._by_key:
            ids = self._index.ids(keys)
            self._make_room(len(self._index))
            self._keys[ids] = keys
            np.add.at(self._key_busy, ids, busy)

    def hottest(self, count: int, also: Collection[int]) -> dict[int, float]:
        """Return the seconds of service of the keys with most, and of others if they had any."""
        keys, busy = self._keys[: len(self._index)], self._key_busy[: len(self._index)]
        order = np.lexsort((keys, -busy))
        picked = order[(np.arange(keys.size) < count) | np.isin(keys[order], self._array(also))]
        return dict(zip(keys[picked].tolist(), busy[picked].tolist(), strict=True))

    def keys_of(self, plan: Plan) -> NDArray[np.int64]:
        """Return the distinct keys of each shard under a plan, without its hot ones."""
        keys = self._keys[: len(self._index)]
        whole = keys[~np.isin(keys, plan.hot_hashes)]
        return np.bincount(plan.shard_of(whole), minlength=plan.shards)

    def rows_of(self, keys: Collection[int]) -> dict[int, int]:
        """Return the tuples of some keys."""
        known = self._keys[: len(self._index)]
        places = np.flatnonzero(np.isin(known, self._array(keys)))
        found = zip(known[places].tolist(), self._index.counts[places].tolist(), strict=True)
        return dict.fromkeys(keys, 0) | dict(found)

    def _array(self, keys: Collection[int]) -> NDArray[np.uint64]:
        return np.array(sorted(keys), dtype=np.uint64)

    def _make_room(self, keys: int) -> None:
        more = 2 * keys - self._keys.size if keys > self._keys.size else 0
        if more:
            self._keys = np.concatenate((self._keys, np.zeros(more, dtype=np.uint64)))
            self._key_busy = np.concatenate((self._key_busy, np.zeros(more)))
