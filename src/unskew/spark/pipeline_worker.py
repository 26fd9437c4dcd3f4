"""What runs in Spark's Python workers for a pipeline: a stage of one instance, and merges after it.

Rows and what tasks tell travel in one shuffle output, so that Spark takes both from one attempt. A
row that tells has nothing else, nor has one with parts of a hot key.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext

from unskew.balance import Plan
from unskew.kernel import compiling
from unskew.operators import Operator
from unskew.operators.base import TIME
from unskew.operators.matching import match
from unskew.operators.task import Task, Work
from unskew.state import Checkpoint
from unskew.state.runs import HASH
from unskew.state.segment import SegmentReader

TOLD, PARTS = "unskew_told", "unskew_parts"
"""Columns of rows that are not output: what a task tells; parts of a hot key's state."""

Batches = Iterator[pa.RecordBatch]

_OUT_ROWS = 1 << 16


@dataclass(frozen=True)
class Step:
    """What every task of a stage needs to know in one batch; it travels to the workers.

    Attributes
    ----------
    operator : Operator
        Of the stage.
    plan : dict
        Of the stage in this batch, as JSON.
    cooled : list of int
        Keys that were hot in the batch before, and are not any more.
    stage, base : int
        Number of the stage, and of the version that the batch goes on from.
    folder : str
        The checkpoint.
    cache : str or None
        Folder for copies of state on a disk of each machine.
    name : str
        Begins the names of all files: who runs, and what for.
    watermark : int
        In microseconds.
    is_last : bool
        Whether the output is written to files, as of the last stage, or goes on as rows.
    most_bytes : int
        Entries that a task holds.
    """

    operator: Operator
    plan: dict[str, Any]
    cooled: list[int]
    stage: int
    base: int
    folder: str
    cache: str | None
    name: str
    watermark: int
    is_last: bool
    most_bytes: int

    def run(self, batches: Batches) -> Batches:
        """Do the work of one instance: the function for ``mapInArrow``."""
        _compile()
        began = perf_counter()
        context = _context()
        checkpoint = Checkpoint(Path(self.folder))
        base = checkpoint.manifest(self.base)
        name = f"{self.name}-{self.stage}-{context.partitionId()}-{context.taskAttemptId()}"
        work = Work(
            operator=self.operator,
            plan=Plan.from_json(self.plan),
            instance=context.partitionId(),
            shards={} if base is None else base.stages[self.stage],
            watermark=self.watermark,
            segment=checkpoint.segments / f"{name}.arrow",
            cooled=self.cooled,
            most_bytes=self.most_bytes,
        )
        reader = _reader(checkpoint.segments, self.cache)
        before = reader.read_bytes
        task = Task(work, reader)
        told: list[str] = []
        out = _Out(self, checkpoint.output / f"{name}.parquet")
        yield from out.send(task.run(_rows(batches, self.operator, told)))
        task.told.read = reader.read_bytes - before
        facts = {
            **asdict(task.told),
            "stage": self.stage,
            "output": out.files,
            "rows_out": out.rows,
            "seconds": perf_counter() - began,
            "node": node(),
        }
        yield from out.share(task.parts)
        yield out.tell([*told, json.dumps(facts)])

    def merge(self, batches: Batches) -> Batches:
        """Gather the parts of hot keys: what follows the exchange after a stage that has some."""
        context = _context()
        name = f"{self.name}-{self.stage}-merge-{context.partitionId()}-{context.taskAttemptId()}"
        out = _Out(self, Checkpoint(Path(self.folder)).output / f"{name}.parquet")
        told: list[str] = []
        parts: list[pa.RecordBatch] = []
        for batch in batches:
            told += batch.column(TOLD).drop_null().to_pylist()
            for data in batch.column(PARTS).drop_null():
                with pa.ipc.open_stream(data.as_buffer()) as reader:
                    parts += list(reader)
            if not self.is_last:
                is_row = pc.and_(batch.column(TOLD).is_null(), batch.column(PARTS).is_null())
                yield from out.send([batch.filter(is_row).select(out.schema.names)])
        if parts:
            yield from out.send([self.operator.gather(pa.concat_batches(parts))])
        facts = {"stage": self.stage, "merge": True, "output": out.files, "rows_out": out.rows}
        yield out.tell([*told, json.dumps(facts)])

    def schema(self) -> list[tuple[str, str]]:
        """Return the columns before those of the output, with Spark's types."""
        return [(TOLD, "string"), (HASH, "bigint"), (PARTS, "binary")]


