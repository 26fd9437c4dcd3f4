"""A plan for another number of instances."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.balance.plan import Plan


def resized(plan: Plan, instances: int, work: NDArray[np.float64] | None = None) -> Plan:
    """Return a plan for so many instances: all that can stay where it is does.

    Shards of instances that are no more go to those with least work, the largest first. New ones
    begin empty: it is for a balancer to fill them.

    Parameters
    ----------
    plan : Plan
        For as many as there were.
    instances : int
        How many there will be.
    work : array of float64, optional
        Of each shard; all the same by default.

    Examples
    --------
    >>> plan = Plan(np.array([0, 1, 2, 3, 2]), 4)
    >>> resized(plan, 3, np.array([1.0, 2.0, 4.0, 8.0, 0.0])).assignment.tolist()
    [0, 1, 2, 0, 2]
    """
    if plan.instances == instances:
        return plan
    weights = np.ones(plan.shards) if work is None else work
    table = plan.assignment.copy()
    stays = table < instances
    loads = np.bincount(table[stays], weights[stays], instances).astype(np.float64)
    homeless = np.flatnonzero(~stays)
    for shard in homeless[np.argsort(-weights[homeless], kind="stable")].tolist():
        table[shard] = loads.argmin()
        loads[table[shard]] += weights[shard]
    hot, leaving = {}, {}
    for key, copies in plan.hot.items():
        left = tuple(copy for copy in copies if copy < instances)
        times = {at: until for at, until in plan.leaving.get(key, {}).items() if at < instances}
        # One instance is as good as none: the key is whole again, with its shard.
        if len(set(left)) > 1 or (left and times):
            hot[key], leaving[key] = left, times
    return Plan(table, instances, plan.epoch + 1, hot, leaving, plan.placed)
