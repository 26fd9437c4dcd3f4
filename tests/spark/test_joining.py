"""Joins of streams on Spark, beside Spark's own and beside a join of all rows at once."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from spark.balancers import Restless

from unskew.balance import Balancer, LsStream, Plan, Report
from unskew.errors import BadParameter, UnknownColumn, WrongCheckpoint
from unskew.spark import BatchReport, MemorySink, join, read_state
from unskew.state.resharding import reshard

FILES = 4
ROWS = 400
CASES = 60
"""Small joins of their own, told apart by a column of the key."""

HOWS = ("inner", "left", "right", "full")

BEGIN = 1_000_000_000


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return files of two streams, with many rows out of order and some very late."""
    path = tmp_path_factory.mktemp("joining")
    for name, seed in (("left", 1), ("right", 2)):
        for number in range(FILES):
            at = F.lit(BEGIN + 600 * number) + F.rand(seed + 10 * number) * 600
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
        # A row far in the future lets all that wait for a partner give up.
        for day in (1, 2):
            last = spark.range(-day, -day + 1, 1, 1).select(
                F.lit(-1).cast("long").alias("case"),
                F.lit("end").alias("key"),
                F.timestamp_seconds(F.lit(BEGIN + 86_400 * day)).alias("time"),
                F.col("id").alias(f"{name}_id"),
            )
            last.coalesce(1).write.mode("append").parquet(str(path / name))
    return path


def stream(spark: SparkSession, folder: Path, name: str, delay: str = "5 minutes") -> DataFrame:
    reader = spark.readStream.schema(spark.read.parquet(str(folder / name)).schema)
    df = reader.option("maxFilesPerTrigger", 1).parquet(str(folder / name))
    return df.withWatermark("time", delay)


def sides(
    spark: SparkSession, folder: Path, delay: str = "5 minutes"
) -> tuple[DataFrame, DataFrame]:
    return stream(spark, folder, "left", delay), stream(spark, folder, "right", delay)


CLOSE = "r.time >= l.time - interval 90 seconds and r.time <= l.time + interval 240 seconds"


def plain(left: DataFrame, right: DataFrame, how: str, close: str = CLOSE) -> DataFrame:
    """Return Spark's own join of the same."""
    same = (F.col("l.case") == F.col("r.case")) & (F.col("l.key") == F.col("r.key"))
    joined = left.alias("l").join(
        right.alias("r"), same & F.expr(close), {"full": "outer"}.get(how, how)
    )
    return joined.select(
        F.coalesce("l.case", "r.case").alias("case"),
        F.coalesce("l.key", "r.key").alias("key"),
        F.col("l.time").alias("time"),
        "left_id",
        F.col("r.time").alias("time_right"),
        "right_id",
    )


def rows_of(rows: list[Any]) -> Counter[tuple[Any, ...]]:
    """Count equal rows, without those that only end the streams."""
    return Counter(tuple(row) for row in rows if row[0] >= 0)


