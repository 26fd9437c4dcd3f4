"""Worker delegation: one shard for each pair of a worker with too much and one with too little."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.balance.signals import Signals

_NEXT_TO_NOTHING = 1e-6
"""Utilisation that a move has to make up for to be worth it."""

_AIM = 0.1
"""Part of the band that moves aim at, where shards are small enough: what is just within it would
leave it soon, by chance."""

_NONE = np.empty(0, dtype=np.int64)


@dataclass
class Delegation:
    """Pair workers until their signals cease, each time moving the shard that fits best.

    Once one of them says that it is outside of the band between the thresholds, and each is paired
    more than once, they are paired until all are next to its middle, as near as half a shard.

    Parameters
    ----------
    table : array of int32
        Instance of each shard; changed.
    told : array of float64
        Utilisation of each instance in this interval, by which it speaks.
    used : array of float64
        Utilisation by which shards move, of several intervals where there are few tuples; changed
        to what the moves lead to.
    costs : array of float64
        Utilisation that each shard is on an instance of speed 1.
    speeds : array of float64
        Of each instance.
    signals : Signals
        The queues; changed.
    busy, idle : float
        Utilisation above which a worker says busy, and below which it says idle.
    is_careful : bool
        Whether a shard moves only if both come nearer to the middle of the two thresholds than the
        farther of them was.
    barred : mapping of int to array of int64
        Shards that must not go back to an instance.

    Examples
    --------
    >>> table = np.array([0, 0, 0, 1], dtype=np.int32)
    >>> even = np.full(4, 0.4)
    >>> used, speeds = np.array([1.2, 0.4]), np.ones(2)
    >>> work = Delegation(table, used, used.copy(), even, speeds, Signals(), 0.85, 0.75, True, {})
    >>> work.run(now=0, pairings=10), work.table.tolist(), work.used.round(2).tolist()
    (1, [1, 0, 0, 1], [0.8, 0.8])
    """

    table: NDArray[np.int32]
    told: NDArray[np.float64]
    used: NDArray[np.float64]
    costs: NDArray[np.float64]
    speeds: NDArray[np.float64]
    signals: Signals
    busy: float
    idle: float
    is_careful: bool
    barred: Mapping[int, NDArray[np.int64]]

    def __post_init__(self) -> None:
        """Make room for marks."""
        self._marks = np.zeros(self.table.size, dtype=np.bool_)

    def run(self, now: int, pairings: int) -> int:
        """Pair each worker so many times at the most; return how many shards moved."""
        moved = 0
        self._hear(self.told, now, np.ones_like(self.speeds))
        if self._is_within(self.told):
            return moved
        half_shard = self.costs.mean() / self.speeds / 2
        aim = np.maximum(_AIM, half_shard / ((self.busy - self.idle) / 2)).clip(max=1.0)
        for _ in range(pairings):
            if pairings > 1:
                self._hear(self.used, now, aim)
            pairs = self._pair_all()
            if not pairs:
                break
            moved += pairs
        return moved

    def is_settled(self) -> bool:
        """Return whether, after the moves, no worker would say anything."""
        return self._is_within(self.used)

    def _is_within(self, used: NDArray[np.float64]) -> bool:
        """Return whether all are within the band."""
        return bool(((used <= self.busy) & (used >= self.idle)).all())

    def _hear(self, used: NDArray[np.float64], now: int, part: NDArray[np.float64]) -> None:
        """Let workers that are outside of this part of the band say so."""
        middle = (self.busy + self.idle) / 2
        busy = np.flatnonzero(used > middle + part * (self.busy - middle)).tolist()
        idle = np.flatnonzero(used < middle - part * (middle - self.idle)).tolist()
        self.signals.hear(busy, idle, now, used.size)

    def _pair_all(self) -> int:
        """Pair every worker once at the most; return how many shards moved."""
        pairs, free = 0, set(range(self.used.size))
        for giver in tuple(self.signals.busy):
            taker = next((t for t in self._takers(free - {giver}) if self._move(giver, t)), None)
            if taker is not None:
                pairs += 1
                free -= {giver, taker}
        if pairs or not self.is_careful or self.signals.busy:
            return pairs
        # Idle ones wait and none is busy: who has most above the middle gives.
        for taker in tuple(self.signals.idle):
            givers = sorted(free - {*self.signals.idle}, key=lambda worker: -self.used[worker])
            found = next((g for g in givers if self._move(g, taker)), None)
            if found is not None:
                pairs += 1
                free -= {found, taker}
        return pairs

    def _takers(self, free: set[int]) -> Iterator[int]:
        """Yield who may take: the idle in their order, then the one whose busy time is longest ago.

        Without care the first of them takes, and others only where none is idle.
        """
        idle = [worker for worker in self.signals.idle if worker in free]
        yield from idle
        if self.is_careful or not self.signals.idle:
            others = free - {*self.signals.idle, *self.signals.busy}
            yield from self.signals.quiet(others)

    def _move(self, giver: int, taker: int) -> bool:
        """Move the shard that fits best, if one does."""
        shards = np.flatnonzero(self.table == giver)
        if shards.size < 2:
            return False
        costs = self.costs[shards]
        given, taken = costs / self.speeds[giver], costs / self.speeds[taker]
        middle = (self.busy + self.idle) / 2
        after = np.maximum(
            np.abs(self.used[giver] - given - middle), np.abs(self.used[taker] + taken - middle)
        )
        if self.is_careful:
            before = max(abs(self.used[giver] - middle), abs(self.used[taker] - middle))
            # One whose work is next to nothing would move for nothing.
            bad = (after >= before - _NEXT_TO_NOTHING) | self._is_barred(shards, taker)
            after = np.where(bad, np.inf, after)
        best = int(after.argmin())
        if not np.isfinite(after[best]):
            return False
        self.table[shards[best]] = taker
        self.used[giver] -= given[best]
        self.used[taker] += taken[best]
        return True

    def _is_barred(self, shards: NDArray[np.int64], taker: int) -> NDArray[np.bool_]:
        """Return which of these shards must not go to an instance."""
        # Marks that are taken away again: numpy's isin takes longer than all else of a move.
        barred = self.barred.get(taker, _NONE)
        self._marks[barred] = True
        found: NDArray[np.bool_] = self._marks[shards]
        self._marks[barred] = False
        return found
