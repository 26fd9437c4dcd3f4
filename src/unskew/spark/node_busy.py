"""How busy executors were with all pipelines of a session, where CPU does not tell.

Executors of one machine share its CPU, which is then the same for all of them: there the load of a
node is the busy time of its instances. What other pipelines of this driver did there in the same
interval is kept here, and written to the manifest, so that a replay sees the same. A batch that is
still running tells nothing yet: it is taken to keep nodes as busy as the one before it did.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from time import monotonic
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.operators.task_report import TaskReport
from unskew.spark.readings import machine_of

_KEPT = 1000
"""Batches that are remembered, of all pipelines."""


class _Past(NamedTuple):
    owner: str
    begin: float
    end: float
    busy: dict[str, float]


_past: deque[_Past] = deque(maxlen=_KEPT)
_running: dict[str, float] = {}
_last: dict[str, _Past] = {}
"""By owner: since when it has a batch running, and the last one that ended."""
_lock = Lock()


@contextmanager
def running(owner: str) -> Iterator[None]:
    """Note that a pipeline has a batch running, until that is noted with `note`, or fails."""
    with _lock:
        _running[owner] = monotonic()
    try:
        yield
    finally:
        with _lock:
            _running.pop(owner, None)


def note(owner: str, seconds: float, busy: Mapping[str, float]) -> None:
    """Note that the nodes were busy with a pipeline in the last seconds."""
    now = monotonic()
    with _lock:
        # Others see it as running or as past, at no time as neither or as both.
        _running.pop(owner, None)
        _last[owner] = _Past(owner, now - seconds, now, dict(busy))
        _past.append(_last[owner])


def forget(owner: str) -> None:
    """Note that a pipeline runs no more batches; what it did stays known."""
    with _lock:
        _last.pop(owner, None)


def elsewhere(owner: str, seconds: float) -> dict[str, float]:
    """Return how long each node was busy with other pipelines in the last seconds.

    Of a batch that is still running it is as of the one before it in the same pipeline; of a first
    one nothing is known.
    """
    now = monotonic()
    since = now - seconds
    found: dict[str, float] = {}
    with _lock:
        others = [(each, each.begin, each.end) for each in _past if each.owner != owner]
        others += [
            (_last[other], begin, now)
            for other, begin in _running.items()
            if other != owner and other in _last
        ]
    for each, begin, end in others:
        inside = min(end, now) - max(begin, since)
        part = inside / max(each.end - each.begin, 1e-9)
        for node, busy in each.busy.items() if part > 0 else ():
            found[node] = found.get(node, 0.0) + part * busy
    return found


def busy_of(tasks: Sequence[TaskReport]) -> dict[str, float]:
    """Return the seconds that each node was busy with some tasks."""
    found: dict[str, float] = {}
    for task in tasks:
        name = task.node["name"]
        found[name] = found.get(name, 0.0) + task.busy
    return found


def shares_machine(names: Sequence[str]) -> NDArray[np.bool_]:
    """Return of each node whether another is on its machine.

    Examples
    --------
    >>> shares_machine(["a:1", "b:7", "a:2"]).tolist()
    [True, False, True]
    """
    machines = [machine_of(name) for name in names]
    return np.array([machines.count(machine) > 1 for machine in machines], dtype=bool)
