"""The stateful pipeline beside Spark's own stateful aggregation, ratios within one run.

Throughput: batches of 2M rows over 1M string keys, counted, uniform. Skew: a delay-bound aggregate
("delay-bound" means that a row waits and does not compute, so that two cores can run 16 instances)
under `static` and under `greedy`. Growth: the same keys touched while ten times as many are kept.
Moving: state that no machine has a copy of. Distinct: the driver's memory while the keys grow.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from bench_repartition import DELAY, INSTANCES, session
from pyspark.sql import DataFrame, SparkSession
from waiting import Waiting

from unskew.metrics import imbalance
from unskew.spark import BatchReport, Pipeline, Settings
from unskew.workloads import Zipf

ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def write_files(
    folder: Path, batches: int, make: Callable[[int], Any], *, group: int = 1 << 18
) -> None:
    """Write a folder of files, one for each batch, in the order in which Spark reads them.

    Spark reads a group of rows in one task.
    """
    folder.mkdir(parents=True)
    for number in range(batches):
        path = folder / f"{number:03}.parquet"
        pq.write_table(pa.table(make(number)), path, row_group_size=group)
        os.utime(path, (number + 1, number + 1))


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the files as a stream, one a batch."""
    schema = spark.read.parquet(str(folder)).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder))


def durations(progress: Any) -> list[float]:
    """Return the seconds of each batch that had rows."""
    return [each.batchDuration / 1000 for each in progress if each.numInputRows]


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Set something for a while."""
    spark.conf.set(name, value)
    yield
    spark.conf.unset(name)


def native(df: DataFrame, scratch: str, name: str) -> list[float]:
    """Return the batch times of Spark's stateful count."""
    counted = df.groupBy("key").count().writeStream.outputMode("update").format("noop")
    query = counted.option("checkpointLocation", f"{scratch}/{name}")
    running = query.trigger(availableNow=True).start()
    running.awaitTermination()
    return durations(running.recentProgress)


def ours(pipeline: Pipeline, scratch: str, name: str) -> tuple[list[float], list[BatchReport]]:
    """Return the batch times of a pipeline with a Parquet sink, and what it reported."""
    reports: list[BatchReport] = []
    query = pipeline.start(
        f"{scratch}/{name}-out", f"{scratch}/{name}", watch=reports.append, availableNow=True
    )
    query.awaitTermination()
    return durations(query.recentProgress), reports


def throughput(spark: SparkSession, scratch: str, rows: int, batches: int) -> None:
    """Print how long uniform counts take."""
    keys = rows // 2

    def make(number: int) -> dict[str, Any]:
        drawn = np.random.default_rng(number).integers(0, keys, rows)
        return {"key": np.char.add("user-", drawn.astype(str)).tolist()}

    folder = Path(scratch) / "uniform"
    write_files(folder, batches, make)
    df = stream(spark, folder)
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    times = {}
    with setting(spark, "spark.sql.streaming.stateStore.providerClass", ROCKS):
        times["Spark, RocksDB"] = native(df, scratch, "rocks")
    times["Spark, in memory"] = native(df, scratch, "memory")
    times["pipeline"], _ = ours(Pipeline(df, instances=4, shards=32).count("key"), scratch, "ours")
    print(f"\nCounts of {rows:,} rows a batch over {keys:,} string keys, uniform\n")
    print("| way | seconds of each batch | median but for the first | times the pipeline |")
    print("| --- | --- | ---: | ---: |")
    own = median(times["pipeline"][1:])
    for name, each in times.items():
        later = median(each[1:])
        told = ", ".join(f"{one:.1f}" for one in each)
        print(f"| {name} | {told} | {later:.2f} | {later / own:.2f} |", flush=True)


def skew(spark: SparkSession, scratch: str, rows: int, batches: int) -> None:
    """Print what moving and splitting gain where rows wait."""

    def make(number: int) -> dict[str, Any]:
        drawn = Zipf(1.4, 1_000_000, rows, seed=number).batches()
        return {"key": np.concatenate(list(drawn)).view(np.int64)}

    folder = Path(scratch) / "skewed"
    write_files(folder, batches, make)
    df = stream(spark, folder)
    ideal = rows * DELAY / INSTANCES
    print(f"\nDelay-bound counts, {DELAY * 1e6:.0f} us a row, {rows:,} rows a batch of Zipf 1.4, ")
    print(
        f"{INSTANCES} instances, local[{INSTANCES}]; spread evenly they would wait {ideal:.2f} s\n"
    )
    print(
        "| balancer | seconds of each batch | from the fourth | times even | imbalances of rows |"
    )
    print("| --- | --- | ---: | ---: | ---: |")
    warm(spark)
    for name in ("static", "greedy"):
        counts = {"n": Waiting(DELAY).of("key")}
        pipeline = Pipeline(df, instances=INSTANCES, balancer=name).aggregate("key", counts)
        times, reports = ours(pipeline, scratch, name)
        later = median(times[3:])
        told = ", ".join(f"{one:.1f}" for one in times)
        uneven = ", ".join(f"{imbalance(each.loads[0]):.2f}" for each in reports)
        print(
            f"| {name} | {told} | {later:.2f} | {later / ideal:.2f} | {uneven} |",
            flush=True,
        )


