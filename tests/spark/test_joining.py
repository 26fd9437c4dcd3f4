"""Joins of streams on Spark, beside Spark's own and beside a join of all rows at once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from spark.balancers import Restless

from unskew.spark import MemorySink, join

FILES = 4
ROWS = 400
CASES = 60
"""Small joins of their own, told apart by a column of the key."""


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return files of two streams, with many rows out of order and some very late."""
    path = tmp_path_factory.mktemp("joining")
    for name, seed in (("left", 1), ("right", 2)):
        for number in range(FILES):
            at = F.lit(1_000_000_000 + 600 * number) + F.rand(seed + 10 * number) * 600
            late = F.when(F.rand(seed + 77 + number) < 0.1, F.rand(seed + 5) * 1500).otherwise(0)
            rows = spark.range(ROWS * number, ROWS * (number + 1), 1, 1).select(
                F.floor(F.rand(seed + 3 + number) * CASES).alias("case"),
                # Half of all rows have one key; some have none.
                F.when(F.rand(seed + 4) < 0.5, "hot")
                .when(F.rand(seed + 6) < 0.9, F.concat(F.lit("k"), F.floor(F.rand(seed) * 3)))
                .alias("key"),
                F.timestamp_seconds(F.floor(at - late)).alias("time"),
                F.col("id").alias(f"{name}_id"),
            )
            rows.coalesce(1).write.mode("append").parquet(str(path / name))
    return path


def stream(spark: SparkSession, folder: Path, name: str) -> DataFrame:
    reader = spark.readStream.schema(spark.read.parquet(str(folder / name)).schema)
    df = reader.option("maxFilesPerTrigger", 1).parquet(str(folder / name))
    return df.withWatermark("time", "5 minutes")


def native(left: DataFrame, right: DataFrame, how: str, within: tuple[int, int]) -> DataFrame:
    """Return Spark's own join of the same."""
    ours, theirs = left.alias("l"), right.alias("r")
    before, after = (F.expr(f"interval {seconds} seconds") for seconds in within)
    close = (F.col("r.time") >= F.col("l.time") - before) & (
        F.col("r.time") <= F.col("l.time") + after
    )
    same = (F.col("l.case") == F.col("r.case")) & (F.col("l.key") == F.col("r.key"))
    joined = ours.join(theirs, same & close, {"full": "full_outer"}.get(how, how))
    return joined.select(
        F.coalesce("l.case", "r.case").alias("case"),
        F.coalesce("l.key", "r.key").alias("key"),
        F.col("l.time").alias("time"),
        "left_id",
        F.col("r.time").alias("time_right"),
        "right_id",
    )


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_the_rows_are_those_of_sparks_own_join(
    spark: SparkSession, folder: Path, tmp_path: Path, how: str
) -> None:
    left, right = (stream(spark, folder, name) for name in ("left", "right"))
    sink = MemorySink()
    pipeline = join(
        *(left, right, ["case", "key"]),
        within=("90 seconds", "4 minutes"),
        how=how,
        instances=3,
        shards=12,
        balancer=Restless(),
    )
    query = pipeline.start(sink, tmp_path / "ours", availableNow=True)
    query.awaitTermination()
    query.flush()

    name = f"native_{how}"
    theirs = native(left, right, how, (90, 240)).writeStream.format("memory").queryName(name)
    running = theirs.option("checkpointLocation", str(tmp_path / "native"))
    running.trigger(availableNow=True).start().awaitTermination()
    wanted = Counter(map(tuple, spark.table(name).collect()))
    spark.sql(f"drop view {name}")
    found = Counter(map(tuple, sink.rows()))
    assert sum(found.values()) > 500
    # What Spark still waits with at the end comes out of ours by the flush.
    assert not wanted - found
    rest = found - wanted
    assert all(None in (row[3], row[5]) for row in rest)
    assert how != "inner" or not rest
