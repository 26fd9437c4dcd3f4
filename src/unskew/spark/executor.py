"""The executor of this Python worker: its process, its number and the cores it was started with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import psutil


class Executor(NamedTuple):
    """What is known of a JVM, as far as the system shows it.

    Attributes
    ----------
    process : int
        Its id.
    number : int or None
        Of the executor, None of a local session.
    cores : int or None
        That it was started with, None of a local session.
    """

    process: int
    number: int | None = None
    cores: int | None = None


@cache
def executor() -> Executor:
    """Return the JVM that this worker, or the daemon it came from, belongs to."""
    for parent in _parents():
        name, command = _name(parent), _command(parent)
        if name.startswith("java") or "--executor-id" in command:
            return Executor(int(parent.pid), number_of(command), cores_of(command))
    return Executor(os.getppid())


def number_of(command: Sequence[str]) -> int | None:
    """Return the number of an executor; None of a local session, whose driver is the only one.

    Examples
    --------
    >>> number_of(["java", "org.apache.spark.ExecutorBackend", "--executor-id", "2"])
    2
    """
    return _given(command, "--executor-id")


def cores_of(command: Sequence[str]) -> int | None:
    """Return the cores of an executor, with which it was started; None of a local session.

    Examples
    --------
    >>> cores_of(["java", "org.apache.spark.ExecutorBackend", "--cores", "4"])
    4
    """
    if not any("ExecutorBackend" in word for word in command):
        return None
    return _given(command, "--cores")


def _given(command: Sequence[str], option: str) -> int | None:
    if option not in command[:-1]:
        return None
    told = command[command.index(option) + 1]
    return int(told) if told.isdecimal() else None


# Not every system shows the processes of other users, and one that has ended is shown by none.


def _parents() -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = psutil.Process().parents()
    except psutil.Error:
        return []
    return found


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return ""


def _command(process: psutil.Process) -> list[str]:
    try:
        found: list[str] = process.cmdline()
    except psutil.Error:
        return []
    return found
