"""The entries of one task, shard by shard, on disk where they are too many."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.operators.base import Operator
from unskew.operators.matching import select
from unskew.operators.spill_files import Spilling
from unskew.state.runs import Hashes, hashes_of

_FIRST_BYTES = 1 << 19
"""Rows of the first call of the operator."""

ShardOf = Callable[[Hashes], NDArray[np.int64]]


class EntryBuffer(Spilling):
    """Take rows in any order and give back entries by shard.

    Holds at most `most_bytes` of entries, with those that were added last beside them, and then one
    shard's at a time: what does not fit is written to a temporary file, in the order of shards, and
    read from there.

    Parameters
    ----------
    operator : Operator
        Folds rows and combines entries.
    shard_of : callable
        Returns the shard of each hash.
    most_bytes : int
        Entries to hold.
    """

    def __init__(self, operator: Operator, shard_of: ShardOf, most_bytes: int) -> None:
        super().__init__()
        self._operator = operator
        self._shard_of = shard_of
        self._most = most_bytes
        self._rows: list[pa.RecordBatch] = []
        self._row_bytes = 0
        self._enough = min(_FIRST_BYTES, most_bytes // 4)
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._spilled: list[NDArray[np.int64]] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows: hash, time, keys, values."""
        self._rows.append(rows)
        self._row_bytes += rows.nbytes
        # Large calls are cheaper, as a key that comes often becomes one entry; but the first ones
        # are small, so that a slow operator begins while the rest of its rows is on the way.
        if self._row_bytes > self._enough:
            self._fold()
            self._enough = min(4 * self._enough, self._most // 4)

    def add_entries(self, entries: pa.RecordBatch) -> None:
        """Take entries that are folded already."""
        self._hold(entries)

    def groups(self) -> Generator[tuple[NDArray[np.int64], pa.RecordBatch], None, None]:
        """Return entries combined, and in the order of shard and hash, with the shard of each."""
        self._fold()
        if not self._spilled:
            joined = self._operator.combine(self._held)
            self._held = []
            if joined.num_rows:
                yield self._ordered(joined)
            return
        self._spill()
        present = np.unique(np.concatenate(self._spilled)).tolist()
        # Closed however this ends: a task may fail, or be cancelled, between two groups.
        with ExitStack() as maps:
            readers = [
                (maps.enter_context(self._spills.open(number)), shards)
                for number, shards in enumerate(self._spilled)
            ]
            for shard in present:
                parts = [
                    reader.get_batch(int(place))
                    for reader, shards in readers
                    for place in np.flatnonzero(shards == shard)
                ]
                yield self._ordered(self._operator.combine(parts))

    def _fold(self) -> None:
        if not self._rows:
            return
        rows = pa.concat_batches(self._rows) if len(self._rows) > 1 else self._rows[0]
        self._rows, self._row_bytes = [], 0
        self._hold(self._operator.fold(rows))

    def _hold(self, entries: pa.RecordBatch) -> None:
        """Keep entries in memory as long as all fit there."""
        self._held.append(entries)
        self._held_bytes += entries.nbytes
        if self._held_bytes > self._most:
            joined = self._operator.combine(self._held)
            self._held, self._held_bytes = [joined], joined.nbytes
            if self._held_bytes > self._most // 2:
                self._spill()

    def _ordered(self, entries: pa.RecordBatch) -> tuple[NDArray[np.int64], pa.RecordBatch]:
        hashes = hashes_of(entries)
        shards = self._shard_of(hashes)
        order = np.lexsort((hashes, shards))
        return shards[order], select(entries, order)

    def _spill(self) -> None:
        """Write what is held, one batch for each shard."""
        if not self._held:
            return
        shards, entries = self._ordered(self._operator.combine(self._held))
        self._held, self._held_bytes = [], 0
        if not shards.size:
            return
        present, starts = np.unique(shards, return_index=True)
        ends = [*starts[1:].tolist(), shards.size]
        self._spills.write(
            entries.slice(start, end - start)
            for start, end in zip(starts.tolist(), ends, strict=True)
        )
        self._spilled.append(present)