def with_keys(rows: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Leave out rows without a key: Spark's streaming full join loses some of them."""
    return Counter({row: times for row, times in rows.items() if row[1] is not None})


def native(joined: DataFrame, scratch: Path) -> Counter[tuple[Any, ...]]:
    """Return what comes out of Spark's own streaming join."""
    writer = joined.writeStream.option("checkpointLocation", str(scratch / "native"))
    out = str(scratch / "native-out")
    writer.trigger(availableNow=True).start(out).awaitTermination()
    return rows_of(joined.sparkSession.read.parquet(out).collect())


def at_once(spark: SparkSession, folder: Path, how: str) -> Counter[tuple[Any, ...]]:
    """Return Spark's join of all rows, which is no stream."""
    left, right = (spark.read.parquet(str(folder / name)) for name in ("left", "right"))
    return rows_of(plain(left, right, how).collect())


def joined(
    left: DataFrame, right: DataFrame, scratch: Path, **options: Any
) -> tuple[Counter[tuple[Any, ...]], list[BatchReport]]:
    """Return what comes out of ours, and its reports."""
    sink = MemorySink()
    reports: list[BatchReport] = []
    options = {"within": ("90 seconds", timedelta(minutes=4)), "instances": 3, **options}
    pipeline = join(left, right, ["case", "key"], **options)
    query = pipeline.start(sink, scratch / "ours", watch=reports.append, availableNow=True)
    query.awaitTermination()
    query.flush()
    return rows_of(sink.rows()), reports


@pytest.mark.parametrize("how", HOWS)
def test_the_rows_are_those_of_sparks_own_join(
    spark: SparkSession, folder: Path, tmp_path: Path, how: str
) -> None:
    left, right = sides(spark, folder)
    found, reports = joined(left, right, tmp_path, how=how, shards=12, balancer=Restless())
    assert with_keys(found) == with_keys(native(plain(left, right, how), tmp_path))
    assert sum(with_keys(found).values()) > 500
    assert sum(report.late for report in reports) > 20
    assert sum(sum(report.moves) for report in reports) > 12
    # Rows that look for partners at several instances are counted once.
    assert sum(report.rows for report in reports) == 2 * (FILES * ROWS + 2)


@pytest.mark.parametrize("how", HOWS)
def test_the_rows_are_those_of_a_join_of_all_at_once(
    spark: SparkSession, folder: Path, tmp_path: Path, how: str
) -> None:
    left, right = sides(spark, folder, "1 hour")
    found, _ = joined(left, right, tmp_path, how=how)
    assert found == at_once(spark, folder, how)


@pytest.mark.parametrize("how", ["inner", "full"])
def test_partners_of_a_window_are_in_the_same_one(
    spark: SparkSession, folder: Path, tmp_path: Path, how: str
) -> None:
    left, right = sides(spark, folder)
    options = {"within": None, "window": "5 minutes", "balancer": "static"}
    found, _ = joined(left, right, tmp_path, how=how, **options)
    # Spark takes one column of event time from each stream.
    plain_time = F.timestamp_micros(F.unix_micros("time"))
    left, right = (
        df.withColumn("w", F.window("time", "5 minutes")).withColumn("time", plain_time)
        for df in (left, right)
    )
    assert with_keys(found) == with_keys(native(plain(left, right, how, "l.w = r.w"), tmp_path))


@pytest.mark.parametrize("instances", [1, 3, 4])
def test_groups_find_the_same_pairs(
    spark: SparkSession, folder: Path, tmp_path: Path, instances: int
) -> None:
    left, right = sides(spark, folder, "1 hour")
    options = {"grouping": "contrand", "balancer": Restless(), "instances": instances}
    found, reports = joined(left, right, tmp_path, **options)
    assert found == at_once(spark, folder, "inner")
    assert sum(report.rows for report in reports) == 2 * (FILES * ROWS + 2)


class Growing(Balancer):
    """Ask for another number of instances in every batch, and split the hottest key."""

    name = "growing"
    bounds = (1, 5)

    def next_plan(self, plan: Plan, report: Report) -> Plan:
        instances = (3, 5, 1, 4)[plan.epoch % 4]
        hottest = max(report.hot, key=lambda key: report.hot[key], default=None)
        hot = {hottest: tuple(range(instances))} if hottest is not None and instances > 1 else {}
        return Plan(plan.assignment % instances, instances, plan.epoch + 1, hot)


def test_instances_come_and_go_with_their_state(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    left, right = sides(spark, folder)
    found, reports = joined(left, right, tmp_path, how="full", shards=12, balancer=Growing())
    assert with_keys(found) == with_keys(native(plain(left, right, "full"), tmp_path))
    assert len({report.loads[0].size for report in reports}) > 2


def test_ls_stream_asks_for_no_more_instances_than_it_may(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    left, right = sides(spark, folder)
    policy = LsStream(instances=(2, 3))
    found, reports = joined(left, right, tmp_path, instances=8, balancer=policy)
    assert reports[0].loads[0].size == 8
    assert {report.loads[0].size for report in reports[1:]} <= {2, 3}
    assert found == joined(left, right, tmp_path / "again", balancer="static")[0]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"within": "soon"}, "a length of time is such as \"10 minutes\", not 'soon'"),
        ({"within": "2 months"}, "has months"),
        ({"within": True}, "a length of time is such as"),
        ({}, "a join needs within= or window="),
        ({"within": 5, "window": 5}, "a join needs within= or window="),
        ({"window": 0}, "window=0 must be longer than nothing"),
        ({"within": 5, "how": "cross"}, "how must be one of inner, left, right, full, not 'cross'"),
        ({"within": 5, "grouping": "shuffle"}, "grouping must be one of key, contrand"),
        ({"within": 5, "grouping": "contrand", "how": "left"}, "contrand.* is for inner joins"),
        ({"within": 5, "on": []}, "at least one column"),
        ({"within": 5, "time": ("time", "key")}, "time='key' must be a column of timestamps"),
    ],
)
def test_what_cannot_be_joined_is_refused(
    spark: SparkSession, folder: Path, options: dict[str, Any], told: str
) -> None:
    left, right = sides(spark, folder)
    with pytest.raises(BadParameter, match=told):
        join(left, right, **{"on": "key", **options})


def test_a_key_that_only_one_stream_has_is_named(spark: SparkSession, folder: Path) -> None:
    left, right = sides(spark, folder)
    with pytest.raises(UnknownColumn, match="no column 'left_id'; there are 'case', 'key'"):
        join(left, right, "left_id", within=5)


def test_a_checkpoint_knows_what_was_joined_how(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    left, right = sides(spark, folder)
    joined(left, right, tmp_path, within=None, window="5 minutes")
    with pytest.raises(WrongCheckpoint, match="windows of 300000000 us"):
        joined(left, right, tmp_path, within=None, window="10 minutes")


def test_state_is_read_with_all_that_was_added(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    left, right = sides(spark, folder, "10 days")
    pipeline = join(
        *(left, right, ["case", "key"]), within=60, instances=2, shards=4, balancer="static"
    )
    query = pipeline.start(MemorySink(), tmp_path / "ours", availableNow=True)
    query.awaitTermination()
    assert read_state(spark, tmp_path / "ours").count() == 2 * (FILES * ROWS + 2)
    done = reshard(tmp_path / "ours", 7, tmp_path / "other")
    assert done.rows == 2 * (FILES * ROWS + 2)


def test_both_streams_need_a_watermark(spark: SparkSession, folder: Path) -> None:
    left, right = sides(spark, folder)
    bare = spark.readStream.schema(right.schema).parquet(str(folder / "right"))
    with pytest.raises(BadParameter, match="need a watermark"):
        join(left, bare, "key", within=5)
