"""CPU quotas: executors on one machine that are slower than others, where the system allows it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

ROOT = Path("/sys/fs/cgroup")
"""Where Linux shows control groups of version 2."""

_PERIOD = 100_000
"""Microseconds after which a quota begins anew."""


class Quotas:
    """Control groups of their own for executors, whose CPU time can be limited.

    Parameters
    ----------
    executors : mapping of int to int
        Process of each executor, by its number.
    cores : int
        That an executor of speed 1 may use.
    root : Path
        Of the control groups.
    """

    def __init__(self, executors: Mapping[int, int], cores: int, root: Path = ROOT) -> None:
        self.cores = cores
        self._executors = dict(executors)
        self._root = root
        self._groups: dict[int, Path] = {}
        self._home = _own_group(root)

    def start(self) -> bool:
        """Put every executor into a group of its own; return whether that was possible."""
        parent = _parent_of_groups(self._root, self._home)
        if parent is None or not self._executors:
            return False
        if len(os.sched_getaffinity(0)) < self.cores * len(self._executors):
            # Without a core for each, executors would slow each other down.
            return False
        try:
            for number, process in self._executors.items():
                group = parent / f"unskew-{os.getpid()}-{number}"
                group.mkdir()
                self._groups[number] = group
                for each in (process, *_children(process)):
                    (group / "cgroup.procs").write_text(f"{each}\n")
            self.limit([1.0])
        except OSError:
            self.stop()
            return False
        return True

    def limit(self, speeds: Sequence[float]) -> None:
        """Give each executor the part of its cores that is its speed."""
        for number, group in self._groups.items():
            quota = round(speeds[number % len(speeds)] * self.cores * _PERIOD)
            (group / "cpu.max").write_text(f"{quota} {_PERIOD}\n")

    def stop(self) -> None:
        """Remove the groups; processes that are left in them go back."""
        for group in self._groups.values():
            try:
                for process in (group / "cgroup.procs").read_text().split():
                    (self._home / "cgroup.procs").write_text(f"{process}\n")
                group.rmdir()
            except OSError:
                # An empty group is no harm, and the run is over.
                continue
        self._groups = {}


def own_executors() -> dict[int, int]:
    """Return the processes of the executors that this process has started, by their number."""
    found = {}
    for child in psutil.Process().children(recursive=True):
        try:
            words = child.cmdline()
        except psutil.Error:
            continue
        if "--executor-id" in words:
            found[int(words[words.index("--executor-id") + 1])] = child.pid
    return found


def _children(process: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(process).children(recursive=True)]
    except psutil.Error:
        return []


def _own_group(root: Path) -> Path:
    """Return the group that this process is in."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return root
    own = next((line[3:] for line in lines if line.startswith("0::")), "/")
    return root / own.strip("/")


def _parent_of_groups(root: Path, own: Path) -> Path | None:
    """Return the nearest group above this process that may have others with quotas in it."""
    if not (root / "cgroup.controllers").exists():
        return None
    for group in (own, *own.parents):
        if not group.is_relative_to(root):
            return None
        try:
            given = (group / "cgroup.subtree_control").read_text().split()
        except OSError:
            continue
        if "cpu" in given and os.access(group, os.W_OK):
            return group
    return None
