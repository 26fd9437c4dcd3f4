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
    places = np.empty(graph.keys.size, dtype=np.int32)
    _cut(graph, np.arange(graph.keys.size), before, tree, seed, places)
    return repaired(graph, places, rest, most)


def followed(
    graph: KeyGraph, before: NDArray[np.int32], rest: NDArray[np.float64], *, most: float
) -> NDArray[np.int32]:
    """Return the instances that keys should be on if as few as possible move.

    Stage by stage each key goes to where most of its tuples come from, or go to, as long as that
    changes anything; then what is too much for an instance goes elsewhere. New keys so join those
    that they occur with, and nothing else moves. Locality never falls by it, but for the balance.

    Parameters
    ----------
    graph, before, rest, most
        As of `places_of`.
    """
    places = before.copy()
    links = graph.neighbours()
    count = rest.shape[1]
    for _ in range(_SWEEPS):
        moved = 0
        for stage in range(len(rest) - 1, -1, -1):
            own = np.flatnonzero(graph.stages == stage)
            near = near_of(links, places, own, count)
            best, now = near.argmax(axis=1), near[np.arange(own.size), places[own]]
            gains = near[np.arange(own.size), best] > now
            places[own[gains]] = best[gains]
            moved += int(np.count_nonzero(gains))
        places = repaired(graph, places, rest, most)
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
