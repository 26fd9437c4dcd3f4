"""Stream joins beside Spark's own, and under each balancer, ratios within one run.

Throughput: the same files joined by Spark's stream-stream join, with each of its state stores, and
by `unskew.spark.join`; both write Parquet. Skew: every pair that is looked at waits ("delay-bound",
so that two cores can run 20 instances) under each balancer. Moving: the hot keys are others from
one batch on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from bench_pipeline import (
    ROCKS,
    Parts,
    durations,
    ours,
    print_tables,
    setting,
    stream,
    warm,
    write_files,
)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew.metrics import load_imbalance
from unskew.operators.base import Changes
from unskew.operators.interval_join import IntervalJoin
from unskew.spark import Pipeline, join, joining

KEYS = 10_000
UNIFORM = 100_000
"""Keys, skewed and uniform."""

INSTANCES = 20
PAIR = 25e-6
"""Seconds that a pair waits where joins are delay-bound."""

BATCH_SECONDS = 60
"""Event time of a batch, and how far partners may be apart."""


def keys_of(exponent: float, rows: int, seed: int) -> Any:
    """Return keys that are drawn from a Zipf distribution, the same ones hot for every seed."""
    if exponent == 0:
        return np.random.default_rng(seed).integers(0, UNIFORM, rows)
    ranks = np.arange(1.0, KEYS + 1.0) ** -exponent
    return np.random.default_rng(seed).choice(KEYS, rows, p=ranks / ranks.sum())


def streams(
    spark: SparkSession, folder: Path, batches: int, draw: Callable[[int, int], Any]
) -> tuple[DataFrame, DataFrame]:
    """Return two streams of files, one of each in a batch."""
    made = []
    for side, name in enumerate(("left", "right")):

        def make(number: int, side: int = side, name: str = name) -> dict[str, Any]:
            keys = draw(2 * number + side, number)
            seconds = np.random.default_rng(number).uniform(0, BATCH_SECONDS, keys.size)
            at = (1e6 * (1e9 + BATCH_SECONDS * number + np.sort(seconds))).astype(np.int64)
            times = pa.array(at, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
            return {"key": keys, "time": times, f"{name}_id": np.arange(keys.size)}

        write_files(folder / name, batches, make)
        made.append(stream(spark, folder / name).withWatermark("time", "10 seconds"))
    return made[0], made[1]


def native(left: DataFrame, right: DataFrame, scratch: str, name: str) -> list[float]:
    """Return the batch times of Spark's own join."""
    near = F.expr(
        f"l.key = r.key and r.time >= l.time - interval {BATCH_SECONDS // 2} seconds "
        f"and r.time <= l.time + interval {BATCH_SECONDS // 2} seconds"
    )
    joined = (
        left.alias("l")
        .join(right.alias("r"), near)
        .selectExpr("l.key", "l.time", "left_id", "r.time as time_right", "right_id")
    )
    writer = joined.writeStream.option("checkpointLocation", f"{scratch}/{name}")
    running = writer.trigger(availableNow=True).start(f"{scratch}/{name}-out")
    running.awaitTermination()
    return durations(running.recentProgress)


