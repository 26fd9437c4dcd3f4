"""What the machine of an executor counts of itself: how much its CPU, disks and network were used.

The counters run on whether a task does or not, so that two readings tell all that happened between
them, whoever did it. CPU and disks are counted in seconds of full use, CPU in those of one core:
their growth over the time is how many cores, and which part of a disk, were in use. Cards count
bytes, which are put beside their speed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import monotonic

import psutil

from unskew.operators.task_report import TaskReport

Reading = Mapping[str, float]
"""Seconds by ``cpu`` and ``disk NAME``, bytes by ``network NAME in`` and ``out``, bytes a second
that the card can carry by ``speed network NAME``; ``at`` is when."""

_SPEED = "speed"

LINK = 10_000
"""Million bits a second of a card that does not tell its speed, as those of virtual machines."""

BEGAN, ENDED = "began", "ended"
"""Where a task's node has its readings."""

DISK_BYTES, NETWORK_BYTES = "disk_bytes", "network_bytes"
"""Where it has what the task itself read and wrote, and took in and gave out."""


def reading() -> dict[str, float]:
    """Return what the counters of this machine have come to.

    Where there is no counter of a kind, it has no entry.
    """
    found = {"at": monotonic(), "cpu": _cpu(), **_disks(), **_cards()}
    return {name: round(value, 4) for name, value in found.items()}


def _disks() -> dict[str, float]:
    try:
        disks = psutil.disk_io_counters(perdisk=True)
    except (NotImplementedError, OSError):
        # In some containers nobody counts.
        return {}
    found = {}
    for name, disk in (disks or {}).items():
        # Not every system tells how long a disk was at work.
        if getattr(disk, "busy_time", None) is not None:
            # That it is measured counts, even if nothing has happened.
            found["disk"] = 0.0
            if disk.busy_time:
                found[f"disk {name}"] = disk.busy_time / 1e3
    return found


def _cards() -> dict[str, float]:
    try:
        cards, counted = psutil.net_if_stats(), psutil.net_io_counters(pernic=True)
    except (NotImplementedError, OSError):
        return {}
    found = {}
    for name, card in counted.items():
        if name in cards and "loopback" not in cards[name].flags:
            found["network"] = 0.0
            ways = {"in": card.bytes_recv, "out": card.bytes_sent}
            found |= {f"network {name} {way}": sent for way, sent in ways.items() if sent}
            if any(ways.values()):
                found[f"{_SPEED} network {name}"] = (cards[name].speed or LINK) * 1e6 / 8
    return found


def process_bytes() -> int:
    """Return what this process has read from disks and written to them, 0 where nobody counts."""
    try:
        counted = psutil.Process().io_counters()
    except (AttributeError, psutil.Error, OSError):
        return 0
    return int(counted.read_bytes + counted.write_bytes)


def machine_of(node: str) -> str:
    """Return the machine in the name of a node, ``machine:process``."""
    return node.rpartition(":")[0]


def last_readings(tasks: Iterable[TaskReport]) -> dict[str, Reading]:
    """Return the latest reading of each machine."""
    return _extremes(tasks, ENDED, latest=True)


def in_use(
    tasks: Iterable[TaskReport], since: Mapping[str, Reading], interval: float
) -> dict[str, dict[str, float]]:
    """Return the cores, and the parts of disk and network, that each machine had in use.

    As far as it tells. Of several disks, or cards and their two ways, it is the one that was used
    most.

    Parameters
    ----------
    tasks : iterable of TaskReport
        Of a batch.
    since : mapping of str to Reading
        By machine, the last readings of the batch before; else counts what its tasks have seen.
    interval : float
        Seconds that the batch is given. Nothing is known of those without readings.

    Examples
    --------
    >>> node = {"name": "a:1", "began": {"at": 4.0, "cpu": 7.0}, "ended": {"at": 5.0, "cpu": 9.6}}
    >>> tasks = [TaskReport(0, 0, node=node)]
    >>> in_use(tasks, {}, interval=2.0)
    {'a': {'cpu': 1.3}}
    >>> in_use(tasks, {"a": {"at": 3.0, "cpu": 6.6}}, interval=2.0)
    {'a': {'cpu': 1.5}}
    """
    told = [task for task in tasks if ENDED in task.node]
    first, last = _extremes(told, BEGAN, latest=False), last_readings(told)
    found = {}
    for machine, end in last.items():
        begin = since.get(machine, first[machine])
        if begin["at"] > first[machine]["at"]:
            # It was started anew since.
            begin = first[machine]
        found[machine] = _grown(begin, end, max(end["at"] - begin["at"], interval))
    return found


def _grown(begin: Reading, end: Reading, seconds: float) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in end.items():
        kind = name.partition(" ")[0]
        if kind in ("at", _SPEED):
            continue
        # A card's speed may become known, or change, between two readings: bytes stay the same.
        pace = end.get(f"{_SPEED} {name.rpartition(' ')[0]}", 1.0)
        # A disk that came in the meantime has its first reading now.
        part = round(max(0.0, value - begin.get(name, value)) / pace / seconds, 6)
        found[kind] = max(part, found.get(kind, 0.0))
    return found


def _extremes(tasks: Iterable[TaskReport], which: str, *, latest: bool) -> dict[str, Reading]:
    """Return the first, or the last, reading of each machine."""
    found: dict[str, Reading] = {}
    for task in tasks:
        if which in task.node:
            machine, told = machine_of(task.node["name"]), task.node[which]
            known = found.setdefault(machine, told)
            if (told["at"] > known["at"]) == latest:
                found[machine] = told
    return found


def _cpu() -> float:
    """Return the seconds of use of all cores together."""
    times = psutil.cpu_times()
    # Guests are in the time of users, and waiting for a disk is no use of a core.
    left_out = ("idle", "iowait", "guest", "guest_nice")
    busy = sum(times) - sum(getattr(times, name, 0.0) for name in left_out)
    return float(busy)
