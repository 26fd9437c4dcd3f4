"""A pipeline killed at every point of its cycle, and at any moment: none lost, none twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark.pipeline_drill import EXECUTOR, POINTS, plain

from unskew.spark import read_state

pytestmark = pytest.mark.drill

BATCHES = 6


def start(folder: Path, *arguments: object) -> subprocess.Popen[bytes]:
    """Start the pipeline in a group of processes of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "begun").unlink(missing_ok=True)
    script = Path(__file__).with_name("pipeline_drill.py")
    with (folder / "errors").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, str(script), str(folder), *map(str, arguments)],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(script.parents[1]), *sys.path]),
                "SPARK_WORKER_DIR": str(folder / "workers"),
                "TMPDIR": str(folder),
            },
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )


def finish(folder: Path, batches: int) -> None:
    process = start(folder, batches)
    assert process.wait(timeout=300) == 0, (folder / "errors").read_text()[-3000:]


def difference(spark: SparkSession, folder: Path) -> tuple[int, int, int]:
    """Return how many batches came out, and the rows of all of them that are lost and doubled."""
    found = spark.read.parquet(str(folder / "out")).select("key", "version", "n").collect()
    batches = 1 + max(row["version"] for row in found) // 4
    wanted = Counter(map(tuple, plain(spark, batches).collect()))
    got = Counter(map(tuple, found))
    totals: Counter[str] = Counter()
    # A hot key has a part on each of its instances.
    for row in read_state(spark, folder / "checkpoint").collect():
        totals[row["key"]] += row["state_n"]
    last = {key: n for key, version, n in sorted(wanted, key=lambda row: row[1])}
    assert totals == last
    return batches, (wanted - got).total(), (got - wanted).total()


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_point_and_started_again(
    spark: SparkSession, tmp_path: Path, point: str
) -> None:
    process = start(tmp_path, 1000, point, 3)
    assert process.wait(timeout=300) == -signal.SIGKILL, (tmp_path / "errors").read_text()[-3000:]
    finish(tmp_path, BATCHES)
    batches, lost, doubled = difference(spark, tmp_path)
    assert batches >= BATCHES
    assert (lost, doubled) == (0, 0)


def test_an_executor_of_three_is_killed_in_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    process = start(tmp_path, BATCHES, EXECUTOR, 2)
    assert process.wait(timeout=600) == 0, (tmp_path / "errors").read_text()[-3000:]
    assert (tmp_path / "killed").exists()
    batches, lost, doubled = difference(spark, tmp_path)
    assert batches >= BATCHES
    assert (lost, doubled) == (0, 0)


def test_killed_at_any_moment_again_and_again(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = int(os.environ.get("ROUNDS", "5"))
    chance = random.Random(rounds)
    for _ in range(rounds):
        process = start(tmp_path, 100_000)
        deadline = time.monotonic() + 120
        while not (tmp_path / "begun").exists():
            assert process.poll() is None, (tmp_path / "errors").read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(chance.uniform(0, 3))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    done = [int(path.name.partition("-")[2]) for path in tmp_path.glob("batch-*")]
    finish(tmp_path, max(done) + 3)
    batches, lost, doubled = difference(spark, tmp_path)
    with capsys.disabled():
        print(f"\nrounds={rounds} lost={lost} duplicated={doubled}")
    assert batches > rounds
    assert (lost, doubled) == (0, 0)
