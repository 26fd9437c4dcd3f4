"""An executor is killed during the reduce: rows are compared, never counts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.drill


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    script = Path(__file__).with_name("replay_drill.py")
    done = subprocess.run(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, check=True, timeout=3000
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_no_row_is_lost_or_doubled_whatever_lies_upstream(cases: list[dict[str, Any]]) -> None:
    ours = [case for case in cases if case["way"] != "careless"]
    assert len(ours) == 8
    for case in ours:
        assert case["killed"] == 1
        assert (case.get("lost"), case.get("doubled")) == (0, 0), case


def test_the_drill_would_show_a_careless_router(cases: list[dict[str, Any]]) -> None:
    checked, unchecked = (case for case in cases if case["way"] == "careless")
    # Spark stops the job where it looks at the checksums, and loses rows where it does not.
    assert "indeterminate" in checked["error"]
    assert unchecked["lost"] > 0
    assert unchecked["doubled"] > 0
