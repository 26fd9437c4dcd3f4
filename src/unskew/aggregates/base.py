"""The contract of every aggregate: states that are updated, merged and finished, group by group."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Groups = NDArray[np.int64]
"""For each row the number of its group: the place of the group's state."""


class Aggregate(ABC):
    """Fold many rows into one result for each group, by way of states that can be merged.

    All methods take and return the states of many groups at once, one element of an Arrow array
    for each. Rows of one group may be updated in several places at the same time: each place begins
    at `zero`, and `merge` brings the parts together. So for any rows and any way to part them:

    - `merge` is associative and commutative, and `zero` changes nothing;
    - updating part by part and merging gives what updating at once gives, exactly, or within the
      error that the aggregate promises.

    States are plain Arrow data: they travel between processes and are stored, never pickled.

    Attributes
    ----------
    state_type, result_type : pyarrow.DataType
        Of one state and of one result. Where they depend on the values, `for_types` returns an
        aggregate that has them.

    Examples
    --------
    The least value of each group:

    >>> import pyarrow as pa, numpy as np
    >>> class Least(Aggregate):
    ...     state_type = result_type = pa.float64()
    ...     def zero(self, number):
    ...         return pa.array(np.full(number, np.inf))
    ...     def update(self, states, groups, values):
    ...         least = states.to_numpy().copy()
    ...         np.minimum.at(least, groups, values.to_numpy())
    ...         return pa.array(least)
    ...     merge = update
    ...     def finish(self, states):
    ...         return states
    >>> least = Least()
    >>> states = least.update(least.zero(2), np.array([0, 1, 0]), pa.array([3.0, 5.0, 2.0]))
    >>> least.finish(states).to_pylist()
    [2.0, 5.0]
    """

    state_type: pa.DataType
    result_type: pa.DataType

    @abstractmethod
    def zero(self, number: int) -> pa.Array:
        """Return the states of `number` groups without rows."""

    @abstractmethod
    def update(self, states: pa.Array, groups: Groups, *values: pa.Array) -> pa.Array:
        """Return the states with rows added to them.

        Parameters
        ----------
        states : pyarrow.Array
            One state for each group.
        groups : array of int64
            The group of each row.
        *values : pyarrow.Array
            The columns that are aggregated, nulls included, one element for each row.
        """

    @abstractmethod
    def merge(self, states: pa.Array, groups: Groups, others: pa.Array) -> pa.Array:
        """Return the states with other states folded in: `others[i]` into `states[groups[i]]`."""

    @abstractmethod
    def finish(self, states: pa.Array) -> pa.Array:
        """Return the result of each group."""

    def for_types(self, *types: pa.DataType) -> Aggregate:
        """Return the aggregate of columns of these types, or raise `BadParameter` if there is none.

        One that takes any types, or whose own types do not depend on them, is returned as it is.
        """
        del types
        return self

    def of(self, *columns: Any) -> Applied:
        """Say which columns are aggregated.

        Parameters
        ----------
        *columns : str or pyspark.sql.Column
            As many as `update` takes values.
        """
        return Applied(self, columns)

    def __repr__(self) -> str:
        """Return how the aggregate was made, as errors and explanations show it."""
        return f"{type(self).__name__}()"


class Applied(NamedTuple):
    """An aggregate of certain columns; `Aggregate.of` makes it."""

    aggregate: Aggregate
    columns: tuple[Any, ...]
