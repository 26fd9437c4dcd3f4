"""What `unskew.spark.repartition` costs, and what it gains, beside Spark's own repartition.

Ratios within one run: the ways take turns, the best of each counts. Uniform keys show the cost of
routing, with adaptive execution on and off; a delay-bound operator on skewed keys shows the gain.
"Delay-bound" means that a row waits and does not compute, so that two cores can run 16 instances.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew.spark import profile, repartition
from unskew.workloads import Zipf

INSTANCES = 16
DELAY = 50e-6
"""Seconds that a row of the delay-bound operator waits."""

Ways = dict[str, Callable[[], DataFrame]]


def session(cores: int, scratch: str, *, adaptive: bool) -> SparkSession:
    """Return a local session with so many task slots."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Workers find the modules beside this one.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    made = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.driver.memory", "4g")
        .config("spark.local.dir", scratch)
        .config("spark.log.level", "ERROR")
        .config("spark.sql.adaptive.enabled", str(adaptive).lower())
        .config("spark.sql.warehouse.dir", f"{scratch}/warehouse")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    made.conf.set("spark.sql.adaptive.enabled", str(adaptive).lower())
    return made


def seconds(df: DataFrame) -> float:
    """Return how long it takes to make every row of a DataFrame."""
    begin = time.perf_counter()
    df.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin


def best(ways: Ways, repetitions: int) -> dict[str, float]:
    """Return the best time of each way; they take turns, and the first turn does not count."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repetitions + 1):
        for name, make in ways.items():
            took = seconds(make())
            if turn:
                found[name].append(took)
    return {name: min(times) for name, times in found.items()}


def identity(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """Return a column as it came: what the way to Python and back costs."""
    yield from batches


def cost(spark: SparkSession, rows: int, payload: bool, repetitions: int) -> dict[str, float]:
    """Return the times of routing uniform keys."""
    df = spark.range(0, rows, 1, 8)
    if payload:
        # Another text for each row, or the optimizer makes it after the exchange.
        df = df.withColumn("payload", F.rpad(F.col("id").cast("string"), 100, "x"))
    found = profile(df, "id", instances=INSTANCES)
    udf = F.arrow_udf(identity, "long").asNondeterministic()  # type: ignore[attr-defined]
    ways: Ways = {
        "Spark's hash": lambda: df.repartition(INSTANCES, "id"),
        "compiled": lambda: repartition(df, INSTANCES, "id", plan=found),
        "identity UDF": lambda: (
            df.withColumn("i", udf(F.xxhash64("id")))
            .repartitionById(INSTANCES, F.pmod("i", F.lit(INSTANCES)).cast("int"))
            .drop("i")
        ),
        "online": lambda: repartition(df, INSTANCES, "id"),
    }
    return best(ways, repetitions)


def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Wait for each row of a batch, all at once."""
    for batch in batches:
        time.sleep(batch.num_rows * DELAY)
        yield batch


def gain(spark: SparkSession, path: str, repetitions: int) -> tuple[dict[str, float], float]:
    """Return the times of the delay-bound operator, and the gain that the loads promise."""
    df = spark.read.parquet(path)
    found = profile(df, "key", instances=INSTANCES)

    def work(sent: DataFrame) -> DataFrame:
        return sent.mapInArrow(wait, df.schema)

    ways: Ways = {
        "Spark's hash": lambda: work(df.repartition(INSTANCES, "key")),
        "online": lambda: work(repartition(df, INSTANCES, "key")),
        "compiled": lambda: work(repartition(df, INSTANCES, "key", plan=found)),
        "round robin": lambda: work(df.repartition(INSTANCES)),
    }
    # A Python worker takes a second to begin, once; two sources would meet the 16 one by one.
    for _ in range(3):
        seconds(repartition(spark.range(0, 1_000_000, 1, INSTANCES), INSTANCES, "id"))
    home = F.pmod(F.hash("key"), F.lit(INSTANCES))
    loads = [row[1] for row in df.groupBy(home).count().collect()]
    return best(ways, repetitions), max(loads) / (sum(loads) / INSTANCES)


def write_keys(path: str, rows: int) -> None:
    """Write skewed keys to two Parquet files: 8 MB are two sources to Spark.

    Every task with a Python UDF costs tens of milliseconds of a core, whatever the UDF does: 16
    sources on two cores would add about half a second.
    """
    os.mkdir(path)
    keys = np.concatenate(list(Zipf(1.4, 1_000_000, rows).batches())).view(np.int64)
    for number, part in enumerate(np.array_split(keys, 2)):
        pq.write_table(pa.table({"key": part}), f"{path}/{number:02}.parquet")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="part of the rows to use")
    parser.add_argument("--only", choices=["cost", "gain"])
    given = parser.parse_args()
    with TemporaryDirectory() as scratch:
        if given.only != "gain":
            print_costs(scratch, given.repetitions, given.scale)
        if given.only != "cost":
            print_gains(scratch, given.repetitions, given.scale)


def print_costs(scratch: str, repetitions: int, scale: float) -> None:
    """Print what routing costs on uniform keys."""
    print(f"Uniform keys, {INSTANCES} instances; times Spark's own repartition by key\n")
    print("| rows | AQE | Spark's hash, s | compiled | identity UDF | online |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for rows, payload, text in (
        (20_000_000, False, "20M of one long"),
        (8_000_000, True, "8M with 100 bytes of payload"),
    ):
        for adaptive in (False, True):
            spark = session(2, scratch, adaptive=adaptive)
            times = cost(spark, int(rows * scale), payload, repetitions)
            base = times.pop("Spark's hash")
            ratios = " | ".join(f"{took / base:.2f}" for took in times.values())
            print(f"| {text} | {'on' if adaptive else 'off'} | {base:.2f} | {ratios} |", flush=True)
    spark.stop()


def print_gains(scratch: str, repetitions: int, scale: float) -> None:
    """Print what balance gains where rows wait."""
    rows = int(1_000_000 * scale)
    print(
        f"\nDelay-bound rows, {DELAY * 1e6:.0f} us each, {rows:,} of Zipf 1.4, {INSTANCES} "
        f"instances, local[{INSTANCES}]\n"
    )
    print(
        "| AQE | promised | Spark's hash, s | round robin, s | online, s | compiled, s "
        "| online: gain, part of promise, times round robin | compiled: the same |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    write_keys(f"{scratch}/keys", rows)
    for adaptive in (False, True):
        spark = session(INSTANCES, scratch, adaptive=adaptive)
        times, promised = gain(spark, f"{scratch}/keys", max(2, repetitions - 2))
        plain, even = times["Spark's hash"], times["round robin"]
        told = " | ".join(
            f"{plain / took:.2f}, {plain / took / promised:.0%}, {took / even:.2f}"
            for took in (times["online"], times["compiled"])
        )
        print(
            f"| {'on' if adaptive else 'off'} | {promised:.2f} | {plain:.2f} | {even:.2f} "
            f"| {times['online']:.2f} | {times['compiled']:.2f} | {told} |",
            flush=True,
        )
    spark.stop()


if __name__ == "__main__":
    main()
