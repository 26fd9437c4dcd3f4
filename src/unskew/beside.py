"""A process of its own for what takes a while: nothing here waits for its interpreter."""

from __future__ import annotations

import os
import pickle
import signal
import struct
import subprocess
import sys
import traceback
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread
from typing import IO, Any

from unskew.errors import ProcessFailed

_SIZE = struct.Struct("<q")

_START = "import sys; sys.path[:] = sys.argv[1:]; from unskew.beside import serve; serve()"
"""Not by `multiprocessing`, which would run the script of the user once more."""

_NICE = 10
"""Whoever has a batch to run goes first."""


class Beside:
    """Call functions in another process, one at a time.

    It starts with the first call, is there for those that follow, and ends with `close` or with
    this process, whichever way that ends. What goes over its pipes is pickled, and read by no
    other process than these two.

    Examples
    --------
    >>> import math
    >>> from functools import partial
    >>> beside = Beside()
    >>> beside.call(pickle.dumps(partial(math.gcd, 12, 18)))
    6
    >>> beside.close()
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    @property
    def process(self) -> int | None:
        """Return the id of the process, if there is one."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def call(self, function: bytes) -> Any:
        """Return what a function without arguments returns there.

        Parameters
        ----------
        function : bytes
            Pickled.

        Raises
        ------
        ProcessFailed
            If the function raised, or the process ended; the next call starts another, unless
            all is closed.
        """
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _write(process.stdin, function)
            answer = _read(process.stdout)
        except (OSError, ValueError):
            answer = None
        if answer is None:
            self._end(process)
            raise ProcessFailed(
                f"process {process.pid} ended with code {process.returncode} before it had an "
                f"answer; the next call starts another"
            )
        is_done, found = pickle.loads(answer)
        if not is_done:
            raise ProcessFailed(f"in process {process.pid}: {found}")
        return found

    def close(self) -> None:
        """End the process for good, whatever it does; a call that waits for it raises."""
        with self._lock:
            self._is_closed = True
            process, self._process = self._process, None
        if process is not None:
            self._end(process)

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_closed:
                raise ProcessFailed("the process was closed; make another Beside")
            if self._process is None or self._process.poll() is not None:
                try:
                    self._process = subprocess.Popen(
                        [sys.executable, "-c", _START, *sys.path],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                    )
                except OSError as error:
                    raise ProcessFailed(
                        f"{sys.executable!r} could not be started: {error}"
                    ) from error
            return self._process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                # What was not written by then is not wanted.
                with suppress(OSError, ValueError):
                    pipe.close()


def serve() -> None:
    """Call functions that come on the standard input until there is no more of it."""
    # Whoever stops the one that started this does so by the input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)
    answers = os.fdopen(os.dup(1), "wb")
    # What a function prints is no answer.
    os.dup2(2, 1)
    asked: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_listen, args=(sys.stdin.buffer, asked), daemon=True).start()
    while True:
        _write(answers, _answer(asked.get()))


def _listen(pipe: IO[bytes], asked: SimpleQueue[bytes]) -> None:
    """Take what comes; without anybody who asks there is nothing to end in order."""
    while (frame := _read(pipe)) is not None:
        asked.put(frame)
    os._exit(0)


def _answer(function: bytes) -> bytes:
    try:
        return pickle.dumps((True, pickle.loads(function)()))
    except Exception:
        return pickle.dumps((False, traceback.format_exc(limit=-3)))


def _write(pipe: IO[bytes], frame: bytes) -> None:
    pipe.write(_SIZE.pack(len(frame)))
    pipe.write(frame)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes | None:
    """Return a frame, or None where the other end is gone."""
    head = pipe.read(_SIZE.size)
    if len(head) < _SIZE.size:
        return None
    (size,) = _SIZE.unpack(head)
    frame = pipe.read(size)
    return frame if len(frame) == size else None
