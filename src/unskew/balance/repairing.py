"""Places of keys that are too unequal in one stage, mended at the least cost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from unskew.balance.key_graph import KeyGraph


def repaired(
    graph: KeyGraph, places: NDArray[np.int32], rest: NDArray[np.float64], most: float
) -> NDArray[np.int32]:
    """Return places in which no instance of any stage has too much, as far as keys can do that.

    METIS sees one weight for all stages, and its bound is soft. From each instance that has too
    much of a stage those keys go to the one with least of it that lose the fewest neighbours for
    each tuple that moves.

    Parameters
    ----------
    graph : KeyGraph
        The keys.
    places : array of int32
        The instance of each.
    rest : array of float64
        Tuples of each stage, in rows, and instance, in columns, that are of no key of the graph.
    most : float
        Load that an instance may have, in means of its stage.

    Examples
    --------
    >>> from unskew.balance.key_pairs import KeyPairs
    >>> keys = np.array([1, 2, 3, 4], dtype=np.uint64)
    >>> graph = KeyGraph.of([(0, 1, KeyPairs(keys, keys, np.array([4, 3, 2, 1])))])
    >>> even = repaired(graph, np.zeros(8, dtype=np.int32), np.zeros((2, 2)), most=1.2)
    >>> [np.bincount(even[graph.stages == s], graph.weights[graph.stages == s]).tolist()
    ...  for s in (0, 1)]
    [[6.0, 4.0], [6.0, 4.0]]
    """
    places = places.copy()
    links = graph.neighbours()
    for stage in range(len(rest)):
        own = np.flatnonzero(graph.stages == stage)
        weights = graph.weights[own].astype(np.float64)
        loads = rest[stage] + np.bincount(places[own], weights, rest.shape[1])
        limit = most * loads.mean()
        near = near_of(links, places, own, rest.shape[1])
        stuck = np.zeros(loads.size, dtype=np.bool_)
        while True:
            over = np.where(stuck, -np.inf, loads)
            giver, taker = int(over.argmax()), int(loads.argmin())
            if over[giver] <= limit:
                break
            here = np.flatnonzero(places[own] == giver)
            here = here[(weights[here] > 0) & (weights[here] <= limit - loads[taker])]
            lost = near[here, giver] - near[here, taker]
            here = here[np.argsort(lost / weights[here], kind="stable")]
            sums = np.cumsum(weights[here])
            enough = int(np.searchsorted(sums, loads[giver] - limit)) + 1
            fits = int(np.searchsorted(sums, limit - loads[taker], side="right"))
            moved = here[: min(enough, fits)]
            if not moved.size:
                stuck[giver] = True
                continue
            places[own[moved]] = taker
            loads[giver] -= weights[moved].sum()
            loads[taker] += weights[moved].sum()
    return places


def near_of(
    links: csr_array, places: NDArray[np.int32], own: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Return the tuples that each of some vertices shares with the keys of each instance."""
    ones = np.ones(places.size, dtype=np.int64)
    at = csr_array((ones, (np.arange(places.size), places)), shape=(places.size, count))
    found: NDArray[np.int64] = (links[own] @ at).toarray()
    return found
