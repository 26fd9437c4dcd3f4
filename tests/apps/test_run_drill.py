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
