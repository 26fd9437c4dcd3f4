"""Pipelines on machines that are not alike: nobody tells the speeds, and results do not change."""

from __future__ import annotations

import logging
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew import hash_keys
from unskew.aggregates import Count, count
from unskew.balance import Consistent, Plan
from unskew.errors import BadParameter
from unskew.spark import BatchReport, MemorySink, Pipeline, Settings, Speeds, read_state
from unskew.spark.executor import Executor
from unskew.spark.speeds import speed_here
from unskew.state.versions import version_of

FILES, ROWS, KEYS = 6, 1200, 200
ROW = 0.2e-3


class Slow(Count):
    """A count whose rows wait."""

    def update(self, states: Any, groups: Any, *values: Any) -> Any:
        """Wait, then count."""
        time.sleep(groups.size * ROW)
        return super().update(states, groups, *values)


def key_of(number: Any) -> Any:
    """Return the key of a row: a third of all are one key."""
    return F.when(number % 3 == 0, "hot").otherwise(F.concat(F.lit("key "), number % KEYS))


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return files of keys."""
    path = tmp_path_factory.mktemp("speeds") / "source"
    for number in range(FILES):
        rows = spark.range(number * ROWS, (number + 1) * ROWS)
        rows = rows.select(key_of(F.col("id")).alias("key"), F.col("id").alias("number"))
        rows.coalesce(1).write.mode("append").parquet(str(path))
    return path


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.readStream.schema("key string, number long")
    return reader.option("maxFilesPerTrigger", 1).parquet(str(folder))


def run(
    pipeline: Pipeline, checkpoint: Path, speeds: Speeds | None = None
) -> tuple[MemorySink, list[BatchReport]]:
    sink, reports = MemorySink(), list[BatchReport]()
    query = pipeline.start(
        sink,
        checkpoint,
        watch=reports.append,
        settings=Settings(speeds=speeds),
        availableNow=True,
    )
    query.awaitTermination()
    assert query.exception() is None
    return sink, reports


def busy_of(report: BatchReport) -> NDArray[np.float64]:
    return np.array([task["busy"] for task in report.facts["tasks"]])


def wanted_counts(batches: int) -> dict[str, int]:
    """Return the count of each key after some batches, without Spark."""
    found: Counter[str] = Counter()
    for number in range(batches * ROWS):
        found["hot" if number % 3 == 0 else f"key {number % KEYS}"] += 1
    return dict(found)


def test_capacities_that_change_are_found_and_every_trigger_has_plain_sparks_counts(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    pipeline = Pipeline(stream(spark, folder), instances=3, balancer="consistent")
    assert pipeline.shards == 300
    counted = pipeline.aggregate("key", {"n": Slow().of("number")})
    speeds = Speeds((1, 1, 0.3), {3: (0.3, 1, 1)})
    sink, reports = run(counted, tmp_path, speeds)

    told: dict[str, int] = {}
    for batch in range(FILES):
        rows = sink.versions[version_of(batch)]
        told |= {row["key"]: row["n"] for row in rows}
        # Of a key that is split one row comes out.
        assert len(rows) == len({row["key"] for row in rows})
        assert told == wanted_counts(batch + 1), f"batch {batch}"
    state: Counter[str] = Counter()
    for row in read_state(spark, tmp_path).collect():
        state[row["key"]] += row["state_n"]
    assert state == told

    loads = [each.loads[0] for each in reports]
    # The slow one takes three times as long for as many rows, then has fewer.
    first = busy_of(reports[0]) / loads[0]
    assert 2 < first[2] / first[0] < 5
    assert loads[2][2] < 0.7 * loads[2][0]
    assert loads[5][0] < 0.7 * loads[5][2]
    nodes = reports[0].reports[0].nodes
    assert nodes is not None
    assert nodes.of_instance.tolist() == [0, 0, 0]
    assert [each.shards_wanted for each in reports] == [[0]] * FILES


SHARDS = 40
COSTLY = np.flatnonzero(Plan.even(SHARDS, 2).shard_of(hash_keys(np.arange(SHARDS))) % 2 == 0)
"""Keys, of as many as there are shards, that begin on the first of two instances."""


class Uneven(Count):
    """A count in which rows of some keys wait five times as long as others."""

    def update(self, states: Any, groups: Any, *values: Any) -> Any:
        """Wait, then count."""
        costly = np.count_nonzero(np.isin(values[0].to_numpy() % SHARDS, COSTLY))
        time.sleep((groups.size + 4 * costly) * ROW)
        return super().update(states, groups, *values)


def test_busy_time_is_balanced_and_not_the_number_of_rows(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    df = stream(spark, folder).select((F.col("number") % SHARDS).alias("key"), "number")
    pipeline = Pipeline(df, instances=2, shards=SHARDS, balancer="consistent")
    counted = pipeline.aggregate("key", {"n": Uneven().of("number")})
    sink, reports = run(counted, tmp_path)
    spread = [1 - busy.min() / busy.max() for busy in map(busy_of, reports)]
    # Both have as many rows at first, and by those nothing would move.
    assert np.ptp(reports[0].loads[0]) == 0
    assert spread[0] > 0.6
    assert min(spread[2:]) < 0.3
    assert {row["key"]: row["n"] for row in sink.rows()} == dict.fromkeys(
        range(SHARDS), FILES * ROWS // SHARDS
    )


def test_too_few_shards_are_told_once_with_the_way_to_more(
    spark: SparkSession, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    df = stream(spark, folder)
    pipeline = Pipeline(df, instances=3, shards=4, balancer=Consistent(e=1e9))
    counted = pipeline.aggregate("key", {"n": Slow().of("number")})
    _, reports = run(counted, tmp_path, Speeds((1, 1, 0.3)))
    wanted = [each.shards_wanted[0] for each in reports]
    assert max(wanted) > 50
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    told = [line for line in lines if "too few for speeds as different as these" in line]
    assert told
    assert f"--reshard {wanted[0] or wanted[1]} --to FOLDER" in told[0]
    assert 'whole first, which one batch with balancer="static" and another number' in told[0]
    # Once for each larger number, not for every batch.
    assert len(told) < len([each for each in wanted if each])


def test_shards_are_as_many_as_are_given_or_the_balancer_needs(
    spark: SparkSession, folder: Path
) -> None:
    df = stream(spark, folder)
    assert Pipeline(df, instances=2, balancer="consistent").shards == 200
    assert Pipeline(df, instances=2, balancer="consistent", shards=7).shards == 7
    assert Pipeline(df, instances=2).shards == 32
    added = Pipeline(df, instances=2, balancer="consistent").aggregate("key", {"n": count()})
    assert added.stages[0].shards == 200


def test_a_balancer_that_goes_by_queues_is_refused(spark: SparkSession, folder: Path) -> None:
    with pytest.raises(BadParameter, match=r"consistent goes by queues, .* such as .busy."):
        Pipeline(stream(spark, folder), instances=2, balancer=Consistent(signal="queue"))


def test_a_task_has_the_speed_of_its_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    for number, speeds in {2: [0.3, 0.3], 3: [1.0, 1.0]}.items():
        monkeypatch.setattr("unskew.spark.speeds.executor", lambda n=number: Executor(7, n))
        assert [speed_here((1.0, 0.5, 0.3), instance) for instance in range(2)] == speeds


def test_in_local_mode_instances_have_the_speeds() -> None:
    assert [speed_here((1.0, 0.3), instance) for instance in range(3)] == [1.0, 0.3, 1.0]
    assert speed_here((), 5) == 1.0


@pytest.mark.parametrize(
    ("first", "changes", "message"),
    [
        ((), {}, "speeds need a number for each executor"),
        ((0.0, 1.0), {}, "a speed must be above 0"),
        ((1.5,), {}, "at most 1, not 1.5"),
        ((1.0,), {0: (0.5,)}, "the batch of a change must be from 1"),
        ((1.0,), {3: (0.5, 1.0)}, "there are 1 speeds at first, and 2 from batch 3 on"),
    ],
)
def test_speeds_that_are_none_are_refused(
    first: tuple[float, ...], changes: dict[int, tuple[float, ...]], message: str
) -> None:
    with pytest.raises(BadParameter, match=message):
        Speeds(first, changes)
