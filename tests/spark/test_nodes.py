"""Nodes: on one executor nothing is pinned; what is missing for pinning is said once."""

from __future__ import annotations

import logging

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew.spark import nodes
from unskew.spark.nodes import Pins, live_executors


def test_a_local_session_is_one_executor_and_nothing_is_pinned(spark: SparkSession) -> None:
    assert len(live_executors(spark)) == 1
    sent = spark.range(5).withColumn("i", F.lit(0))
    assert Pins().pin(sent, 3, "i") is sent


def test_a_context_without_the_settings_is_told_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(nodes, "live_executors", lambda spark: frozenset({"a", "b"}))
    sent = spark.range(5).withColumn("i", F.lit(0))
    pins = Pins()
    for _ in range(2):
        assert pins.pin(sent, 3, "i") is sent
    (warning,) = (each for each in caplog.records if each.levelno == logging.WARNING)
    assert "spark.shuffle.reduceLocality.enabled=false" in warning.getMessage()
    assert "spark.locality.wait is 3000 ms" in warning.getMessage()


def test_with_an_anchor_the_same_rows_come(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "live_executors", lambda spark: frozenset({"a", "b"}))
    monkeypatch.setattr(Pins, "_is_possible", lambda self, spark: True)
    sent = spark.range(50).withColumn("i", (F.col("id") % 3).cast("int"))
    pins = Pins()
    for _ in range(2):
        pinned = pins.pin(sent.repartitionById(3, F.col("i")), 3, "i")
        assert pinned.columns == ["id", "i"]
        placed = pinned.withColumn("p", F.spark_partition_id()).collect()
        assert sorted(row["id"] for row in placed) == list(range(50))
        assert all(row["i"] == row["p"] for row in placed)
    assert pins.made == 1
    monkeypatch.setattr(nodes, "live_executors", lambda spark: frozenset({"a", "c"}))
    pins.pin(sent.repartitionById(3, F.col("i")), 3, "i")
    assert pins.made == 2
