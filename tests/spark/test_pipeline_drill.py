"""A pipeline killed at every point of its cycle, and at any moment: none lost, none twice."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

import pytest
from pyspark.sql import SparkSession
from spark.pipeline_drill import BETWEEN, EXECUTOR, POINTS, plain, plain_pairs

from unskew.apps.following import watermarks
from unskew.balance import Plan
from unskew.spark import read_state
from unskew.state import Checkpoint
from unskew.state.versions import version_of

pytestmark = pytest.mark.drill

BATCHES = 6
DRILL = Path(__file__).with_name("pipeline_drill.py")
OWN_MOUNTS = ("unshare", "--map-root-user", "--mount", "sh", "-c")


def start(
    folder: Path,
    *arguments: object,
    command: Sequence[str] = (),
    env: Mapping[str, str] = MappingProxyType({}),
    errors: str = "errors",
) -> subprocess.Popen[bytes]:
    """Start the pipeline, or another command, in a group of processes of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "begun").unlink(missing_ok=True)
    with (folder / errors).open("wb") as file:
        return subprocess.Popen(
            command or [sys.executable, str(DRILL), str(folder), *map(str, arguments)],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(DRILL.parents[1]), *sys.path]),
                "SPARK_WORKER_DIR": str(folder / "workers"),
                "TMPDIR": str(folder),
                **env,
            },
            stdout=subprocess.DEVNULL,
            stderr=file,
            start_new_session=True,
        )


def finish(folder: Path, batches: int) -> None:
    process = start(folder, batches)
    assert process.wait(timeout=300) == 0, (folder / "errors").read_text()[-3000:]


def batches_in(folder: Path) -> list[int]:
    """Return the batches that all runs have finished."""
    return [int(path.name.partition("-")[2]) for path in folder.glob("batch-*")]


def wait_for(process: subprocess.Popen[bytes], folder: Path, files: str, *, more_than: int) -> None:
    """Wait until there are more than so many files, of a run that goes on."""
    deadline = time.monotonic() + 120
    while len(list(folder.glob(files))) <= more_than:
        assert process.poll() is None, (folder / "errors").read_text()[-3000:]
        assert time.monotonic() < deadline, (folder / "errors").read_text()[-3000:]
        time.sleep(0.05)


def difference(
    spark: SparkSession, folder: Path, stage: int = 0, out: str = "out"
) -> tuple[int, int, int]:
    """Return how many batches came out, and the rows of all of them that are lost and doubled."""
    found = spark.read.parquet(str(folder / out)).select("key", "version", "n").collect()
    batches = 1 + max(row["version"] for row in found) // 4
    wanted = Counter(map(tuple, plain(spark, batches).collect()))
    got = Counter(map(tuple, found))
    totals: Counter[str] = Counter()
    # A hot key has a part on each of its instances.
    for row in read_state(spark, folder / "checkpoint", stage=stage).collect():
        totals[row["key"]] += row["state_n"]
    last = {key: n for key, version, n in sorted(wanted, key=lambda row: row[1])}
    assert totals == last
    return batches, (wanted - got).total(), (got - wanted).total()


def pairs_difference(spark: SparkSession, folder: Path) -> tuple[int, int, int]:
    """Return how many batches were joined, and the pairs and lone rows lost and doubled."""
    found = spark.read.parquet(str(folder / "out")).select("left", "right", "version").collect()
    batches = 1 + max(row["version"] for row in found) // 4
    marks = watermarks(folder / "checkpoint" / "spark", batches)
    wanted = Counter(map(tuple, plain_pairs(spark, marks).collect()))
    assert {(left is None, right is None) for left, right in wanted} == {
        *((False, False), (False, True), (True, False)),
    }
    got = Counter((row["left"], row["right"]) for row in found)
    return batches, (wanted - got).total(), (got - wanted).total()


def followed(spark: SparkSession, folder: Path) -> tuple[int, int, int]:
    """Return the difference of counts, of a run whose shards and hot keys went after the speeds."""
    found = difference(spark, folder)
    checkpoint = Checkpoint(folder / "checkpoint" / "unskew")
    plan = checkpoint.decided(version_of(found[0] - 1)).plans[0]
    assert plan.hot
    assert plan.moves(Plan.even(plan.shards, plan.instances))
    return found


def both_differences(spark: SparkSession, folder: Path) -> tuple[int, int, int]:
    """Return the batches of which both sinks have all, and what they have lost and doubled."""
    first = difference(spark, folder, stage=1)
    second = difference(spark, folder, stage=2, out="out-again")
    assert first[0] == second[0]
    return first[0], first[1] + second[1], first[2] + second[2]


DIFFERENCES: dict[str, Callable[[SparkSession, Path], tuple[int, int, int]]] = {
    "count": difference,
    "join": pairs_difference,
    "hop": partial(difference, stage=1),
    "consistent": followed,
    "branch": both_differences,
}


