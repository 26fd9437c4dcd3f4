"""One task of a stage in one batch: rows in, state and output written to files nobody else names.

Knows no Spark: an engine brings the rows and commits what the task tells.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.balance import Plan
from unskew.operators.base import ROWS, TIME, Operator
from unskew.operators.gathering import Gathering
from unskew.operators.matching import select
from unskew.state.manifest import Shards
from unskew.state.runs import EXPIRES, HASH, Hashes, empty, hashes_of, next_expiry, removals
from unskew.state.segment import Opener, SegmentWriter
from unskew.state.shards import ShardStore, Written

MOST_BYTES = 128 << 20
"""Entries that a task holds; beside them it has the state of the keys of one group of shards."""

HOTTEST = 16
"""Keys of most rows that a task tells of."""

NO_WATERMARK = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Work:
    """What a task is to do.

    Attributes
    ----------
    operator : Operator
        Bound to the columns of the rows.
    plan : Plan
        Of this batch.
    instance : int
        Which one this is.
    shards : mapping
        The state of the whole stage, as the last manifest names it.
    watermark : int
        Event time in microseconds; rows up to it are late, and state up to it expires.
    segment : Path
        File to write state to, if there is any.
    cooled : collection of int
        Keys that were hot in the batch before and are not any more.
    most_bytes : int
        Entries to hold.
    """

    operator: Operator
    plan: Plan
    instance: int
    shards: Shards
    watermark: int
    segment: Path
    cooled: Collection[int] = ()
    most_bytes: int = MOST_BYTES


@dataclass
class Told:
    """What a task did: all that the driver gets to know, and plain enough for JSON.

    Attributes
    ----------
    instance : int
        Which one.
    runs : mapping of int to list
        The runs of each shard whose state was written.
    rows, keys : mapping of int to int
        Rows, and distinct keys, of each shard that had some.
    late : int
        Rows that came after the watermark had passed them.
    expired : int
        States whose time was over.
    busy : float
        Seconds in the operator and the state, not waiting for rows.
    written, read : int
        Bytes of state.
    hot : list
        (hash, rows) of the keys that are split, and of those with most rows.
    """

    instance: int
    runs: dict[int, list[list[Any]]] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    keys: dict[int, int] = field(default_factory=dict)
    late: int = 0
    expired: int = 0
    busy: float = 0.0
    written: int = 0
    read: int = 0
    hot: list[tuple[int, int]] = field(default_factory=list)


class Task:
    """Do the work of one instance.

    Parameters
    ----------
    work : Work
        What to do.
    opener : callable
        Reads runs.

    Attributes
    ----------
    told : Told
        What was done; complete once the output has come to its end.
    parts : list of pyarrow.RecordBatch
        Of keys that this instance shares with others, for `Operator.gather`; likewise.
    """

    def __init__(self, work: Work, opener: Opener) -> None:
        self.work = work
        self.told = Told(work.instance)
        self.parts: list[pa.RecordBatch] = []
        self._store = ShardStore(work.shards, work.operator.runs, opener)
        self._own = work.plan.state_shards(work.instance, work.shards)
        self._hot = np.array(sorted(work.plan.hot), dtype=np.uint64)
        self._shared: set[int] = set()
        self._writer: SegmentWriter | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the output as it is made.

        Parameters
        ----------
        batches : iterable of pyarrow.RecordBatch
            Hash, time, keys, values.
        """
        operator = self.work.operator
        due = {
            shard
            for shard in self._own
            if (expires := self._store.next_expiry(shard)) is not None
            and expires <= self.work.watermark
        }
        with Gathering(operator, self._shard_of, self.work.most_bytes) as gathering:
            for batch in batches:
                with self._busy():
                    gathering.add(self._punctual(batch))
            try:
                with self._busy():
                    for entries in self._taken_over():
                        gathering.add_entries(entries)
                    groups = gathering.groups()
                    group = next(groups, None)
                while group is not None:
                    with self._busy():
                        output = self._process(*group, due)
                        group = next(groups, None)
                    yield from output
                with self._busy():
                    self._hand_over()
                    output = [self._expire(shard, None) for shard in sorted(due)]
                    self._share_untouched()
                    if self._writer is not None:
                        self._writer.close()
                yield from output
            except BaseException:
                if self._writer is not None:
                    self._writer.path.unlink(missing_ok=True)
                raise

    @contextmanager
    def _busy(self) -> Iterator[None]:
        """Count the time as busy: not that of waiting for rows, or for the output to be taken."""
        begin = perf_counter()
        yield
        self.told.busy += perf_counter() - begin

    def _shard_of(self, hashes: Hashes) -> NDArray[np.int64]:
        return self.work.plan.shard_at(self.work.instance, hashes)

    def _punctual(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that are not late, and count the others."""
        if self.work.watermark == NO_WATERMARK:
            return rows
        late = rows.column(TIME).to_numpy() <= self.work.watermark
        if late.any():
            self.told.late += int(np.count_nonzero(late))
            return rows.filter(pa.array(~late))
        return rows

    def _taken_over(self) -> Iterator[pa.RecordBatch]:
        """Return what others kept of keys that are not hot any more and have their home here.

        The others remove it in the same batch, see `_hand_over`.
        """
        plan = self.work.plan
        cold = self._cooled()
        here = cold[plan.assignment[plan.shard_of(cold)] == self.work.instance]
        for shard in self._shared_shards():
            for found in self._store.find(shard, here):
                yield self.work.operator.entries_of(found)

    def _hand_over(self) -> None:
        """Remove from the shards of hot keys what was taken over."""
        cold = self._cooled()
        for shard in self._own:
            if shard >= self.work.plan.shards:
                found = self._store.find(shard, cold)
                if found:
                    hashes = np.unique(np.concatenate([hashes_of(each) for each in found]))
                    # The shard may have been written in this batch: what it then had is kept.
                    self._change(shard, removals(hashes, self.work.operator.runs))

    def _cooled(self) -> Hashes:
        """Return the keys that were hot in the batch before, and are not any more."""
        return np.array(sorted(self.work.cooled), dtype=np.uint64)

    def _shared_shards(self) -> list[int]:
        return sorted(shard for shard in self.work.shards if shard >= self.work.plan.shards)

    def _process(
        self, shards: NDArray[np.int64], entries: pa.RecordBatch, due: set[int]
    ) -> list[pa.RecordBatch]:
        """Process the entries of some shards; expire what is due in them."""
        self._note(shards, entries)
        is_shared = shards >= self.work.plan.shards
        if not is_shared.any():
            return self._changed(shards, entries, due)
        # Hot keys have one shard here, so that all of it comes at once.
        own, shared = np.flatnonzero(~is_shared), np.flatnonzero(is_shared)
        output = self._changed(shards[own], select(entries, own), due) if own.size else []
        self._changed(shards[shared], select(entries, shared), due)
        return output

    def _changed(
        self, shards: NDArray[np.int64], entries: pa.RecordBatch, due: set[int]
    ) -> list[pa.RecordBatch]:
        operator = self.work.operator
        hashes = hashes_of(entries)
        found: list[pa.RecordBatch] = []
        for shard, part in _slices(shards):
            found += self._store.find(shard, _distinct(hashes[part]))
        state = pa.concat_batches(found) if found else empty(operator.runs)
        changes = operator.process(state, entries)
        if operator.can_split:
            with_rows = entries.column(ROWS).to_numpy() > 0
            if self._hot.size and int(shards[0]) >= self.work.plan.shards:
                touched = np.zeros(changes.state.num_rows, dtype=np.bool_)
                touched[: entries.num_rows] = with_rows
                # What expires in this batch is shared as final, below.
                living = changes.state.column(EXPIRES).to_numpy() > self.work.watermark
                self._share(changes.state.filter(pa.array(living)), touched[living])
                self._shared.update(hashes.tolist())
            elif changes.output.num_rows and not with_rows.all():
                changes = changes._replace(output=changes.output.filter(pa.array(with_rows)))
        output = [changes.output]
        kept = hashes_of(changes.state)
        where = self._shard_of(kept)
        order = np.lexsort((kept, where))
        ordered = select(changes.state, order)
        for shard, part in _slices(where[order]):
            run = ordered.slice(part.start, part.stop - part.start)
            if shard in due or next_expiry(run) <= self.work.watermark:
                due.discard(shard)
                output.append(self._expire(shard, run))
            else:
                self._change(shard, run)
        return output

    def _expire(self, shard: int, changes: pa.RecordBatch | None) -> pa.RecordBatch:
        """Write a shard anew without what has expired; return what comes out of that."""
        rows = self._store.all(shard, () if changes is None else (changes,))
        over = rows.column(EXPIRES).to_numpy() <= self.work.watermark
        self.told.expired += int(np.count_nonzero(over))
        written = self._store.replace(shard, rows.filter(pa.array(~over)), self._segment())
        self._keep(shard, written)
        expired = rows.filter(pa.array(over))
        if self._hot.size:
            hot = np.isin(hashes_of(expired), self._hot)
            self._share(expired.filter(pa.array(hot)), np.zeros(int(hot.sum()), bool), final=True)
            expired = expired.filter(pa.array(~hot))
        return self.work.operator.expire(expired)

    def _share_untouched(self) -> None:
        """Share what this instance keeps of hot keys that had no rows here in this batch."""
        if not self._hot.size:
            return
        plan = self.work.plan
        rest = np.array(sorted({*self._hot.tolist()} - self._shared), dtype=np.uint64)
        homes = plan.shard_of(self._hot)
        for shard in self._own:
            # At a key's home there may be state of the time before it was hot, and with an
            # instance that is no more what it had.
            asked = self._hot if shard >= plan.shards else self._hot[homes == shard]
            if shard == plan.shards + self.work.instance:
                asked = rest
            for found in self._store.find(shard, asked):
                living = found.filter(
                    pa.array(found.column(EXPIRES).to_numpy() > self.work.watermark)
                )
                self._share(living, np.zeros(living.num_rows, dtype=np.bool_))

    def _share(
        self, state: pa.RecordBatch, touched: NDArray[np.bool_], *, final: bool = False
    ) -> None:
        if state.num_rows:
            finals = pa.array(np.full(state.num_rows, final))
            columns = [
                *(state.column(HASH), state.column(EXPIRES), pa.array(touched), finals),
                *state.columns[3:],
            ]
            self.parts.append(pa.RecordBatch.from_arrays(columns, schema=self.work.operator.parts))

    def _change(self, shard: int, run: pa.RecordBatch) -> None:
        self._keep(shard, self._store.write(shard, run, self._segment()))

    def _keep(self, shard: int, written: Written) -> None:
        self.told.runs[shard] = [list(run) for run in written.runs]
        self.told.written += written.written

    def _segment(self) -> SegmentWriter:
        if self._writer is None:
            self._writer = SegmentWriter(self.work.segment)
        return self._writer

    def _note(self, shards: NDArray[np.int64], entries: pa.RecordBatch) -> None:
        """Count rows and keys by shard, and the keys with most rows."""
        told = self.told
        rows = entries.column(ROWS).to_numpy()
        hashes = hashes_of(entries)
        for shard, part in _slices(shards):
            told.keys[shard] = told.keys.get(shard, 0) + part.stop - part.start
            told.rows[shard] = told.rows.get(shard, 0) + int(rows[part].sum())
        # Within a shard entries are in the order of their hashes.
        starts = np.flatnonzero(np.diff(hashes, prepend=~hashes[:1]) != 0)
        totals = np.add.reduceat(rows, starts)
        most = np.argpartition(-totals, min(HOTTEST, totals.size - 1))[:HOTTEST]
        # Of keys that are split every part is told, however small.
        split = np.flatnonzero(np.isin(hashes[starts], self._hot))
        chosen = np.union1d(most, split)
        hottest = [
            *told.hot,
            *zip(hashes[starts[chosen]].tolist(), totals[chosen].tolist(), strict=True),
        ]
        ranked = sorted(hottest, key=lambda pair: (-pair[1], pair[0]))
        known = set(self._hot.tolist())
        rest = [pair for pair in ranked if pair[0] not in known]
        told.hot = [*(pair for pair in ranked if pair[0] in known), *rest[:HOTTEST]]


def _slices(shards: NDArray[np.int64]) -> Iterator[tuple[int, slice]]:
    """Return each shard of a sorted array, and where it is."""
    starts = np.flatnonzero(np.diff(shards, prepend=-1))
    ends = [*starts[1:].tolist(), shards.size]
    for start, end in zip(starts.tolist(), ends, strict=True):
        yield int(shards[start]), slice(start, end)


def _distinct(hashes: Hashes) -> Hashes:
    """Return sorted hashes without those that come again."""
    return hashes[np.flatnonzero(np.diff(hashes, prepend=~hashes[:1]) != 0)]
