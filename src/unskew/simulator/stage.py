"""One stage of a simulated topology: sources route to instances, each with a queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.balance import Balancer, Plan, Report
from unskew.errors import BadParameter
from unskew.grouping.base import Grouping, grouping
from unskew.parameters import number, whole_number
from unskew.simulator.nodes import Network, Nodes
from unskew.simulator.queues import serve
from unskew.simulator.series import Series
from unskew.simulator.service import Service
from unskew.tally import KeyIndex, KeyTally


class Tuples(NamedTuple):
    """Tuples on their way: when and from which source they come, their key, when they were born."""

    times: NDArray[np.float64]
    sources: NDArray[np.int32]
    keys: NDArray[np.uint64]
    born: NDArray[np.float64]

    def pick(self, which: Any) -> Tuples:
        """Return some of them, by slice or order."""
        return Tuples(*(column[which] for column in self))

    def join(self, others: Tuples) -> Tuples:
        """Return these and others."""
        return Tuples(
            np.concatenate((self.times, others.times)),
            np.concatenate((self.sources, others.sources)),
            np.concatenate((self.keys, others.keys)),
            np.concatenate((self.born, others.born)),
        )


_NO_SERVICES: NDArray[np.float64] = np.empty((3, 0))
"""Instance, start and end of each service."""

NO_TUPLES = Tuples(
    np.empty(0), np.empty(0, dtype=np.int32), np.empty(0, dtype=np.uint64), np.empty(0)
)


@dataclass(frozen=True)
class Stage:
    """What a stage is: how many instances, how tuples are routed to them, what they cost there.

    Parameters
    ----------
    name : str
        What results call it.
    instances : int
        Number of instances.
    service : Service
        Work of each tuple.
    grouping : str, default "shuffle"
        How each upstream instance, a source, routes.
    parameters : dict, optional
        Parameters of the grouping.
    nodes : Nodes, default one node
        Where the instances run.
    network : Network, default free
        What the hop to this stage costs.
    shards : int, optional
        Route to this many shards, which a plan maps to instances; needed for a balancer.
    balancer : Balancer, optional
        Suggests a new plan at every control interval.
    row_bytes : float, default 0
        State that a shard gains with each tuple.
    move_seconds_per_byte : float, default 0
        How long both instances of a move stand still for each byte of state.
    """

    name: str
    instances: int
    service: Service
    grouping: str = "shuffle"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    nodes: Nodes = field(default_factory=Nodes)
    network: Network = field(default_factory=Network)
    shards: int | None = None
    balancer: Balancer | None = None
    row_bytes: float = 0.0
    move_seconds_per_byte: float = 0.0

    def __post_init__(self) -> None:
        """Check the ranges, and that a balancer has something to move."""
        whole_number("instances", self.instances, least=1, most=2**31 - 1)
        if self.shards is not None:
            whole_number("shards", self.shards, least=self.instances, most=2**31 - 1)
        number("row_bytes", self.row_bytes, least=0)
        number("move_seconds_per_byte", self.move_seconds_per_byte, least=0)
        if self.balancer is not None and self.shards is None:
            raise BadParameter(
                f"stage {self.name!r} has a balancer, which moves shards; say how many with shards="
            )


class Running:
    """A stage while it is simulated."""

    def __init__(
        self,
        stage: Stage,
        place: int,
        source_nodes: NDArray[np.int32],
        seed: int,
        width: float,
        *,
        keys: bool,
    ) -> None:
        self.stage = stage
        self.place = place
        targets = stage.instances if stage.shards is None else stage.shards
        self.routers: list[Grouping] = [
            grouping(stage.grouping, targets, seed=seed, source=source, **stage.parameters)
            for source in range(source_nodes.size)
        ]
        self.plan = Plan.even(targets, stage.instances)
        self.nodes = stage.nodes.of(stage.instances)
        self.series = Series(stage.instances, width)
        self.moves = 0
        self.local = 0
        self.hops = 0
        self.tally = KeyTally(stage.instances) if keys else None
        self._index = KeyIndex()
        self._source_nodes = source_nodes
        self._free = np.zeros(stage.instances)
        self._started = 0
        self._waiting = NO_TUPLES
        self._waiting_shards = np.empty(0, dtype=np.int32)
        self._rows = np.zeros(targets, dtype=np.int64)
        self._busy = np.zeros(targets)
        self._state_bytes = np.zeros(targets)
        self._since = 0.0
        self._services = _NO_SERVICES

    def process(self, tuples: Tuples, watermark: float) -> Tuples:
        """Route and serve tuples that come in the order of time; none later is before `watermark`.

        Returns the served ones with the time they leave and, as source, the instance they leave.
        """
        shards = self._route(tuples)
        ready, shards = self._travel(tuples, shards, watermark)
        targets = self.plan.assignment[shards]
        work = self.stage.service.work(ready.keys, self._started, self.place)
        self._started += ready.times.size
        left, busy = np.empty_like(ready.times), np.empty_like(ready.times)
        serve(
            ready.times,
            work,
            targets,
            self._free,
            self.nodes,
            self.stage.nodes.starts,
            self.stage.nodes.speeds,
            left,
            busy,
        )
        self.series.add(ready.times, left, busy, targets)
        if self.stage.balancer is not None:
            self._rows += np.bincount(shards, minlength=self._rows.size)
            self._busy += np.bincount(shards, weights=busy, minlength=self._busy.size)
            self._services = np.hstack((self._services, np.stack((targets, left - busy, left))))
        if self.tally is not None:
            self.tally.add(self._index.ids(ready.keys), targets)
        return ready._replace(times=left, sources=targets)

    def control(self, now: float) -> None:
        """Show the balancer what was measured since the last time, and carry out its plan."""
        seconds = now - self._since
        if self.stage.balancer is None or seconds <= 0:
            return
        utilisation, queues = self._state_at(now)
        self._state_bytes += self._rows * self.stage.row_bytes
        report = Report(
            seconds=seconds,
            rows=self._rows,
            busy=self._busy,
            state_bytes=self._state_bytes.copy(),
            utilisation=utilisation,
            queues=queues,
        )
        plan = self.stage.balancer.next_plan(self.plan, report)
        for shard, giver, taker in plan.moves(self.plan):
            self.moves += 1
            pause = report.state_bytes[shard] * self.stage.move_seconds_per_byte
            for instance in (giver, taker):
                self._free[instance] = max(self._free[instance], now) + pause
        self.plan = plan
        self._rows = np.zeros_like(self._rows)
        self._busy = np.zeros_like(self._busy)
        self._since = now

    def _state_at(self, now: float) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return how busy each instance was since the last time, and the tuples it has now."""
        places, starts, ends = self._services
        instances = places.astype(np.int64)
        served = np.maximum(np.minimum(ends, now) - np.maximum(starts, self._since), 0)
        busy = np.bincount(instances, weights=served, minlength=self.stage.instances)
        waits = ends > now
        self._services = self._services[:, waits]
        queues = np.bincount(instances[waits], minlength=self.stage.instances)
        return busy / (now - self._since), queues

    def _route(self, tuples: Tuples) -> NDArray[np.int32]:
        """Return the shard of each tuple, each source seeing its own in order."""
        if len(self.routers) == 1:
            return self.routers[0].route(tuples.keys)
        order = np.argsort(tuples.sources, kind="stable")
        bounds = np.searchsorted(tuples.sources[order], np.arange(len(self.routers) + 1))
        shards = np.empty(tuples.keys.size, dtype=np.int32)
        for source, router in enumerate(self.routers):
            own = order[bounds[source] : bounds[source + 1]]
            shards[own] = router.route(tuples.keys[own])
        return shards

    def _travel(
        self, tuples: Tuples, shards: NDArray[np.int32], watermark: float
    ) -> tuple[Tuples, NDArray[np.int32]]:
        """Let the hop take its time; return those that have come, in the order in which they do."""
        network = self.stage.network
        stays = self._source_nodes[tuples.sources] == self.nodes[self.plan.assignment[shards]]
        self.local += int(np.count_nonzero(stays))
        self.hops += stays.size
        if network.remote == network.local:
            # Nobody overtakes, so nothing has to wait to be put in order.
            return tuples._replace(times=tuples.times + network.local), shards
        delay = np.where(stays, network.local, network.remote)
        moving = self._waiting.join(tuples._replace(times=tuples.times + delay))
        where = np.concatenate((self._waiting_shards, shards))
        order = np.argsort(moving.times, kind="stable")
        cut = int(np.searchsorted(moving.times[order], watermark + network.local))
        self._waiting, self._waiting_shards = moving.pick(order[cut:]), where[order[cut:]]
        return moving.pick(order[:cut]), where[order[:cut]]
