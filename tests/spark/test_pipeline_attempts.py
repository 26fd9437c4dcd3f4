"""Attempts of tasks and runs of drivers that meet on one checkpoint: one of them counts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew.spark import MemorySink, Pipeline, Settings, pipeline_worker, read_state
from unskew.spark.cycle import Cycle
from unskew.spark.pipeline_worker import REPORT, StageWork
from unskew.state import Checkpoint, Manifest, Run
from unskew.state.versions import version_of

FILES = 3
ROWS = 300


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Path:
    """Return a folder of three files."""
    for number in range(FILES):
        rows = spark.range(number * ROWS, (number + 1) * ROWS).select((F.col("id") % 40).alias("k"))
        rows.coalesce(1).write.mode("append").parquet(str(tmp_path / "source"))
    return tmp_path / "source"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[StageWork]:
    """Return what tasks of every batch were sent, as the driver sends it."""
    sent: list[StageWork] = []
    original = Cycle._work

    def record(*arguments: Any) -> StageWork:
        sent.append(original(*arguments))
        return sent[-1]

    monkeypatch.setattr(Cycle, "_work", record)
    return sent


def counting(spark: SparkSession, folder: Path, **options: Any) -> Pipeline:
    reader = spark.readStream.schema("k long").option("maxFilesPerTrigger", 1)
    return Pipeline(reader.parquet(str(folder)), instances=2, shards=4, **options).count("k")


def finish(pipeline: Pipeline, checkpoint: Path, **options: Any) -> None:
    query = pipeline.start(MemorySink(), checkpoint, availableNow=True, **options)
    query.awaitTermination()


def totals(df: DataFrame, column: str) -> dict[int, int]:
    return {row["k"]: row[column] for row in df.collect()}


class Attempts:
    """Run the body of a task as several attempts, which begin at the same time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._next = 1_000_000
        self._contexts: list[Any] = []
        monkeypatch.setattr(pipeline_worker, "_context", lambda: self._contexts.pop())

    def run(self, step: StageWork, rows: Sequence[pa.RecordBatch], attempts: int) -> list[Any]:
        """Return what each attempt told, of instance 0."""
        barrier = Barrier(attempts)
        for _ in range(attempts):
            self._next += 1
            number = self._next
            self._contexts.append(
                SimpleNamespace(partitionId=lambda: 0, taskAttemptId=lambda number=number: number)
            )

        def attempt(_: int) -> Any:
            barrier.wait()
            last = list(step.run(iter(rows)))[-1]
            return json.loads(last.column(REPORT)[0].as_py())

        with ThreadPoolExecutor(attempts) as pool:
            return list(pool.map(attempt, range(attempts)))


def rows_of_first_instance(
    spark: SparkSession, pipeline: Pipeline, source: Path, step: StageWork
) -> list[pa.RecordBatch]:
    """Return rows as the first task of a stage gets them."""
    columns = spark.read.parquet(str(source)).select(*pipeline.stages[0].columns)
    shards = len(step.plan["assignment"])
    here = [s for s, instance in enumerate(step.plan["assignment"]) if instance == 0]
    name = columns.columns[0]
    kept = columns.where(F.pmod(F.col(name), F.lit(shards)).isin(here))
    batches: list[pa.RecordBatch] = kept.toArrow().combine_chunks().to_batches()
    return batches


def test_two_attempts_of_a_task_at_once_write_the_same_to_files_of_their_own(
    spark: SparkSession,
    source: Path,
    tmp_path: Path,
    steps: list[StageWork],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline = counting(spark, source, balancer="static")
    finish(pipeline, tmp_path / "checkpoint")
    step = replace(steps[-1], base=version_of(FILES - 1))
    rows = rows_of_first_instance(spark, pipeline, source, step)
    one, other = Attempts(monkeypatch).run(step, rows, attempts=2)

    files = [{run[0] for runs in each["runs"].values() for run in runs} for each in (one, other)]
    assert len(files[0]) == len(files[1]) == 1
    assert not files[0] & files[1]
    assert not set(one["output"]) & set(other["output"])
    checkpoint = Checkpoint(tmp_path / "checkpoint" / "unskew")
    contents = [(checkpoint.segments / file.pop()).read_bytes() for file in files]
    assert contents[0] == contents[1]
    counted = [(each["rows"], each["keys"], each["rows_out"]) for each in (one, other)]
    assert counted[0] == counted[1]
    assert one["rows_out"] > 0


def test_a_task_of_a_killed_run_that_writes_after_the_restart_changes_nothing(
    spark: SparkSession,
    source: Path,
    tmp_path: Path,
    steps: list[StageWork],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = tmp_path / "checkpoint"
    pipeline = counting(spark, source, balancer="static")
    original = Checkpoint.commit

    def die(self: Checkpoint, manifest: Manifest) -> None:
        if manifest.version == version_of(1):
            raise RuntimeError("killed before the manifest")
        original(self, manifest)

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "commit", die)
        with pytest.raises(StreamingQueryException):
            finish(pipeline, place)
    left = steps[-1]
    assert left.name.endswith(f"-{version_of(1)}")
    finish(pipeline, place, settings=Settings(grace=0.0))

    checkpoint = Checkpoint(place / "unskew")
    before = {path: path.read_bytes() for path in checkpoint.folder.rglob("*") if path.is_file()}
    rows = rows_of_first_instance(spark, pipeline, source, left)
    (told,) = Attempts(monkeypatch).run(left, rows, attempts=1)
    written = {run[0] for runs in told["runs"].values() for run in runs} | set(told["output"])
    after = {path: path.read_bytes() for path in checkpoint.folder.rglob("*") if path.is_file()}
    assert {path.name for path in after.keys() - before.keys()} == written
    assert {path: after[path] for path in before} == before
    wanted = totals(spark.read.parquet(str(source)).groupBy("k").count(), "count")
    assert totals(read_state(spark, place), "state_count") == wanted
    checkpoint.collect_garbage(kept=2, grace=-1.0)
    assert not {path.name for path in checkpoint.folder.rglob("*")} & written
    assert totals(read_state(spark, place), "state_count") == wanted


def test_another_query_on_the_same_state_is_refused(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    pipeline = counting(spark, source)
    finish(pipeline, tmp_path / "one", state=tmp_path / "state")
    before = {path: path.read_bytes() for path in (tmp_path / "state").rglob("*.*")}
    with pytest.raises(StreamingQueryException, match="this is query"):
        finish(pipeline, tmp_path / "other", state=tmp_path / "state")
    assert {path: path.read_bytes() for path in (tmp_path / "state").rglob("*.*")} == before


def test_a_driver_that_commits_second_is_refused(
    spark: SparkSession, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = counting(spark, source)
    original = Checkpoint.commit

    def overtaken(self: Checkpoint, manifest: Manifest) -> None:
        if manifest.version == version_of(1):
            # Another driver has done the same batch, with files of its own.
            stages = [
                {s: tuple(Run("theirs", *run[1:]) for run in runs) for s, runs in each.items()}
                for each in manifest.stages
            ]
            original(self, replace(manifest, stages=stages))
        original(self, manifest)

    monkeypatch.setattr(Checkpoint, "commit", overtaken)
    with pytest.raises(StreamingQueryException, match="two queries must not share a checkpoint"):
        finish(pipeline, tmp_path / "checkpoint")
    checkpoint = Checkpoint(tmp_path / "checkpoint" / "unskew")
    kept = checkpoint.manifest(version_of(1))
    assert kept is not None
    assert kept.files() == {"theirs"}
    assert not checkpoint.is_done(version_of(1))
