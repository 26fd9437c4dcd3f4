"""Which shards one instance should hand to another, by simulated annealing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.kernel import kernel
from unskew.mixing import counter_bits, spread_seed, unit

_T0, _COOLING, _T_MIN = 0.2, 0.9, 1e-3
"""Temperature at the start, what each round leaves of it, and where it ends."""

_SOJOURN, _MOVED = 0.1, 0.3
"""Weights of sojourn times and of tuples that move against the difference that is made up."""

_FULL = 0.99
"""Utilisation at the most: a queue without end has no sojourn time."""

_HANDOVERS = np.uint64(0x6D6F7665)
"""Parts what is drawn here from what others draw with the same seed."""


@dataclass(frozen=True)
class Handover:
    """Two instances, and what the first could hand to the second.

    Attributes
    ----------
    giver, taker : float
        Their loads: seconds that they are busy.
    capacity : float
        Seconds that an instance could be busy; infinite where it is not known.
    given, taken : array of float64
        Load of each shard of the giver, where it is and where it would be.
    tuples : array of float64
        That each of the shards keeps, and that would move with it.
    """

    giver: float
    taker: float
    capacity: float
    given: NDArray[np.float64]
    taken: NDArray[np.float64]
    tuples: NDArray[np.float64]

    def choose(self, *, seed: int, by_impact: bool = False) -> NDArray[np.bool_]:
        """Return the shards to hand over, so that the giver ends with at least the taker's load.

        Begins with the largest shards that fit, changes one shard or swaps two at a time, and keeps
        the best that it meets.

        Parameters
        ----------
        seed : int
            The same one gives the same answer.
        by_impact : bool, default False
            Whether to score by the paper's migration impact factor, gain over tuples moved.

        Examples
        --------
        >>> loads = np.array([4.0, 3.0, 2.0, 1.0])
        >>> Handover(10.0, 4.0, 20.0, loads, loads, np.ones(4)).choose(seed=0).tolist()
        [False, True, False, False]

        References
        ----------
        LS-Stream, Section V-C and Algorithm 1.
        """
        gains = self.given + self.taken
        order = np.argsort(-gains, kind="stable")
        chosen = np.zeros(gains.size, dtype=np.bool_)
        room = self.giver - self.taker
        for shard in order[gains[order] > 0].tolist():
            if gains[shard] <= room:
                chosen[shard] = True
                room -= gains[shard]
        best = chosen.copy()
        if gains.size:
            _anneal(
                *(self.giver, self.taker, self.capacity, self.given, self.taken),
                *(self.tuples, by_impact, spread_seed(seed) ^ _HANDOVERS, chosen, best),
            )
        return best

    def choose_one(self, least: float) -> NDArray[np.bool_]:
        """Return the one shard that lowers the larger load of the two most, by more than `least`.

        For where the giver has no shards small enough to stay the more loaded one.

        Examples
        --------
        >>> loads = np.array([0.9, 0.6])
        >>> Handover(1.5, 0.6, 2.0, loads, loads, np.ones(2)).choose_one(0.02).tolist()
        [False, True]
        """
        chosen = np.zeros(self.given.size, dtype=np.bool_)
        lower = np.minimum(self.given, self.giver - self.taker - self.taken)
        if lower.size and lower.max() > least:
            chosen[lower.argmax()] = True
        return chosen


@kernel
def _sojourn(load: float, capacity: float) -> float:
    """Return the mean sojourn time in an M/M/1 queue, in service times (eq. 20)."""
    return 1.0 / (1.0 - min(load / capacity, _FULL))


@kernel
def _score(
    giver: float,
    taker: float,
    capacity: float,
    given: float,
    taken: float,
    tuples: float,
    all_tuples: float,
    by_impact: bool,
) -> float:
    """Return what a handover of some load and tuples is worth."""
    if given <= 0.0:
        return 0.0
    before = _sojourn(giver, capacity) + _sojourn(taker, capacity)
    after = _sojourn(giver - given, capacity) + _sojourn(taker + taken, capacity)
    gain = given + taken
    if by_impact:
        return (gain + before - after) / max(tuples, 1.0)
    shorter = min(1.0, max(-1.0, (before - after) / before))
    moved = tuples / all_tuples if all_tuples > 0.0 else 0.0
    return gain / (giver - taker) + _SOJOURN * shorter - _MOVED * moved


@kernel
def _anneal(
    giver: float,
    taker: float,
    capacity: float,
    given: NDArray[np.float64],
    taken: NDArray[np.float64],
    tuples: NDArray[np.float64],
    by_impact: bool,
    seed: np.uint64,
    chosen: NDArray[np.bool_],
    best: NDArray[np.bool_],
) -> None:
    """Improve a choice, and write the best one that was met."""
    size = given.size
    out, into, moved, all_tuples = 0.0, 0.0, 0.0, 0.0
    for shard in range(size):
        all_tuples += tuples[shard]
        if chosen[shard]:
            out += given[shard]
            into += taken[shard]
            moved += tuples[shard]
    score = _score(giver, taker, capacity, out, into, moved, all_tuples, by_impact)
    top = score
    drawn = np.uint64(0)
    temperature = _T0
    while temperature > _T_MIN:
        for _ in range(size):
            drawn += np.uint64(3)
            one = int(unit(counter_bits(seed, drawn)) * size)
            other = int(unit(counter_bits(seed, drawn + np.uint64(1))) * size)
            # A swap where the two differ, or a flip where they do not.
            swaps = chosen[one] != chosen[other]
            sign = -1.0 if chosen[one] else 1.0
            new_out, new_into = out + sign * given[one], into + sign * taken[one]
            new_moved = moved + sign * tuples[one]
            if swaps:
                new_out -= sign * given[other]
                new_into -= sign * taken[other]
                new_moved -= sign * tuples[other]
            if giver - new_out < taker + new_into:
                continue
            new = _score(
                giver, taker, capacity, new_out, new_into, new_moved, all_tuples, by_impact
            )
            luck = unit(counter_bits(seed, drawn + np.uint64(2)))
            if new > score or luck < np.exp((new - score) / temperature):
                chosen[one] = not chosen[one]
                if swaps:
                    chosen[other] = not chosen[other]
                out, into, moved, score = new_out, new_into, new_moved, new
                if score > top + 1e-12:
                    top = score
                    for shard in range(size):
                        best[shard] = chosen[shard]
        temperature *= _COOLING
