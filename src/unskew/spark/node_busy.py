"""How busy executors were with all pipelines of a session, where CPU does not tell.

Executors of one machine share its CPU, which is then the same for all of them: there the load of a
node is the busy time of its instances. What other pipelines of this driver did there in the same
interval is kept here, and written to the manifest, so that a replay sees the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from threading import Lock
from time import monotonic
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.operators.task_report import TaskReport

_KEPT = 1000
"""Batches that are remembered, of all pipelines."""


class _Past(NamedTuple):
    owner: str
    begin: float
    end: float
    busy: dict[str, float]


_past: deque[_Past] = deque(maxlen=_KEPT)
_lock = Lock()


def note(owner: str, seconds: float, busy: Mapping[str, float]) -> None:
    """Note that the nodes were busy with a pipeline in the last seconds."""
    now = monotonic()
    with _lock:
        _past.append(_Past(owner, now - seconds, now, dict(busy)))


def elsewhere(owner: str, seconds: float) -> dict[str, float]:
    """Return how long each node was busy with other pipelines in the last seconds."""
    now = monotonic()
    found: dict[str, float] = {}
    with _lock:
        past = [each for each in _past if each.owner != owner and each.end > now - seconds]
    for each in past:
        inside = min(each.end, now) - max(each.begin, now - seconds)
        part = inside / max(each.end - each.begin, 1e-9)
        for node, busy in each.busy.items():
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
    machines = [name.rpartition(":")[0] for name in names]
    return np.array([machines.count(machine) > 1 for machine in machines], dtype=bool)
