"""Joins of streams on Spark, beside Spark's own and beside a join of all rows at once."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from spark.balancers import Restless

from unskew import hash_keys
from unskew.balance import Balancer, LsStream, Plan, Report
from unskew.errors import BadParameter, UnhashableKey, UnknownColumn, WrongCheckpoint
from unskew.spark import BatchReport, MemorySink, join, read_state
from unskew.state import Checkpoint
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


def arrive(folder: Path, source: Path, files: slice) -> None:
    """Let some files of both streams come to a source, in the order in which they were written."""
    for name in ("left", "right"):
        (source / name).mkdir(parents=True, exist_ok=True)
        written = (folder / name).glob("*.parquet")
        for path in sorted(written, key=lambda each: each.stat().st_mtime_ns)[files]:
            shutil.copy2(path, source / name)


WITHIN = ("90 seconds", timedelta(minutes=4))
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
    options = {"on": ["case", "key"], "within": WITHIN, "instances": 3, **options}
    pipeline = join(left, right, **options)
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


def test_partners_of_a_window_are_in_the_same_one(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    left, right = sides(spark, folder)
    options = {"within": None, "window": "5 minutes", "balancer": "static"}
    found, _ = joined(left, right, tmp_path, how="full", **options)
    # Spark takes one column of event time from each stream.
    plain_time = F.timestamp_micros(F.unix_micros("time"))
    left, right = (
        df.withColumn("w", F.window("time", "5 minutes")).withColumn("time", plain_time)
        for df in (left, right)
    )
    assert with_keys(found) == with_keys(native(plain(left, right, "full", "l.w = r.w"), tmp_path))


@pytest.mark.parametrize("instances", [4])
def test_groups_find_the_same_pairs(
    spark: SparkSession, folder: Path, tmp_path: Path, instances: int
) -> None:
    left, right = sides(spark, folder, "1 hour")
    options = {"grouping": "contrand", "balancer": Restless(), "instances": instances}
    found, reports = joined(left, right, tmp_path, **options)
    assert found == at_once(spark, folder, "inner")
    assert sum(report.rows for report in reports) == 2 * (FILES * ROWS + 2)


def test_groups_go_on_with_other_numbers_of_instances_and_shards(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    sink = MemorySink()

    def go_on(files: slice, state: Path | None = None, **options: Any) -> None:
        arrive(folder, tmp_path, files)
        left, right = sides(spark, tmp_path, "1 hour")
        options = {"grouping": "contrand", "balancer": "static", **options}
        pipeline = join(left, right, ["case", "key"], within=WITHIN, **options)
        query = pipeline.start(sink, tmp_path / "ours", state=state, availableNow=True)
        query.awaitTermination()

    go_on(slice(0, 2), instances=3)
    go_on(slice(2, 3), instances=4)
    reshard(tmp_path / "ours", 71, tmp_path / "new")
    go_on(slice(3, None), tmp_path / "new", instances=5, shards=71)
    assert rows_of(sink.rows()) == at_once(spark, folder, "inner")


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
    left, right = sides(spark, folder, "1 hour")
    found, reports = joined(left, right, tmp_path, how="full", shards=12, balancer=Growing())
    assert found == at_once(spark, folder, "full")
    assert len({report.loads[0].size for report in reports}) > 2


@pytest.mark.parametrize(
    ("used", "bounds", "sizes"),
    [
        pytest.param(0.95, (2, 6), [2, 3, 5, 6, 6, 6], id="busy instances get company"),
        pytest.param(0.2, (1, 6), [6, 2, 1, 1, 1, 1], id="idle ones go"),
        pytest.param(0.7, (2, 3), [8, 3, 3, 3, 3, 3], id="those go at once that may not be"),
    ],
)
def test_ls_stream_has_as_many_instances_as_have_enough_to_do(
    spark: SparkSession,
    folder: Path,
    tmp_path: Path,
    used: float,
    bounds: tuple[int, int],
    sizes: list[int],
) -> None:
    asked = []

    class Told(LsStream):
        """Sees instances that are as busy as it is told; what it asks for nobody has cut yet."""

        def next_plan(self, plan: Plan, report: Report) -> Plan:
            seen = replace(report, utilisation=np.full(plan.instances, used))
            following = super().next_plan(plan, seen)
            asked.append(following.instances)
            return following

    left, right = sides(spark, folder, "1 hour")
    options = {"instances": sizes[0], "shards": 12, "balancer": Told(instances=bounds)}
    found, reports = joined(left, right, tmp_path, **options)
    assert [each.loads[0].size for each in reports if each.kind == "batch"] == sizes
    assert asked[: len(sizes) - 1] == sizes[1:]
    assert found == at_once(spark, folder, "inner")


def test_ls_stream_splits_a_key_that_is_too_large_and_leaves_it_so_over_a_restart(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    reports: list[BatchReport] = []
    for files in (slice(0, 2), slice(2, 4)):
        arrive(folder, tmp_path, files)
        # Half of all rows have one key, and four instances should have a quarter each.
        pipeline = join(*sides(spark, tmp_path), "key", within=60, instances=4)
        query = pipeline.start(
            MemorySink(), tmp_path / "ours", watch=reports.append, availableNow=True
        )
        query.awaitTermination()
    assert sum(sum(report.hot_moves) for report in reports) > 0
    store = Checkpoint(tmp_path / "ours" / "unskew")
    plans = [store.decided(version).plans[0] for version in store.versions()]
    hot = int(hash_keys(pa.array(["hot"]))[0])
    assert hot not in plans[0].hot
    assert [len(plan.instances_of(hot)) > 1 for plan in plans[1:]] == [True] * (len(plans) - 1)
    # What came without rows, at the end of the first run, told nothing of its load.
    assert [report.kind for report in reports] == ["batch", "batch", "settled"] * 2


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
        ({"within": (5,)}, r"within=\(5,\) must be one length, or two"),
        ({"within": float("nan")}, "a length of time is such as"),
        ({"within": 5, "on": []}, "at least one key column"),
        ({"within": 5, "on": 7}, 'on= takes the names of columns, such as "cell", not 7'),
        ({"within": 5, "time": ("time", "key")}, "time='key' must be a column of timestamps"),
        ({"within": 5, "time": "time"}, "time='time' must name two columns, of the left stream"),
        ({"within": 5, "time": ("time",)}, r"time=\('time',\) must name two columns"),
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


def test_upper_and_lower_case_are_as_in_spark(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    left, right = sides(spark, folder, "1 hour")
    other = right.withColumnsRenamed({"case": "Case", "time": "Time"})
    found, _ = joined(left, other, tmp_path, on=["CASE", "KEY"], time=("TIME", "time"))
    assert found == at_once(spark, folder, "inner")
    names = join(left, other, ["CASE", "KEY"], within=5).stages[0].output.names
    assert names == ["case", "key", "time", "left_id", "Time_right", "right_id"]

    with pytest.raises(BadParameter, match="'key' stands for several columns, 'key', 'KEY'"):
        join(left.select("*", F.lit("a").alias("KEY")), right, "key", within=5)
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(UnknownColumn, match="no column 'case'; there are 'Case', 'key'"):
            join(left, other, "case", within=5)
        names = join(left, other, "key", within=5).stages[0].output.names
        assert names == ["key", "case", "time", "left_id", "Case", "Time", "right_id"]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_a_batch_is_for_spark(spark: SparkSession, folder: Path) -> None:
    left, right = sides(spark, folder)
    batch = spark.read.parquet(str(folder / "right"))
    with pytest.raises(BadParameter, match=r"the right DataFrame is a batch.*left\.join\(right"):
        join(left, batch, "key", within=5)
    with pytest.raises(BadParameter, match="the left DataFrame is a batch"):
        join(batch, right, "key", within=5)


def test_maps_are_no_keys(spark: SparkSession, folder: Path) -> None:
    left, right = (df.withColumn("m", F.create_map("key", "time")) for df in sides(spark, folder))
    with pytest.raises(UnhashableKey, match="of type map<string,timestamp> cannot be hashed"):
        join(left, right, "m", within=5)


def test_times_are_those_with_the_watermark(spark: SparkSession, folder: Path) -> None:
    left, right = sides(spark, folder)
    # Spark does not see that it is the same.
    other = left.withColumn("at", F.timestamp_micros(F.unix_micros("time")))
    with pytest.raises(BadParameter, match=r"left stream has a watermark on time, .* 'at' for it"):
        join(other, right, "key", within=5, time=("at", "time"))
    gone = other.drop("time")
    with pytest.raises(BadParameter, match=r"does not have any more; name the times .* time="):
        join(gone, right, "key", within=5)
    assert (
        "by at and time" in join(gone, right, "key", within=5, time=("at", "time")).stages[0].kind
    )


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


def test_windows_after_a_join_lose_nothing(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    # Nothing is late to the join; what it lets out is behind the watermark all the same.
    pair = sides(spark, folder, delay="30 minutes")
    pairs = join(*pair, on=["case", "key"], within=WITHIN, how="left", instances=2, shards=4)
    counts = pairs.count("key", window=F.window("time", "1 minute"), mode="append")
    sink = MemorySink()
    reports: list[BatchReport] = []
    query = counts.start(sink, tmp_path / "ours", watch=reports.append, availableNow=True)
    query.awaitTermination()
    query.flush()
    left, right = (spark.read.parquet(str(folder / name)) for name in ("left", "right"))
    whole = plain(left, right, "left").groupBy("key", F.window("time", "1 minute")).count()
    expected = Counter(
        (row["key"], row["window"]["start"], row["count"]) for row in whole.collect()
    )
    got = Counter((row["key"], row["window"]["start"], row["count"]) for row in sink.rows())
    assert got == expected
    assert sum(report.late for report in reports) == 0
    # Not all of it by the flush at the end.
    assert len({report.batch for report in reports if report.rows_out}) > 1
