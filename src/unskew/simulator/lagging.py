"""Sources that hear of a new plan late, and not all at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.balance import Plan
from unskew.mixing import counter_bits, spread_seed, unit

_LAGS = np.uint64(0x6C616773)
"""Parts what is drawn here from what others draw of the same seed."""


class Lag:
    """Each source goes by the plan that it knows, and learns of the next after a time of its own.

    Parameters
    ----------
    plan : Plan
        Known to all at the beginning.
    sources : int
        How many.
    most : float
        Seconds until the last of them knows; each has its own part of that.
    seed : int
        Chooses the parts.

    Examples
    --------
    >>> lag = Lag(Plan(np.array([0, 0]), 2), sources=2, most=1.0, seed=0)
    >>> lag.follow(Plan(np.array([1, 0]), 2), now=5.0)
    >>> shards, sources = np.zeros(4, dtype=np.int64), np.array([0, 0, 1, 1])
    >>> lag.instances(shards, sources, np.array([4.9, 6.0, 5.0, 6.0])).tolist()
    [0, 1, 0, 1]

    References
    ----------
    Consistent Grouping, Section V-C: signals ride on acknowledgements.
    """

    def __init__(self, plan: Plan, *, sources: int, most: float, seed: int) -> None:
        own = spread_seed(seed) ^ _LAGS
        parts = [unit(np.uint64(counter_bits(own, np.uint64(i)))) for i in range(sources)]
        self.delays = np.array(parts) * most
        self._most = most
        self._starts = np.array([-np.inf])
        self._tables = plan.assignment[None, :]

    def follow(self, plan: Plan, now: float) -> None:
        """Begin to tell the sources of a plan."""
        # Of plans that every source has left, none is needed but the last.
        known = max(0, int(np.searchsorted(self._starts, now - self._most, side="right")) - 1)
        self._starts = np.append(self._starts[known:], now)
        self._tables = np.vstack((self._tables[known:], plan.assignment))

    def split(self, times: int) -> None:
        """Divide each shard s into so many: s * times and those that follow it."""
        self._tables = np.repeat(self._tables, times, axis=1)

    def instances(
        self,
        shards: NDArray[np.signedinteger[Any]],
        sources: NDArray[np.signedinteger[Any]],
        times: NDArray[np.float64],
    ) -> NDArray[np.int32]:
        """Return where sources send tuples of shards at some times."""
        heard = np.searchsorted(self._starts, times - self.delays[sources], side="right") - 1
        chosen: NDArray[np.int32] = self._tables[heard, shards]
        return chosen
