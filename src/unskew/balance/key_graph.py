"""The graph of keys that occur together: what locality is planned on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array

from unskew.balance.key_pairs import KeyPairs


@dataclass(frozen=True)
class KeyGraph:
    """Keys of successive stages, and how often two of them met in one tuple.

    Attributes
    ----------
    keys : array of uint64
        The hash of each vertex's key.
    stages : array of int32
        The stage of each vertex.
    weights : array of int64
        Tuples of each vertex.
    first, second : array of int64
        The two ends of each edge, as numbers of vertices.
    counts : array of int64
        Tuples of each edge.
    """

    keys: NDArray[np.uint64]
    stages: NDArray[np.int32]
    weights: NDArray[np.int64]
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, hops: Sequence[tuple[int, int, KeyPairs]]) -> KeyGraph:
        """Return the graph of some hops, each from a stage to another with the pairs seen there.

        A key that several hops saw weighs what the one says that saw most of it.

        Examples
        --------
        >>> keys = np.array([1, 1, 2], dtype=np.uint64), np.array([7, 8, 8], dtype=np.uint64)
        >>> graph = KeyGraph.of([(0, 1, KeyPairs(*keys, np.array([3, 2, 5])))])
        >>> graph.keys.tolist(), graph.stages.tolist(), graph.weights.tolist()
        ([1, 2, 7, 8], [0, 0, 1, 1], [5, 5, 3, 7])
        >>> graph.first.tolist(), graph.second.tolist()
        ([0, 0, 1], [2, 3, 3])
        """
        ends = [end for one, other, pairs in hops for end in ((one, pairs[0]), (other, pairs[1]))]
        found: dict[int, NDArray[np.uint64]] = {}
        for stage in sorted({stage for stage, _ in ends}):
            found[stage] = np.unique(np.concatenate([keys for at, keys in ends if at == stage]))
        sizes = [keys.size for keys in found.values()]
        starts = dict(zip(found, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
        size = sum(sizes)
        weights = np.zeros(size, dtype=np.int64)
        edges: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []
        for one, other, pairs in hops:
            placed = [
                starts[stage] + np.searchsorted(found[stage], keys)
                for stage, keys in zip((one, other), pairs[:2], strict=True)
            ]
            for places in placed:
                weights = np.maximum(
                    weights, np.bincount(places, pairs.counts, size).astype(np.int64)
                )
            edges.append((placed[0], placed[1], pairs.counts))
        first, second, counts = (np.concatenate(column) for column in zip(*edges, strict=True))
        return cls(
            np.concatenate(list(found.values())),
            np.repeat(np.array(list(found), dtype=np.int32), sizes),
            *(weights, first, second, counts),
        )

    def neighbours(self) -> coo_array:
        """Return the tuples between each two vertices, both ways, as a sparse matrix."""
        rows = np.concatenate((self.first, self.second))
        columns = np.concatenate((self.second, self.first))
        both = np.concatenate((self.counts, self.counts))
        return coo_array((both, (rows, columns)), shape=(self.keys.size, self.keys.size)).tocsr()

    def subgraph(self, chosen: NDArray[np.bool_]) -> KeyGraph:
        """Return the graph of some vertices, and of the edges that have both ends among them."""
        numbers = np.cumsum(chosen) - 1
        inside = chosen[self.first] & chosen[self.second]
        return KeyGraph(
            *(self.keys[chosen], self.stages[chosen], self.weights[chosen]),
            *(numbers[self.first[inside]], numbers[self.second[inside]], self.counts[inside]),
        )

    def distance(self, places: NDArray[np.int32], distances: NDArray[np.int64]) -> int:
        """Return how far all tuples go together, from the place of one key to that of the other.

        Parameters
        ----------
        places : array of int32
            The place of each vertex.
        distances : array of int64
            From each place to each other.
        """
        return int((self.counts * distances[places[self.first], places[self.second]]).sum())

    def locality(self, places: NDArray[np.int32]) -> float:
        """Return the part of the tuples whose two keys are in the same place."""
        total = int(self.counts.sum())
        near = self.counts[places[self.first] == places[self.second]].sum()
        return float(near / total) if total else 0.0