def throughput(spark: SparkSession, scratch: str, rows: int, batches: int) -> None:
    """Print how long joins take, of skewed keys and of uniform ones."""
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    print(
        "\n| keys | rows a batch | way | seconds of each batch | median | times ours | rows out |"
    )
    print("| --- | ---: | --- | --- | ---: | ---: | ---: |")
    for label, exponent, size in (("Zipf 0.8", 0.8, rows), ("uniform", 0.0, 10 * rows)):
        folder = Path(scratch) / f"keys-{exponent}"

        def draw(seed: int, _: int, exponent: float = exponent, size: int = size) -> Any:
            return keys_of(exponent, size // 2, seed)

        left, right = streams(spark, folder, batches, draw)
        times = {}
        pipeline = join(left, right, "key", within=BATCH_SECONDS / 2)
        times["unskew"], _ = ours(pipeline, scratch, f"ours-{exponent}")
        times["Spark, in memory"] = native(left, right, scratch, f"memory-{exponent}")
        with setting(spark, "spark.sql.streaming.stateStore.providerClass", ROCKS):
            times["Spark, RocksDB"] = native(left, right, scratch, f"rocks-{exponent}")
        own = median(times["unskew"][1:])
        for name, each in times.items():
            kind = {"unskew": "ours", "Spark, in memory": "memory", "Spark, RocksDB": "rocks"}[name]
            out = spark.read.parquet(f"{scratch}/{kind}-{exponent}-out").count()
            told = ", ".join(f"{one:.1f}" for one in each)
            later = median(each[1:])
            print(
                f"| {label} | {size:,} | {name} | {told} | {later:.2f} | {later / own:.1f} "
                f"| {out:,} |",
                flush=True,
            )


class WaitingJoin(IntervalJoin):
    """A join that waits for each pair that it looks at."""

    def process(self, state: pa.RecordBatch, entries: pa.RecordBatch) -> Changes:
        """Wait, then join."""
        changes = super().process(state, entries)
        assert changes.pairs is not None
        time.sleep(float(changes.pairs.counts.sum()) * PAIR)
        return changes


def waiting(left: DataFrame, right: DataFrame, **options: Any) -> Pipeline:
    """Return a join that waits for each pair."""
    with patch.object(joining, "IntervalJoin", WaitingJoin):
        return join(left, right, "key", within=BATCH_SECONDS / 2, instances=INSTANCES, **options)


WAYS: dict[str, dict[str, Any]] = {
    "ls-stream": {"balancer": "ls-stream"},
    "contrand": {"balancer": "static", "grouping": "contrand"},
    "fastjoin": {"balancer": "fastjoin"},
    "hash": {"balancer": "static"},
}

FEW = 3
"""Batches of those ways that take minutes for each: none of them gets better with time."""


def skew(spark: SparkSession, scratch: str, rows: int, batches: int) -> None:
    """Print how long a delay-bound join takes under each balancer."""
    many, few = (
        streams(
            *(spark, Path(scratch) / f"skewed-{number}", number),
            lambda seed, _: keys_of(1.0, rows // 2, seed),
        )
        for number in (batches, min(FEW, batches))
    )
    print(f"\nDelay-bound join, {1e6 * PAIR:.0f} us a pair, {rows:,} rows a batch of Zipf 1.0,")
    print(f"{INSTANCES} instances; even is all pairs of a batch over the instances\n")
    print("| way | seconds of each batch | even | last three over even | imbalances of pairs |")
    print("| --- | --- | ---: | ---: | --- |")
    warm(spark)
    for name, options in WAYS.items():
        sides = many if name == "ls-stream" else few
        times, reports = ours(waiting(*sides, **options), scratch, f"skew-{name}")
        pairs = [
            [sum(task["pairs"].values()) for task in report.facts["tasks"]]
            for report in reports[: len(times)]
        ]
        even = [PAIR * sum(each) / INSTANCES for each in pairs]
        ratio = median([took / least for took, least in list(zip(times, even, strict=True))[-3:]])
        print(
            f"| {name} | {', '.join(f'{one:.1f}' for one in times)} | {median(even):.2f} "
            f"| {ratio:.2f} | {', '.join(f'{load_imbalance(each):.2f}' for each in pairs)} |",
            flush=True,
        )


def moving(spark: SparkSession, scratch: str, rows: int, batches: int) -> None:
    """Print the imbalance of each batch where the hot keys change on the way."""
    change = batches // 2

    def draw(seed: int, number: int) -> Any:
        keys = keys_of(0.8, rows // 2, seed)
        return keys if number < change else (keys * 7919 + 13) % KEYS

    left, right = streams(spark, Path(scratch) / "moving", batches, draw)
    warm(spark)
    times, reports = ours(waiting(left, right), scratch, "moving")
    print(f"\nThe hot keys are others from batch {change} on; ls-stream, threshold 0.2\n")
    print("| batch | seconds | imbalance of pairs | of busy times ", end="")
    print("| shards and keys moved | MB | pause, ms |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for took, report in zip(times, reports, strict=False):
        tasks = report.facts["tasks"]
        pairs = load_imbalance([sum(task["pairs"].values()) for task in tasks])
        busy = load_imbalance([task["busy"] for task in tasks])
        print(
            f"| {report.batch} | {took:.2f} | {pairs:.2f} | {busy:.2f} "
            f"| {sum(report.moves)} and {sum(report.hot_moves)} | {report.bytes_moved / 1e6:.2f} "
            f"| {1000 * report.pause:.0f} |",
            flush=True,
        )


PARTS: Parts = {
    "throughput": (throughput, 2, 100_000, 4),
    "skew": (skew, INSTANCES, 40_000, 8),
    "moving": (moving, INSTANCES, 60_000, 14),
}

if __name__ == "__main__":
    print_tables(PARTS, __doc__)
