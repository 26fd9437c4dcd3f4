"""Places of keys that are too unequal in one stage, mended at the least cost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from unskew.balance.key_graph import KeyGraph


def repaired(
    graph: KeyGraph,
    places: NDArray[np.int32],
    rest: NDArray[np.float64],
    most: float,
    distances: NDArray[np.int64],
) -> NDArray[np.int32]:
    """Return places in which no instance of any stage has too much, as far as keys can do that.

    METIS sees one weight for all stages, and its bound is soft. From each instance that has too
    much of a stage keys go to one that has room: the nearest, and of those the one with least. They
    are those whose tuples then go the least farther, for each tuple that moves.

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
    distances : array of int64
        From each instance to each other.

    Examples
    --------
    >>> from unskew.balance.key_pairs import KeyPairs
    >>> keys = np.array([1, 2, 3, 4], dtype=np.uint64)
    >>> graph = KeyGraph.of([(0, 1, KeyPairs(keys, keys, np.array([4, 3, 2, 1])))])
    >>> apart = np.array([[0, 1], [1, 0]])
    >>> even = repaired(graph, np.zeros(8, dtype=np.int32), np.zeros((2, 2)), 1.2, apart)
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
        costs = near_of(links, places, own, rest.shape[1]) @ distances
        stuck = np.zeros(loads.size, dtype=np.bool_)
        while True:
            over = np.where(stuck, -np.inf, loads)
            giver = int(over.argmax())
            if over[giver] <= limit:
                break
            here = np.flatnonzero(places[own] == giver)
            for taker in np.lexsort((loads, distances[giver])).tolist():
                moved = _moved(here, giver, taker, costs, weights, loads, limit)
                if moved.size:
                    break
            else:
                taker = int(loads.argmin())
                moved = here[weights[here] > 0][:1]
                # No key fits anywhere; still none has to have more than one key too much.
                if not moved.size or over[giver] <= limit + weights.max():
                    stuck[giver] = True
                    continue
            places[own[moved]] = taker
            loads[giver] -= weights[moved].sum()
            loads[taker] += weights[moved].sum()
    return places


def _moved(
    here: NDArray[np.int64],
    giver: int,
    taker: int,
    costs: NDArray[np.int64],
    weights: NDArray[np.float64],
    loads: NDArray[np.float64],
    limit: float,
) -> NDArray[np.int64]:
    """Return the keys of an instance that should go to another: as many as must and may."""
    room = limit - loads[taker]
    here = here[(weights[here] > 0) & (weights[here] <= room)]
    lost = costs[here, taker] - costs[here, giver]
    here = here[np.argsort(lost / weights[here], kind="stable")]
    sums = np.cumsum(weights[here])
    enough = int(np.searchsorted(sums, loads[giver] - limit)) + 1
    fits = int(np.searchsorted(sums, room, side="right"))
    return here[: min(enough, fits)]


def near_of(
    links: csr_array, places: NDArray[np.int32], own: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Return the tuples that each of some vertices shares with the keys of each instance."""
    ones = np.ones(places.size, dtype=np.int64)
    at = csr_array((ones, (np.arange(places.size), places)), shape=(places.size, count))
    found: NDArray[np.int64] = (links[own] @ at).toarray()
    return found
