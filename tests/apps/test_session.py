from __future__ import annotations

from pathlib import Path

import pytest

from unskew.apps.session import spark_session
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
