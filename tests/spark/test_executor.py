"""The executor of a worker, by the processes above it, whatever the system hides of them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psutil
import pytest

from unskew.spark.executor import Executor, cores_of, executor
from unskew.spark.nodes import node

BACKEND = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class Parent:
    """A process above this one, as psutil shows it."""

    pid = 7

    def __init__(self, *words: str, hides: str = "") -> None:
        self.words, self.hides = list(words), hides

    def name(self) -> str:
        """Return the name of its program, unless the system hides it."""
        if "name" in self.hides:
            raise psutil.AccessDenied
        return self.words[0]

    def cmdline(self) -> list[str]:
        """Return its command, unless the system hides it."""
        if "command" in self.hides:
            raise psutil.AccessDenied
        return self.words


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    """Look anew in each test."""
    executor.cache_clear()
    yield
    executor.cache_clear()


DAEMON, SHELL = Parent("python", "-m", "pyspark.daemon"), Parent("bash")
OWN = Parent("java", BACKEND, "--executor-id", "2", "--cores", "3")


@pytest.mark.parametrize(
    ("parents", "found"),
    [
        pytest.param([DAEMON, OWN, SHELL], Executor(7, 2, 3), id="an executor"),
        pytest.param(
            [Parent("sh", hides="name, command"), OWN],
            Executor(7, 2, 3),
            id="one above a process that is hidden",
        ),
        pytest.param(
            [DAEMON, Parent(*OWN.words, hides="command")],
            Executor(7),
            id="one whose command is hidden",
        ),
        pytest.param(
            [Parent(*OWN.words, hides="name")], Executor(7, 2, 3), id="one whose name is hidden"
        ),
        pytest.param(
            [Parent("java", "SparkSubmit", "--executor-id", "driver", "--cores", "3")],
            Executor(7),
            id="the driver's own",
        ),
        pytest.param([DAEMON, SHELL], Executor(os.getppid()), id="no JVM"),
        pytest.param([], Executor(os.getppid()), id="nothing is shown"),
    ],
)
def test_the_executor_of_a_worker_is_the_first_jvm_above_it(
    parents: list[Parent], found: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unskew.spark.executor._parents", lambda: parents)
    assert executor() == found
    told = node()
    assert told["name"].endswith(f":{found.process}")
    assert told.get("cores") == found.cores


def test_a_system_that_shows_no_processes_hides_the_executor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hidden(self: psutil.Process) -> list[psutil.Process]:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil.Process, "parents", hidden)
    assert executor() == Executor(os.getppid())


def test_the_cores_of_an_executor_are_those_it_was_started_with() -> None:
    assert cores_of(["java", "-cp", "x", BACKEND, "--executor-id", "0", "--cores", "3"]) == 3
    assert cores_of(["java", BACKEND, "--cores"]) is None
    assert cores_of(["java", "org.apache.spark.deploy.SparkSubmit", "--cores", "3"]) is None
