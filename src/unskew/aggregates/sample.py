"""The values of each group, or a bounded sample of them that does not depend on their order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from unskew.aggregates.base import Aggregate, Groups
from unskew.aggregates.entries import as_lists, owners, places_in_runs, without_nulls
from unskew.aggregates.numbering import one_zero, ranks
from unskew.errors import BadParameter
from unskew.keys import hash_keys
from unskew.parameters import whole_number


class Collect(Aggregate):
    """All values of a small group, and of a large one the `limit` with the least hashes.

    Guarantee: a group with at most `limit` values has them all, duplicates included. Beyond that
    the result is the same `limit` values whatever the order of the rows and however they were
    parted: merging is exact. It is a fair sample of distinct values, not of rows: equal values have
    equal hashes, so they are in together or out together, up to the limit. Values come in the order
    of their hashes, equal hashes in that of the values. Nulls do not count.

    Memory: at most `limit` values of a group.

    Cost: one hash a row and one sort of the rows of each call.

    Parameters
    ----------
    limit : int
        Values to keep for each group, at least 1.

    Examples
    --------
    >>> some = collect(2).for_types(pa.int64())
    >>> values = pa.array([5, 6, 7])
    >>> states = some.update(some.zero(1), np.zeros(3, dtype=np.int64), values)
    >>> len(some.finish(states)[0])
    2
    """

    def __init__(self, limit: int, value_type: pa.DataType | None = None) -> None:
        self.limit = whole_number("limit", limit, least=1, most=2**28)
        self._value_type = value_type
        if value_type is not None:
            self.state_type = self.result_type = pa.list_(value_type)

    def for_types(self, *types: pa.DataType) -> Collect:
        """Return the aggregate for a column of one type, which may be nested."""
        if len(types) != 1:
            raise BadParameter(
                f"{self!r} takes one column, not {len(types)}; put several into a struct"
            )
        hash_keys(pa.array([], types[0]))
        return Collect(self.limit, types[0])

    def zero(self, number: int) -> pa.Array:
        """Return empty samples."""
        return as_lists(np.empty(0, np.int64), number, pa.array([], self._value_type))[0]

    def update(self, states: pa.Array, groups: Groups, *values: pa.Array) -> pa.Array:
        """Add the values of the rows and keep those of the least hashes."""
        groups, (column,) = without_nulls(groups, *values)
        groups = np.concatenate((owners(states), groups))
        kept = pa.concat_arrays([states.flatten(), one_zero(column).cast(self._value_type)])
        order = np.lexsort((ranks(kept), hash_keys(kept), groups))
        order = order[places_in_runs(groups[order]) < self.limit]
        return as_lists(groups[order], len(states), kept.take(pa.array(order)))[0]

    def merge(self, states: pa.Array, groups: Groups, others: pa.Array) -> pa.Array:
        """Add the values of other samples."""
        return self.update(states, owners(others, groups), others.flatten())

    def finish(self, states: pa.Array) -> pa.Array:
        """Return the samples."""
        return states

    def __repr__(self) -> str:
        """Return the call that made it."""
        return f"collect({self.limit})"


def collect(limit: int) -> Collect:
    """Return the aggregate that keeps a bounded number of values.

    Parameters
    ----------
    limit : int
        As of `Collect`, which says what is guaranteed.
    """
    return Collect(limit)
