"""Tuples stay on their node if the next stage has an instance there: for stages without keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.balance import Plan
from unskew.kernel import kernel
from unskew.simulator.routing import Marks

LOCAL_OR_SHUFFLE = "local-or-shuffle"
"""What a stage calls this grouping."""


class LocalOrShuffle:
    """Each source deals its tuples to the instances of its node, or to all if there are none.

    Parameters
    ----------
    source_nodes, nodes : array of int32
        Node of each source, and of each instance.

    Examples
    --------
    >>> router = LocalOrShuffle(np.array([1, 2]), np.array([0, 1, 0, 1]))
    >>> plan, keys = Plan.even(4, 4), np.zeros(6, dtype=np.uint64)
    >>> router.send(plan, keys, np.array([0, 0, 0, 1, 1, 1], dtype=np.int32)).tolist()
    [1, 3, 1, 1, 2, 3]

    References
    ----------
    Locality-aware routing, Section 2.2, after Storm.
    """

    def __init__(self, source_nodes: NDArray[np.int32], nodes: NDArray[np.int32]) -> None:
        everyone = np.arange(nodes.size, dtype=np.int32)
        near = [np.flatnonzero(nodes == node).astype(np.int32) for node in source_nodes]
        takers = [own if own.size else everyone for own in near]
        self._sizes = np.array([own.size for own in takers], dtype=np.int64)
        self._starts = np.concatenate(([0], np.cumsum(self._sizes)[:-1]))
        self._takers = np.concatenate(takers)
        # Sources begin with different instances.
        self._turns = np.arange(source_nodes.size, dtype=np.int64)

    def send(
        self, plan: Plan, keys: NDArray[np.uint64], sources: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """Return the instance of each tuple, each source seeing its own in order."""
        chosen = np.empty(keys.size, dtype=np.int32)
        _deal(sources, self._takers, self._starts, self._sizes, self._turns, chosen)
        return chosen

    def instances(self, plan: Plan, keys: NDArray[np.uint64], marks: Marks) -> NDArray[np.int32]:
        """Return what the sources chose."""
        return marks.astype(np.int32, copy=False)

    def shards(self, plan: Plan, keys: NDArray[np.uint64], marks: Marks) -> Marks:
        """Return what the sources chose, as a shard is an instance here."""
        return marks


@kernel
def _deal(
    sources: NDArray[np.int32],
    takers: NDArray[np.int32],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    turns: NDArray[np.int64],
    chosen: NDArray[np.int32],
) -> None:
    for i in range(sources.size):
        source = sources[i]
        chosen[i] = takers[starts[source] + turns[source] % sizes[source]]
        turns[source] += 1
