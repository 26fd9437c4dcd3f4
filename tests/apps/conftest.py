"""The session of the tests, for commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession


@pytest.fixture
def shared(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command use the session of the tests."""

    @contextmanager
    def session(master: str, scratch: Path, settings: object = None) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("unskew.apps.session.spark_session", session)
