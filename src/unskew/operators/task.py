"""One task of a stage in one batch: rows in, state and output written to files nobody else names.

Knows no Spark: an engine brings the rows and commits what the task reports.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, sleep

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.balance import Plan
from unskew.balance.plan import Rehomed
from unskew.operators.base import ROWS, TIME, Operator
from unskew.operators.entry_buffer import EntryBuffer
from unskew.operators.hot_keys import HotKeys
from unskew.operators.matching import select
from unskew.operators.row_buffer import RowBuffer
from unskew.operators.task_report import TaskReport
from unskew.state.manifest import Shards
from unskew.state.runs import (
    EXPIRES,
    NO_WATERMARK,
    Hashes,
    empty,
    hashes_of,
    next_expiry,
    removals,
    slices,
)
from unskew.state.segment import Opener, SegmentWriter
from unskew.state.shards import AppendingStore, ReplacingStore, ShardStore, Written

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
    cooled : mapping of int to sequence of int
        By hot shard, keys whose parts there nobody looks for any more: they go home.
    entries : sequence of Path
        Files with entries that the stage before has folded for this instance.
    rehomed : Rehomed, optional
        Keys that the plan has in other shards than the one before.
    most_bytes : int
        Entries to hold.
    speed : float, default 1
        Part of its own speed at which the task works: it waits for the rest.
    """

    operator: Operator
    plan: Plan
    instance: int
    shards: Shards
    segment: Path
    stage: int = 0
    late: int = NO_WATERMARK
    watermark: int = NO_WATERMARK
    cooled: Mapping[int, Sequence[int]] = field(default_factory=dict)
    entries: Sequence[Path] = ()
    rehomed: Rehomed | None = None
    most_bytes: int = MOST_BYTES
    speed: float = 1.0


def task_of(work: Work, opener: Opener) -> Task:
    """Return the task that does a work.

    Parameters
    ----------
    work : Work
        What to do.
    opener : callable
        Reads runs.
    """
    return AppendingTask(work, opener) if work.operator.appends else ReplacingTask(work, opener)


