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


def node_loads(
    nodes: Nodes, utilisation: NDArray[np.float64], network: NDArray[np.float64] | None = None
) -> NodeLoads:
    """Return the load of each node by one stage: each of its instances has a core of its own.

    Parameters
    ----------
    nodes : Nodes
        Of the stage.
    utilisation : array of float64
        Of each instance.
    network : array of float64, optional
        Part of the interval that the link of each node was busy, where links are shared.
    """
    of_instance = nodes.of(utilisation.size)
    cores = np.bincount(of_instance, minlength=nodes.count) if nodes.cores is None else nodes.cores
    busy = np.bincount(of_instance, utilisation, nodes.count)
    names = tuple(str(number) for number in range(nodes.count))
    return NodeLoads(
        *(names, of_instance, busy / np.maximum(cores, 1), np.zeros(nodes.count)),
        network=network,
        cores=None if nodes.cores is None else nodes.cores.astype(np.float64),
    )


def of_all_stages(reports: Sequence[Report]) -> list[Report]:
    """Return reports in which each node is loaded by all stages that run there, not by one.

    A network of which one stage tells nothing is known of none.
    """
    known = [report.nodes for report in reports if report.nodes is not None]
    cpu = _summed([(each.names, each.cpu) for each in known])
    links = [(each.names, each.network) for each in known if each.network is not None]
    network = _summed(links) if len(links) == len(known) else None
    return [
        report
        if (own := report.nodes) is None
        else replace(
            report,
            nodes=replace(
                own,
                cpu=np.array([cpu[name] for name in own.names]),
                network=None
                if network is None
                else np.array([network[each] for each in own.names]),
            ),
        )
        for report in reports
    ]


def _summed(told: Sequence[tuple[Sequence[str], NDArray[np.float64]]]) -> dict[str, float]:
    """Return the sum of what stages tell of each node."""
    total: dict[str, float] = {}
    for names, parts in told:
        for name, part in zip(names, parts.tolist(), strict=True):
            total[name] = total.get(name, 0.0) + part
    return total


def pause(free: NDArray[np.float64], now: float, giver: int, taker: int, seconds: float) -> None:
    """Let two instances stand still while state goes from one to the other."""
    if giver != taker:
        for instance in (giver, taker):
            free[instance] = max(float(free[instance]), now) + seconds
