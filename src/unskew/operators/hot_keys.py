"""The hot keys of one task: parts of their state, shared with the other instances of each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.balance import Plan
from unskew.operators.base import Operator
from unskew.state.runs import EXPIRES, HASH, Hashes, hashes_of, removals
from unskew.state.shards import ShardStore


class HotKeys:
    """Keep the parts that an instance has of hot keys, and tell of them.

    Parameters
    ----------
    operator : Operator
        Whose state it is.
    plan : Plan
        Of this batch.
    instance : int
        Which one this is.
    store : ShardStore
        The state of the stage.
    cooled : mapping of int to sequence of int
        By hot shard, keys whose parts there nobody looks for any more: they go home.
    watermark : int
        State up to it is final.

    Attributes
    ----------
    hashes : array of uint64
        Of the hot keys, sorted.
    parts : list of pyarrow.RecordBatch
        What this instance has of them, for `Operator.merge`.
    """

    def __init__(
        self,
        operator: Operator,
        plan: Plan,
        instance: int,
        store: ShardStore,
        cooled: Mapping[int, Sequence[int]],
        watermark: int,
    ) -> None:
        self.hashes = plan.hot_hashes
        self.parts: list[pa.RecordBatch] = []
        self._operator = operator
        self._plan = plan
        self._instance = instance
        self._store = store
        self._cooled = {
            shard: np.array(sorted(keys), dtype=np.uint64) for shard, keys in cooled.items()
        }
        self._watermark = watermark
        self._told: set[int] = set()
        self._final: set[tuple[int, int]] = set()

    def taken_over(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Return hot shards, and as entries what they have of cooled keys that are at home here.

        Those who keep the shards remove it in the same batch, see `handed_over`.
        """
        plan = self._plan
        for shard, keys in self._cooled.items():
            here = keys[plan.assignment[plan.shard_of(keys)] == self._instance]
            for found in self._store.find(shard, here):
                yield shard, self._operator.entries_of(found)

    def handed_over(self, own: Collection[int]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Return for each hot shard the run that removes from it what was taken over."""
        for shard in self._cooled.keys() & own:
            found = self._store.find(shard, self._cooled[shard])
            if found:
                hashes = np.unique(np.concatenate([hashes_of(each) for each in found]))
                yield shard, removals(hashes, self._operator.run_schema)

    def cooled_in(self, shard: int) -> Hashes:
        """Return the keys of which a shard has parts that were handed over in this batch."""
        return self._cooled.get(shard, np.empty(0, dtype=np.uint64))

    def tell_changed(self, state: pa.RecordBatch, touched: NDArray[np.bool_]) -> None:
        """Tell of parts that a batch made, and whether it touched them."""
        expires = state.column(EXPIRES).to_numpy()
        living = expires > self._watermark
        self._tell(state.filter(pa.array(living)), touched[living])
        hashes = hashes_of(state)
        self._told.update(hashes.tolist())
        # What is final already is told when it expires, further on.
        over = touched & ~living
        self._final.update(zip(hashes[over].tolist(), expires[over].tolist(), strict=True))

    def tell_expired(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Tell of parts whose time is over; return the rows that are not of hot keys."""
        if not self.hashes.size:
            return rows
        is_hot = np.isin(hashes_of(rows), self.hashes)
        over = rows.filter(pa.array(is_hot))
        times = over.column(EXPIRES).to_pylist()
        touched = [
            pair in self._final for pair in zip(hashes_of(over).tolist(), times, strict=True)
        ]
        self._tell(over, np.array(touched, dtype=np.bool_), final=True)
        return rows.filter(pa.array(~is_hot))

    def tell_untouched(self, own: Collection[int]) -> None:
        """Tell of what this instance keeps of hot keys that had no rows here in this batch."""
        if not self.hashes.size:
            return
        plan = self._plan
        rest = np.array(sorted({*self.hashes.tolist()} - self._told), dtype=np.uint64)
        homes = plan.shard_of(self.hashes)
        for shard in own:
            if shard == plan.hot_shard(self._instance):
                asked = rest
            elif plan.is_hot_shard(shard):
                # Of an instance that is no more.
                asked = self.hashes
            else:
                # Of the time before a key was hot.
                asked = self.hashes[homes == shard]
            for found in self._store.find(shard, asked):
                living = found.column(EXPIRES).to_numpy() > self._watermark
                kept = found.filter(pa.array(living))
                self._tell(kept, np.zeros(kept.num_rows, dtype=np.bool_))

    def _tell(
        self, state: pa.RecordBatch, touched: NDArray[np.bool_], *, final: bool = False
    ) -> None:
        if state.num_rows:
            finals = pa.array(np.full(state.num_rows, final))
            columns = [
                *(state.column(HASH), state.column(EXPIRES), pa.array(touched), finals),
                *self._operator.kept_columns(state),
            ]
            schema = self._operator.part_schema
            self.parts.append(pa.RecordBatch.from_arrays(columns, schema=schema))
