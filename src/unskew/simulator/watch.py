"""What instances did since a balancer last looked: how busy they were, and what waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.balance import NodeLoads, Report
from unskew.simulator.nodes import Nodes


class Watch:
    """Remember services until they are over.

    Parameters
    ----------
    instances : int
        How many.

    Examples
    --------
    >>> watch = Watch(instances=2)
    >>> watch.add(np.array([0, 1]), np.array([0.0, 0.5]), np.array([1.0, 3.0]))
    >>> busy, waiting = watch.look(2.0)
    >>> busy.tolist(), waiting.tolist()
    ([0.5, 0.75], [0, 1])
    """

    def __init__(self, instances: int) -> None:
        self.since = 0.0
        self._instances = instances
        self._services = np.empty((3, 0))

    def add(
        self,
        targets: NDArray[np.signedinteger[Any]],
        starts: NDArray[np.float64],
        ends: NDArray[np.float64],
    ) -> None:
        """Count services by their instance, start and end."""
        self._services = np.hstack((self._services, np.stack((targets, starts, ends))))

    def look(self, now: float) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return how busy each instance was since the last time, and the tuples it has now."""
        places, starts, ends = self._services
        targets = places.astype(np.int64)
        served = np.maximum(np.minimum(ends, now) - np.maximum(starts, self.since), 0)
        busy = np.bincount(targets, weights=served, minlength=self._instances)
        waits = ends > now
        self._services = self._services[:, waits]
        queues = np.bincount(targets[waits], minlength=self._instances)
        seconds, self.since = now - self.since, now
        return busy / seconds, queues


def node_loads(nodes: Nodes, utilisation: NDArray[np.float64]) -> NodeLoads:
    """Return the load of each node by one stage: each of its instances has a core of its own."""
    of_instance = nodes.of(utilisation.size)
    cores = np.bincount(of_instance, minlength=nodes.count) if nodes.cores is None else nodes.cores
    busy = np.bincount(of_instance, utilisation, nodes.count)
    names = tuple(str(number) for number in range(nodes.count))
    return NodeLoads(
        *(names, of_instance, busy / np.maximum(cores, 1), np.zeros(nodes.count)),
        cores=None if nodes.cores is None else nodes.cores.astype(np.float64),
    )


def of_all_stages(reports: Sequence[Report]) -> list[Report]:
    """Return reports in which each node is loaded by all stages that run there, not by one."""
    total: dict[str, float] = {}
    for report in reports:
        if report.nodes is not None:
            for name, cpu in zip(report.nodes.names, report.nodes.cpu.tolist(), strict=True):
                total[name] = total.get(name, 0.0) + cpu
    return [
        report
        if report.nodes is None
        else replace(
            report,
            nodes=replace(report.nodes, cpu=np.array([total[name] for name in report.nodes.names])),
        )
        for report in reports
    ]


def pause(free: NDArray[np.float64], now: float, giver: int, taker: int, seconds: float) -> None:
    """Let two instances stand still while state goes from one to the other."""
    if giver != taker:
        for instance in (giver, taker):
            free[instance] = max(float(free[instance]), now) + seconds
