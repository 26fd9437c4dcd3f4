"""The state of one task's shards during a batch: what was there, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from unskew.state.manifest import Run, Shards
from unskew.state.runs import Hashes, empty, find, merge
from unskew.state.segment import Opener, SegmentWriter

_GROWTH = 2
"""A run is merged with the next older one unless that has more than so many times its rows."""


class Written(NamedTuple):
    """What a batch did to the state of one shard.

    Attributes
    ----------
    runs : tuple of Run
        All runs of the shard from now on, the newest first.
    written : int
        Bytes that were written.
    """

    runs: tuple[Run, ...]
    written: int


class ShardStore:
    """Read the state of shards as the last manifest names it, and write what becomes of it.

    The runs of a shard grow in size from the newest to the oldest: a new run takes with it those
    older ones that are not much larger. So there are at most as many as a shard's rows can be
    doubled, and what is written grows with what is touched, not with all there is.

    Parameters
    ----------
    shards : mapping of int to runs
        From the last manifest.
    schema : pyarrow.Schema
        Of the runs.
    opener : callable
        Returns the rows of a run.

    Attributes
    ----------
    read_bytes : int
        Of the rows that were found, and of the runs that were read as a whole.
    """

    def __init__(self, shards: Shards, schema: pa.Schema, opener: Opener) -> None:
        self.shards = dict(shards)
        self.schema = schema
        self.read_bytes = 0
        self._opener = opener

    def find(self, shard: int, hashes: Hashes) -> list[pa.RecordBatch]:
        """Return the rows of a shard that have one of the hashes, which are sorted and distinct."""
        if not hashes.size:
            return []
        found = find([self._opener(run) for run in self.shards.get(shard, ())], hashes)
        self.read_bytes += sum(rows.nbytes for rows in found)
        return found

    def all(self, shard: int, newer: Sequence[pa.RecordBatch] = ()) -> pa.RecordBatch:
        """Return every row of a shard that counts, under changes that are not written yet."""
        runs = [*newer, *map(self._open, self.shards.get(shard, ()))]
        return merge(runs, oldest=True) if runs else empty(self.schema)

    def next_expiry(self, shard: int) -> int | None:
        """Return when the first row of a shard may expire; newer rows may have put it off."""
        return min((run.expires for run in self.shards.get(shard, ())), default=None)

    def write(self, shard: int, changes: pa.RecordBatch, writer: SegmentWriter) -> Written:
        """Write the changes of a shard as a new run, with older ones that are not much larger."""
        older = list(self.shards.get(shard, ()))
        taken = [changes]
        rows = changes.num_rows
        while older and older[0].rows <= _GROWTH * rows:
            run = older.pop(0)
            rows += run.rows
            taken.append(self._open(run))
        merged = merge(taken, oldest=not older) if len(taken) > 1 or not older else changes
        return self._keep(shard, merged, tuple(older), writer)

    def replace(self, shard: int, rows: pa.RecordBatch, writer: SegmentWriter) -> Written:
        """Write all that is left of a shard as its only run."""
        return self._keep(shard, rows, (), writer)

    def _open(self, run: Run) -> pa.RecordBatch:
        """Return all rows of a run."""
        self.read_bytes += run.length
        return self._opener(run)

    def _keep(
        self, shard: int, rows: pa.RecordBatch, older: tuple[Run, ...], writer: SegmentWriter
    ) -> Written:
        """Write a run, if it has rows, in front of older ones; what is read later counts it in."""
        written = 0
        if rows.num_rows:
            run = writer.add(rows)
            older, written = (run, *older), run.length
        self.shards[shard] = older
        return Written(older, written)
