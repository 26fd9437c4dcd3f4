"""A process of its own: it answers, fails, dies, and is never left behind."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from threading import Thread

import psutil
import pytest

from unskew.beside import Beside
from unskew.errors import ProcessFailed


@pytest.fixture
def beside() -> Iterator[Beside]:
    made = Beside()
    yield made
    made.close()


def call(beside: Beside, function: Callable[..., object], *arguments: object) -> object:
    return beside.call(pickle.dumps(partial(function, *arguments)))


def is_gone(process: int) -> bool:
    deadline = time.monotonic() + 20
    while psutil.pid_exists(process) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not psutil.pid_exists(process)


def test_one_process_answers_all_calls(beside: Beside) -> None:
    assert beside.process is None
    first = call(beside, os.getpid)
    assert first not in (os.getpid(), None)
    assert call(beside, os.getpid) == first == beside.process
    assert len(str(call(beside, str.__mul__, "x", 3_000_000))) == 3_000_000


def test_what_is_printed_there_is_no_answer(beside: Beside) -> None:
    assert call(beside, print, "not an answer") is None
    assert call(beside, os.system, "echo neither") == 0
    assert call(beside, max, 3, 4) == 4


def test_what_fails_there_is_told_here_and_the_process_stays(beside: Beside) -> None:
    process = call(beside, os.getpid)
    with pytest.raises(ProcessFailed, match=r"ValueError: invalid literal .*'five'"):
        call(beside, int, "five")
    assert call(beside, os.getpid) == process


def test_a_process_that_is_killed_in_the_middle_is_followed_by_another(beside: Beside) -> None:
    process = call(beside, os.getpid)
    assert isinstance(process, int)
    errors: list[str] = []

    def wait() -> None:
        try:
            call(beside, time.sleep, 60)
        except ProcessFailed as error:
            errors.append(str(error))

    waiting = Thread(target=wait)
    waiting.start()
    time.sleep(0.2)
    os.kill(process, signal.SIGKILL)
    waiting.join(timeout=20)
    assert len(errors) == 1
    assert errors[0].startswith(f"process {process} ended with code -9 before it had an answer")
    assert call(beside, os.getpid) != process


def test_what_is_closed_in_the_middle_is_gone_for_good(beside: Beside) -> None:
    process = call(beside, os.getpid)
    assert isinstance(process, int)
    errors: list[ProcessFailed] = []

    def wait() -> None:
        try:
            call(beside, time.sleep, 60)
        except ProcessFailed as error:
            errors.append(error)

    waiting = Thread(target=wait)
    waiting.start()
    time.sleep(0.2)
    beside.close()
    waiting.join(timeout=20)
    assert len(errors) == 1
    assert is_gone(process)
    with pytest.raises(ProcessFailed, match="closed"):
        call(beside, os.getpid)


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "in the middle of a call"])
def test_it_ends_with_the_process_that_started_it(busy: bool) -> None:
    # A script without a guard: what starts a process must not run it a second time.
    script = f"""
import os, pickle, threading, time
from functools import partial
from unskew.beside import Beside
beside = Beside()
print(beside.call(pickle.dumps(os.getpid)), flush=True)
if {busy}:
    call = partial(beside.call, pickle.dumps(partial(time.sleep, 600)))
    threading.Thread(target=call, daemon=True).start()
time.sleep(600)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment
    ) as started:
        assert started.stdout is not None
        process = int(started.stdout.readline())
        time.sleep(0.2)
        assert psutil.pid_exists(process)
        started.kill()
    assert is_gone(process)
