"""The work of shards over as many intervals as it takes that chance does not decide."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.balance.plan import Plan

_CHANCE = 5.0
"""Standard deviations up to which an instance may have more or less than before by chance."""

_KEPT = 0.9
"""Part of what was before that still counts an interval later: what changes little by little, too,
is followed within some ten intervals."""


class PooledWork:
    """Keep the mean work of shards, of so many tuples that little of it is chance.

    Of few tuples some instance always has more by chance, and a plan that goes by them follows
    chance. Where there are enough in one interval, it counts alone; and where an instance has more
    or less than chance explains, the work has changed, and what was before is forgotten.

    Parameters
    ----------
    enough : int
        Tuples for each instance; 0 if every interval counts alone.

    Examples
    --------
    >>> pooled, plan = PooledWork(enough=300), Plan.even(2, 2)
    >>> pooled.add(plan, np.array([110.0, 90.0]), tuples=200).round(3).tolist()
    [110.0, 90.0]
    >>> pooled.add(plan, np.array([91.0, 109.0]), tuples=200).round(3).tolist()
    [100.0, 100.0]
    >>> pooled.add(plan, np.array([190.0, 10.0]), tuples=200).tolist()
    [190.0, 10.0]
    """

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._shares = np.empty(0)
        self._tuples = 0.0

    def add(self, plan: Plan, work: NDArray[np.float64], tuples: float) -> NDArray[np.float64]:
        """Take the work of an interval; return as much, divided over shards as it usually is.

        Parameters
        ----------
        plan : Plan
            Of the interval.
        work : array of float64
            Of each shard, not all 0.
        tuples : float
            How many had this work, all together; 0 if nobody counted them.
        """
        total = float(work.sum())
        shares = work / total
        room = self._enough * plan.instances - tuples
        before = max(0.0, min(_KEPT * self._tuples, room)) if tuples else 0.0
        if before and not self._is_other(plan, shares, tuples):
            part = before / (before + tuples)
            shares = part * self._shares + (1 - part) * shares
        else:
            before = 0.0
        self._shares, self._tuples = shares, before + tuples
        return shares * total

    def forget(self) -> None:
        """Begin anew."""
        self._tuples = 0.0

    def _is_other(self, plan: Plan, shares: NDArray[np.float64], tuples: float) -> bool:
        """Return whether shards are others, or an instance has not what chance explains."""
        if shares.size != self._shares.size:
            return True
        before, now = (
            np.bincount(plan.assignment, each, plan.instances) for each in (self._shares, shares)
        )
        # One tuple more or less is always chance, and so is part of what is known from before.
        chance = np.sqrt((before + 1 / tuples) / tuples + before / self._tuples)
        return bool((np.abs(now - before) > _CHANCE * chance).any())

    def snapshot(self) -> dict[str, NDArray[np.float64]]:
        """Return what is kept."""
        return {"shares": self._shares.copy(), "tuples": np.array([self._tuples])}

    def restore(self, snapshot: dict[str, NDArray[np.float64]]) -> None:
        """Continue from a snapshot."""
        self._shares = snapshot["shares"].astype(np.float64)
        self._tuples = float(snapshot["tuples"][0])
