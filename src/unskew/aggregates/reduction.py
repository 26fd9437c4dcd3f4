"""The short way to an aggregate of one's own: a few numbers, each combined by a numpy function."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.aggregates.base import Aggregate, Groups
from unskew.aggregates.entries import without_nulls
from unskew.errors import BadAggregate

Numbers = NDArray[Any]


class Reduction(Aggregate):
    """An aggregate whose state is a few named numbers that are added, or the largest taken, or ...

    Say what the numbers are of a single row, how two of each are combined and what the result is;
    the rest follows. Rows with a null do not count, and a group without rows has `empty` as its
    result. Numbers are combined row after row, so that cutting the rows into calls changes nothing;
    merging adds floats in another order, which can change their last digits.

    Attributes
    ----------
    numbers : mapping of str to (numpy.ufunc, first value)
        The function that combines two of this number, associative and commutative, and its neutral
        value, whose type is that of the number: ``{"total": (np.add, 0.0)}``.
    result_type : pyarrow.DataType, default float64
        Of the result.
    empty : object, default None
        The result of a group without rows; None is null.

    Examples
    --------
    >>> class Mean(Reduction):
    ...     numbers = {"total": (np.add, 0.0), "rows": (np.add, 0)}
    ...     def of_rows(self, values):
    ...         return values, np.ones(values.size, dtype=np.int64)
    ...     def result(self, total, rows):
    ...         return total / rows
    >>> mean = Mean()
    >>> values = pa.array([1.0, 2.0, None])
    >>> states = mean.update(mean.zero(2), np.array([0, 0, 1]), values)
    >>> mean.finish(states).to_pylist()
    [1.5, None]
    """

    numbers: ClassVar[Mapping[str, tuple[np.ufunc, float]]]
    result_type = pa.float64()
    empty: ClassVar[Any] = None

    def __init_subclass__(cls) -> None:
        """Set the type of the states: the numbers, and how many rows there were."""
        super().__init_subclass__()
        if hasattr(cls, "numbers"):
            own = [(name, pa.array([first]).type) for name, (_, first) in cls.numbers.items()]
            cls.state_type = pa.struct([*own, ("rows_seen", pa.int64())])

    @abstractmethod
    def of_rows(self, *values: Numbers) -> Numbers | tuple[Numbers, ...]:
        """Return each number of every row, in the order of `numbers`: one array, or a tuple."""

    @abstractmethod
    def result(self, *numbers: Numbers) -> Numbers | pa.Array:
        """Return the results of groups from their numbers, in the order of `numbers`."""

    def zero(self, number: int) -> pa.Array:
        """Return the neutral numbers."""
        own = [np.full(number, first) for _, first in self.numbers.values()]
        return self._states([*own, np.zeros(number, dtype=np.int64)])

    def update(self, states: pa.Array, groups: Groups, *values: pa.Array) -> pa.Array:
        """Combine the numbers of the rows with the states."""
        groups, columns = without_nulls(groups, *values)
        own = self.of_rows(*(column.to_numpy(zero_copy_only=False) for column in columns))
        rows = own if isinstance(own, tuple) else (own,)
        self._check(rows, groups.size)
        return self._combined(states, groups, [*rows, np.ones(groups.size, dtype=np.int64)])

    def merge(self, states: pa.Array, groups: Groups, others: pa.Array) -> pa.Array:
        """Combine the numbers of other states with the states."""
        return self._combined(states, groups, _columns(others))

    def finish(self, states: pa.Array) -> pa.Array:
        """Return the results."""
        *own, seen = _columns(states)
        with np.errstate(all="ignore"):
            results = self.result(*own)
        if not isinstance(results, pa.Array):
            results = pa.array(results, from_pandas=False)
        if results.type != self.result_type:
            try:
                results = results.cast(self.result_type)
            except pa.ArrowException as error:
                raise BadAggregate(
                    f"result returned {results.type}, which is no {self.result_type}, its "
                    f"result_type; cast it, or change result_type"
                ) from error
        if len(results) != len(states):
            raise BadAggregate(
                f"result returned {len(results)} elements for {len(states)} groups; return one "
                f"for each"
            )
        without = pa.array(seen == 0)
        return pc.if_else(without, pa.scalar(self.empty, self.result_type), results)

    def _check(self, rows: tuple[Any, ...], number: int) -> None:
        """Refuse numbers that are too few, too short, or would be cut to fit."""
        if len(rows) != len(self.numbers):
            raise BadAggregate(
                f"of_rows returned {len(rows)} arrays; return one for each of "
                f"{', '.join(self.numbers)}"
            )
        for (name, (_, first)), given in zip(self.numbers.items(), rows, strict=True):
            if not isinstance(given, np.ndarray) or given.shape != (number,):
                shape = getattr(given, "shape", type(given).__name__)
                raise BadAggregate(
                    f"of_rows returned {shape} for {name!r}; return an array of {number}, one for "
                    f"each row"
                )
            kept = np.array(first).dtype
            if given.dtype == object or not np.can_cast(given.dtype, kept, "same_kind"):
                raise BadAggregate(
                    f"of_rows returned {given.dtype} for {name!r}, whose first value {first!r} "
                    f"makes it {kept}; write {float(first)!r} for fractions, or convert"
                )

    def _combined(self, states: pa.Array, groups: Groups, added: list[Numbers]) -> pa.Array:
        columns = [column.copy() for column in _columns(states)]
        functions = [*(function for function, _ in self.numbers.values()), np.add]
        for function, column, numbers in zip(functions, columns, added, strict=True):
            function.at(column, groups, numbers)
        return self._states(columns)

    def _states(self, columns: list[Numbers]) -> pa.Array:
        arrays = [pa.array(column, from_pandas=False) for column in columns]
        return pa.StructArray.from_arrays(arrays, fields=list(self.state_type))


def _columns(states: pa.Array) -> list[Numbers]:
    return [states.field(i).to_numpy() for i in range(states.type.num_fields)]