class Task(ABC):
    """Do the work of one instance.

    Attributes
    ----------
    report : TaskReport
        What was done; complete once the output has come to its end.
    """

    def __init__(self, work: Work, store: ShardStore) -> None:
        self.work = work
        self.report = TaskReport(work.stage, work.instance)
        self._own = work.plan.state_shards(work.instance, work.shards)
        self._stored = store
        self._hot = HotKeys(
            work.operator, work.plan, work.instance, store, work.cooled, work.watermark
        )
        self._writer: SegmentWriter | None = None
        self._processed: list[Hashes] = []

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
            # Rows that wait and what is made of them share what there is.
            most = work.most_bytes // 2 if work.operator.passes else work.most_bytes
            with (
                EntryBuffer(work.operator, self._shard_of, most) as buffer,
                RowBuffer(most) as passing,
            ):
                for batch in batches:
                    with self.busy():
                        rows = self._punctual(batch)
                        buffer.add(work.operator.looked_at(rows))
                        if work.operator.passes:
                            passing.add(rows)
                outputs = self._outputs(buffer)
                if work.operator.passes:
                    outputs = self._let_out(outputs, passing)
                yield from self._timed(outputs)
            if self._writer is not None:
                self._writer.close()
            self.report.read = self._stored.read_bytes
        except BaseException:
            if self._writer is not None:
                self._writer.path.unlink(missing_ok=True)
            raise

    def _outputs(self, buffer: EntryBuffer) -> Iterator[pa.RecordBatch]:
        """Return what comes out of changed keys, then what comes out of expired ones."""
        for shard, entries in self._hot.taken_over():
            if self.work.plan.keeper(shard) != self.work.instance:
                self.report.taken_over += entries.nbytes
            buffer.add_entries(entries)
        for shard, run in self._hot.handed_over(self._own):
            self._write(shard, run)
        for path in self.work.entries:
            with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
                for number in range(reader.num_record_batches):
                    buffer.add_entries(reader.get_batch(number))
        self._rehome(buffer)
        for shards, entries in buffer.groups():
            probes = self.work.operator.is_probe(entries)
            self.report.count(shards, entries, probes, self._hot.hashes)
            hot = shards == self.work.plan.hot_shard(self.work.instance)
            # Hot keys by themselves, as their output waits for that of other instances.
            if self.work.operator.passes:
                self._processed.append(hashes_of(entries))
            for rows in (np.flatnonzero(~hot), np.flatnonzero(hot)):
                if rows.size == shards.size:
                    yield from self._process(shards, entries)
                elif rows.size:
                    yield from self._process(shards[rows], select(entries, rows))
        yield from self._expired()

    def _let_out(
        self, outputs: Iterator[pa.RecordBatch], passing: RowBuffer
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows that wait, each with the results of its key."""
        results = [output for output in outputs if output.num_rows]
        if not results:
            return
        hashes = np.concatenate(self._processed)
        joined = pa.concat_batches(results)
        waiting: list[pa.RecordBatch] = []
        for rows in passing.batches():
            waiting.append(rows)
            # Many rows at a time, as each call looks at the results of all keys.
            if sum(each.num_rows for each in waiting) >= hashes.size:
                yield from self.work.operator.let_out(waiting, hashes, joined)
                waiting = []
        if waiting:
            yield from self.work.operator.let_out(waiting, hashes, joined)

    @abstractmethod
    def _rehome(self, buffer: EntryBuffer) -> None:
        """Bring the state of keys that are in other shards than before where it belongs."""

    def _arriving(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Return shards, and as a run the state of the keys that come to them from others."""
        for shard, keys, old in self._changed(incoming=True):
            found: list[pa.RecordBatch] = []
            for source in np.unique(old).tolist():
                rows = self._stored.find(source, keys[old == source])
                if self.work.plan.keeper(source) != self.work.instance:
                    self.report.taken_over += sum(each.nbytes for each in rows)
                found += rows
            if found:
                run = pa.concat_batches(found)
                yield shard, select(run, np.argsort(hashes_of(run), kind="stable"))

    def _departing(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Return shards, and the runs that remove from them the keys that have left."""
        for shard, keys, _ in self._changed(incoming=False):
            found = self._stored.find(shard, keys)
            if found:
                hashes = np.unique(np.concatenate([hashes_of(each) for each in found]))
                yield shard, removals(hashes, self.work.operator.run_schema)

    def _changed(self, *, incoming: bool) -> Iterator[tuple[int, Hashes, NDArray[np.int64]]]:
        """Return shards of this instance, the keys that come to or leave them, and other shards."""
        if self.work.rehomed is None:
            return
        keys, old, new = self.work.rehomed
        own, other = (new, old) if incoming else (old, new)
        for shard in np.intersect1d(own, self._own).tolist():
            mine = own == shard
            yield shard, keys[mine], other[mine]

    @abstractmethod
    def _process(
        self, shards: NDArray[np.int64], entries: pa.RecordBatch
    ) -> Iterator[pa.RecordBatch]:
        """Change the state of some shards, either of hot keys or of others."""

    @abstractmethod
    def _expired(self) -> Iterator[pa.RecordBatch]:
        """Expire what is due and was not expired with a change."""

    def _state_of(self, shards: NDArray[np.int64], entries: pa.RecordBatch) -> pa.RecordBatch:
        """Return the state of the keys of some entries."""
        hashes = hashes_of(entries)
        found: list[pa.RecordBatch] = []
        for shard, part in slices(shards):
            found += self._stored.find(shard, _distinct(hashes[part]))
        return pa.concat_batches(found) if found else empty(self.work.operator.run_schema)

    def _by_shard(self, state: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Return changed state as a run for each shard."""
        hashes = hashes_of(state)
        where = self._shard_of(hashes)
        order = np.lexsort((hashes, where))
        ordered = select(state, order)
        for shard, part in slices(where[order]):
            yield shard, ordered.slice(part.start, part.stop - part.start)

    def _timed(self, outputs: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count as busy the time in which an output is made, not that in which it is taken."""
        while True:
            with self.busy():
                output = next(outputs, None)
            if output is None:
                return
            yield output

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Count the time as busy, and as much more as the task is slower than it could be."""
        begin = perf_counter()
        yield
        if self.work.speed < 1:
            sleep((perf_counter() - begin) * (1 / self.work.speed - 1))
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
            self.report.late += int(np.count_nonzero(late & ~self.work.operator.is_probe(rows)))
            return rows.filter(pa.array(~late))
        return rows

    def _write(self, shard: int, run: pa.RecordBatch) -> None:
        self._keep(shard, self._stored.write(shard, run, self._segment()))

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


class ReplacingTask(Task):
    """A task of an operator whose state is replaced, hash by hash."""

    def __init__(self, work: Work, opener: Opener) -> None:
        self._store = ReplacingStore(work.shards, work.operator.run_schema, opener)
        super().__init__(work, self._store)
        expiries = {shard: self._store.next_expiry(shard) for shard in self._own}
        self._due = {
            shard
            for shard, expires in expiries.items()
            if expires is not None and expires <= work.watermark
        }

    def _rehome(self, buffer: EntryBuffer) -> None:
        # All are found before anything is written: shards may swap keys.
        arriving, departing = list(self._arriving()), list(self._departing())
        for shard, run in departing:
            self._write(shard, run)
        for shard, found in arriving:
            self._write(shard, found)
            if next_expiry(found) <= self.work.watermark:
                self._due.add(shard)

    def _process(
        self, shards: NDArray[np.int64], entries: pa.RecordBatch
    ) -> Iterator[pa.RecordBatch]:
        """Change the state of some shards; expire what is due in them."""
        changes = self.work.operator.process(self._state_of(shards, entries), entries)
        if self.work.plan.is_hot_shard(int(shards[0])):
            touched = np.zeros(changes.state.num_rows, dtype=np.bool_)
            touched[: entries.num_rows] = entries.column(ROWS).to_numpy() > 0
            self._hot.tell_changed(changes.state, touched)
        else:
            for output in changes.output:
                yield self._of_rows(output, entries)
        for shard, run in self._by_shard(changes.state):
            if shard in self._due or next_expiry(run) <= self.work.watermark:
                self._due.discard(shard)
                yield self._expire(shard, run)
            else:
                self._write(shard, run)

    def _expired(self) -> Iterator[pa.RecordBatch]:
        for shard in sorted(self._due):
            yield self._expire(shard, None)
        self._hot.tell_untouched(self._own)

    def _of_rows(self, output: pa.RecordBatch, entries: pa.RecordBatch) -> pa.RecordBatch:
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


class AppendingTask(Task):
    """A task of an operator whose state grows by rows until they expire."""

    def __init__(self, work: Work, opener: Opener) -> None:
        self._store = AppendingStore(
            work.shards, work.operator.run_schema, opener, work.late, work.watermark
        )
        super().__init__(work, self._store)
        self._over: dict[int, list[pa.RecordBatch]] = {}
        self._left: dict[int, Hashes] = {}

    def _rehome(self, buffer: EntryBuffer) -> None:
        arriving, departing = list(self._arriving()), list(self._departing())
        self._left = {shard: hashes_of(run) for shard, run in departing}
        for _, found in arriving:
            buffer.add_entries(self.work.operator.entries_of(found))
        for shard, run in departing:
            self._write(shard, run)

    def _process(
        self, shards: NDArray[np.int64], entries: pa.RecordBatch
    ) -> Iterator[pa.RecordBatch]:
        """Add to the state of some shards; what is over already is not even written."""
        changes = self.work.operator.process(self._state_of(shards, entries), entries)
        if changes.pairs is not None:
            where = self._shard_of(changes.pairs.hashes)
            self.report.count_pairs(where, changes.pairs, self._hot.hashes)
        yield from changes.output
        for shard, run in self._by_shard(changes.state):
            lives = run.column(EXPIRES).to_numpy() > self.work.watermark
            if lives.any():
                self._write(shard, run if lives.all() else run.filter(pa.array(lives)))
            if not lives.all():
                self._over.setdefault(shard, []).append(run.filter(pa.array(~lives)))

    def _state_of(self, shards: NDArray[np.int64], entries: pa.RecordBatch) -> pa.RecordBatch:
        """Return the state of the keys of some entries: of hot keys at their homes here, too."""
        if not self.work.plan.is_hot_shard(int(shards[0])):
            return super()._state_of(shards, entries)
        hashes = _distinct(hashes_of(entries))
        # What was handed over is among the entries of the home.
        kept = hashes[~np.isin(hashes, self._hot.cooled_in(int(shards[0])))]
        found = [empty(self.work.operator.run_schema), *self._store.find(int(shards[0]), kept)]
        homes = self.work.plan.shard_of(hashes)
        for shard in np.intersect1d(homes, self._own).tolist():
            found += self._store.find(shard, hashes[homes == shard])
        return pa.concat_batches(found)

    def _expired(self) -> Iterator[pa.RecordBatch]:
        for shard in self._own:
            if self.work.operator.tells_expired:
                left = self._left.get(shard, self._hot.cooled_in(shard))
                before = self._store.expiring(shard, left)
                rows = pa.concat_batches([before, *self._over.get(shard, ())])
                # Parts of hot keys go through the driver: none that says nothing.
                rows = rows.filter(pa.array(self.work.operator.is_told(rows)))
                if rows.num_rows:
                    yield self.work.operator.expire(self._hot.tell_expired(rows))
            kept = self._store.drop_expired(shard)
            if kept is not None:
                self._keep(shard, kept)


def _distinct(hashes: Hashes) -> Hashes:
    """Return sorted hashes without those that come again."""
    return hashes[np.flatnonzero(np.diff(hashes, prepend=~hashes[:1]) != 0)]
