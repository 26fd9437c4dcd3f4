"""Aggregates that let every row through: each comes out with what is known of its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from unskew.aggregates import Applied
from unskew.errors import BadParameter
from unskew.operators.aggregation import Aggregation
from unskew.operators.base import ENTRY_HEAD, ROW_HEAD, Changes, Operator
from unskew.operators.matching import match
from unskew.state.runs import empty, hashes_of


class Passing(Operator):
    """Keep the aggregates of each key over all batches, and let out every row, with them.

    A row has the results of its key after the batch that it came in. Rows are held until their key
    is done, and a key is whole: what its instances would not know of each other cannot come out
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
        bound._inner = Aggregation(self.aggregates).bind(keys, values)
        bound.state = bound._inner.state
        bound.output = (*keys, *values, *bound._inner.output[len(keys) :])
        return bound

    _inner: Aggregation

    def process(self, state: pa.RecordBatch, entries: pa.RecordBatch) -> Changes:
        """Aggregate, and put the results beside the rows."""
        columns = [*entries.columns[:ROW_HEAD], *entries.columns[ENTRY_HEAD:]]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._rows)
        changes = self._inner.process(state, self._inner.fold(rows))
        (results,) = changes.output
        end = ENTRY_HEAD + len(self.keys)
        # As `fold` numbers them.
        numbers, _ = match(hashes_of(entries), None, entries.columns[ENTRY_HEAD:end])
        known = [each.take(pa.array(numbers)) for each in results.columns[len(self.keys) :]]
        out = [*entries.columns[ENTRY_HEAD:], *known]
        made = pa.RecordBatch.from_arrays(out, schema=pa.schema(list(self.output)))
        return Changes(changes.state, [made])

    def expire(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return nothing: what is kept has no window."""
        return empty(pa.schema(list(self.output)))

    @property
    def _rows(self) -> pa.Schema:
        return pa.schema([*list(self.entry_schema)[:ROW_HEAD], *self.keys, *self.values])
