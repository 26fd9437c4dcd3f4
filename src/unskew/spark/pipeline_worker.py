"""What runs in Spark's Python workers for a pipeline: one instance of a stage in one batch."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext

from unskew.balance import Plan
from unskew.balance.plan import Rehomed
from unskew.errors import DamagedCheckpoint
from unskew.kernel import compiling
from unskew.operators import Operator
from unskew.operators.base import TIME
from unskew.operators.hop import Hop
from unskew.operators.matching import match
from unskew.operators.parting import Parting
from unskew.operators.step import Step, stepped
from unskew.operators.task import Task, Work, task_of
from unskew.operators.task_report import TaskReport
from unskew.spark.collecting import spare_what_is_loaded
from unskew.spark.nodes import node
from unskew.spark.readings import (
    BEGAN,
    DISK_BYTES,
    ENDED,
    NETWORK_BYTES,
    process_bytes,
    reading,
)
from unskew.spark.speeds import speed_here
from unskew.state import Checkpoint, Manifest
from unskew.state.files import writing
from unskew.state.runs import HASH
from unskew.state.segment import SegmentReader

REPORT, PARTS, PAIRS = "report", "parts", "pairs"
"""Columns of the one row that a task returns: what it did, its parts of hot keys, and the pairs of
keys that it has counted, for each of its hops."""

RESULT = f"{REPORT} string, {PARTS} binary, {PAIRS} array<binary>"

Batches = Iterator[pa.RecordBatch]

_COPY_SECONDS = 60.0
"""How long copies of state stay that no manifest needs."""


@dataclass(frozen=True)
class StageWork:
    """What every task of a stage needs to know in one batch; it travels to the workers.

    Attributes
    ----------
    operator : Operator
        Of the stage.
    plan : dict
        Of the stage in this batch, as JSON.
    cooled : dict of int to list of int
        By hot shard, keys whose parts there nobody looks for any more.
    stage : int
        Number of the stage.
    base : int or None
        The version that the batch goes on from, or None if there is none.
    folder : str
        The checkpoint.
    cache : str or None
        Folder for copies of state on a disk of each machine.
    name : str
        Begins the names of all files: who runs, and what for.
    late, watermark : int
        In microseconds: what rows, and what state, are over.
    most_bytes : int
        Entries that a task holds.
    rehomed : Rehomed
        Keys that are in other shards than in the batch before.
    steps : tuple of Step
        What is made of the rows that come out, one after the other.
    followers : tuple of int
        Numbers of the stages that follow.
    hops : dict of int to Hop
        To those of them for which rows may stay on their instance.
    entries : dict of int to list of str
        By instance, files with what the stage before has folded for it.
    speeds : sequence of float
        Of executors, where some are slowed.
    """

    operator: Operator
    plan: dict[str, Any]
    cooled: dict[int, list[int]]
    stage: int
    base: int | None
    folder: str
    cache: str | None
    name: str
    late: int
    watermark: int
    most_bytes: int
    rehomed: Rehomed
    steps: tuple[Step, ...] = ()
    followers: tuple[int, ...] = ()
    hops: Mapping[int, Hop] = field(default_factory=dict)
    entries: Mapping[int, Sequence[str]] = field(default_factory=dict)
    speeds: Sequence[float] = ()

    def run(self, batches: Batches) -> Batches:
        """Do the work of one instance: the function for ``mapInArrow``."""
        _compile()
        began = perf_counter()
        counted, on_disks = reading(), process_bytes()
        context = _context()
        checkpoint = Checkpoint(Path(self.folder))
        base = self._base(checkpoint)
        instance = context.partitionId()
        name = f"{self.name}-{self.stage}-{instance}-{context.taskAttemptId()}"
        work = Work(
            operator=self.operator,
            plan=Plan.from_json(self.plan),
            instance=instance,
            shards={} if base is None else base.stages[self.stage],
            segment=checkpoint.segments / f"{name}.arrow",
            stage=self.stage,
            late=self.late,
            watermark=self.watermark,
            cooled=self.cooled,
            entries=[checkpoint.output / each for each in self.entries.get(instance, ())],
            rehomed=self.rehomed,
            most_bytes=self.most_bytes,
            speed=speed_here(self.speeds, instance),
        )
        reader = _reader(checkpoint.segments, self.cache)
        before = reader.read_bytes
        task = task_of(work, reader)
        report = task.report
        output = checkpoint.output / f"{name}.parquet"
        parting = None
        if self.hops:
            parting = Parting(self.followers, self.hops, instance, self.most_bytes // 2)
        taken = _Weighed(batches)
        came = _counted(self._stepped(task, _rows(taken, self.operator)), report)
        left = came if parting is None else _parted(task, parting, came)
        report.rows_out = write_output(left, output, task.busy)
        report.output = [output.name] if report.rows_out else []
        pairs: dict[int, bytes] = {}
        if parting is not None:
            with task.busy():
                pairs = _end_hops(parting, checkpoint.output / name, report)
        report.checked = reader.read_bytes - before
        if work.segment.exists():
            reader.trust(work.segment.name)
        if base is not None:
            reader.forget(base.runs(), _COPY_SECONDS)
        spare_what_is_loaded()
        report.node = {
            **node(),
            BEGAN: counted,
            ENDED: reading(),
            DISK_BYTES: process_bytes() - on_disks,
            NETWORK_BYTES: taken.bytes + report.bytes_out,
        }
        report.seconds = perf_counter() - began
        columns = [
            pa.array([json.dumps(report.to_json())], pa.string()),
            pa.array([_packed(task.parts)], pa.binary()),
            # In the order of the hops; a hop without pairs has none.
            pa.array([[pairs.get(number) for number in sorted(self.hops)]], pa.list_(pa.binary())),
        ]
        yield pa.RecordBatch.from_arrays(columns, names=[REPORT, PARTS, PAIRS])

    def _stepped(self, task: Task, rows: Batches) -> Batches:
        """Return what the steps make of what comes out."""
        output = task.run(rows)
        if not self.steps:
            yield from output
            return
        for batch in output:
            with task.busy():
                made = stepped(batch, self.steps)
            yield made

    def _base(self, checkpoint: Checkpoint) -> Manifest | None:
        """Return the manifest that the driver has seen: without it, state would seem empty."""
        if self.base is None:
            return None
        found = checkpoint.manifest(self.base)
        if found is None:
            raise DamagedCheckpoint(
                f"{socket.gethostname()} does not see in {self.folder} what the driver has written "
                f"there; put the state in a folder that the driver and all executors share"
            )
        return found


class _Weighed:
    """What comes in, and its bytes."""

    def __init__(self, batches: Batches) -> None:
        self.bytes = 0
        self._batches = batches

    def __iter__(self) -> Batches:
        for batch in self._batches:
            self.bytes += batch.nbytes
            yield batch


def _counted(output: Batches, report: TaskReport) -> Batches:
    """Return what comes out, and count its bytes."""
    for batch in output:
        report.came_out += batch.num_rows
        report.bytes_out += batch.nbytes
        yield batch


def _parted(task: Task, parting: Parting, output: Batches) -> Batches:
    """Return what is left of what comes out when rows for this instance are taken."""
    for batch in output:
        with task.busy():
            left = parting.part(batch)
        yield left


def _end_hops(parting: Parting, path: Path, report: TaskReport) -> dict[int, bytes]:
    """Write what was folded here; return the pairs that were counted."""
    report.entries = parting.write(path)
    report.near, report.near_late = parting.near, parting.late
    return parting.pairs


def write_output(
    output: Iterable[pa.RecordBatch],
    path: Path,
    busy: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> int:
    """Write what comes out to a Parquet file, if anything does; return the rows.

    Parameters
    ----------
    output : iterable of pyarrow.RecordBatch
        What comes out.
    path : Path
        Of the file.
    busy : callable, optional
        Counts the time of writing, not that in which the output is made.
    """
    rows = 0
    writer = None
    try:
        for batch in output:
            if batch.num_rows:
                with busy(), writing(path):
                    writer = writer or pq.ParquetWriter(
                        path,
                        batch.schema,
                        compression="lz4",
                        use_dictionary=False,
                        write_statistics=False,
                    )
                    writer.write_batch(batch)
                rows += batch.num_rows
    finally:
        if writer is not None:
            with busy(), writing(path):
                writer.close()
    if rows:
        with writing(path), path.open("rb") as file:
            os.fsync(file.fileno())
    return rows


def unpacked(parts: Iterable[bytes | None]) -> list[pa.RecordBatch]:
    """Return the parts of hot keys that tasks have sent."""
    found: list[pa.RecordBatch] = []
    for data in parts:
        if data is not None:
            with pa.ipc.open_stream(data) as reader:
                found += list(reader)
    return found


def _packed(parts: list[pa.RecordBatch]) -> bytes | None:
    if not parts:
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, parts[0].schema) as writer:
        for part in parts:
            writer.write_batch(part)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _compile() -> None:
    """Have the kernels of operators, which one worker of a machine compiles for all."""
    with compiling(match.__module__):
        match(np.zeros(1, dtype=np.uint64), None, [])


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context


def _rows(batches: Iterable[pa.RecordBatch], operator: Operator) -> Batches:
    """Return rows as the operator has them."""
    head = [pa.field(HASH, pa.uint64()), pa.field(TIME, pa.int64())]
    schema = pa.schema([*head, *operator.keys, *operator.values])
    for batch in batches:
        if batch.num_rows:
            hashes = pa.array(batch.column(0).to_numpy().view(np.uint64))
            columns = [
                column if column.type == wanted.type else column.cast(wanted.type)
                for column, wanted in zip(batch.columns[1:], list(schema)[1:], strict=True)
            ]
            yield pa.RecordBatch.from_arrays([hashes, *columns], schema=schema)


def _marks(name: str) -> Path | None:
    """Return a folder that the workers of an executor share, and that is gone when it is."""
    given = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    if not given:
        return None
    folder = Path(given) / f"unskew-checked-{name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder


_readers: dict[tuple[Path, str | None], SegmentReader] = {}


def _reader(folder: Path, cache: str | None) -> SegmentReader:
    """Return a reader that this worker has used before, if there is one: it knows what it checked.

    That only saves time: any worker can open any run.
    """
    if len(_readers) > 8:
        _readers.clear()
    if (folder, cache) not in _readers:
        # Pipelines may share a machine: each has a folder of its own there.
        name = f"{crc32(bytes(folder)):08x}"
        near = None if cache is None else Path(cache) / name
        _readers[folder, cache] = SegmentReader(folder, near, _marks(name))
    return _readers[folder, cache]
