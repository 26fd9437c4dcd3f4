"""Tuples stay on their node if the next stage has an instance there: for stages without keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.balance import Plan
from unskew.grouping import LocalOrShuffle
from unskew.simulator.routing import ByGrouping, Marks


class ByNode(ByGrouping):
    """Each source deals its tuples to the instances of its node, or to all if there are none.

    Parameters
    ----------
    source_nodes, nodes : array of int32
        Node of each source, and of each instance.

    Examples
    --------
    >>> router = ByNode(np.array([1, 2]), np.array([0, 1, 0, 1]))
    >>> plan, keys = Plan.even(4, 4), np.zeros(6, dtype=np.uint64)
    >>> router.send(plan, keys, np.array([0, 0, 0, 1, 1, 1], dtype=np.int32)).tolist()
    [1, 3, 1, 2, 3, 0]
    """

    def __init__(self, source_nodes: NDArray[np.int32], nodes: NDArray[np.int32]) -> None:
        self._groupings = [
            LocalOrShuffle(nodes.size, source=source, local=np.flatnonzero(nodes == node).tolist())
            for source, node in enumerate(source_nodes)
        ]

    def instances(self, plan: Plan, keys: NDArray[np.uint64], marks: Marks) -> NDArray[np.int32]:
        """Return what the sources chose, as a shard is an instance here."""
        return marks.astype(np.int32, copy=False)
