"""FastJoin: the heaviest instance of a join hands over what makes up most for each tuple moved."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from unskew.balance.base import Balancer
from unskew.balance.plan import Plan
from unskew.balance.report import Report
from unskew.parameters import number


class FastJoin(Balancer):
    """Move shards between the heaviest and the lightest instance of a join, one pair an interval.

    The load of an instance is the product of the tuples that it keeps and those that probe them.
    Shards go in the order of what each makes up of the difference for a tuple that moves, as long
    as the giver stays the heavier. The original moves single keys, here shards are the smallest
    thing that moves.

    Parameters
    ----------
    threshold : float, default 2.2
        Largest load over smallest above which to act, above 1.

    Examples
    --------
    >>> rows, none = np.array([2, 2, 2, 1, 1]), np.zeros(5)
    >>> report = Report(1.0, rows, none, none, none, none, stored=rows)
    >>> FastJoin().next_plan(Plan(np.array([0, 0, 0, 1, 1]), 2), report).assignment.tolist()
    [1, 0, 0, 1, 1]

    References
    ----------
    Zhou, Zhang, Chen, Jin, Zhou: FastJoin, IPDPS 2019; the gain of a move as its load implies it.
    """

    name: ClassVar[str] = "fastjoin"

    def __init__(self, *, threshold: float = 2.2) -> None:
        self.threshold = number("threshold", threshold, above=1)

    def next_plan(self, plan: Plan, report: Report) -> Plan:
        """Return the plan to use next, `plan` itself if nothing should move."""
        probing = report.rows.astype(np.float64)
        kept = probing if report.stored is None else report.stored.astype(np.float64)
        held = np.bincount(plan.assignment, kept, plan.instances)
        probes = np.bincount(plan.assignment, probing, plan.instances)
        loads = held * probes
        giver, taker = int(loads.argmax()), int(loads.argmin())
        if loads[giver] <= self.threshold * loads[taker]:
            return plan
        shards = np.flatnonzero(plan.assignment == giver)
        # Exact for any set of shards, as their products cancel out.
        gains = (held[giver] + held[taker]) * probing[shards]
        gains += (probes[giver] + probes[taker]) * kept[shards]
        order = np.argsort(-gains / np.maximum(kept[shards], 1.0), kind="stable")
        left = loads[giver] - loads[taker]
        moved = {}
        for place in order[gains[order] > 0].tolist():
            if gains[place] <= left:
                left -= gains[place]
                moved[int(shards[place])] = taker
        return plan.move(moved) if moved else plan
