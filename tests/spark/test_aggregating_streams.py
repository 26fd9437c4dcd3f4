"""Aggregates of streams: what a batch over the same rows gives, in every output mode."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from unskew.aggregates import Aggregate, Groups, Quantiles, quantiles, top
from unskew.errors import BadParameter
from unskew.spark.aggregating import aggregate

SCHEMA = "time timestamp, key string, value double"
ASKED: dict[str, Any] = {"q": quantiles(0.5).of("value"), "most": top(2).of("value")}


def ten_minutes() -> Column:
    return F.window("time", "10 minutes", "5 minutes")


def write(folder: Path, number: int, minutes: range) -> None:
    """Write a file with a row a minute, and another, without a key, every third minute."""
    start = dt.datetime(2024, 1, 1)
    rows = [
        {"time": (start + dt.timedelta(minutes=m)).isoformat(), "key": key, "value": m % 7}
        for m in minutes
        for key in (["hot", None] if m % 3 == 0 else ["hot"])
    ]
    folder.mkdir(exist_ok=True)
    file = folder / f"{number}.json"
    file.write_text("\n".join(map(json.dumps, rows)))
    # Spark reads the oldest first.
    os.utime(file, (number, number))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a folder with three files, later ones last."""
    for i in range(3):
        write(tmp_path / "source", i, range(20 * i, 20 * i + 20))
    return tmp_path / "source"


def stream(spark: SparkSession, source: Path) -> DataFrame:
    read = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(source))
    return read.withWatermark("time", "5 minutes")


def start(df: DataFrame, name: str, mode: Any, place: Path) -> StreamingQuery:
    writer = df.writeStream.format("memory").queryName(name).outputMode(mode)
    return writer.option("checkpointLocation", str(place)).trigger(availableNow=True).start()


def plain(df: DataFrame) -> set[str]:
    return {str(row) for row in df.collect()}


MODES = ["append", "update", "complete"]


def test_every_output_mode_gives_what_a_batch_gives(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    in_time = [str(file) for file in source.iterdir()]
    write(source, 3, range(3))
    df = stream(spark, source)
    found = aggregate(df, "key", ASKED, window=ten_minutes(), instances=2)
    assert found.columns == ["window", "key", "q", "most"]
    queries = {mode: start(found, f"out_{mode}", mode, tmp_path / mode) for mode in MODES}
    batch = spark.read.schema(SCHEMA).json(in_time)
    wanted = aggregate(batch, "key", ASKED, window=ten_minutes(), instances=2).collect()
    # What the watermark, minute 59 less 5, has passed.
    final = [str(row) for row in wanted if row.window.end <= dt.datetime(2024, 1, 1, 0, 54)]
    everything = aggregate(
        spark.read.schema(SCHEMA).json(str(source)), "key", ASKED, window=ten_minutes(), instances=2
    )
    for query in queries.values():
        query.awaitTermination()
        assert query.exception() is None
    # The last file is late: it counts only where nothing is ever final.
    appended, updated, complete = (spark.table(f"out_{mode}").collect() for mode in MODES)
    assert len(final) > 10
    assert sorted(map(str, appended)) == sorted(final)
    # Of a window the last update counts; the memory sink has them in order.
    latest = {(row.window, row.key): str(row) for row in updated}
    assert sorted(latest.values()) == sorted(map(str, wanted))
    assert sorted(map(str, complete)) == sorted(map(str, everything.collect()))
    for mode in MODES:
        spark.sql(f"drop view out_{mode}")


def poisoned(value: float) -> Aggregate:
    """Return quantiles that fail at a value."""

    class Poisoned(Quantiles):
        def update(self, states: pa.Array, groups: Groups, *values: pa.Array) -> pa.Array:
            if value in values[0].to_pylist():
                raise ValueError(f"{value} is poison")
            return super().update(states, groups, *values)

    return Poisoned((0.5,))


def test_a_failed_query_loses_nothing_when_it_is_started_again(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    df = stream(spark, source).withColumn("value", F.minute("time").cast("double"))
    sink, checkpoint = tmp_path / "sink", tmp_path / "checkpoint"

    def run(asked: Aggregate) -> StreamingQuery:
        found = aggregate(
            df, "key", {"q": asked.of("value")}, window=F.window("time", "10 minutes"), instances=2
        )
        writer = found.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
        return writer.trigger(availableNow=True).start(str(sink))

    query = run(poisoned(30.0))
    with pytest.raises(StreamingQueryException, match=r"update of .* of 'q' raised ValueError: 30"):
        query.awaitTermination()
    run(quantiles(0.5)).awaitTermination()
    batch = spark.read.schema(SCHEMA).json(str(source))
    batch = batch.withColumn("value", F.minute("time").cast("double"))
    wanted = aggregate(
        batch,
        "key",
        {"q": quantiles(0.5).of("value")},
        window=F.window("time", "10 minutes"),
    ).where("window.end <= timestamp'2024-01-01 00:54:00'")
    assert plain(spark.read.parquet(str(sink))) == plain(wanted)
    assert wanted.count() == 10


def test_streams_need_windows_and_one_kind_of_aggregates(spark: SparkSession, source: Path) -> None:
    df = stream(spark, source)
    with pytest.raises(BadParameter, match=r"aggregated in windows.*give window=F\.window"):
        aggregate(df, "key", ASKED)
    both = {**ASKED, "n": F.count("*")}
    with pytest.raises(BadParameter, match="Spark's own aggregates, here n, or others, here q, mo"):
        aggregate(df, "key", both, window=ten_minutes())


def test_without_a_watermark_spark_refuses_to_append(
    spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    df = spark.readStream.schema(SCHEMA).json(str(source))
    found = aggregate(df, "key", ASKED, window=ten_minutes())
    with pytest.raises(AnalysisException, match="without watermark"):
        start(found, "refused", "append", tmp_path / "checkpoint")
