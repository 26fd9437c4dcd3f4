"""Aggregate in two steps: partial states wherever the rows are, then one merge of them.

Neither step knows of Spark. Both take columns in a fixed order: the keys first, then values or
states.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import pyarrow as pa

from unskew.aggregates.base import Aggregate
from unskew.aggregates.entries import owners
from unskew.aggregates.numbering import number_rows

MOST_BYTES = 64 << 20
"""States to hold before they are handed on."""

_CHUNK_ROWS, _CHUNK_BYTES = 1 << 16, 16 << 20


class Use(NamedTuple):
    """An aggregate and the places of its columns among the values."""

    aggregate: Aggregate
    places: tuple[int, ...]


def partial_states(
    batches: Iterable[pa.RecordBatch], keys: int, uses: Sequence[Use], most_bytes: int = MOST_BYTES
) -> Iterator[pa.RecordBatch]:
    """Return the states of each combination of keys, the keys beside them.

    Memory is bounded by `most_bytes`, whatever the number of keys: what has been gathered then is
    handed on, and a key that comes again gets another partial state.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
        Key columns, then value columns.
    keys : int
        How many of the columns are keys.
    uses : sequence of Use
        The aggregates.
    most_bytes : int
        Size of the states to hold.

    Examples
    --------
    >>> from unskew.aggregates import collect
    >>> rows = pa.record_batch({"key": ["a", "b", "a"], "value": [1, 2, 1]})
    >>> use = Use(collect(9).for_types(pa.int64()), (0,))
    >>> next(partial_states([rows], 1, [use])).to_pydict()
    {'key': ['a', 'b'], '0': [[1, 1], [2]]}
    """
    held: list[pa.RecordBatch] = []
    size = merged_rows = 0
    for chunk in _chunks(batches):
        begun = _begin(chunk, keys, uses)
        held.append(begun)
        size += begun.nbytes
        # Merging costs as much as all that is held, so that has to have doubled since.
        if size > most_bytes or _rows(held) > 2 * merged_rows + _CHUNK_ROWS:
            held = [_merge(held, keys, uses)]
            size, merged_rows = held[0].nbytes, held[0].num_rows
            if size > most_bytes // 2:
                yield held[0]
                held, size, merged_rows = [], 0, 0
    if held:
        yield _merge(held, keys, uses)


def merge_lists(lists: pa.Array, aggregates: Sequence[Aggregate]) -> pa.Array:
    """Return one struct of results for each list of partial states.

    Parameters
    ----------
    lists : list array of struct
        The states of all aggregates, side by side; one list for each group.
    aggregates : sequence of Aggregate
        In the order of the fields.

    Examples
    --------
    >>> from unskew.aggregates import collect
    >>> lists = pa.array([[{"s": [1]}, {"s": [1]}], [{"s": [2]}]])
    >>> merge_lists(lists, [collect(9).for_types(pa.int64())]).to_pylist()
    [{'0': [1, 1]}, {'0': [2]}]
    """
    rows = max(1, len(lists) * _CHUNK_BYTES // max(1, lists.nbytes))
    fields = [pa.field(str(i), each.result_type) for i, each in enumerate(aggregates)]
    parts = [
        pa.StructArray.from_arrays(
            _merged_results(lists.slice(start, rows), aggregates), fields=fields
        )
        for start in range(0, len(lists), rows)
    ]
    return pa.concat_arrays(parts) if parts else pa.array([], pa.struct(fields))


def _merged_results(lists: pa.Array, aggregates: Sequence[Aggregate]) -> list[pa.Array]:
    groups, flat = owners(lists), lists.flatten()
    results = []
    for i, each in enumerate(aggregates):
        others = flat.field(i).cast(each.state_type)
        results.append(each.finish(each.merge(each.zero(len(lists)), groups, others)))
    return results


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put small batches together and cut large ones, so that each call has enough to do."""
    waiting: list[pa.RecordBatch] = []
    for batch in chain.from_iterable(map(_cut, batches)):
        waiting.append(batch)
        if _rows(waiting) >= _CHUNK_ROWS or sum(each.nbytes for each in waiting) >= _CHUNK_BYTES:
            yield _together(waiting)
            waiting = []
    if _rows(waiting):
        yield _together(waiting)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, _CHUNK_ROWS):
        yield batch.slice(start, _CHUNK_ROWS)


def _begin(rows: pa.RecordBatch, keys: int, uses: Sequence[Use]) -> pa.RecordBatch:
    """Return the states of the groups of one chunk."""
    numbers, first = number_rows(rows.columns[:keys], rows.num_rows)
    values = rows.columns[keys:]
    states = [
        use.aggregate.update(
            use.aggregate.zero(first.size), numbers, *(values[place] for place in use.places)
        )
        for use in uses
    ]
    return _beside(rows.select(range(keys)).take(pa.array(first)), states)


def _merge(held: list[pa.RecordBatch], keys: int, uses: Sequence[Use]) -> pa.RecordBatch:
    """Return one state for each combination of keys."""
    if len(held) == 1:
        return held[0]
    rows = _together(held)
    numbers, first = number_rows(rows.columns[:keys], rows.num_rows)
    states = [
        use.aggregate.merge(use.aggregate.zero(first.size), numbers, others)
        for use, others in zip(uses, rows.columns[keys:], strict=True)
    ]
    return _beside(rows.select(range(keys)).take(pa.array(first)), states)


def _beside(keys: pa.RecordBatch, states: list[pa.Array]) -> pa.RecordBatch:
    names = [*keys.schema.names, *(str(i) for i in range(len(states)))]
    return pa.RecordBatch.from_arrays([*keys.columns, *states], names=names)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches)


def _rows(batches: list[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)