class _Out:
    """What leaves a task: rows to a file or onward, parts, and what there is to tell."""

    def __init__(self, step: Step, path: Path) -> None:
        self.schema = pa.schema(list(step.operator.output))
        self.files: list[str] = []
        self.rows = 0
        self._is_last = step.is_last
        self._path = path

    def send(self, output: Iterable[pa.RecordBatch]) -> Batches:
        """Write rows to the file, or return them with the other columns empty."""
        if self._is_last:
            written = _written(output, self._path, self.schema)
            self.files += [self._path.name] if written else []
            self.rows += written
            return
        for batch in output:
            self.rows += batch.num_rows
            for start in range(0, batch.num_rows, _OUT_ROWS):
                cut = batch.slice(start, _OUT_ROWS)
                yield self._columns(cut.num_rows, columns=cut.columns)

    def share(self, parts: Sequence[pa.RecordBatch]) -> Batches:
        """Return the parts of each key as one row."""
        if not parts:
            return
        joined = pa.concat_batches(parts)
        hashes = joined.column(HASH).to_numpy()
        keys = np.unique(hashes)
        data = []
        for key in keys:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, joined.schema) as writer:
                writer.write_batch(joined.filter(pa.array(hashes == key)))
            data.append(sink.getvalue().to_pybytes())
        yield self._columns(
            keys.size, hashes=pa.array(keys.view(np.int64)), parts=pa.array(data, pa.binary())
        )

    def tell(self, told: Sequence[str]) -> pa.RecordBatch:
        """Return what there is to tell, a row each."""
        return self._columns(len(told), told=pa.array(list(told), pa.string()))

    def _columns(
        self,
        rows: int,
        *,
        told: pa.Array | None = None,
        hashes: pa.Array | None = None,
        parts: pa.Array | None = None,
        columns: Sequence[pa.Array] | None = None,
    ) -> pa.RecordBatch:
        head = [
            told if told is not None else pa.nulls(rows, pa.string()),
            hashes if hashes is not None else pa.nulls(rows, pa.int64()),
            parts if parts is not None else pa.nulls(rows, pa.binary()),
        ]
        fields = [] if self._is_last else list(self.schema)
        rest = [pa.nulls(rows, field.type) for field in fields] if columns is None else columns
        names = [TOLD, HASH, PARTS, *(field.name for field in fields)]
        return pa.RecordBatch.from_arrays([*head, *rest], names=names)


def _compile() -> None:
    """Have the kernels of operators, which one worker of a machine compiles for all."""
    with compiling(match.__module__):
        match(np.zeros(1, dtype=np.uint64), None, [])


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context


def _rows(batches: Batches, operator: Operator, passed: list[str]) -> Batches:
    """Return rows as the operator has them; what earlier stages told is put aside."""
    head = [pa.field(HASH, pa.uint64()), pa.field(TIME, pa.int64())]
    schema = pa.schema([*head, *operator.keys, *operator.values])
    for batch in batches:
        if batch.schema.names[0] == TOLD:
            told = batch.column(0)
            if told.null_count < len(told):
                passed.extend(text for text in told.to_pylist() if text is not None)
                batch = batch.filter(told.is_null())
            batch = batch.select(range(1, batch.num_columns))
        if batch.num_rows:
            hashes = pa.array(batch.column(0).to_numpy().view(np.uint64))
            columns = [
                column if column.type == wanted.type else column.cast(wanted.type)
                for column, wanted in zip(batch.columns[1:], list(schema)[1:], strict=True)
            ]
            yield pa.RecordBatch.from_arrays([hashes, *columns], schema=schema)


def _written(output: Iterable[pa.RecordBatch], path: Path, schema: pa.Schema) -> int:
    """Write what comes out to a Parquet file, if anything does; return the rows."""
    rows = 0
    writer = None
    try:
        for batch in output:
            if batch.num_rows:
                if writer is None:
                    writer = pq.ParquetWriter(
                        path,
                        schema,
                        compression="lz4",
                        use_dictionary=False,
                        write_statistics=False,
                    )
                writer.write_batch(batch)
                rows += batch.num_rows
    finally:
        if writer is not None:
            writer.close()
    if rows:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    return rows


_readers: dict[tuple[Path, str | None], SegmentReader] = {}


def _reader(folder: Path, cache: str | None) -> SegmentReader:
    """Return a reader that this worker has used before, if there is one: it knows what it checked.

    That only saves time: any worker can open any run.
    """
    if len(_readers) > 8:
        _readers.clear()
    near = None if cache is None else Path(cache)
    return _readers.setdefault((folder, cache), SegmentReader(folder, near))


def node() -> dict[str, Any]:
    """Return which executor this is, by its machine and process, and how busy the machine is."""
    executor = _executor()
    memory = psutil.virtual_memory()
    return {
        "host": socket.gethostname(),
        "process": executor,
        "cpu": psutil.cpu_percent(),
        "memory": memory.percent,
    }


def _executor() -> int:
    """Return the process id of the JVM that this worker, or the daemon it came from, belongs to."""
    for parent in psutil.Process().parents():
        if parent.name().startswith("java"):
            return int(parent.pid)
    return os.getppid()
