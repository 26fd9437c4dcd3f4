"""Shards that have just moved, and stay for a while."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.balance.plan import Plan

REST = 3
"""Intervals from one move of a shard to its next."""

_CHANGED = 0.25
"""Part by which the load of a shard has to change to let it move before."""

_NEVER = -(2**62)

KNOWN = re.compile(r"(moved|loads) of \d+")
"""Names of what a snapshot has."""


class Resting:
    """Remember when each shard moved, and how loaded it was then.

    Examples
    --------
    >>> resting, plan = Resting(), Plan.even(shards=2, instances=2)
    >>> load = np.array([1.0, 1.0])
    >>> resting.remember(7, [plan], [plan.move({1: 0})], [load])
    >>> resting.free(0, 8, load).tolist(), resting.free(0, 10, load).tolist()
    ([True, False], [True, True])
    >>> resting.free(0, 8, np.array([1.0, 1.5])).tolist()
    [True, True]
    """

    def __init__(self) -> None:
        self._moved: dict[int, NDArray[np.int64]] = {}
        self._loads: dict[int, NDArray[np.float64]] = {}

    def free(self, stage: int, now: int, loads: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which shards of a stage may move: they rested, or have another load by now."""
        moved = self._moved.get(stage)
        if moved is None or moved.size != loads.size:
            return np.ones(loads.size, dtype=np.bool_)
        before = self._loads[stage]
        changed = np.abs(loads - before) > _CHANGED * np.maximum(loads, before)
        may: NDArray[np.bool_] = (now - moved >= REST) | changed
        return may

    def remember(
        self,
        now: int,
        before: Sequence[Plan],
        after: Sequence[Plan],
        loads: Sequence[NDArray[np.float64]],
    ) -> None:
        """Note what moves from one plan to the next, with the load of each shard."""
        for stage, (old, new, own) in enumerate(zip(before, after, loads, strict=True)):
            known = self._moved.get(stage)
            if known is None or known.size != own.size:
                self._moved[stage] = np.full(own.size, _NEVER)
                self._loads[stage] = np.zeros(own.size)
            goes = np.flatnonzero(old.assignment != new.assignment)
            self._moved[stage][goes] = now
            self._loads[stage][goes] = own[goes]

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return what is remembered."""
        return {
            **{f"moved of {stage}": each.copy() for stage, each in self._moved.items()},
            **{f"loads of {stage}": each.copy() for stage, each in self._loads.items()},
        }

    def restore(self, snapshot: dict[str, NDArray[Any]]) -> None:
        """Continue from a snapshot."""
        self._moved, self._loads = {}, {}
        for name, array in snapshot.items():
            what, _, stage = name.split()
            if what == "moved":
                self._moved[int(stage)] = np.array(array, dtype=np.int64)
            else:
                self._loads[int(stage)] = np.array(array, dtype=np.float64)
