"""Spark Connect: what works works, and what cannot says so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.drill


def test_what_works_on_connect_works_and_what_cannot_says_so() -> None:
    script = Path(__file__).with_name("connect_drill.py")
    done = subprocess.run(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, check=True, timeout=600
    )
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("{"))
    found = json.loads(line)

    for way in ("online", "compiled"):
        assert sum(found[way]) == 20_000
        assert max(found[way]) < 1.05 * 20_000 / 4
    assert len(found["counts"]) == 51
    assert sum(ours for ours, _ in found["counts"]) == 20_000
    assert all(ours == spark for ours, spark in found["counts"])
    assert found["streamed"] > 0
    assert found["streamed"] % 500 == 0
    assert "UnsupportedSpark" in found["explain"]
    assert "Spark Connect" in found["explain"]
