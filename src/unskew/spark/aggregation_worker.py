"""What runs in Spark's Python workers for an aggregate: partial states, and their merge.

Nothing here asks for a session. Arrow types are brought to the declared ones at both edges, since
Spark takes what a task returns by its declared schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from unskew.aggregates import Aggregate
from unskew.aggregates.partial import Use, merge_lists, partial_states
from unskew.spark.collecting import spare_what_is_loaded

Batches = Iterator[pa.RecordBatch]

_OUT_BYTES = 8 << 20


def partial_stage(
    keys: int, value_types: Sequence[pa.DataType], uses: Sequence[Use], states: Sequence[pa.Field]
) -> Callable[[Batches], Batches]:
    """Return the function that makes partial states of the rows of one task.

    Parameters
    ----------
    keys : int
        How many of the columns are keys, which come first.
    value_types : sequence of pyarrow.DataType
        Of the other columns, as the aggregates were made for them.
    uses : sequence of Use
        The aggregates.
    states : sequence of pyarrow.Field
        How Spark takes the states.
    """

    def run(batches: Batches) -> Batches:
        prepared = (_cast(batch, keys, value_types) for batch in batches)
        for made in partial_states(prepared, keys, uses):
            columns = _cast(made, keys, [field.type for field in states]).columns
            names = [*made.schema.names[:keys], *(field.name for field in states)]
            yield from _slices(pa.RecordBatch.from_arrays(columns, names=names))
        spare_what_is_loaded()

    return run


def merge_stage(
    aggregates: Sequence[Aggregate], results: pa.DataType
) -> Callable[[pa.Array], pa.Array]:
    """Return the function from lists of partial states to structs of results.

    Parameters
    ----------
    aggregates : sequence of Aggregate
        In the order of the states.
    results : pyarrow.DataType
        The struct that Spark takes.
    """

    def merge(lists: pa.Array) -> pa.Array:
        merged = merge_lists(lists, aggregates).cast(results)
        spare_what_is_loaded()
        return merged

    return merge


def _cast(batch: pa.RecordBatch, keys: int, kinds: Iterable[pa.DataType]) -> pa.RecordBatch:
    """Return the columns after the keys with other types."""
    others = [
        column if column.type == kind else column.cast(kind)
        for column, kind in zip(batch.columns[keys:], kinds, strict=True)
    ]
    columns = [*batch.columns[:keys], *others]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _slices(batch: pa.RecordBatch) -> Batches:
    """Cut a large batch, so that the JVM never has to hold all of it."""
    rows = max(1, batch.num_rows * _OUT_BYTES // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
