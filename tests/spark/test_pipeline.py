"""Pipelines on Spark: what a batch over the same rows gives, whatever moves or restarts."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from spark.balancers import Restless

from unskew.aggregates import Count, collect, count
from unskew.balance import balancer
from unskew.errors import BadParameter, MissingSpark, WrongCheckpoint
from unskew.spark import (
    BatchReport,
    MemorySink,
    Pipeline,
    PipelineListener,
    Settings,
    read_state,
)
from unskew.spark.sinks import sink_of
from unskew.spark.versions import check_workers
from unskew.state import Checkpoint
from unskew.state.versions import version_of

FILES = 4
ROWS = 600


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return files of users, of which one has half of the rows, over two hours each."""
    path = tmp_path_factory.mktemp("pipeline") / "source"
    for number in range(FILES):
        rows = spark.range(number * ROWS, (number + 1) * ROWS).select(
            F.when(F.col("id") % 2 == 0, "hot")
            .when(F.col("id") % 31 != 1, F.concat(F.lit("user "), F.col("id") % 50))
            .alias("user"),
            F.timestamp_seconds(F.col("id") * (7200 / ROWS)).alias("time"),
            (F.col("id") % 97).alias("ms"),
        )
        rows.coalesce(1).write.mode("append").parquet(str(path))
    return path


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.readStream.schema(spark.read.parquet(str(folder)).schema)
    return reader.option("maxFilesPerTrigger", 1).parquet(str(folder))


def finish(pipeline: Pipeline, sink: Any, checkpoint: Path, **other: Any) -> None:
    query = pipeline.start(sink, checkpoint, availableNow=True, **other)
    query.awaitTermination()
    assert query.exception() is None


def latest(rows: list[Any], *keys: str) -> dict[Any, Any]:
    """Return the last row of each key."""
    return {tuple(row[key] for key in keys): row for row in rows}


@pytest.mark.parametrize(
    ("name", "moves"), [("static", False), ("greedy", None), (Restless(), True)]
)
def test_counts_are_those_of_a_batch_whatever_moves(
    spark: SparkSession, folder: Path, tmp_path: Path, name: Any, moves: bool | None
) -> None:
    sink = MemorySink()
    reports: list[BatchReport] = []
    pipeline = Pipeline(stream(spark, folder), instances=3, balancer=name)
    counted = pipeline.aggregate("user", {"n": count(), "all": collect(10_000).of("ms")})
    finish(counted, sink, tmp_path, watch=reports.append)

    data = spark.read.parquet(str(folder))
    wanted = {
        row["user"]: row["n"] for row in data.groupBy("user").agg(F.count("*").alias("n")).collect()
    }
    found = latest(sink.rows(), "user")
    assert {key[0]: row["n"] for key, row in found.items()} == wanted
    values = Counter(row["ms"] for row in data.where("user = 'hot'").collect())
    assert Counter(found["hot",]["all"]) == values
    # Each batch tells of every key that it changed once.
    for rows in sink.versions.values():
        assert len(rows) == len(latest(rows, "user"))
    assert [each.batch for each in reports] == list(range(FILES))
    assert all(each.rows == ROWS == int(each.loads[0].sum()) for each in reports)
    if moves is not None:
        assert any(sum(each.moves) > 0 for each in reports) == moves
    # A hot key has a part on each of its instances.
    state: Counter[str] = Counter()
    for row in read_state(spark, tmp_path).collect():
        state[row["user"]] += row["state_n"]
    assert state == wanted


