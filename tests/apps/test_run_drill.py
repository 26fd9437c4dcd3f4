"""`unskew run` in processes of its own: killed in the middle, and on three executors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql.types import StructType

from unskew.apps.words import SHARDS
from unskew.balance import TwoTier
from unskew.operators.aggregation import Aggregation
from unskew.spark.batch_report import report_of
from unskew.spark.stages import Stage
from unskew.state import Checkpoint
from unskew.state.reading import folder_of

pytestmark = pytest.mark.drill

ROWS = 20_000


def command(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).with_name("unskew")), "run", "--rows", str(ROWS), *arguments]


class Place(NamedTuple):
    """Where an app leaves what comes out of a batch, and Spark that it is committed."""

    results: str
    per_batch: int
    commits: str

    def of(self, batch: int) -> str:
        return self.results.format(self.per_batch * batch)


PLACES = {
    "trending": Place("trends/batch={}", 1, "checkpoint/commits"),
    "rides": Place("pairs/version={}", 4, "checkpoint/spark/commits"),
}


def environment(scratch: Path) -> dict[str, str]:
    """Return where processes leave what they would otherwise leave behind when they are killed."""
    return {**os.environ, "TMPDIR": str(scratch), "SPARK_WORKER_DIR": str(scratch)}


def result(scratch: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        command(*arguments, "--verify", "--json", "-"),
        env=environment(scratch),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
    )
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def kill_after(app: str, batches: int, out: Path, scratch: Path) -> int:
    """Start a run, kill all its processes once so many batches are there; return the commits."""
    process = subprocess.Popen(
        command(app, "--batches", "1000", "--out", str(out)),
        env=environment(scratch),
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 300
        # The output of the next batch is being written when we kill.
        while not (out / PLACES[app].of(batches)).exists():
            assert process.poll() is None, "the run ended by itself"
            assert time.monotonic() < deadline, "the run does not get on"
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return max(int(path.name) for path in (out / PLACES[app].commits).glob("[0-9]*")) + 1


@pytest.mark.parametrize("app", PLACES)
def test_a_run_that_was_killed_twice_loses_nothing(app: str, tmp_path: Path) -> None:
    out, scratch = tmp_path / "out", tmp_path / "scratch"
    scratch.mkdir()
    first = kill_after(app, 2, out, scratch)
    second = kill_after(app, first + 2, out, scratch)
    assert second > first >= 2

    summary = result(scratch, app, "--batches", "2", "--out", str(out))

    # Every window, or pair, of all three runs was compared with plain Spark's.
    assert summary["verified"] is True
    assert summary["rows_in"] == 2 * ROWS
    assert len(list(out.glob(PLACES[app].results.format("*")))) == second + 2


def test_a_run_on_three_executors_is_balanced_and_right(tmp_path: Path) -> None:
    summary = result(tmp_path, "--batches", "3", "--master", "local-cluster[3,1,1024]")

    assert summary["verified"] is True
    assert summary["imbalance"] < 0.1 < summary["hash_imbalance"]


def test_executors_tell_their_cores_and_what_their_machine_has_counted(tmp_path: Path) -> None:
    out = tmp_path / "out"
    summary = result(
        *(tmp_path, "words", "--source", "rate", "--batches", "2", "--out", str(out)),
        *("--master", "local-cluster[2,2,1024]", "--instances", "4"),
    )

    assert summary["verified"] is True
    store = Checkpoint(folder_of(out / "checkpoint"))
    last = store.manifest(store.versions()[-1])
    assert last is not None
    nodes = [task["node"] for task in last.facts["tasks"]]
    assert len({node["name"] for node in nodes}) == 2
    assert [node["cores"] for node in nodes] == [2] * 4
    (machine,) = last.facts["since"]
    assert all(node["name"].startswith(f"{machine}:") for node in nodes)
    for node in nodes:
        assert last.facts["since"][machine]["at"] < node["began"]["at"] < node["ended"]["at"]
        assert node["network_bytes"] > 0
    # What two nodes of one machine have of its disk and network is what that has in use.
    stage = Stage("words", Aggregation({}), [], StructType(), 4, SHARDS, TwoTier())
    told = report_of(last, 0, stage).nodes
    assert told is not None
    assert told.cores is not None
    assert told.cores.tolist() == [2.0, 2.0]
    for part in (told.disk, told.network):
        assert part is not None
        assert 0 <= part.sum() <= 1