def warm(spark: SparkSession) -> None:
    """Start the Python workers, which takes seconds with 16 of them on two cores."""
    for _ in range(3):
        sent = spark.range(0, 1_000_000, 1, INSTANCES)
        sent.mapInArrow(lambda batches: batches, "id long").write.format("noop").mode(
            "overwrite"
        ).save()


def growth(spark: SparkSession, scratch: str, keys: int, batches: int) -> None:
    """Print what a batch costs that touches the same keys while more are kept."""
    print(f"\nThe same 50,000 keys touched in each batch, {batches} batches\n")
    print("| keys kept | seconds of a batch | MB read | MB written |")
    print("| ---: | ---: | ---: | ---: |")
    for total in (keys // 10, keys):

        def make(number: int, total: int = total) -> dict[str, Any]:
            if number == 0:
                return {"key": np.arange(total)}
            return {"key": np.random.default_rng(7).integers(0, total, 50_000)}

        folder = Path(scratch) / f"growth-{total}"
        write_files(folder, batches + 1, make)
        pipeline = Pipeline(stream(spark, folder), instances=4, shards=32).count("key")
        times, reports = ours(pipeline, scratch, f"growing-{total}")
        warm_batches = reports[3:]
        read = median([each.bytes_read for each in warm_batches]) / 1e6
        written = median([each.bytes_written for each in warm_batches]) / 1e6
        print(f"| {total:,} | {median(times[3:]):.2f} | {read:.2f} | {written:.2f} |", flush=True)


def moving(spark: SparkSession, scratch: str, keys: int, batches: int) -> None:
    """Print what it costs that no machine has a copy of the state, as after a move of all of it."""
    folder, cache = Path(scratch) / "moving-in", Path(scratch) / "moving-cache"

    def make(number: int) -> dict[str, Any]:
        if number == 0:
            return {"key": np.char.add("customer-number-", np.arange(keys).astype(str)).tolist()}
        drawn = np.random.default_rng(number).integers(0, keys, 50_000)
        return {"key": np.char.add("customer-number-", drawn.astype(str)).tolist()}

    write_files(folder, batches + 1, make)
    cold = batches - 1
    reports: list[BatchReport] = []

    def watch(report: BatchReport) -> None:
        reports.append(report)
        if report.batch == cold - 1:
            shutil.rmtree(cache)

    pipeline = Pipeline(stream(spark, folder), instances=4, shards=32, balancer="static")
    query = pipeline.count("key").start(
        *(f"{scratch}/moving-out", f"{scratch}/moving"),
        watch=watch,
        settings=Settings(cache=str(cache)),
        availableNow=True,
    )
    query.awaitTermination()
    times = durations(query.recentProgress)
    usual = median(times[3:cold])
    print("\n| state | seconds of a batch | after all of it has moved | delay, in batches |")
    print("| ---: | ---: | ---: | ---: |")
    print(
        f"| {reports[cold].bytes_checked / 1e6:.0f} MB | {usual:.2f} | {times[cold]:.2f} "
        f"| {times[cold] / usual - 1:.2f} |",
        flush=True,
    )


def distinct(spark: SparkSession, scratch: str, keys: int, batches: int) -> None:
    """Print the driver's memory while the keys grow."""
    folder = Path(scratch) / "distinct-in"
    each = keys // batches
    write_files(folder, batches, lambda n: {"key": np.arange(n * each, (n + 1) * each)})
    print("\n| distinct keys | seconds | driver's Python, MB | JVM heap in use, MB |")
    print("| ---: | ---: | ---: | ---: |")

    def watch(report: BatchReport) -> None:
        python = psutil.Process().memory_info().rss / 1e6
        runtime = spark._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
        runtime.gc()
        heap = (runtime.totalMemory() - runtime.freeMemory()) / 1e6
        kept = (report.batch + 1) * each
        print(f"| {kept:,} | {report.seconds:.1f} | {python:.0f} | {heap:.0f} |", flush=True)

    query = Pipeline(stream(spark, folder), instances=4, shards=64, balancer="static").count("key")
    running = query.start(
        lambda rows, version: None, f"{scratch}/distinct", watch=watch, availableNow=True
    )
    running.awaitTermination()


Parts = Mapping[str, tuple[Callable[[SparkSession, str, int, int], None], int, int, int]]
"""Each with its cores, the size it is asked for, and its batches."""


def print_tables(parts: Parts, about: str | None) -> None:
    """Print the tables that the command line asks for."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--only", choices=list(parts))
    parser.add_argument("--scale", type=float, default=1.0, help="part of the rows to use")
    parser.add_argument("--batches", type=int, help="how many  [default: what each part needs]")
    given = parser.parse_args()
    with TemporaryDirectory() as scratch:
        for name, (part, cores, size, batches) in parts.items():
            if given.only in (None, name):
                spark = session(cores, scratch, adaptive=True)
                part(spark, scratch, int(size * given.scale), given.batches or batches)
                spark.stop()


PARTS: Parts = {
    "throughput": (throughput, 2, 2_000_000, 6),
    "growth": (growth, 2, 5_000_000, 8),
    "moving": (moving, 2, 2_000_000, 8),
    "distinct": (distinct, 2, 10_000_000, 10),
    "skew": (skew, INSTANCES, 2_000_000, 6),
}

if __name__ == "__main__":
    print_tables(PARTS, __doc__)