@pytest.fixture(params=DIFFERENCES)
def job(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what the pipeline does, once it is told."""
    monkeypatch.setenv("JOB", request.param)
    return str(request.param)


# Once the sink has it, all is the same whatever the pipeline does.
AFTER_THE_SINK = {"before the done marker", "in garbage collection"}

# What a pipeline with two ends does otherwise than one with a hop.
OF_BRANCHES = ("in the operator", "before the manifest", "after the manifest", BETWEEN)


@pytest.mark.parametrize(
    ("job", "point"),
    [
        *(("count", point) for point in POINTS),
        *(
            (job, point)
            for job in ("join", "hop", "consistent")
            for point in POINTS
            if point not in AFTER_THE_SINK
        ),
        *(("branch", point) for point in OF_BRANCHES),
    ],
    indirect=["job"],
)
def test_killed_at_a_point_and_started_again(
    spark: SparkSession, tmp_path: Path, job: str, point: str
) -> None:
    process = start(tmp_path, 1000, point, 3)
    assert process.wait(timeout=300) == -signal.SIGKILL, (tmp_path / "errors").read_text()[-3000:]
    finish(tmp_path, BATCHES)
    batches, lost, doubled = DIFFERENCES[job](spark, tmp_path)
    assert batches >= BATCHES
    assert (lost, doubled) == (0, 0)


def test_an_executor_of_three_is_killed_in_a_batch(
    spark: SparkSession, tmp_path: Path, job: str
) -> None:
    process = start(tmp_path, BATCHES, EXECUTOR, 2)
    assert process.wait(timeout=600) == 0, (tmp_path / "errors").read_text()[-3000:]
    assert (tmp_path / "killed").exists()
    batches, lost, doubled = DIFFERENCES[job](spark, tmp_path)
    assert batches >= BATCHES
    assert (lost, doubled) == (0, 0)


def test_two_drivers_at_once_do_not_count_anything_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Neither removes what the other is writing.
    both = {"GRACE": "3600"}
    drivers = [start(tmp_path, 1000, env=both)]
    deadline = time.monotonic() + 300
    # At the very first file Spark itself would refuse the second, with another error.
    while not (tmp_path / "checkpoint" / "spark" / "metadata").exists():
        assert time.monotonic() < deadline, (tmp_path / "errors").read_text()[-3000:]
        time.sleep(0.02)
    drivers.append(start(tmp_path, 1000, env=both, errors="errors of the second"))
    while all(driver.poll() is None for driver in drivers):
        assert time.monotonic() < deadline, "both go on"
        time.sleep(0.1)
    for driver in drivers:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    told = (tmp_path / "errors").read_text() + (tmp_path / "errors of the second").read_text()
    # Whoever of the two sees it first: the state, or Spark's own log of offsets.
    assert "two queries must not share a checkpoint" in told or "CONCURRENT" in told, told[-3000:]
    finish(tmp_path, max(batches_in(tmp_path), default=0) + 3)
    _, lost, doubled = difference(spark, tmp_path)
    assert (lost, doubled) == (0, 0)


def test_a_full_disk_stops_the_pipeline_and_room_lets_it_go_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    state = tmp_path / "checkpoint" / "unskew"
    state.mkdir(parents=True)
    try:
        subprocess.run([*OWN_MOUNTS, f"mount -t tmpfs none '{state}'"], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small disk cannot be had here: {error}")
    # The disk is seen by these commands alone, and gone with them; what is on it is taken along.
    run = f"'{sys.executable}' '{DRILL}' '{tmp_path}'"
    commands = f"""
        set -e
        mount -t tmpfs -o size=8m none '{state}'
        {run} 1000 2> '{tmp_path}/full' & driver=$!
        while ! [ -e '{tmp_path}/batch-3' ]; do sleep 0.05; done
        cat /dev/zero > '{state}/filler' 2> /dev/null || true
        code=0; wait $driver || code=$?; echo $code > '{tmp_path}/code'
        ls '{state}/manifests' > '{tmp_path}/manifests'
        rm '{state}/filler'
        {run} 20
        cp -a '{state}' '{tmp_path}/state'
    """
    process = start(tmp_path, command=[*OWN_MOUNTS, commands])
    assert process.wait(timeout=300) == 0, (tmp_path / "errors").read_text()[-3000:]
    assert (tmp_path / "code").read_text() == "1\n"
    told = (tmp_path / "full").read_text()
    assert "could not be written" in told, told[-3000:]
    assert "No space left on device" in told
    assert (tmp_path / "manifests").read_text()
    shutil.rmtree(state)
    (tmp_path / "state").rename(state)
    batches, lost, doubled = difference(spark, tmp_path)
    assert batches >= 20
    assert (lost, doubled) == (0, 0)


def test_killed_at_any_moment_again_and_again(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    job: str,
) -> None:
    rounds = int(os.environ.get("ROUNDS", "5"))
    chance = random.Random(rounds)
    for number in range(rounds):
        process = start(tmp_path, 100_000)
        wait_for(process, tmp_path, "begun", more_than=0)
        if number % 2 == 0:
            # The first batch takes about four seconds, as workers begin.
            time.sleep(chance.uniform(0, 4))
        else:
            # Those after it take one.
            wait_for(process, tmp_path, "batch-*", more_than=len(batches_in(tmp_path)))
            time.sleep(chance.uniform(0, 2))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    finish(tmp_path, max(batches_in(tmp_path), default=0) + 3)
    batches, lost, doubled = DIFFERENCES[job](spark, tmp_path)
    with capsys.disabled():
        print(f"\n{job}: rounds={rounds} lost={lost} duplicated={doubled}")
    assert batches > rounds // 2
    assert (lost, doubled) == (0, 0)
