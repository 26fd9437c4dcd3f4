"""How the tuples of a join find those who may have their partners: by the plan, or by groups."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unskew.balance import Plan
from unskew.grouping import ContRand
from unskew.simulator.copies import Copies
from unskew.simulator.routing import ByPlan
from unskew.simulator.stored import Parts

_NOWHERE = -1


class Sender(Protocol):
    """The source of a join."""

    def send(self, plan: Plan, keys: NDArray[np.uint64], parts: Parts) -> Copies:
        """Return where tuples go, which it sees in order."""


class ToShards:
    """A tuple goes where its shard is, and one of a hot key to all that have some of it.

    Hot keys are dealt to their instances, as on Spark, and each keeps its part. What was there
    before the key became hot stays with the shard.

    Examples
    --------
    >>> plan, parts = Plan(np.array([0, 1]), 2, hot={9: (0, 1)}), Parts()
    >>> copies = ToShards().send(plan, np.array([9, 4], dtype=np.uint64), parts)
    >>> copies.rows.tolist(), copies.instances.tolist(), copies.is_kept.tolist()
    ([0, 0, 1], [0, 1, 0], [True, False, True])
    """

    def __init__(self) -> None:
        self._dealer = ByPlan(sources=1)

    def send(self, plan: Plan, keys: NDArray[np.uint64], parts: Parts) -> Copies:
        """Return where tuples go, which it sees in order."""
        turns = self._dealer.send(plan, keys, np.zeros(keys.size, dtype=np.int32))
        rows, instances, is_kept = plan.route_to_all(keys, turns)
        if not plan.hot:
            return Copies(rows, instances, parts.home(keys), np.full_like(rows, _NOWHERE), is_kept)
        order = np.argsort(rows, kind="stable")
        rows, instances, is_kept = rows[order], instances[order], is_kept[order]
        own = keys[rows]
        places, also = parts.home(own), np.full_like(rows, _NOWHERE)
        for key in plan.hot:
            copies = np.array(sorted(plan.parts_of(key)), dtype=np.int32)
            # Its home, where it is not named, has only what was there before.
            mine = np.flatnonzero((own == np.uint64(key)) & np.isin(instances, copies))
            home = plan.assignment[plan.shard_of(own[mine])]
            also[mine] = np.where(instances[mine] == home, places[mine], _NOWHERE)
            places[mine] = parts.at(own[mine], instances[mine])
        return Copies(rows, instances, places, also, is_kept)


class ToGroups:
    """A tuple is kept by one of the group of its key, and looks for partners at all of them.

    Parameters
    ----------
    grouping : ContRand
        Says which.

    Examples
    --------
    >>> keys = np.array([9], dtype=np.uint64)
    >>> copies = ToGroups(ContRand(6)).send(Plan.even(6, 6), keys, Parts())
    >>> copies.instances.tolist(), copies.is_kept.tolist()
    ([1, 4], [False, True])
    """

    def __init__(self, grouping: ContRand) -> None:
        self._grouping = grouping

    def send(self, plan: Plan, keys: NDArray[np.uint64], parts: Parts) -> Copies:
        """Return where tuples go, which it sees in order."""
        kept, members = self._grouping.route(keys), self._grouping.members_of(keys)
        is_there = members.ravel() >= 0
        rows = np.repeat(np.arange(keys.size), members.shape[1])[is_there]
        instances = members.ravel()[is_there]
        places = parts.at(keys[rows], instances)
        is_kept = instances == kept[rows]
        return Copies(rows, instances, places, np.full_like(rows, _NOWHERE), is_kept)
