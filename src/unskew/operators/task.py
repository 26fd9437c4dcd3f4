"""One task of a stage in one batch: rows in, state and output written to files nobody else names.

Knows no Spark: an engine brings the rows and commits what the task reports.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.balance import Plan
from unskew.operators.base import ROWS, TIME, Operator
from unskew.operators.entry_buffer import EntryBuffer
from unskew.operators.hot_keys import HotKeys
from unskew.operators.matching import select
from unskew.operators.task_report import TaskReport
from unskew.state.manifest import Shards
from unskew.state.runs import EXPIRES, NO_WATERMARK, Hashes, empty, hashes_of, next_expiry, slices
from unskew.state.segment import Opener, SegmentWriter
from unskew.state.shards import ShardStore, Written

MOST_BYTES = 128 << 20
"""Entries that a task holds; beside them it has the state of the keys of one group of shards."""


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
    segment : Path
        File to write state to, if there is any.
    stage : int
        Number of the stage.
    late : int
        Event time in microseconds: rows up to it are late.
    watermark : int
        State up to it expires. It is later than `late`: what the stage before made final with the
        same watermark is not late here.
    cooled : collection of int
        Keys that were hot in the batch before and are not any more.
    most_bytes : int
        Entries to hold.
    """

    operator: Operator
    plan: Plan
    instance: int
    shards: Shards
    segment: Path
    stage: int = 0
    late: int = NO_WATERMARK
    watermark: int = NO_WATERMARK
    cooled: Collection[int] = ()
    most_bytes: int = MOST_BYTES


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
    report : TaskReport
        What was done; complete once the output has come to its end.
    """

    def __init__(self, work: Work, opener: Opener) -> None:
        self.work = work
        self.report = TaskReport(work.stage, work.instance)
        self._store = ShardStore(work.shards, work.operator.run_schema, opener)
        self._own = work.plan.state_shards(work.instance, work.shards)
        self._hot = HotKeys(
            work.operator, work.plan, work.instance, self._store, work.cooled, work.watermark
        )
        self._writer: SegmentWriter | None = None

    @property
    def parts(self) -> list[pa.RecordBatch]:
        """Return the parts of keys that this instance shares, for `Operator.merge`; likewise."""
        return self._hot.parts

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the output as it is made.

        Parameters
        ----------
        batches : iterable of pyarrow.RecordBatch
            Hash, time, keys, values.
        """
        work = self.work
        try:
            with EntryBuffer(work.operator, self._shard_of, work.most_bytes) as buffer:
                for batch in batches:
                    with self._busy():
                        buffer.add(self._punctual(batch))
                yield from self._timed(self._outputs(buffer))
            if self._writer is not None:
                self._writer.close()
            self.report.read = self._store.read_bytes
        except BaseException:
            if self._writer is not None:
                self._writer.path.unlink(missing_ok=True)
            raise

    def _outputs(self, buffer: EntryBuffer) -> Iterator[pa.RecordBatch]:
        """Return what comes out of changed keys, then what comes out of expired ones."""
        due = {
            shard
            for shard in self._own
            if (expires := self._store.next_expiry(shard)) is not None
            and expires <= self.work.watermark
        }
        for entries in self._hot.taken_over():
            buffer.add_entries(entries)
        for shard, run in self._hot.handed_over(self._own):
            self._write(shard, run)
        for shards, entries in buffer.groups():
            self.report.count(shards, entries, self._hot.hashes)
            yield from self._process(shards, entries, due)
        for shard in sorted(due):
            yield self._expire(shard, None)
        self._hot.tell_untouched(self._own)

    def _timed(self, outputs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count as busy the time in which an output is made, not that in which it is taken."""
        while True:
            with self._busy():
                output = next(outputs, None)
            if output is None:
                return
            yield output

    @contextmanager
    def _busy(self) -> Iterator[None]:
        begin = perf_counter()
        yield
        self.report.busy += perf_counter() - begin

    def _shard_of(self, hashes: Hashes) -> NDArray[np.int64]:
        return self.work.plan.shard_at(self.work.instance, hashes)

    def _punctual(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that are not late, and count the others.

        A row without a time is as old as one can be without being late.
        """
        if rows.column(TIME).null_count:
            filled = pc.fill_null(rows.column(TIME), self.work.late + 1)
            rows = rows.set_column(rows.schema.get_field_index(TIME), TIME, filled)
        if self.work.late == NO_WATERMARK:
            return rows
        late = rows.column(TIME).to_numpy() <= self.work.late
        if late.any():
            self.report.late += int(np.count_nonzero(late))
            return rows.filter(pa.array(~late))
        return rows

    def _process(
        self, shards: NDArray[np.int64], entries: pa.RecordBatch, due: set[int]
    ) -> Iterator[pa.RecordBatch]:
        """Process the entries of some shards; those of hot keys by themselves."""
        hot = shards == self.work.plan.hot_shard(self.work.instance)
        for rows in (np.flatnonzero(~hot), np.flatnonzero(hot)):
            if rows.size == shards.size:
                yield from self._process_shards(shards, entries, due)
            elif rows.size:
                yield from self._process_shards(shards[rows], select(entries, rows), due)

    def _process_shards(
        self, shards: NDArray[np.int64], entries: pa.RecordBatch, due: set[int]
    ) -> Iterator[pa.RecordBatch]:
        """Change the state of some shards; expire what is due in them."""
        operator = self.work.operator
        hashes = hashes_of(entries)
        found: list[pa.RecordBatch] = []
        for shard, part in slices(shards):
            found += self._store.find(shard, _distinct(hashes[part]))
        state = pa.concat_batches(found) if found else empty(operator.run_schema)
        changes = operator.process(state, entries)
        if self.work.plan.is_hot_shard(int(shards[0])):
            touched = np.zeros(changes.state.num_rows, dtype=np.bool_)
            touched[: entries.num_rows] = entries.column(ROWS).to_numpy() > 0
            self._hot.tell_changed(changes.state, touched)
        else:
            yield self._told(changes.output, entries)
        kept = hashes_of(changes.state)
        where = self._shard_of(kept)
        order = np.lexsort((kept, where))
        ordered = select(changes.state, order)
        for shard, part in slices(where[order]):
            run = ordered.slice(part.start, part.stop - part.start)
            if shard in due or next_expiry(run) <= self.work.watermark:
                due.discard(shard)
                yield self._expire(shard, run)
            else:
                self._write(shard, run)

    def _told(self, output: pa.RecordBatch, entries: pa.RecordBatch) -> pa.RecordBatch:
        """Return the output without that of states which were only taken over."""
        if not self.work.operator.can_split or not output.num_rows:
            return output
        with_rows = entries.column(ROWS).to_numpy() > 0
        return output if with_rows.all() else output.filter(pa.array(with_rows))

    def _expire(self, shard: int, changes: pa.RecordBatch | None) -> pa.RecordBatch:
        """Write a shard anew without what has expired; return what comes out of that."""
        rows = self._store.all(shard, () if changes is None else (changes,))
        times = rows.column(EXPIRES).to_numpy()
        over = times <= self.work.watermark
        written = self._store.replace(shard, rows.filter(pa.array(~over)), self._segment())
        self._keep(shard, written)
        latest = int(times[over].max(initial=NO_WATERMARK))
        self.report.expired_up_to = max(self.report.expired_up_to, latest)
        return self.work.operator.expire(self._hot.tell_expired(rows.filter(pa.array(over))))

    def _write(self, shard: int, run: pa.RecordBatch) -> None:
        self._keep(shard, self._store.write(shard, run, self._segment()))

    def _keep(self, shard: int, written: Written) -> None:
        if shard not in self._own:
            raise RuntimeError(
                f"instance {self.work.instance} has rows of shard {shard}, and its plan gives it "
                f"{self._own}; report this"
            )
        self.report.runs[shard] = written.runs
        self.report.written += written.written

    def _segment(self) -> SegmentWriter:
        if self._writer is None:
            self._writer = SegmentWriter(self.work.segment)
        return self._writer


def _distinct(hashes: Hashes) -> Hashes:
    """Return sorted hashes without those that come again."""
    return hashes[np.flatnonzero(np.diff(hashes, prepend=~hashes[:1]) != 0)]
