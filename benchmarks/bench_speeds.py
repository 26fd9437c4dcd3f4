"""Machines that are not alike on Spark: throughput of ways to run one stateful, delay-bound job.

Three executors with two cores each, the third at 30 % of the speed of the others ("delay-bound"
means that a row waits and does not compute, there 1 / 0.3 times as long). Every key is counted
over all batches, with uniform keys and with a key that has 32 % of the rows: by a pipeline under
`static`, which is key grouping, and under `consistent`, which is told of no speed; and by plain
Spark with 3 to 96 partitions, in two ways: its stateful operator (``applyInPandasWithState``, state
in memory), whose tasks go where their state is, also with a ``spark.locality.wait`` of 0; and a job
for each batch (``foreachBatch`` and ``applyInArrow``, state read and written as Parquet), whose
tasks go to whichever core is free. Best is the best of both. Asked: at least 1.8 times the
throughput of key grouping; against plain Spark with its best number of partitions not less with
uniform keys, and 1.2 times with the hot key.

Baselines: other ways to do the same on plain Spark, to see that the strongest was taken. Shards:
what a batch costs with more of them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bench_pipeline import durations, stream, write_files
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.state import GroupState
from waiting import Waiting, wait

from unskew.apps.converging import spread_of
from unskew.spark import BatchReport, Pipeline

SPEEDS = (1.0, 1.0, 0.3)
CORES = 2
INSTANCES = CORES * len(SPEEDS)
DELAY = 200e-6
KEYS = 2000
HOT = 0.32
PARTITIONS = (3, 6, 12, 24, 48, 96)
SKIPPED, BATCHES = 1, 3
"""Of every way that does not learn: batches in which workers start, and batches in all."""

LEARNING = 4
"""Batches in which `consistent` finds speeds."""


@contextmanager
def cluster(scratch: str, **settings: str) -> Iterator[SparkSession]:
    """Yield a session with the executors."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(f"local-cluster[{len(SPEEDS)},{CORES},1024]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", f"{scratch}/local")
        .config("spark.log.level", "OFF")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", f"{scratch}/warehouse")
        .config("spark.executorEnv.PYTHONPATH", os.pathsep.join(sys.path))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    for name, value in settings.items():
        builder = builder.config(name.replace("_", "."), value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def write(folder: Path, rows: int, batches: int, hot: float) -> Path:
    """Write the keys of all batches, of which the first key has a part of its own; return where."""

    def make(number: int) -> dict[str, Any]:
        chance = np.random.default_rng(number)
        drawn = chance.integers(1, KEYS, rows)
        drawn[chance.random(rows) < hot] = 0
        return {"key": np.char.add("user-", drawn.astype(str)).tolist()}

    write_files(folder, batches, make)
    return folder


def exact(spark: SparkSession, folder: Path) -> dict[str, int]:
    """Return the count of every key."""
    counted = spark.read.parquet(str(folder)).groupBy("key").count()
    return {row["key"]: row["count"] for row in counted.collect()}


def ours(
    spark: SparkSession, folder: Path, scratch: str, balancer: str, **other: Any
) -> tuple[list[float], list[BatchReport]]:
    """Return the batch times of a pipeline, whose counts are checked, and what it reported."""
    reports: list[BatchReport] = []
    pipeline = Pipeline(stream(spark, folder), instances=INSTANCES, balancer=balancer, **other)
    name = f"{scratch}/{folder.name}-{balancer}-{pipeline.shards}"
    counted = pipeline.aggregate("key", {"n": Waiting(DELAY, SPEEDS).of("key")})
    query = counted.start(f"{name}-out", name, watch=reports.append, availableNow=True)
    query.awaitTermination()
    found = (
        spark.read.parquet(f"{name}-out").groupBy("key").agg(F.max_by("n", "version").alias("n"))
    )
    if {row["key"]: row["n"] for row in found.collect()} != exact(spark, folder):
        raise RuntimeError(f"{balancer} has other counts than plain Spark")
    return durations(query.recentProgress), reports


def with_state(df: DataFrame) -> DataFrame:
    """Return Spark's own stateful counts of keys."""

    def update(key: Any, parts: Any, state: GroupState) -> Any:
        number = state.get[0] if state.exists else 0
        for part in parts:
            wait(len(part), DELAY, SPEEDS)
            number += len(part)
        state.update((number,))
        yield part.iloc[:1][["key"]].assign(n=number)

    return df.groupBy("key").applyInPandasWithState(
        update, "key string, n long", "n long", "update", "NoTimeout"
    )


def plain(spark: SparkSession, folder: Path, scratch: str, partitions: int) -> list[float]:
    """Return the batch times of Spark's own stateful operator."""
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    writer = with_state(stream(spark, folder)).writeStream.outputMode("update").format("noop")
    checkpoint = f"{scratch}/{folder.name}-plain-{partitions}-{time.time_ns()}"
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    state = spark.read.format("statestore").load(checkpoint)
    found = {row["key"]["key"]: row["value"]["groupState"]["n"] for row in state.collect()}
    if found != exact(spark, folder):
        raise RuntimeError(f"{partitions} partitions have other counts than a batch")
    return durations(query.recentProgress)


def in_batches(spark: SparkSession, folder: Path, scratch: str, partitions: int) -> list[float]:
    """Return the batch times of a job for each batch, which reads and writes the state itself."""
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    state = f"{scratch}/{folder.name}-batches-{partitions}"

    def count(rows: pa.Table) -> pa.Table:
        new = pc.sum(pc.is_null(rows.column("n"))).as_py()
        wait(new, DELAY, SPEEDS)
        number = new + (pc.sum(rows.column("n")).as_py() or 0)
        return pa.table({"key": [rows.column("key")[0].as_py()], "n": [number]})

    def batch(df: DataFrame, number: int) -> None:
        rows = df.withColumn("n", F.lit(None).cast("long"))
        if number:
            rows = rows.unionAll(df.sparkSession.read.parquet(f"{state}/{number - 1}"))
        counted = rows.groupBy("key").applyInArrow(count, "key string, n long")
        counted.write.parquet(f"{state}/{number}")

    writer = stream(spark, folder).writeStream.foreachBatch(batch)
    query = writer.option("checkpointLocation", f"{state}-spark").trigger(availableNow=True).start()
    query.awaitTermination()
    last = spark.read.parquet(f"{state}/{max(int(path.name) for path in Path(state).iterdir())}")
    if {row["key"]: row["n"] for row in last.collect()} != exact(spark, folder):
        raise RuntimeError(f"{partitions} partitions have other counts than a batch")
    return durations(query.recentProgress)


def row_of(
    name: str, times: list[float], skipped: int, rows: int, base: float | None, note: str = ""
) -> str:
    """Return a line of the table."""
    later = mean(times[skipped:])
    told = ", ".join(f"{one:.1f}" for one in times)
    ratio = "" if base is None else f"{later / base:.2f}"
    return f"| {name} | {told} | {later:.2f} | {rows / later:,.0f} | {ratio} | {note} |"


HEAD = (
    "| way | seconds of each batch | after learning | rows a second | times ours | spread |\n"
    "| --- | --- | ---: | ---: | ---: | ---: |"
)
LONG_WAIT = {"spark_locality_wait": "30s", "spark_shuffle_reduceLocality_enabled": "false"}
NO_WAIT = {"spark_locality_wait": "0s"}


def speeds(scratch: str, rows: int, batches: int, hot: float) -> None:
    """Print the throughput of all ways."""
    folder = write(Path(scratch) / f"hot-{hot:g}", rows, batches, hot)
    few = write(Path(scratch) / f"few-{hot:g}", rows, BATCHES, hot)
    ideal = rows * DELAY / (CORES * sum(SPEEDS))
    print(
        f"\nDelay-bound counts, {DELAY * 1e6:.0f} us a row, {rows:,} rows a batch, {KEYS:,} keys, "
        f"{f'one has {hot:.0%}' if hot else 'uniform'};\n{len(SPEEDS)} executors with {CORES} "
        f"cores at {SPEEDS}: spread by speed a batch would wait {ideal:.2f} s\n"
    )
    print(HEAD)
    base = 0.0
    times: dict[str, float] = {}
    with cluster(scratch, **LONG_WAIT) as spark:
        for name, data, skipped in (("consistent", folder, LEARNING), ("static", few, SKIPPED)):
            took, reports = ours(spark, data, scratch, name)
            times[name] = mean(took[skipped:])
            base = base or times[name]
            told = f"{mean(spread_of(report) for report in reports[skipped:]):.2f}"
            print(row_of(name, took, skipped, rows, base, told), flush=True)
    with cluster(scratch, **NO_WAIT) as spark:
        for way, called in ((in_batches, "jobs"), (plain, "stateful")):
            for partitions in PARTITIONS:
                took = way(spark, few, scratch, partitions)
                name = f"plain Spark, {called}, {partitions} partitions"
                times[name] = mean(took[SKIPPED:])
                print(row_of(name, took, SKIPPED, rows, base), flush=True)
    best = min((name for name in times if name.startswith("plain")), key=lambda name: times[name])
    asked = 1.2 if hot else 1.0
    print(
        f"\nconsistent has {times['static'] / base:.2f} times the throughput of key grouping "
        f"(asked 1.8) and {times[best] / base:.2f} times that of {best} (asked {asked}); "
        f"{base / ideal:.2f} times the ideal time.",
        flush=True,
    )


def uniform(scratch: str, rows: int, batches: int) -> None:
    """Print the throughput with uniform keys."""
    speeds(scratch, rows, batches, 0.0)


def hot(scratch: str, rows: int, batches: int) -> None:
    """Print the throughput with a hot key."""
    speeds(scratch, rows, batches, HOT)


def baselines(scratch: str, rows: int, batches: int) -> None:
    """Print ways to do it on plain Spark, with both kinds of keys."""
    for part in (0.0, HOT):
        folder = write(Path(scratch) / f"baseline-{part:g}", rows, batches, part)
        print(f"\n{'A hot key' if part else 'Uniform keys'}, {rows:,} rows a batch\n\n{HEAD}")
        for name, way, settings in (
            ("applyInPandasWithState, no wait for locality", plain, NO_WAIT),
            ("applyInPandasWithState, Spark's wait of 3 s", plain, {}),
            ("batches of applyInArrow", in_batches, NO_WAIT),
        ):
            with cluster(scratch, **settings) as spark:
                for partitions in (12, 24, 48):
                    took = way(spark, folder, scratch, partitions)
                    print(row_of(f"{name}, {partitions}", took, SKIPPED, rows, None), flush=True)


def shards(scratch: str, rows: int, batches: int) -> None:
    """Print what a batch that hardly waits costs with more shards."""
    folder = write(Path(scratch) / "shards", rows // 20, batches, 0.0)
    print(f"\n{rows // 20:,} rows a batch, {KEYS:,} keys, {INSTANCES} instances, consistent\n")
    print("| shards for each instance | seconds of each batch | median of the last | busy |")
    print("| ---: | --- | ---: | ---: |")
    with cluster(scratch, **LONG_WAIT) as spark:
        for each in (16, 100, 1000, 16, 100, 1000):
            name = f"{scratch}/again-{time.time_ns()}"
            took, reports = ours(spark, folder, name, "consistent", shards=each * INSTANCES)
            busy = median(sum(t["busy"] for t in r.facts["tasks"]) for r in reports[LEARNING:])
            told = ", ".join(f"{one:.2f}" for one in took)
            print(f"| {each} | {told} | {median(took[LEARNING:]):.2f} | {busy:.2f} |", flush=True)


PARTS: dict[str, tuple[Callable[[str, int, int], None], int, int]] = {
    "uniform": (uniform, 100_000, 8),
    "hot": (hot, 100_000, 8),
    "baselines": (baselines, 25_000, 3),
    "shards": (shards, 75_000, 8),
}


def main() -> None:
    """Print the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--batches", type=int)
    given = parser.parse_args()
    for name, (part, rows, batches) in PARTS.items():
        if given.only in (None, name):
            with TemporaryDirectory() as scratch:
                part(scratch, given.rows or rows, given.batches or batches)


if __name__ == "__main__":
    main()
