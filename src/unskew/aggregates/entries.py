"""Sparse states: what sketches share that keep a list of entries for each group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.aggregates.base import Groups

Integers = NDArray[np.int64]


def owners(lists: pa.Array, groups: Groups | None = None) -> Groups:
    """Return the group of each entry of lists: the list's place, or what `groups` says of it.

    Examples
    --------
    >>> owners(pa.array([[7, 8], [], [9]])).tolist()
    [0, 0, 2]
    """
    lengths = pc.list_value_length(lists).to_numpy()
    places = np.arange(len(lists), dtype=np.int64) if groups is None else groups
    return np.repeat(places, lengths)


def as_lists(groups: Groups, number: int, *columns: pa.Array | NDArray[Any]) -> list[pa.Array]:
    """Return each column cut into the lists of `number` groups.

    Parameters
    ----------
    groups : array of int64
        The group of each entry, ascending.
    number : int
        Number of groups, empty ones included.
    *columns : arrays
        The entries.

    Examples
    --------
    >>> as_lists(np.array([0, 0, 2]), 3, np.array([7, 8, 9]))[0].to_pylist()
    [[7, 8], [], [9]]
    """
    offsets = pa.array(np.searchsorted(groups, np.arange(number + 1)).astype(np.int32))
    return [pa.ListArray.from_arrays(offsets, pa.array(column)) for column in columns]


def starts_of_runs(values: NDArray[Any]) -> Integers:
    """Return where each run of equal neighbours begins.

    Examples
    --------
    >>> starts_of_runs(np.array([4, 4, 6])).tolist()
    [0, 2]
    """
    if values.size == 0:
        return np.empty(0, dtype=np.int64)
    return np.concatenate(([0], np.flatnonzero(values[1:] != values[:-1]) + 1))


def sums(codes: Integers, counts: Integers | None = None) -> tuple[Integers, Integers]:
    """Return the distinct codes, ascending, and the sum of the counts of each, or how many it has.

    Examples
    --------
    >>> sums(np.array([5, 3, 5]), np.array([1, 10, 100]))
    (array([3, 5]), array([ 10, 101]))
    """
    if counts is None:
        ordered = np.sort(codes)
        starts = starts_of_runs(ordered)
        return ordered[starts], np.diff(np.append(starts, ordered.size))
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = starts_of_runs(ordered)
    if starts.size == 0:
        return ordered, counts[order]
    return ordered[starts], np.add.reduceat(counts[order], starts)


def places_in_runs(values: NDArray[Any]) -> Integers:
    """Return the place of each element among its equal neighbours.

    Examples
    --------
    >>> places_in_runs(np.array([4, 4, 6])).tolist()
    [0, 1, 0]
    """
    starts = starts_of_runs(values)
    lengths = np.diff(np.append(starts, values.size))
    return np.arange(values.size) - np.repeat(starts, lengths)


def without_nulls(groups: Groups, *values: pa.Array) -> tuple[Groups, list[pa.Array]]:
    """Return the rows in which no value is null.

    Examples
    --------
    >>> groups, (values,) = without_nulls(np.array([0, 1, 1]), pa.array([5, None, 7]))
    >>> groups.tolist(), values.to_pylist()
    ([0, 1], [5, 7])
    """
    kept = np.ones(groups.size, dtype=np.bool_)
    for column in values:
        if column.null_count:
            kept &= column.is_valid().to_numpy(zero_copy_only=False)
    if kept.all():
        return groups, list(values)
    return groups[kept], [column.filter(pa.array(kept)) for column in values]