def test_greedy_splits_a_key_that_takes_too_long(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    class Slow(Count):
        def update(self, states: Any, groups: Any, *values: Any) -> Any:
            time.sleep(groups.size / 1000)
            return super().update(states, groups, *values)

    pipeline = Pipeline(stream(spark, folder), instances=3, balancer="greedy")
    sink = MemorySink()
    finish(pipeline.aggregate("user", {"n": Slow().of("user")}), sink, tmp_path)
    checkpoint = Checkpoint(tmp_path / "unskew")
    plans = [checkpoint.decided(version_of(number)).plans[0] for number in range(FILES)]
    assert [len(plan.hot) for plan in plans] == [0, 1, 1, 1]
    assert latest(sink.rows(), "user")["hot",]["n"] == FILES * ROWS // 2


def test_reports_tell_what_moved(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    reports: list[BatchReport] = []
    pipeline = Pipeline(stream(spark, folder), instances=3, shards=9, balancer=Restless())
    finish(pipeline.count("user"), MemorySink(), tmp_path, watch=reports.append)

    assert [each.moves for each in reports] == [[0], [9], [9], [9]]
    # Three keys are split and whole in turn; the first batch has no plan before it.
    assert [each.hot_moves for each in reports] == [[0], [3], [3], [3]]
    assert reports[0].bytes_moved == 0
    for earlier, later in pairwise(reports):
        assert later.bytes_moved >= earlier.reports[0].state_bytes.sum() > 0
    # What others kept of the three keys comes back to their homes.
    assert reports[2].bytes_moved > reports[1].reports[0].state_bytes.sum()


def test_a_query_stops_before_a_batch_that_is_refused_and_goes_on_with_it(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    def before(number: int) -> None:
        if number == 2:
            raise RuntimeError("enough for today")

    sink = MemorySink()
    pipeline = Pipeline(stream(spark, folder), instances=2).count("user")
    query = pipeline.start(sink, tmp_path, before=before, availableNow=True)
    with pytest.raises(StreamingQueryException, match="enough for today"):
        query.awaitTermination()
    assert sorted(sink.versions) == [version_of(0), version_of(1)]
    assert Checkpoint(tmp_path / "unskew").decision(version_of(2)) is None

    finish(pipeline, sink, tmp_path)
    assert sorted(sink.versions) == [version_of(number) for number in range(FILES)]
    assert latest(sink.rows(), "user")["hot",]["count"] == FILES * ROWS // 2


def test_windows_are_those_of_sparks_own_stream(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    df = stream(spark, folder).withWatermark("time", "10 minutes")
    window = F.window("time", "1 hour", "30 minutes")
    sink = MemorySink()
    pipeline = Pipeline(df, instances=3, balancer=Restless())
    windowed = pipeline.aggregate("user", {"n": count()}, window=window, mode="append")
    query = windowed.start(sink, tmp_path / "ours", availableNow=True)
    query.awaitTermination()
    native = (
        df.groupBy(window, "user").count().writeStream.format("memory").queryName("native_windows")
    )
    running = native.option("checkpointLocation", str(tmp_path / "native"))
    running.trigger(availableNow=True).start().awaitTermination()

    def as_set(rows: list[Any], name: str) -> set[Any]:
        return {(row["window"], row["user"], row[name]) for row in rows}

    wanted = spark.table("native_windows").collect()
    assert len(wanted) > 50
    assert as_set(sink.rows(), "n") == as_set(wanted, "count")
    assert len(sink.rows()) == len(wanted)

    query.flush()
    whole = spark.read.parquet(str(folder)).groupBy(window, "user").count().collect()
    assert as_set(sink.rows(), "n") == as_set(whole, "count")
    assert len(sink.rows()) == len(whole)
    assert read_state(spark, tmp_path / "ours").count() == 0
    spark.sql("drop view native_windows")


def test_late_rows_are_counted_and_do_not_count(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    df = stream(spark, folder)
    # The third and the fourth file go back to the beginning of time.
    jump = F.when(F.col("time") >= F.timestamp_seconds(F.lit(14400)), F.timestamp_seconds(F.lit(5)))
    df = df.withColumn("time", F.coalesce(jump, "time")).withWatermark("time", "1 minute")
    reports: list[BatchReport] = []
    pipeline = Pipeline(df, instances=2).aggregate(
        "user", {"n": count()}, window=F.window("time", "1 hour"), mode="append"
    )
    sink = MemorySink()
    query = pipeline.start(sink, tmp_path, watch=reports.append, availableNow=True)
    query.awaitTermination()
    query.flush()
    batches = [each for each in reports if each.kind == "batch"]
    assert [each.late for each in batches] == [0, 0, ROWS, ROWS]
    assert all(each.rows == ROWS for each in batches)
    assert sum(row["n"] for row in sink.rows()) == 2 * ROWS
    # The last files have not moved the watermark: there is nothing more to settle.
    assert [each.kind for each in reports[FILES:]] == ["flushed"]


def test_late_rows_are_those_of_sparks_own_stream(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    df = stream(spark, folder)
    # Every seventh row is up to three hours behind, so that some are just late and some just not.
    behind = F.when(F.col("ms") % 7 == 0, F.col("ms") * 110).otherwise(0)
    # Not before 1970, which Spark calls late from the start.
    moved = F.timestamp_seconds(F.unix_seconds("time") - behind + 1_000_000_000)
    df = df.withColumn("time", moved).withWatermark("time", "20 minutes")
    window = F.window("time", "30 minutes")
    sink = MemorySink()
    pipeline = Pipeline(df, instances=3, balancer=Restless())
    finish(pipeline.count("user", window=window, mode="append"), sink, tmp_path / "ours")
    native = df.groupBy(window, "user").count().writeStream.format("memory")
    running = native.queryName("native_late").option("checkpointLocation", str(tmp_path / "native"))
    running.trigger(availableNow=True).start().awaitTermination()

    wanted = Counter(map(tuple, spark.table("native_late").collect()))
    spark.sql("drop view native_late")
    assert wanted.total() > 100
    assert Counter(map(tuple, sink.rows())) == wanted


def test_a_watermark_is_no_harm_to_what_has_no_time(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    df = stream(spark, folder).withWatermark("time", "1 minute")
    sink = MemorySink()
    finish(Pipeline(df, instances=2).count("user"), sink, tmp_path)
    wanted = spark.read.parquet(str(folder)).groupBy("user").count().collect()
    found = {key[0]: row["count"] for key, row in latest(sink.rows(), "user").items()}
    assert found == {row["user"]: row["count"] for row in wanted}


def test_what_one_stage_made_final_is_not_late_in_the_next(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    def largest(key: dict[str, Any], rows: Any, state: dict[str, Any] | None) -> Any:
        best = max([*rows.column("count").to_pylist(), *([state["best"]] if state else [])])
        return {"best": best}, [{"end": key["end"], "best": best}]

    df = stream(spark, folder).withWatermark("time", "10 minutes")
    sink = MemorySink()
    hours = (
        Pipeline(df, instances=2)
        .count("user", window=F.window("time", "1 hour"), mode="append")
        .per_key(
            F.col("window.end").alias("end"),
            largest,
            state="best long",
            output="end timestamp, best long",
        )
        .count([], window=F.window("end", "2 hours"), name="hours", mode="append")
    )
    query = hours.start(sink, tmp_path, availableNow=True)
    query.awaitTermination()
    query.flush()
    # The files have two hours each, and a window is told once.
    assert sorted(row["count"] for row in sink.rows())[-1] == 2
    assert sum(row["count"] for row in sink.rows()) == 2 * FILES


def test_a_flush_ends_windows_and_the_stream_goes_on(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    some = tmp_path / "some"
    some.mkdir()
    files = sorted(folder.glob("*.parquet"), key=lambda path: path.stat().st_mtime)
    sink = MemorySink()
    for number in (0, 2):
        (some / files[number].name).write_bytes(files[number].read_bytes())
        df = stream(spark, some).withWatermark("time", "10 minutes")
        windows = Pipeline(df, instances=2).count(
            [], window=F.window("time", "1 hour"), mode="append"
        )
        query = windows.start(sink, tmp_path / "checkpoint", availableNow=True)
        query.awaitTermination()
        query.flush()
        # All of it has come out: once more there is nothing.
        before = sink.rows()
        query.awaitTermination()
        assert sink.rows() == before
    assert [row["count"] for row in sink.rows()] == [ROWS // 2] * 4


def test_what_a_flush_brought_out_is_delivered_though_the_sink_failed(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    some = tmp_path / "some"
    some.mkdir()
    files = sorted(folder.glob("*.parquet"), key=lambda path: path.stat().st_mtime)
    sink = MemorySink()

    def failing(rows: DataFrame, version: int) -> None:
        raise OSError("the sink is down")

    for number, target in ((0, failing), (1, sink)):
        (some / files[number].name).write_bytes(files[number].read_bytes())
        df = stream(spark, some).withWatermark("time", "10 minutes")
        windows = Pipeline(df, instances=2).count(
            [], window=F.window("time", "1 hour"), mode="append"
        )
        query = windows.start(sink, tmp_path / "checkpoint", processingTime="0 seconds")
        query.processAllAvailable()
        query.stop()
        query._cycle.sinks = {0: sink_of(target)}
        if target is failing:
            with pytest.raises(OSError, match="the sink is down"):
                query.flush()
        else:
            query.flush()
    assert sorted(row["count"] for row in sink.rows()) == [ROWS // 2] * 4


def test_a_query_that_failed_in_a_batch_cannot_be_flushed(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    def failing(rows: DataFrame, version: int) -> None:
        raise OSError("the sink is down")

    pipeline = Pipeline(stream(spark, folder), instances=2).count("user")
    query = pipeline.start(failing, tmp_path, availableNow=True)
    with pytest.raises(StreamingQueryException, match="the sink is down"):
        query.awaitTermination()
    with pytest.raises(BadParameter, match="stopped in the middle of a batch"):
        query.flush()


@pytest.mark.parametrize("point", ["decide", "commit"])
def test_a_batch_that_was_decided_for_other_instances_is_done_as_decided(
    spark: SparkSession,
    folder: Path,
    tmp_path: Path,
    point: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = getattr(Checkpoint, point)

    def die(self: Checkpoint, *arguments: Any) -> None:
        original(self, *arguments)
        if version_of(2) in (arguments[0], getattr(arguments[0], "version", None)):
            raise RuntimeError("killed")

    sink = tmp_path / "sink"
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, point, die)
        pipeline = Pipeline(stream(spark, folder), instances=3, shards=8, balancer=Restless())
        with pytest.raises(StreamingQueryException, match="killed"):
            finish(pipeline.count("user"), sink, tmp_path / "checkpoint")
    pipeline = Pipeline(stream(spark, folder), instances=2, shards=8, balancer=Restless())
    finish(pipeline.count("user"), sink, tmp_path / "checkpoint")
    newest = spark.read.parquet(str(sink)).groupBy("user").agg(F.max_by("count", "version"))
    wanted = spark.read.parquet(str(folder)).groupBy("user").count().collect()
    assert Counter(map(tuple, newest.collect())) == Counter(map(tuple, wanted))


def test_two_stages_and_a_function_of_ones_own(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    def by_letter(key: dict[str, Any], rows: Any, state: dict[str, Any] | None) -> Any:
        known = dict(zip(state["users"], state["counts"], strict=True)) if state else {}
        names, numbers = rows.column("user").to_pylist(), rows.column("n").to_pylist()
        known |= {name or "": number for name, number in zip(names, numbers, strict=True)}
        kept = {"users": sorted(known), "counts": [known[name] for name in sorted(known)]}
        return kept, [{"letter": key["letter"], "total": sum(known.values())}]

    sink = MemorySink()
    pipeline = (
        Pipeline(stream(spark, folder), instances=2, balancer=Restless())
        .aggregate("user", {"n": count()})
        .per_key(
            F.substring("user", 1, 1).alias("letter"),
            by_letter,
            state="users array<string>, counts array<long>",
            output="letter string, total long",
        )
    )
    finish(pipeline, sink, tmp_path)
    wanted = (
        spark.read.parquet(str(folder)).groupBy(F.substring("user", 1, 1).alias("letter")).count()
    )
    found = {key[0]: row["total"] for key, row in latest(sink.rows(), "letter").items()}
    assert found == {row["letter"]: row["count"] for row in wanted.collect()}


def test_a_pipeline_goes_on_where_it_stopped_with_other_instances(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    few = tmp_path / "few"
    few.mkdir()
    files = sorted(folder.glob("*.parquet"), key=lambda path: path.stat().st_mtime)
    sink = tmp_path / "sink"
    for number, instances in enumerate((3, 1, 4)):
        (few / files[number].name).write_bytes(files[number].read_bytes())
        pipeline = Pipeline(stream(spark, few), instances=instances, shards=8, balancer="greedy")
        finish(pipeline.count("user"), sink, tmp_path / "checkpoint")
    found = spark.read.parquet(str(sink))
    newest = found.groupBy("user").agg(F.max_by("count", "version").alias("n")).collect()
    wanted = spark.read.parquet(str(few)).groupBy("user").count().collect()
    assert {(row["user"], row["n"]) for row in newest} == {(r["user"], r["count"]) for r in wanted}
    assert {row["version"] for row in found.select("version").distinct().collect()} == {0, 4, 8}

    # Without a number of shards the checkpoint has it.
    finish(Pipeline(stream(spark, few), instances=2).count("user"), sink, tmp_path / "checkpoint")
    with pytest.raises(BadParameter, match="has 8 shards, too few for 9 instances"):
        Pipeline(stream(spark, few), instances=9).count("user").start(sink, tmp_path / "checkpoint")
    with pytest.raises(WrongCheckpoint, match=r"has shards 16 and .* was written with 8"):
        Pipeline(stream(spark, few), instances=2, shards=16).count("user").start(
            sink, tmp_path / "checkpoint"
        )


def test_rows_before_the_stream_count_once(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    before = spark.read.parquet(str(folder)).where("user = 'hot'").limit(77)
    sink = MemorySink()
    pipeline = Pipeline(stream(spark, folder), instances=2).count("user")
    for _ in range(2):
        finish(pipeline, sink, tmp_path, initial=before)
    found = latest(sink.rows(), "user")
    assert found["hot",]["count"] == 77 + FILES * ROWS // 2
    assert sorted(sink.versions) == [0, 4, 8, 12]
    with pytest.raises(
        BadParameter, match="a batch with the columns of the stream, user, time, ms"
    ):
        pipeline.start(sink, tmp_path, initial=before.select("user"))


def test_a_sink_that_fails_gets_the_same_rows_again(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    seen: dict[int, list[list[Any]]] = {}

    def sink(rows: DataFrame, version: int) -> None:
        seen.setdefault(version, []).append(sorted(map(str, rows.collect())))
        if version == 4 and len(seen[version]) == 1:
            raise OSError("the sink is down")

    pipeline = Pipeline(stream(spark, folder), instances=2).count("user")
    query = pipeline.start(sink, tmp_path, availableNow=True)
    with pytest.raises(StreamingQueryException, match="the sink is down"):
        query.awaitTermination()
    finish(pipeline, sink, tmp_path)
    assert sorted(seen) == [0, 4, 8, 12]
    assert len(seen[4]) == 2
    assert seen[4][0] == seen[4][1]
    assert [len(seen[version]) for version in (0, 8, 12)] == [1, 1, 1]


def test_the_output_of_another_query_is_not_taken_for_ones_own(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    pipeline = Pipeline(stream(spark, folder), instances=2).count("user")
    for _ in range(2):
        finish(pipeline, tmp_path / "out", tmp_path / "one")
    query = pipeline.start(f"file://{tmp_path}/out", tmp_path / "two", availableNow=True)
    with pytest.raises(StreamingQueryException, match="name an empty folder for the output"):
        query.awaitTermination()


def test_windows_of_another_length_are_another_stage(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    def windows(length: str) -> Pipeline:
        pipeline = Pipeline(stream(spark, folder), instances=2)
        return pipeline.count("user", window=F.window("time", length))

    finish(windows("1 hour"), MemorySink(), tmp_path)
    finish(windows("1 hour"), MemorySink(), tmp_path)
    with pytest.raises(WrongCheckpoint, match=r"window\(time, '2 hours'"):
        windows("2 hours").start(MemorySink(), tmp_path)


def test_the_memory_of_a_task_does_not_change_the_counts(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    sinks = []
    for most_bytes in (1, 1 << 27):
        sink = MemorySink()
        pipeline = Pipeline(stream(spark, folder), instances=2).count("user")
        place = tmp_path / str(most_bytes)
        finish(pipeline, sink, place, settings=Settings(most_bytes=most_bytes))
        sinks.append({key: row["count"] for key, row in latest(sink.rows(), "user").items()})
    assert sinks[0] == sinks[1]


def test_each_batch_is_a_line_in_the_log(
    spark: SparkSession, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="unskew.pipeline")
    query = (
        Pipeline(stream(spark, folder), instances=2)
        .count("user")
        .start(MemorySink(), tmp_path, availableNow=True)
    )
    query.awaitTermination()
    lines = [record.getMessage() for record in caplog.records if record.name == "unskew.pipeline"]
    assert len(lines) == FILES
    assert all(f"batch {number}: {ROWS} rows in" in line for number, line in enumerate(lines))
    assert all(re.search(r" out, \d+ shards and \d+ keys moved$", line) for line in lines)
    # One action a batch: Spark counts each row once.
    assert [each.numInputRows for each in query.recentProgress] == [ROWS] * FILES


def test_a_listener_of_spark_is_told_of_every_batch(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    told: list[tuple[int, int, int]] = []

    class Told(PipelineListener):
        def onBatch(self, report: BatchReport, progress: Any) -> None:  # noqa: N802
            told.append((report.batch, report.rows, progress.numInputRows))

    listener = Told()
    spark.streams.addListener(listener)
    try:
        finish(Pipeline(stream(spark, folder), instances=2).count("user"), MemorySink(), tmp_path)
        # Other queries have no report, and are no harm.
        rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
        other = rate.writeStream.format("noop").trigger(once=True).start()
        other.awaitTermination()
        deadline = time.monotonic() + 30
        while len(told) < FILES and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        spark.streams.removeListener(listener)
    assert told == [(number, ROWS, ROWS) for number in range(FILES)]


def test_a_report_says_where_instances_ran(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    reports: list[BatchReport] = []
    pipeline = Pipeline(stream(spark, folder), instances=2).count("user")
    finish(pipeline, MemorySink(), tmp_path, watch=reports.append)
    for each in reports:
        nodes = each.reports[0].nodes
        assert nodes is not None
        assert len(nodes.names) == 1
        assert nodes.of_instance.tolist() == [0, 0]
        assert 0 < nodes.memory[0] <= 1
    assert max(each.reports[0].nodes.cpu[0] for each in reports if each.reports[0].nodes) > 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p.start("console", "x"), "a pipeline needs a stage"),
        (
            lambda p: p.count("user").count("user", name="aggregate 0"),
            "there is a stage 'aggregate 0'",
        ),
        (lambda p: p.aggregate("user", {"n": F.count("*")}), "not Spark's own, here n"),
        (lambda p: p.aggregate("user", {"n": count()}, mode="append"), "takes a watermark"),
        (
            lambda p: Pipeline(p.df.withWatermark("time", "1 hour")).count("user", mode="append"),
            "without a window nothing ever is",
        ),
        (
            lambda p: p.count("user", mode="complete"),
            "mode must be one of update, append, rows, not 'complete'",
        ),
        (
            lambda p: p.count(F.col("user").alias("Version")).start("x", "x"),
            "in place of your column 'Version'; call that one otherwise",
        ),
        (lambda p: p.count("usr"), "there is no column 'usr'; there are 'user', 'time', 'ms'"),
        (
            lambda p: p.per_key("user", len, state="n long", output="n long", ttl=5),
            "ttl= lets state expire, which takes a watermark",
        ),
        (
            lambda p: p.per_key("user", len, state="n long", output="n long", time="ms"),
            "time='ms' must be a column of timestamps, but it is bigint",
        ),
        (lambda p: p.count("user").start(5, "x"), "a sink is a folder for Parquet files"),
        (lambda p: Pipeline(p.df, balancer="best"), "there is no balancer 'best'; choose one of"),
        (lambda p: Pipeline(p.df, instances=8, shards=4), "shards=4 is fewer than there are"),
        (lambda p: p.count("user").start("memory", "x"), r"kept in memory by MemorySink\(\)"),
        (lambda p: Settings(clean_every=0), "clean_every must be from 1 to"),
        (lambda p: balancer("greedy", treshold=1), "greedy has no parameter 'treshold'; it takes"),
    ],
)
def test_what_does_not_fit_is_told_at_the_call(
    spark: SparkSession, folder: Path, make: Any, message: str
) -> None:
    with pytest.raises((BadParameter, KeyError), match=message):
        make(Pipeline(stream(spark, folder), instances=2))


def test_a_report_is_shown_in_a_line(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    reports: list[BatchReport] = []
    made = Pipeline(stream(spark, folder), instances=2, balancer="static").count("user")
    finish(made, MemorySink(), tmp_path, watch=reports.append)
    told = repr(reports[0])
    assert told.startswith(f"<batch 0: {ROWS} rows in ")
    assert told.endswith("0 late, 27 out, 0 shards and 0 keys moved>")


@pytest.mark.parametrize("python", ["no-such-python", "false"])
def test_workers_without_unskew_are_told_what_to_set(python: str) -> None:
    with pytest.raises(MissingSpark, match=f"export PYSPARK_PYTHON={sys.executable}"):
        check_workers("local[2]", python)
    check_workers("local[2]", sys.executable)
    check_workers("spark://elsewhere:7077", python)


def test_a_batch_is_no_stream(spark: SparkSession) -> None:
    with pytest.raises(BadParameter, match=r"takes a stream, as spark\.readStream gives one"):
        Pipeline(spark.range(3))
