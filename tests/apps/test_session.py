from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from unskew.apps.session import _reason, spark_session
from unskew.errors import UnsupportedSpark


def test_an_old_java_is_refused_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with (
        pytest.raises(UnsupportedSpark, match="is Java 8, too old for Spark; install version 17"),
        spark_session("local", tmp_path),
    ):
        pass


def test_a_missing_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with (
        pytest.raises(UnsupportedSpark, match=f"there is no Java in JAVA_HOME={tmp_path}; install"),
        spark_session("local", tmp_path),
    ):
        pass


def test_a_master_that_spark_does_not_know_is_named(tmp_path: Path) -> None:
    # In a process of its own: one session is all that a process has.
    code = (
        "from pathlib import Path; from unskew.apps.session import _reason, spark_session\n"
        f"with spark_session('local[x]', Path({str(tmp_path)!r})): pass"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "UnsupportedSpark: Spark does not start with master 'local[x]': " in done.stderr


def test_the_first_cause_is_what_is_told() -> None:
    error = RuntimeError(
        "Job aborted due to stage failure\n\tat org.apache.spark.X\n"
        "Caused by: java.lang.RuntimeException: file.parquet is not a Parquet file\n\tat y"
    )
    assert _reason(error) == (
        "Caused by: java.lang.RuntimeException: file.parquet is not a Parquet file"
    )
    assert _reason(RuntimeError("no column x\nmore")) == "no column x"
