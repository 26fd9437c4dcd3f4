"""The app rides: pairs as a plain join makes them, over restarts, moves and late rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from apps.running import FIGURES, options
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from spark.balancers import Restless

from unskew.apps import Batch, Options, app, rides
from unskew.apps.following import watermarks
from unskew.balance import BALANCERS
from unskew.cli import main
from unskew.errors import BadParameter, NotVerified
from unskew.workloads import Rides
from unskew.workloads.rides import START

OWN_FIGURES = {"migrations", "migrated_bytes", "late_rows", "latency_p95_ms"}


@pytest.fixture
def restless(monkeypatch: pytest.MonkeyPatch) -> str:
    """Have a balancer by name that moves every shard in every batch, and splits hot keys."""
    monkeypatch.setitem(BALANCERS, Restless.name, Restless)
    return Restless.name


def late_rows(given: Options) -> int:
    """Count the rows that come after the watermark of the batch before, by Spark's own notes."""
    marks = np.array([0, *watermarks(given.out / "checkpoint" / "spark", given.batches)[:-1]])
    numbers = np.arange(given.batches * given.rows)
    made = Rides(1, per_hour=rides.BATCHES_PER_HOUR * given.rows, seed=given.seed).places(numbers)
    late = made.time + 1000 * int(START.timestamp()) <= marks[numbers // given.rows]
    return int(late.sum())


def test_a_run_is_verified_and_goes_on_where_it_stopped(
    spark: SparkSession, tmp_path: Path, restless: str
) -> None:
    seen: list[Batch] = []
    given = options(tmp_path, balancer=restless, batches=5, rows=3000)
    first = app("rides").run(spark, given, seen.append)

    assert first.verified
    assert [batch.number for batch in seen] == [0, 1, 2, 3, 4]
    assert first.rows_in == 15_000
    assert first.rows_out > 1000
    assert first.replication_factor > 1 < max(hot.instances for hot in seen[1].balance.hot)
    # The same pairs, on other instances; late rows have none, and few of those there are.
    for batch in seen:
        pairs = sum(batch.balance.loads)
        assert pairs <= sum(batch.balance.hash_loads) <= 1.01 * pairs + 20
    assert first.balanced == "pairs"
    assert first.as_dict().keys() >= FIGURES | OWN_FIGURES
    assert first.extra["migrations"] >= 4 * rides.SHARDS
    assert first.extra["migrated_bytes"] > 10_000
    assert first.extra["late_rows"] == late_rows(given) > 0
    assert first.extra["latency_p95_ms"] == pytest.approx(
        1000 * max(batch.seconds for batch in seen), rel=0.5
    )

    # Another number of instances and another balancer: the pairs of both runs are compared.
    more = options(tmp_path, batches=2, rows=3000, instances=3, balancer="static")
    second = app("rides").run(spark, more, seen.append)
    assert second.verified
    assert [batch.number for batch in seen[5:]] == [5, 6]

    with pytest.raises(BadParameter, match="a run with rows=3000, which cannot go on with 500"):
        app("rides").run(spark, options(tmp_path, rows=500), seen.append)


def test_orders_have_the_taxis_of_their_cell_or_none(spark: SparkSession, tmp_path: Path) -> None:
    app("rides").run(spark, options(tmp_path, rows=2000, verify=False), lambda batch: None)

    pairs = spark.read.parquet(str(tmp_path / "pairs"))
    late = F.col("time").cast("double") - F.col("seen").cast("double")
    row = pairs.agg(
        F.count("taxi").alias("taxis"),
        F.max(late).alias("most"),
        F.min(late).alias("least"),
        F.max(F.hypot(F.col("x") - F.col("taxi_x"), F.col("y") - F.col("taxi_y"))).alias("far"),
        F.count_if(F.col("taxi").isNull()).alias("alone"),
    ).first()
    assert row is not None
    assert row.taxis > 100
    assert row.alone > 0
    assert 0 <= row.least < row.most <= 300
    assert row.far <= 2 * 2**0.5


def test_a_pair_that_is_missing_is_not_verified(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = rides._verify

    def without_one(stream: rides._Rides, found: DataFrame, marks: list[int]) -> None:
        real(stream, found.orderBy("order", "taxi", "seen").offset(1), marks)

    monkeypatch.setattr(rides, "_verify", without_one)
    with pytest.raises(NotVerified, match="1 pairs are there more often, or less"):
        app("rides").run(spark, options(tmp_path, batches=1, rows=1000), lambda batch: None)


@pytest.mark.usefixtures("shared")
def test_the_command_writes_json_and_a_report(tmp_path: Path) -> None:
    arguments = ["--rows", "1000", "--batches", "2", "--instances", "3", "--verify"]
    out = tmp_path / "out"
    result = CliRunner().invoke(
        main, ["run", "rides", *arguments, "--out", str(out), "--json", "-"]
    )

    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary.keys() >= FIGURES | OWN_FIGURES
    assert summary["verified"] is True
    assert (summary["app"], summary["rows_in"], summary["batches"]) == ("rides", 2000, 2)
    assert summary["balanced"] == "pairs"
    assert "Imbalance of each batch, by pairs" in (out / "report.html").read_text(encoding="utf-8")
    assert "cell " in result.stderr


def test_options_of_other_apps_are_refused_before_spark_starts() -> None:
    for arguments, message in (
        (["--grouping", "key"], "rides takes no --grouping, and was given 'key'; leave it out"),
        (["--source", "files:x"], "rides takes no --source"),
        (["--key", "user"], "rides takes no --key"),
        (["--balancer", "nonsense"], "there is no balancer 'nonsense'"),
    ):
        result = CliRunner().invoke(main, ["run", "rides", *arguments])
        assert result.exit_code == 2
        assert message in result.output
