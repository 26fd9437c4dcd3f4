"""A pipeline in a process of its own, to be killed: at a point of its cycle, or at any moment.

Run as a script: ``pipeline_drill.py FOLDER BATCHES [POINT BATCH]``. Counts an endless stream into
FOLDER until it has so many batches, or kills itself and its JVM at the point; its workers end by
themselves. With JOB=join it joins two of them, with JOB=hop it counts by another key before, with
JOB=branch twice after that, into FOLDER/out and FOLDER/out-again, with JOB=consistent the speeds of
instances, or executors, change, and shards follow them.
Garbage is removed after GRACE seconds, none by default. A file FOLDER/begun appears when the first
batch of a run begins.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from spark.balancers import Restless, Wandering
from spark.replay_drill import executors

from unskew.aggregates import Count, Groups
from unskew.operators.base import Changes
from unskew.operators.interval_join import LEFT_ROW, IntervalJoin
from unskew.spark import Pipeline, Settings, Speeds, join, sinks
from unskew.state import Checkpoint, shards
from unskew.state.versions import version_of

ROWS = 3000
JOINED = 150
"""Rows of a batch of each of two streams that are joined."""

SPEEDS = Speeds((1, 1, 0.3), {2: (0.3, 1, 1), 4: (1, 0.3, 1)})

POINTS = [
    "after the plan",
    "in route",
    "in the operator",
    "in a merge of runs",
    "before the manifest",
    "after the manifest",
    "in the sink",
    "before the done marker",
    "in garbage collection",
]


BETWEEN = "between the sinks"
"""A point of a pipeline that has two."""

EXECUTOR = "an executor"
IN_WORKERS = ("in the operator", "in a merge of runs")


def key_of(value: Column) -> Column:
    """Return the key of a row: a third of all are one key."""
    return F.when(value % 3 == 0, "hot").otherwise(F.concat(F.lit("key "), value % 500))


def joined_key(value: Column, side: str) -> Column:
    """Return the key of a row of one of two streams: a fifth have one that the other has not."""
    own = F.concat(F.lit(f"{side} "), value % 500)
    return F.when(value % 5 == 1, own).otherwise(key_of(value))


def behind(value: Column, side: str) -> Column:
    """Return the seconds that a row is behind its batch: some are out of order, some are late."""
    every = {"left": 7, "right": 11}[side]
    return F.when(value % every == 0, F.floor(value / every) % 5).otherwise(0)


def kill(group: int = 0) -> None:
    """Kill the driver and its JVM, as a power cut would; workers find out by themselves."""
    os.killpg(group, signal.SIGKILL)
    # Workers are in another group, and might go on for a moment.
    time.sleep(60)


def main() -> None:
    folder, batches = Path(sys.argv[1]), int(sys.argv[2])
    point, at = (sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 3 else (None, -1)
    spark = session(folder, "local-cluster[3,1,1024]" if point == EXECUTOR else "local[2]")
    if point == EXECUTOR:
        Thread(target=kill_executor, args=(spark, folder / f"batch-{at}"), daemon=True).start()
    pipeline = JOBS[os.environ.get("JOB", "count")](spark, point, at)
    with patched(point, at):
        ends = {"count": folder / "out", "count again": folder / "out-again"}
        query = pipeline.start(
            ends if len(pipeline.stages) == 3 else folder / "out",
            folder / "checkpoint",
            before=lambda _: (folder / "begun").touch(),
            watch=lambda report: (folder / f"batch-{report.batch}").touch(),
            settings=Settings(
                kept=3,
                grace=float(os.environ.get("GRACE", "0")),
                clean_every=2,
                speeds=SPEEDS if os.environ.get("JOB") == "consistent" else None,
            ),
        )
        while query.isActive and not (folder / f"batch-{batches - 1}").exists():
            query.awaitTermination(1)
        query.stop()
    failure = query.exception()
    if failure is not None and not (folder / f"batch-{batches - 1}").exists():
        raise failure
    spark.stop()


def endless(spark: SparkSession, rows: int) -> DataFrame:
    """Return a stream that is the same in every run."""
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    reader = reader.option("startTimestamp", 0).option("advanceMillisPerBatch", 1000)
    return reader.option("numPartitions", 2).load()


def counting(spark: SparkSession, point: str | None, at: int) -> Pipeline:
    """Return the pipeline that counts."""
    rows = killed_in_route(endless(spark, ROWS), point, at * ROWS)
    count = KillingCount(at, point, os.getpgid(0)) if point in IN_WORKERS else Count()
    pipeline = Pipeline(
        rows.select(key_of(F.col("value")).alias("key"), "value"),
        instances=3,
        shards=9,
        balancer=Restless(),
    )
    return pipeline.aggregate("key", {"n": count.of("value")}, name="count")


def hopping(spark: SparkSession, point: str | None, at: int) -> Pipeline:
    """Return the pipeline that counts by two keys in a row, which change their places."""
    rows = killed_in_route(endless(spark, ROWS), point, at * ROWS)
    count = KillingCount(at, point, os.getpgid(0)) if point in IN_WORKERS else Count()
    value = F.col("value")
    pipeline = Pipeline(
        rows.select((value % 40).alias("group"), key_of(value).alias("key"), "value"),
        instances=3,
        shards=9,
        balancer=Wandering(),
    )
    grouped = pipeline.aggregate("group", {"rows": Count().of()}, mode="rows", name="group")
    return grouped.aggregate("key", {"n": count.of("value")}, name="count")


def branching(spark: SparkSession, point: str | None, at: int) -> Pipeline:
    """Return the pipeline that counts by one key, and after that twice by another."""
    counted = hopping(spark, point, at)
    return counted.aggregate("key", {"n": Count().of("value")}, name="count again", after="group")


def joining(spark: SparkSession, point: str | None, at: int) -> Pipeline:
    """Return the pipeline that joins rows of a key that are at most a second apart."""
    sides = []
    for name in ("left", "right"):
        value = F.col("value")
        when = F.timestamp_seconds(F.unix_seconds("timestamp") - behind(value, name))
        side = killed_in_route(endless(spark, JOINED), point, at * JOINED).select(
            joined_key(value, name).alias("key"), value.alias(name), when.alias("time")
        )
        sides.append(side.withWatermark("time", "1 second"))
    KillingJoin.first, KillingJoin.point, KillingJoin.group = at * JOINED, point, os.getpgid(0)
    operator = KillingJoin if point in IN_WORKERS else IntervalJoin
    with patch("unskew.spark.joining.IntervalJoin", operator):
        return join(
            *(sides[0], sides[1], "key"),
            within=1,
            how="full",
            instances=3,
            shards=9,
            balancer=Restless(),
        )


def following(spark: SparkSession, point: str | None, at: int) -> Pipeline:
    """Return the pipeline that counts, on instances whose speeds change."""
    rows = killed_in_route(endless(spark, ROWS), point, at * ROWS)
    count = KillingCount(at, point or "", os.getpgid(0), wait=1e-4)
    pipeline = Pipeline(
        rows.select(key_of(F.col("value")).alias("key"), "value"),
        instances=3,
        balancer="consistent",
    )
    return pipeline.aggregate("key", {"n": count.of("value")}, name="count")


JOBS = {
    "count": counting,
    "join": joining,
    "hop": hopping,
    "branch": branching,
    "consistent": following,
}


def kill_executor(spark: SparkSession, signal_file: Path) -> None:
    """Kill one executor, a moment after a batch is done: in the middle of the next."""
    while not signal_file.exists():
        time.sleep(0.02)
    time.sleep(0.3)
    os.kill(executors(spark)[0], signal.SIGKILL)
    (signal_file.parent / "killed").touch()


def session(folder: Path, master: str) -> SparkSession:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    scratch = folder / "scratch"
    return (
        SparkSession.builder.master(master)
        .config("spark.deploy.maxExecutorRetries", "-1")
        # What it takes to keep instances on their executors.
        .config("spark.locality.wait", "30s")
        .config("spark.shuffle.reduceLocality.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(scratch))
        .config("spark.log.level", "OFF")
        # The watermark of every batch says what should have come out.
        .config("spark.sql.streaming.minBatchesToRetain", str(2**30))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


Rows = Iterator[pa.RecordBatch]


def killed_in_route(rows: DataFrame, point: str | None, first: int) -> DataFrame:
    """Return the rows, with a step that kills everything at one of them, if that is the point."""
    if point != "in route":
        return rows
    group = os.getpgid(0)

    def run(batches: Rows) -> Rows:
        for batch in batches:
            if batch.num_rows and batch.column("value")[0].as_py() >= first:
                kill(group)
            yield batch

    return rows.mapInArrow(run, rows.schema)


class KillingCount(Count):
    """A count that kills everything at the first row of a batch, or where its state is written."""

    def __init__(self, at: int, point: str, group: int, wait: float = 0.0) -> None:
        self.at, self.point, self.group, self.wait = at, point, group, wait

    def __repr__(self) -> str:
        return "Count()"

    def update(self, states: pa.Array, groups: Groups, *values: pa.Array) -> pa.Array:
        time.sleep(self.wait * groups.size)
        is_now = len(values[0]) and values[0][0].as_py() >= self.at * ROWS
        if is_now and self.point in IN_WORKERS:
            if self.point == "in the operator":
                kill(self.group)
            # The worker that this runs in is not asked for anything after.
            vars(shards)["merge"] = lambda runs, oldest: kill(self.group)
        return super().update(states, groups, *values)


class KillingJoin(IntervalJoin):
    """A join that kills everything at a row, or where the state is written that it becomes."""

    first: ClassVar[int]
    point: ClassVar[str | None]
    group: ClassVar[int]

    def process(self, state: pa.RecordBatch, entries: pa.RecordBatch) -> Changes:
        newest = pc.max(pc.struct_field(entries.column(LEFT_ROW), "left")).as_py()
        if newest is not None and newest >= self.first:
            if self.point == "in the operator":
                kill(self.group)
            # The worker that this runs in is not asked for anything after.
            vars(shards)["merge_appended"] = lambda runs, oldest, after: kill(self.group)
        return super().process(state, entries)


def patched(point: str | None, at: int) -> Any:
    """Return what kills at one of the points that the driver passes."""

    def is_now(arguments: tuple[Any, ...]) -> bool:
        numbers = [each for each in arguments if isinstance(each, int)]
        return version_of(at) in (*numbers, getattr(arguments[0], "version", None))

    def killing(original: Any, *, after: bool) -> Any:
        def run(self: Any, *arguments: Any) -> Any:
            if is_now(arguments) and not after:
                kill()
            done = original(self, *arguments)
            if is_now(arguments):
                kill()
            return done

        return run

    def copy(source: Path, target: Path) -> None:
        if f".version={version_of(at)}." in str(target) and list(target.parent.iterdir()):
            kill()
        os.link(source, target)

    def collect_half(self: Checkpoint, kept: int, grace: float) -> None:
        removed: list[Path] = []
        unlink = Path.unlink

        def remove(path: Path, **other: Any) -> None:
            removed.append(path)
            if len(removed) == 3:
                kill()
            unlink(path, **other)

        with patch.object(Path, "unlink", remove):
            collect(self, kept, grace)

    write = sinks.ParquetSink.write

    def write_first(self: sinks.ParquetSink, output: sinks.Output, version: int) -> None:
        if version == version_of(at) and self.folder.name == "out-again":
            kill()
        write(self, output, version)

    collect = Checkpoint.collect_garbage
    replaced: dict[str, tuple[Any, str, Any]] = {
        "after the plan": (Checkpoint, "decide", killing(Checkpoint.decide, after=True)),
        "before the manifest": (Checkpoint, "commit", killing(Checkpoint.commit, after=False)),
        "after the manifest": (Checkpoint, "commit", killing(Checkpoint.commit, after=True)),
        "in the sink": (sinks, "_copy", copy),
        BETWEEN: (sinks.ParquetSink, "write", write_first),
        "before the done marker": (
            *(Checkpoint, "mark_done"),
            killing(Checkpoint.mark_done, after=False),
        ),
        "in garbage collection": (Checkpoint, "collect_garbage", collect_half),
    }
    return patch.object(*replaced[point]) if point in replaced else nullcontext()


def plain_pairs(spark: SparkSession, marks: Sequence[int]) -> DataFrame:
    """Return what should have come out of a join of two streams, each batch of which is a second.

    By the watermark that Spark had for each batch, in milliseconds: rows up to that of the batch
    before are late, and a row comes out alone once all that could be its partner would be.
    """
    late = F.get(F.lit([0, *marks[:-1]]).cast("array<bigint>"), F.col("batch"))
    sides = []
    for name in ("left", "right"):
        batch = F.floor(F.col("id") / JOINED)
        rows = spark.range(len(marks) * JOINED).select(
            joined_key(F.col("id"), name).alias("key"),
            F.col("id").alias(name),
            (batch - behind(F.col("id"), name)).alias("second"),
            batch.cast("int").alias("batch"),
        )
        sides.append(rows.where((late == 0) | (1000 * F.col("second") > late)))
    near = "l.key = r.key and abs(l.second - r.second) <= 1"
    pairs = sides[0].alias("l").join(sides[1].alias("r"), F.expr(near), "full")
    last_chance = 1000 * (F.coalesce("l.second", "r.second") + 1)
    is_pair = F.col("l.key").isNotNull() & F.col("r.key").isNotNull()
    return pairs.where(is_pair | (last_chance <= marks[-1])).select("left", "right")


def plain(spark: SparkSession, batches: int) -> DataFrame:
    """Return what each batch should have told: the version, the key and its count so far."""
    values = spark.range(batches * ROWS).select(
        key_of(F.col("id")).alias("key"), F.floor(F.col("id") / ROWS).alias("batch")
    )
    counted = values.groupBy("key", "batch").count()
    so_far = Window.partitionBy("key").orderBy("batch")
    return counted.select(
        "key",
        (F.col("batch") * version_of(1)).alias("version"),
        F.sum("count").over(so_far).alias("n"),
    )


if __name__ == "__main__":
    main()
