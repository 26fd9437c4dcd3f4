"""Where shards stand while a plan is made, and what that makes of slots and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.balance.node_view import NodeView
from unskew.balance.plan import Plan
from unskew.balance.report import Report
from unskew.balance.splitting import Split

_NEXT_TO_NOTHING = 1e-6
"""Of the mean load of a slot: less is not worth a move."""


class Shard(NamedTuple):
    """One of all stages."""

    stage: int
    number: int


class Standing:
    """Shards of all stages on instances, called slots here, on nodes; moved one by one.

    A slot is loaded by the seconds of service of what is on it, a node by a part of what it can do.
    What is measured on a node beyond the service of its slots is foreign, and stays.

    Parameters
    ----------
    plans, reports : sequence of Plan and of Report
        Of each stage: in force, and measured under it.
    splits : sequence of Split
        Of each stage: its hot keys from now on, and the load of shards and slots with them.
    free : sequence of array of bool
        Of each stage: which shards may move.
    view : NodeView
        The nodes.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        reports: Sequence[Report],
        splits: Sequence[Split],
        free: Sequence[NDArray[np.bool_]],
        view: NodeView,
    ) -> None:
        self.tables = [plan.assignment.copy() for plan in plans]
        self.work = [split.busy for split in splits]
        self.slots = [split.loads.copy() for split in splits]
        self.nodes = view.of_instance
        self.capacity = view.capacity
        self.measured = view.load
        self._free = [
            may & (work > _NEXT_TO_NOTHING * slots.mean())
            for may, work, slots in zip(free, self.work, self.slots, strict=True)
        ]
        seconds = [report.seconds for report in reports]
        unit = _cores_per_second(plans, reports, view)
        self.cores = [
            unit[nodes[plan.assignment]] * work / each
            for plan, nodes, work, each in zip(plans, self.nodes, self.work, seconds, strict=True)
        ]
        own = np.zeros(view.capacity.size)
        for nodes, slots, each in zip(self.nodes, self.slots, seconds, strict=True):
            np.add.at(own, nodes, unit[nodes] * slots / each)
        explained = np.divide(view.busy, view.cpu, out=np.ones_like(own), where=view.cpu > 0)
        self.loads = view.load * (1 - np.minimum(1.0, explained)) + own / view.capacity

    def slots_of(self, stage: int, node: int) -> NDArray[np.int64]:
        """Return the slots of a stage on a node."""
        return np.flatnonzero(self.nodes[stage] == node)

    def node_of(self, shard: Shard) -> int:
        """Return the node that a shard stands on."""
        return int(self.nodes[shard.stage][self.tables[shard.stage][shard.number]])

    def lowest(self, stage: int, slots: NDArray[np.int64]) -> int:
        """Return the least loaded of some slots, the first of those that are."""
        return int(slots[self.slots[stage][slots].argmin()])

    def largest_of_slot(self, stage: int, slot: int, most: float) -> Shard | None:
        """Return the largest shard of a slot that may move and has at most so many seconds."""
        own = self._fitting(stage, slot, self.work[stage], most)
        return Shard(stage, int(own[self.work[stage][own].argmax()])) if own.size else None

    def largest_of_node(self, giver: int, taker: int, most: float) -> Shard | None:
        """Return the largest shard that can go from one node to another, by the cores it needs.

        Those of slots with less than the mean of their stage on the node go only if no others fit.
        """
        return min(
            self._of_node(giver, taker, most),
            key=lambda shard: (not self._is_full(shard), -self._cores_of(shard), shard),
            default=None,
        )

    def smallest_of_node(self, giver: int, taker: int, most: float) -> Shard | None:
        """Return the smallest shard that can go from one node to another; slots do not matter."""
        return min(
            self._of_node(giver, taker, most),
            key=lambda shard: (self._cores_of(shard), shard),
            default=None,
        )

    def _of_node(self, giver: int, taker: int, most: float) -> list[Shard]:
        """Return, of each slot of a node, the largest and the smallest shard that can go."""
        found = []
        for stage, cores in enumerate(self.cores):
            if not self.slots_of(stage, taker).size:
                continue
            for slot in self.slots_of(stage, giver).tolist():
                own = self._fitting(stage, slot, cores, most)
                if own.size:
                    ends = own[cores[own].argmax()], own[cores[own].argmin()]
                    found += [Shard(stage, int(end)) for end in ends]
        return found

    def _fitting(
        self, stage: int, slot: int, sizes: NDArray[np.float64], most: float
    ) -> NDArray[np.int64]:
        own = np.flatnonzero((self.tables[stage] == slot) & self._free[stage])
        fits: NDArray[np.int64] = own[sizes[own] <= most]
        return fits

    def _cores_of(self, shard: Shard) -> float:
        return float(self.cores[shard.stage][shard.number])

    def _is_full(self, shard: Shard) -> bool:
        """Return whether the slot of a shard has the mean of its stage on the node, or more."""
        own = self.slots_of(shard.stage, self.node_of(shard))
        loads = self.slots[shard.stage]
        slot = self.tables[shard.stage][shard.number]
        return bool(loads[slot] >= loads[own].mean() * (1 - 1e-9))

    def move(self, shard: Shard, slot: int) -> None:
        """Put a shard onto another slot."""
        stage, number = shard
        work, cores = self.work[stage][number], self.cores[stage][number]
        before = int(self.tables[stage][number])
        self.slots[stage][before] -= work
        self.slots[stage][slot] += work
        giver, taker = self.nodes[stage][before], self.nodes[stage][slot]
        if giver != taker:
            self.loads[giver] -= cores / self.capacity[giver]
            self.loads[taker] += cores / self.capacity[taker]
        self.tables[stage][number] = slot


def _cores_per_second(
    plans: Sequence[Plan], reports: Sequence[Report], view: NodeView
) -> NDArray[np.float64]:
    """Return the cores' worth of load on each node for a second of service in each second.

    It is 1 where load is CPU and service computes, less where service waits, more where memory or
    others weigh in. Nodes without service have the mean of the others.
    """
    asked = np.zeros(view.capacity.size)
    for plan, report, nodes in zip(plans, reports, view.of_instance, strict=True):
        np.add.at(asked, nodes, service(plan, report) / report.seconds)
    explained = np.divide(view.busy, view.cpu, out=np.ones_like(asked), where=view.cpu > 0)
    cores = view.load * view.capacity * np.minimum(1.0, explained)
    total = float(asked.sum())
    mean = float(cores.sum()) / total if total > 0 else 0.0
    return np.divide(cores, asked, out=np.full_like(asked, mean), where=asked > 0)


def service(plan: Plan, report: Report) -> NDArray[np.float64]:
    """Return the seconds of service of each instance, its parts of hot keys among them."""
    slots = np.bincount(plan.assignment, report.asked, plan.instances).astype(np.float64)
    for key, copies in plan.hot.items():
        np.add.at(slots, list(copies), float(report.hot.get(key, 0.0)) / len(copies))
    return slots
