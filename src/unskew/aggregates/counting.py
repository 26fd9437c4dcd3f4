"""How many rows a group has."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from unskew.aggregates.base import Aggregate, Applied, Groups
from unskew.aggregates.entries import without_nulls


class Count(Aggregate):
    """The number of rows, or of those without a null in the columns that are named.

    Exact; 8 bytes for each group. Spark's own ``F.count`` needs no help and is preferred where it
    can be used: a stream that has aggregates of ours cannot have Spark's beside them.

    Examples
    --------
    >>> rows = Count()
    >>> states = rows.update(rows.zero(2), np.array([1, 1, 0]), pa.array([5, None, 6]))
    >>> rows.finish(states).to_pylist()
    [1, 1]
    """

    state_type = result_type = pa.int64()

    def zero(self, number: int) -> pa.Array:
        """Return zeros."""
        return pa.array(np.zeros(number, dtype=np.int64))

    def update(self, states: pa.Array, groups: Groups, *values: pa.Array) -> pa.Array:
        """Add the rows."""
        counted, _ = without_nulls(groups, *values)
        return pa.array(states.to_numpy() + np.bincount(counted, minlength=len(states)))

    def merge(self, states: pa.Array, groups: Groups, others: pa.Array) -> pa.Array:
        """Add the numbers."""
        total = states.to_numpy().copy()
        np.add.at(total, groups, others.to_numpy())
        return pa.array(total)

    def finish(self, states: pa.Array) -> pa.Array:
        """Return the numbers."""
        return states


def count(*columns: object) -> Applied:
    """Return the aggregate that counts rows, or those without a null in these columns."""
    return Count().of(*columns)
