"""Aggregates that let every row through: each comes out with what is known of its key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from unskew.aggregates import Applied
from unskew.errors import BadParameter
from unskew.operators.aggregation import Aggregation
from unskew.operators.base import ROW_HEAD, TIME, Changes, Operator
from unskew.operators.matching import match
from unskew.state.runs import HASH, Hashes, empty, hashes_of


class Passing(Operator):
    """Keep the aggregates of each key over all batches, and let out every row, with them.

    A row has the results of its key after the batch that it came in. Rows wait, as they came, until
    all keys are done; what is sorted and combined is only what the aggregates look at, so that rows
    may be large. A key is whole: what its instances would not know of each other cannot come out
    with a row.

    Parameters
    ----------
    aggregates : mapping of str to Applied
        As of `Aggregation`.

    Examples
    --------
    >>> from unskew.aggregates import count
    >>> from unskew.testing import run
    >>> rows = pa.record_batch({"user": ["a", "b", "a"], "ms": [1, 2, 3]})
    >>> [out.to_pydict() for out in run(Passing({"n": count()}), [rows], "user")]
    [{'user': ['a', 'a', 'b'], 'ms': [1, 3, 2], 'n': [2, 2, 1]}]
    """

    passes: ClassVar[bool] = True

    def __init__(self, aggregates: Mapping[str, Applied]) -> None:
        self.aggregates = dict(aggregates)

    def __repr__(self) -> str:
        """Return what is aggregated."""
        named = ", ".join(f"{name}={each.aggregate!r}" for name, each in self.aggregates.items())
        return f"passing({named})"

    def bind(self, keys: Sequence[pa.Field], values: Sequence[pa.Field]) -> Passing:
        """Return the operator of rows with these columns."""
        bound = Passing(self.aggregates)
        bound.keys, bound.values = tuple(keys), tuple(values)
        taken = {field.name for field in (*keys, *values)}
        twice = sorted(taken & self.aggregates.keys())
        if twice:
            raise BadParameter(
                f"rows have a column {twice[0]!r} already; call the aggregate otherwise"
            )
        looked_at = {column for each in self.aggregates.values() for column in each.columns}
        used = [field for field in values if field.name in looked_at]
        bound._inner = Aggregation(self.aggregates).bind(keys, used)
        bound.state = bound._inner.state
        bound.output = (*keys, *values, *bound._inner.output[len(keys) :])
        bound._taken = [HASH, TIME, *(field.name for field in (*keys, *used))]
        return bound

    _inner: Aggregation
    _taken: list[str]

    @property
    def entry_schema(self) -> pa.Schema:
        """Schema of entries: partial states of each key."""
        return self._inner.entry_schema

    def looked_at(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns that are aggregated, and the keys."""
        return rows.select(self._taken)

    def fold(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the partial states of each key, of rows with the columns of `looked_at`."""
        return self._inner.fold(rows)

    def combine(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Return one partial state for each key."""
        return self._inner.combine(parts)

    def process(self, state: pa.RecordBatch, entries: pa.RecordBatch) -> Changes:
        """Aggregate; what comes out is the results of each entry, for `let_out`."""
        return self._inner.process(state, entries)

    def let_out(
        self, rows: Sequence[pa.RecordBatch], hashes: Hashes, results: pa.RecordBatch
    ) -> Iterator[pa.RecordBatch]:
        """Put the results of each row's key beside it."""
        size = len(self.keys)
        keys = [
            pa.concat_arrays(
                [results.column(place), *(each.column(place + ROW_HEAD) for each in rows)]
            )
            for place in range(size)
        ]
        # Results come first, each key once, so that their places are the numbers of the keys.
        numbers, _ = match(np.concatenate((hashes, *map(hashes_of, rows))), None, keys)
        begin = hashes.size
        for each in rows:
            places = pa.array(numbers[begin : begin + each.num_rows])
            begin += each.num_rows
            known = [column.take(places) for column in results.columns[size:]]
            columns = [*each.columns[ROW_HEAD:], *known]
            yield pa.RecordBatch.from_arrays(columns, schema=pa.schema(list(self.output)))

    def expire(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return nothing: what is kept has no window."""
        return empty(pa.schema(list(self.output)))
