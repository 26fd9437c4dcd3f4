"""Where keys that occur together should live: cut by levels of a tree, then mended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from unskew.balance.key_graph import KeyGraph
from unskew.balance.partitioning import named_as_before, parts_of
from unskew.balance.repairing import near_of, repaired

_SWEEPS = 4
"""Times that every key may follow others."""

_FEW = 0.001
"""Part of the keys that still follow others: then it is enough."""

Tree: TypeAlias = "int | Sequence[Tree]"
"""An instance, or those that are near each other: ``[[0, 1], [2, 3]]`` are two racks of two."""


def places_of(
    graph: KeyGraph,
    before: NDArray[np.int32],
    rest: NDArray[np.float64],
    tree: Tree,
    *,
    most: float,
    seed: int,
) -> NDArray[np.int32]:
    """Return the instance that each key should be on.

    Parameters
    ----------
    graph : KeyGraph
        The keys, and how often two of them met.
    before : array of int32
        The instance that each is on now.
    rest : array of float64
        Tuples of each stage and instance that are of no key of the graph.
    tree : int or nested sequence of int
        The instances. What can be near stays near: the first cut is between the largest parts.
    most : float
        Load that an instance of a stage may have, in means.
    seed : int
        Of METIS.
    """
    apart = distances(tree)
    # The cut between racks is made once for all; a plain one may be lucky, above all with few keys.
    trees = [tree] if apart.max(initial=0) <= 1 else [tree, sorted(leaves(tree))]
    found = []
    for each in trees:
        places = np.empty(graph.keys.size, dtype=np.int32)
        _cut(graph, np.arange(graph.keys.size), before, each, seed, places)
        found.append(repaired(graph, places, rest, most, apart))
    return min(found, key=lambda places: graph.distance(places, apart))


def followed(
    graph: KeyGraph,
    before: NDArray[np.int32],
    rest: NDArray[np.float64],
    tree: Tree,
    *,
    most: float,
) -> NDArray[np.int32]:
    """Return the instances that keys should be on if as few as possible move.

    Stage by stage each key goes to where most of its tuples come from, or go to, as long as that
    changes anything; then what is too much for an instance goes elsewhere. New keys so join those
    that they occur with, and nothing else moves. Locality never falls by it, but for the balance.

    Parameters
    ----------
    graph, before, rest, tree, most
        As of `places_of`.
    """
    apart = distances(tree)
    places = before.copy()
    links = graph.neighbours()
    count = rest.shape[1]
    for _ in range(_SWEEPS):
        moved = 0
        for stage in range(len(rest) - 1, -1, -1):
            own = np.flatnonzero(graph.stages == stage)
            costs = near_of(links, places, own, count) @ apart
            best, now = costs.argmin(axis=1), costs[np.arange(own.size), places[own]]
            gains = costs[np.arange(own.size), best] < now
            places[own[gains]] = best[gains]
            moved += int(np.count_nonzero(gains))
        places = repaired(graph, places, rest, most, apart)
        if moved <= _FEW * places.size:
            break
    return places


def leaves(tree: Tree) -> list[int]:
    """Return the instances of a tree, in order.

    Examples
    --------
    >>> leaves([[0, 1], [2, [3]]])
    [0, 1, 2, 3]
    """
    if isinstance(tree, int):
        return [tree]
    return [leaf for child in tree for leaf in leaves(child)]


def distances(tree: Tree) -> NDArray[np.int64]:
    """Return how far each instance is from each other: the levels up to what has both.

    Examples
    --------
    >>> distances([[0, 2], [1, 3]]).tolist()
    [[0, 2, 1, 2], [2, 0, 2, 1], [1, 2, 0, 2], [2, 1, 2, 0]]
    """
    size = 1 + max(leaves(tree))
    found = np.zeros((size, size), dtype=np.int64)
    _measure(tree, found)
    return found


def _measure(tree: Tree, found: NDArray[np.int64]) -> int:
    """Write the distances between the instances of a tree; return how many levels it has."""
    if isinstance(tree, int):
        return 0
    levels = 1 + max(_measure(child, found) for child in tree)
    for number, child in enumerate(tree):
        for other in tree[:number]:
            places = np.ix_(leaves(child), leaves(other))
            found[places] = levels
            found.T[places] = levels
    return levels


def _cut(
    graph: KeyGraph,
    vertices: NDArray[np.int64],
    before: NDArray[np.int32],
    tree: Tree,
    seed: int,
    places: NDArray[np.int32],
) -> None:
    """Give the vertices of a part of the graph their instances."""
    if isinstance(tree, int):
        places[vertices] = tree
        return
    sizes = np.array([len(leaves(child)) for child in tree])
    parts = parts_of(graph, sizes / sizes.sum(), seed=seed)
    child_of = {leaf: number for number, child in enumerate(tree) for leaf in leaves(child)}
    was = np.array([child_of.get(int(at), 0) for at in before[vertices]], dtype=np.int32)
    parts = named_as_before(parts, was, graph.weights, sizes)
    for number, child in enumerate(tree):
        own = parts == number
        _cut(graph.subgraph(own), vertices[own], before, child, seed, places)
