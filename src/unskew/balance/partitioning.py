"""Parts of a graph of keys: as few tuples between them as can be, and none too heavy."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from unskew.balance.key_graph import KeyGraph
from unskew.errors import MissingExtra

UFACTOR = 30
"""METIS's measure of imbalance: 30 thousandths, the 1.03 of the paper."""


def check_metis() -> None:
    """Raise an error that says what to install, if METIS is not."""
    if find_spec("pymetis") is None:
        raise MissingExtra(
            "locality is planned with METIS, which is not installed; pip install 'unskew[locality]'"
        )


def parts_of(graph: KeyGraph, shares: NDArray[np.float64], *, seed: int) -> NDArray[np.int32]:
    """Return the part of each vertex, by METIS.

    Parameters
    ----------
    graph : KeyGraph
        What to cut.
    shares : array of float64
        Part of the weight that each part should have; they add up to 1.
    seed : int
        Of METIS's choices.
    """
    check_metis()
    import pymetis

    if shares.size == 1 or not graph.keys.size:
        return np.zeros(graph.keys.size, dtype=np.int32)
    links = graph.neighbours()
    # METIS counts with 32 bits, and knows no weight of 0.
    scale = max(1.0, graph.weights.sum() / 2**30)
    _, chosen = pymetis.part_graph(
        shares.size,
        pymetis.CSRAdjacency(links.indptr, links.indices),
        vweights=np.maximum(graph.weights / scale, 1).astype(np.int64).tolist(),
        eweights=np.maximum(links.data / scale, 1).astype(np.int64).tolist(),
        tpwgts=shares.tolist(),
        recursive=False,
        options=pymetis.Options(ufactor=UFACTOR, seed=seed),
    )
    return np.array(chosen, dtype=np.int32)


def named_as_before(
    parts: NDArray[np.int32],
    before: NDArray[np.int32],
    weights: NDArray[np.int64],
    sizes: NDArray[np.int64],
) -> NDArray[np.int32]:
    """Return the parts, renamed so that as little weight as can be is elsewhere than before.

    Parameters
    ----------
    parts, before : array of int32
        Where each vertex is to be, and where it was.
    weights : array of int64
        Of the vertices.
    sizes : array of int64
        Of the parts: only those of the same size can have each other's names.

    Examples
    --------
    >>> parts, before = np.array([0, 0, 1, 1]), np.array([1, 1, 1, 0])
    >>> named_as_before(parts, before, np.ones(4, dtype=np.int64), np.array([1, 1])).tolist()
    [1, 1, 0, 0]
    """
    shared = np.zeros((sizes.size, sizes.size))
    np.add.at(shared, (parts, before), weights)
    shared[sizes[:, None] != sizes] = -1.0 - weights.sum()
    rows, columns = linear_sum_assignment(shared, maximize=True)
    names = np.empty(sizes.size, dtype=np.int32)
    names[rows] = columns
    return names[parts]
