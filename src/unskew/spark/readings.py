"""What the machine of an executor counts of itself: how much its CPU, disks and network were used.

The counters run on whether a task does or not, so that two readings tell all that happened between
them, whoever did it. Each is in seconds of full use: their growth over the time is the part that
was in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import monotonic

import psutil

from unskew.operators.task_report import TaskReport

Reading = Mapping[str, float]
"""Seconds by ``cpu``, ``disk NAME`` and ``network NAME in``; ``at`` is when."""

LINK = 10_000
"""Million bits a second of a card that does not tell its speed, as those of virtual machines."""

BEGAN, ENDED = "began", "ended"
"""Where a task's node has its readings."""


def reading() -> dict[str, float]:
    """Return what the counters of this machine have come to.

    Where there is no counter of a kind, it has no entry.
    """
    found = {"at": monotonic(), "cpu": _cpu()}
    disks = psutil.disk_io_counters(perdisk=True)
    for name, disk in (disks or {}).items():
        # Not every system tells how long a disk was at work.
        if getattr(disk, "busy_time", None) is not None:
            # That it is measured counts, even if nothing has happened.
            found["disk"] = 0.0
            if disk.busy_time:
                found[f"disk {name}"] = disk.busy_time / 1e3
    cards = psutil.net_if_stats()
    for name, card in psutil.net_io_counters(pernic=True).items():
        if name in cards and "loopback" not in cards[name].flags:
            found["network"] = 0.0
            pace = (cards[name].speed or LINK) * 1e6 / 8
            for way, sent in (("in", card.bytes_recv), ("out", card.bytes_sent)):
                if sent:
                    found[f"network {name} {way}"] = sent / pace
    return {name: round(value, 4) for name, value in found.items()}


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
    """Return the parts of CPU, disk and network that each machine had in use, as far as it tells.

    Of several disks, or cards and their two ways, it is the one that was used most.

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
    >>> node = {"name": "a:1", "began": {"at": 4.0, "cpu": 7.0}, "ended": {"at": 5.0, "cpu": 7.9}}
    >>> tasks = [TaskReport(0, 0, node=node)]
    >>> in_use(tasks, {}, interval=2.0)
    {'a': {'cpu': 0.45}}
    >>> in_use(tasks, {"a": {"at": 3.0, "cpu": 6.7}}, interval=2.0)
    {'a': {'cpu': 0.6}}
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
        # A disk that came in the meantime has its first reading now.
        part = round(max(0.0, value - begin.get(name, value)) / seconds, 6)
        found[kind] = max(part, found.get(kind, 0.0))
    del found["at"]
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
    """Return the seconds of use of all cores together, over their number."""
    times = psutil.cpu_times()
    # Guests are in the time of users, and waiting for a disk is no use of a core.
    left_out = ("idle", "iowait", "guest", "guest_nice")
    busy = sum(times) - sum(getattr(times, name, 0.0) for name in left_out)
    return float(busy) / (psutil.cpu_count() or 1)
