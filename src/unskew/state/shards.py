"""The state of one task's shards during a batch: what was there, and what becomes of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from unskew.state.manifest import Run, Shards
from unskew.state.runs import (
    EXPIRES,
    FLUSH,
    NEVER,
    Hashes,
    empty,
    find,
    gone_in,
    hashes_of,
    living,
    merge,
    merge_appended,
)
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


class ShardStore(ABC):
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
        found = self._find([self._opener(run) for run in self._readable(shard)], hashes)
        self.read_bytes += sum(rows.nbytes for rows in found)
        return found

    def write(self, shard: int, changes: pa.RecordBatch, writer: SegmentWriter) -> Written:
        """Write the changes of a shard as a new run, with older ones that are not much larger."""
        older = list(self.shards.get(shard, ()))
        taken = [changes]
        rows = changes.num_rows
        while older and older[0].rows <= _GROWTH * rows:
            run = older.pop(0)
            rows += run.rows
            taken.append(self._open(run))
        alone = len(taken) == 1 and older
        merged = changes if alone else self._merge(taken, oldest=not older)
        return self._keep(shard, merged, tuple(older), writer)

    def next_expiry(self, shard: int) -> int | None:
        """Return when the first row of a shard may expire; newer rows may have put it off."""
        return min((run.expires for run in self.shards.get(shard, ())), default=None)

    def _readable(self, shard: int) -> tuple[Run, ...]:
        """Return the runs that rows are looked for in, those that this batch wrote among them."""
        return self.shards.get(shard, ())

    @abstractmethod
    def _find(self, runs: list[pa.RecordBatch], hashes: Hashes) -> list[pa.RecordBatch]:
        """Return the rows that count of some hashes."""

    @abstractmethod
    def _merge(self, runs: list[pa.RecordBatch], *, oldest: bool) -> pa.RecordBatch:
        """Return one run in place of several."""

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


class ReplacingStore(ShardStore):
    """State of which a newer run replaces, hash by hash, what older ones have."""

    def all(self, shard: int, newer: Sequence[pa.RecordBatch] = ()) -> pa.RecordBatch:
        """Return every row of a shard that counts, under changes that are not written yet."""
        runs = [*newer, *map(self._open, self.shards.get(shard, ()))]
        return merge(runs, oldest=True) if runs else empty(self.schema)

    def replace(self, shard: int, rows: pa.RecordBatch, writer: SegmentWriter) -> Written:
        """Write all that is left of a shard as its only run."""
        return self._keep(shard, rows, (), writer)

    def _find(self, runs: list[pa.RecordBatch], hashes: Hashes) -> list[pa.RecordBatch]:
        return find(runs, hashes)

    def _merge(self, runs: list[pa.RecordBatch], *, oldest: bool) -> pa.RecordBatch:
        return merge(runs, oldest=oldest)


class AppendingStore(ShardStore):
    """State to which a newer run adds rows, which do not change until they expire.

    Expired rows are left where they are, and do not count; they are gone when their run is merged,
    and a run of nothing else is dropped without a look at it.

    Parameters
    ----------
    shards, schema, opener
        As of every store.
    late, watermark : int
        Rows up to `late` have expired before this batch, rows up to `watermark` do in it.
    """

    def __init__(
        self, shards: Shards, schema: pa.Schema, opener: Opener, late: int, watermark: int
    ) -> None:
        super().__init__(shards, schema, opener)
        self._before = dict(shards)
        self._late = late
        self._watermark = watermark

    def expiring(self, shard: int, without: Hashes) -> pa.RecordBatch:
        """Return the rows that expire in this batch, but for those of some hashes."""
        found = []
        for run in self._before.get(shard, ()):
            has_some = run.expires <= self._watermark and run.latest > self._late
            # A run may also say of hashes that older rows do not count.
            if not has_some and run.latest != NEVER:
                continue
            rows = self._opener(run)
            self.read_bytes += rows.column(EXPIRES).nbytes
            times = rows.column(EXPIRES).to_numpy()
            counts = (times > self._late) & (times <= self._watermark)
            if without.size:
                counts &= ~np.isin(hashes_of(rows), without)
            found.append(living(rows.filter(pa.array(counts))))
            self.read_bytes += found[-1].nbytes
            without = np.union1d(without, gone_in(rows))
        return pa.concat_batches(found) if found else empty(self.schema)

    def drop_expired(self, shard: int) -> Written | None:
        """Leave runs out of which every row has expired; return what is left, if that is less."""
        runs = self.shards.get(shard, ())
        # Of a flush nothing is left, neither what runs say of older ones.
        is_flush = self._watermark >= FLUSH
        left = () if is_flush else tuple(run for run in runs if run.latest > self._watermark)
        if len(left) == len(runs):
            return None
        self.shards[shard] = left
        return Written(left, 0)

    def _readable(self, shard: int) -> tuple[Run, ...]:
        """Return the runs of before this batch: what expires in it is in no run that it writes."""
        return self._before.get(shard, ())

    def _find(self, runs: list[pa.RecordBatch], hashes: Hashes) -> list[pa.RecordBatch]:
        found = []
        for rows in find(runs, hashes, appends=True):
            counts = rows.column(EXPIRES).to_numpy() > self._late
            found.append(rows if counts.all() else rows.filter(pa.array(counts)))
        return found

    def _merge(self, runs: list[pa.RecordBatch], *, oldest: bool) -> pa.RecordBatch:
        return merge_appended(runs, oldest=oldest, after=self._watermark)
