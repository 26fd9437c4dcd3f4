"""Greedy: the largest shard that helps, from the busiest instance to the idlest."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from unskew.balance.base import Balancer
from unskew.balance.plan import Plan
from unskew.balance.report import Report
from unskew.balance.splitting import split_hot_keys
from unskew.parameters import number


class Greedy(Balancer):
    """Move shards from the most to the least loaded instance until the imbalance is small.

    The load of a shard is the service that its tuples asked for. Each step moves the shard that
    brings the two nearest to each other, and only if the larger load of the two falls by more than
    a tenth of what is tolerated, so the loop ends and no state moves for next to nothing. A single
    key that is more than an instance should have cannot be helped by that: it is split first, where
    the operator can be.

    Parameters
    ----------
    threshold : float, default 0.05
        Imbalance, the largest load above the mean in parts of the mean, at which to stop.

    Examples
    --------
    >>> report = Report(1.0, np.array([5, 4, 1, 0]), np.array([5.0, 4.0, 1.0, 0.0]),
    ...     np.zeros(4), np.array([0.6, 0.4]), np.zeros(2, dtype=np.int64))
    >>> Greedy().next_plan(Plan(np.array([0, 0, 1, 1]), 2), report).assignment.tolist()
    [0, 1, 1, 1]
    """

    name: ClassVar[str] = "greedy"

    def __init__(self, *, threshold: float = 0.05) -> None:
        self.threshold = number("threshold", threshold, above=0)

    def next_plan(self, plan: Plan, report: Report) -> Plan:
        """Return the plan to use next, `plan` itself if nothing should move."""
        table = plan.assignment.copy()
        split = split_hot_keys(plan, report)
        busy, loads = split.busy, split.loads
        while loads.max() > (1 + self.threshold) * loads.mean():
            giver, taker = int(loads.argmax()), int(loads.argmin())
            gap = loads[giver] - loads[taker]
            shards = np.flatnonzero(table == giver)
            gains = np.minimum(busy[shards], gap - busy[shards])
            if not shards.size or gains.max() <= 0.1 * self.threshold * loads.mean():
                break
            shard = int(shards[gains.argmax()])
            loads[giver] -= busy[shard]
            loads[taker] += busy[shard]
            table[shard] = taker
        following = replace(
            plan, assignment=table, epoch=plan.epoch + 1, hot=split.hot, leaving=split.leaving
        )
        return plan if following.says_as(plan) else following
