"""The hop to the next stage: rows whose next key lives on this instance never leave it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.balance import KeyPairs, Plan
from unskew.keys import hash_keys
from unskew.operators.base import TIME, Operator
from unskew.operators.entry_buffer import EntryBuffer
from unskew.sketches.pair_sketch import PairSketch
from unskew.state.files import writing
from unskew.state.runs import HASH, NEVER, NO_WATERMARK


@dataclass(frozen=True)
class Hop:
    """What a task knows of the stage that follows.

    Attributes
    ----------
    operator : Operator
        Of that stage, bound to its columns; one that can be split, so that partial states merge.
    plan : Plan
        Of that stage, in this batch.
    keys, values : tuple of str
        Columns of what comes out here that it takes.
    time : str or None
        Column of its event time, if it has one.
    late : int
        Event time in microseconds up to which rows are late there.
    own : tuple of str
        Columns of what comes out here that are the key of this stage: for pairs. None if unknown.
    pairs : int
        Pairs of keys to count, 0 for none.
    """

    operator: Operator
    plan: Plan
    keys: tuple[str, ...]
    values: tuple[str, ...]
    time: str | None = None
    late: int = NO_WATERMARK
    own: tuple[str, ...] = ()
    pairs: int = 0


class Hopping:
    """Part what comes out of a task: into what is folded here, and what goes elsewhere.

    What is folded are entries of the next stage, partial states of the keys that live on the
    instance of the same number. They take no part in the exchange: the task of that instance reads
    them. It keeps no state, so a task that runs twice does no harm.

    Parameters
    ----------
    hop : Hop
        Where to.
    instance : int
        Which one this is.
    most_bytes : int
        Entries to hold.

    Attributes
    ----------
    near, far, late : int
        Rows that were folded here, that go elsewhere, and that were late here.
    """

    def __init__(self, hop: Hop, instance: int, most_bytes: int) -> None:
        self.hop = hop
        self.near = self.far = self.late = 0
        self._instance = instance
        self._buffer = EntryBuffer(hop.operator, self._shard_of, most_bytes)
        self._sketch = PairSketch(hop.pairs) if hop.pairs and hop.own else None
        self._schema = pa.schema(
            [(HASH, pa.uint64()), (TIME, pa.int64()), *hop.operator.keys, *hop.operator.values]
        )

    def part(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Fold what lives here; return the rows that do not."""
        near = self.take(rows)
        return rows.slice(0, 0) if near.all() else rows.filter(pa.array(~near))

    def take(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Fold what lives here; return which rows do."""
        hop = self.hop
        hashes = hash_keys(*(rows.column(name) for name in hop.keys))
        if self._sketch is not None:
            own = hash_keys(*(rows.column(name) for name in hop.own))
            self._sketch.add(own, hashes)
        near = self._is_near(hashes)
        self.near += int(np.count_nonzero(near))
        self.far += rows.num_rows - int(np.count_nonzero(near))
        if near.any():
            all_near = bool(near.all())
            chosen = rows if all_near else rows.filter(pa.array(near))
            self._fold(chosen, hashes if all_near else hashes[near])
        return near

    def write(self, path: Path) -> bool:
        """Write what was folded, if there is anything; return whether there is."""
        writer = None
        with self._buffer:
            for _, entries in self._buffer.groups():
                with writing(path):
                    if writer is None:
                        writer = pa.ipc.new_file(str(path), entries.schema)
                    writer.write_batch(entries)
        if writer is not None:
            with writing(path):
                writer.close()
        return writer is not None

    @property
    def pairs(self) -> KeyPairs:
        """Return the pairs of keys that rows had most often."""
        return KeyPairs.none() if self._sketch is None else KeyPairs(*self._sketch.counted())

    def _is_near(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        plan = self.hop.plan
        near: NDArray[np.bool_] = plan.assignment[plan.shard_of(hashes)] == self._instance
        if plan.hot:
            # Their tuples are dealt to several.
            near &= ~np.isin(hashes, plan.hot_hashes)
        return near

    def _fold(self, rows: pa.RecordBatch, hashes: NDArray[np.uint64]) -> None:
        hop = self.hop
        times = _micros(rows, hop.time)
        columns = [pa.array(hashes), times, *(rows.column(n) for n in (*hop.keys, *hop.values))]
        made = pa.RecordBatch.from_arrays(
            [
                column if column.type == field.type else column.cast(field.type)
                for column, field in zip(columns, self._schema, strict=True)
            ],
            schema=self._schema,
        )
        if hop.time is not None and hop.late != NO_WATERMARK:
            late = times.to_numpy(zero_copy_only=False) <= hop.late
            if late.any():
                self.late += int(np.count_nonzero(late))
                made = made.filter(pa.array(~late))
        self._buffer.add(made)

    def _shard_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        return self.hop.plan.shard_at(self._instance, hashes)


def _micros(rows: pa.RecordBatch, time: str | None) -> pa.Array:
    if time is None:
        return pa.array(np.full(rows.num_rows, NEVER))
    column = rows.column(time)
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
