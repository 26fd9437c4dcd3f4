"""Write result files whole or not at all, find out early if they cannot be, print the rest."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import click
from rich.console import Console
from rich.table import Table

from unskew.cli.errors import Failure
from unskew.errors import BadParameter


def check_target(path: Path) -> None:
    """Raise `BadParameter` if a file could not be written there, before any work is done."""
    folder = path.resolve().parent
    if path.is_dir():
        raise BadParameter(f"cannot write {path}: it is a directory; name a file in it")
    if not folder.is_dir():
        raise BadParameter(f"cannot write {path}: there is no directory {folder}; make it first")
    if not os.access(path if _is_special(path) else folder, os.W_OK):
        raise BadParameter(f"cannot write {path}: no permission; name a place that is yours")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that nobody ever sees half of it."""
    with written_whole(path) as part, part.open("wb") as file:
        file.write(content)


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield where to write a file that takes its place at the end, and only if all went well."""
    with _named(str(path)):
        if _is_special(path):
            yield path
            return
        target = path.resolve()
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            yield part
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)


def write_stdout(text: str) -> None:
    """Write text that is ASCII to stdout."""
    with _named("standard output", sys.stdout):
        click.echo(text, nl=False)


def show(*items: Table | str, stderr: bool = False) -> None:
    """Print tables and lines, with what the encoding does not have written out."""
    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    console = Console(stderr=stderr, highlight=False)
    with _named("standard error" if stderr else "standard output", stream):
        for item in items:
            console.print(item, markup=False, emoji=False, soft_wrap=isinstance(item, str))


def is_ascii_only(*, stderr: bool = False) -> bool:
    """Return whether a stream may not take characters beyond ASCII, by the measure of rich."""
    return Console(stderr=stderr).options.ascii_only


@contextmanager
def _named(target: str, stream: TextIO | None = None) -> Iterator[None]:
    """Say of a failure to write what it was that could not be written."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:
            # The reader of a pipe has seen enough: click ends quietly.
            raise
        if stream is not None:
            _discard(stream)
        raise Failure(f"cannot write {target}: {error.strerror or error}") from error


def _discard(stream: TextIO) -> None:
    """Let what is still buffered go nowhere, or Python would fail on it again at the end."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _is_special(path: Path) -> bool:
    """Return whether it is a pipe or device, which must be written to and never replaced."""
    return path.exists() and not path.is_file()
