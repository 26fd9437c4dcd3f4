"""Words from a real Kafka into a real Redis: the driver killed, Redis gone for a while."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from services import addresses, end, free_port, start_redis

from unskew.spark import RedisSink
from unskew.workloads import Zipf

pytestmark = pytest.mark.drill

LINES, LINE = 24_000, 20
BATCHES = 8
DOWN = 30.0
"""Seconds that Redis is gone."""


@dataclass
class OwnRedis:
    """A Redis that can be killed and comes back with what it has acknowledged."""

    folder: Path
    port: int
    pid: int = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        self.pid = start_redis(self.folder, self.port)["pids"]["redis"]

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        end(self.pid)


@pytest.fixture
def own_redis(tmp_path: Path, redis_url: str) -> Iterator[OwnRedis]:
    """Yield a Redis of the test's own; where none can be had, `redis_url` tells why."""
    made = OwnRedis(tmp_path / "redis", free_port())
    made.start()
    yield made
    end(made.pid)


@pytest.fixture
def topic(spark: SparkSession, kafka: str) -> str:
    """Return a topic with skewed words."""
    name = f"drill-{uuid4().hex[:8]}"
    ranks = Zipf(1.4, 10_000, LINES * LINE).ranks(0, LINES * LINE).astype(str)
    lines = np.char.add("word", ranks).reshape(LINES, LINE).tolist()
    rows = spark.createDataFrame([(" ".join(line),) for line in lines], "value string")
    writer = rows.write.format("kafka").option("kafka.bootstrap.servers", kafka)
    writer.option("topic", name).save()
    return name


def start(topic: str, sink: str, folder: Path, *more: str) -> subprocess.Popen[str]:
    found = addresses()
    command = [
        *(sys.executable, "-c", "from unskew.cli import main; main()", "run", "words"),
        *("--source", f"kafka://{found['kafka']}/{topic}", "--jars", ",".join(found["jars"])),
        *("--master", "local-cluster[3,2,1024]", "--instances", "6"),
        *("--rows", str(LINES // BATCHES + 3), "--out", str(folder / "out"), *more),
    ]
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    environment = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "SPARK_WORKER_DIR": str(scratch),
        "TMPDIR": str(scratch),
        # As the documentation says to: it is in no list of processes.
        "UNSKEW_SINK": sink,
    }
    with (folder / "errors").open("ab") as errors:
        return subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )


def wait_for_batch(process: subprocess.Popen[str], folder: Path, number: int) -> None:
    """Wait until Spark has begun a batch."""
    offsets = folder / "out" / "checkpoint" / "spark" / "offsets" / str(number)
    deadline = time.monotonic() + 300
    while not offsets.exists():
        assert process.poll() is None, (folder / "errors").read_text()[-2000:]
        assert time.monotonic() < deadline, "the run does not get on"
        time.sleep(0.02)


def finished(process: subprocess.Popen[str], folder: Path) -> dict[str, Any]:
    told, _ = process.communicate(timeout=400)
    assert process.returncode == 0, (folder / "errors").read_text()[-2000:]
    summary: dict[str, Any] = json.loads(told)
    return summary


def counts_are_exact(spark: SparkSession, kafka: str, topic: str, redis: OwnRedis) -> bool:
    """Compare Redis with a count of the whole topic, by plain Spark and nothing of ours."""
    messages = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka)
    lines = messages.option("subscribe", topic).load().select(F.col("value").cast("string"))
    words = lines.select(F.explode(F.split("value", " ")).alias("word"))
    wanted = {row["word"]: str(row["count"]) for row in words.groupBy("word").count().collect()}
    assert sum(map(int, wanted.values())) == LINES * LINE
    return RedisSink(redis.url, "word", name="words").read("count") == wanted


def test_a_driver_that_is_killed_twice_counts_every_word_once(
    spark: SparkSession, tmp_path: Path, kafka: str, topic: str, own_redis: OwnRedis
) -> None:
    for batch in (2, 5):
        process = start(topic, own_redis.url, tmp_path)
        try:
            wait_for_batch(process, tmp_path, batch)
            # Somewhere in the batch.
            time.sleep(0.4)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    process = start(topic, own_redis.url, tmp_path, "--verify", "--json", "-")
    summary = finished(process, tmp_path)
    assert summary["verified"] is True
    assert summary["rows_in"] < LINES * LINE
    assert counts_are_exact(spark, kafka, topic, own_redis)


def test_a_redis_that_is_gone_for_half_a_minute_misses_nothing(
    spark: SparkSession, tmp_path: Path, kafka: str, topic: str, own_redis: OwnRedis
) -> None:
    process = start(topic, own_redis.url, tmp_path, "--verify", "--json", "-")
    try:
        wait_for_batch(process, tmp_path, 3)
        own_redis.kill()
        time.sleep(DOWN)
        assert process.poll() is None
        own_redis.start()
        summary = finished(process, tmp_path)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert summary["verified"] is True
    assert summary["rows_in"] == LINES * LINE
    assert counts_are_exact(spark, kafka, topic, own_redis)
