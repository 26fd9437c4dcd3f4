"""Aggregates as an operator: the state of a key is that of its aggregates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.aggregates import Aggregate, Applied
from unskew.aggregates.checked import Checked
from unskew.errors import BadParameter, UnknownColumn
from unskew.operators.base import (
    ENTRY_HEAD,
    FINAL,
    PART_HEAD,
    ROW_HEAD,
    ROWS,
    TIME,
    TOUCHED,
    Changes,
    Operator,
)
from unskew.operators.matching import match, select
from unskew.parameters import one_of
from unskew.state.runs import EXPIRES, HASH, NEVER, RUN_HEAD, empty, hashes_of

MODES = ("update", "append")


class Aggregation(Operator):
    """Keep the aggregates of each key, or of each key and window, over all batches.

    Parameters
    ----------
    aggregates : mapping of str to Applied
        Name of each result and what it is: ``{"n": count(), "p99": quantiles(0.99).of("ms")}``.
    mode : {"update", "append"}, default "update"
        Whether the keys that a batch changed come out, or each window once, when it is final.
    windowed : bool, default False
        Whether the keys have a window among them, whose end is the time of a row.

    Examples
    --------
    >>> from unskew.aggregates import count
    >>> from unskew.testing import run
    >>> rows = pa.record_batch({"user": ["a", "b", "a"]})
    >>> batches = run(Aggregation({"n": count()}), [rows, rows.slice(1, 1)], keys=["user"])
    >>> [batch.to_pydict() for batch in batches]
    [{'user': ['a', 'b'], 'n': [2, 1]}, {'user': ['b'], 'n': [2]}]
    """

    can_split: ClassVar[bool] = True

    def __init__(
        self,
        aggregates: Mapping[str, Applied],
        *,
        mode: str = "update",
        windowed: bool = False,
    ) -> None:
        one_of("mode", mode, MODES)
        if mode == "append" and not windowed:
            raise BadParameter(
                'mode "append" gives what is final, and without a window nothing ever is; give '
                'a window, or use "update"'
            )
        self.aggregates = dict(aggregates)
        self.mode = mode
        self.windowed = windowed

    def __repr__(self) -> str:
        """Return what is aggregated."""
        named = ", ".join(f"{name}={each.aggregate!r}" for name, each in self.aggregates.items())
        return f"aggregation({named}, mode={self.mode!r}, windowed={self.windowed})"

    def bind(self, keys: Sequence[pa.Field], values: Sequence[pa.Field]) -> Aggregation:
        """Return the operator of rows with these columns."""
        bound = Aggregation(self.aggregates, mode=self.mode, windowed=self.windowed)
        bound.keys, bound.values = tuple(keys), tuple(values)
        places = {field.name: place for place, field in enumerate(values)}
        bound._parts = []
        for name, (aggregate, columns) in self.aggregates.items():
            unknown = [column for column in columns if column not in places]
            if unknown:
                raise UnknownColumn(
                    f"{name!r} aggregates column {unknown[0]!r}, but there are only "
                    f"{', '.join(map(repr, places)) or 'the keys'}"
                )
            own = tuple(places[column] for column in columns)
            made = aggregate.for_types(*(values[place].type for place in own))
            bound._parts.append((Checked(name, made), own))
        bound.state = tuple(
            pa.field(f"state_{name}", part.state_type)
            for name, (part, _) in zip(self.aggregates, bound._parts, strict=True)
        )
        results = [
            pa.field(name, part.result_type)
            for name, (part, _) in zip(self.aggregates, bound._parts, strict=True)
        ]
        bound.output = (*keys, *results)
        return bound

    _parts: list[tuple[Aggregate, tuple[int, ...]]]

    @property
    def entry_schema(self) -> pa.Schema:
        """Schema of entries: partial states of each key."""
        head = [pa.field(HASH, pa.uint64()), pa.field(TIME, pa.int64()), pa.field(ROWS, pa.int64())]
        return pa.schema([*head, *self.keys, *self.state])

    def fold(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the partial states of each key."""
        first_value = ROW_HEAD + len(self.keys)
        keys, values = rows.columns[ROW_HEAD:first_value], rows.columns[first_value:]
        numbers, first = match(hashes_of(rows), self._times(rows), keys)
        states = [
            part.update(part.zero(first.size), numbers, *(values[place] for place in places))
            for part, places in self._parts
        ]
        head = select(rows.select(range(first_value)), first).columns
        sizes = pa.array(np.bincount(numbers, minlength=first.size))
        columns = [*head[:ROW_HEAD], sizes, *head[ROW_HEAD:], *states]
        return pa.RecordBatch.from_arrays(columns, schema=self.entry_schema)

    def combine(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Return one partial state for each key."""
        if len(parts) < 2:
            return parts[0] if parts else empty(self.entry_schema)
        rows = pa.concat_batches(parts)
        numbers, first = match(
            hashes_of(rows), self._times(rows), rows.columns[ENTRY_HEAD : -len(self.state)]
        )
        if first.size == rows.num_rows:
            return rows
        states = self._merged(first.size, numbers, rows.columns[-len(self.state) :])
        sizes = np.zeros(first.size, dtype=np.int64)
        np.add.at(sizes, numbers, rows.column(ROWS).to_numpy())
        head = select(rows.select(range(ENTRY_HEAD + len(self.keys))), first).columns
        columns = [*head[:ROW_HEAD], pa.array(sizes), *head[ENTRY_HEAD:], *states]
        return pa.RecordBatch.from_arrays(columns, schema=self.entry_schema)

    def process(self, state: pa.RecordBatch, entries: pa.RecordBatch) -> Changes:
        """Merge the partial states into those that are kept."""
        expires = self._expiry(entries)
        new_keys, new_states = self._parted(entries, ENTRY_HEAD)
        if not state.num_rows:
            run = self._run(hashes_of(entries), expires, new_keys, new_states)
            return Changes(run, [self._results(new_keys, new_states)])
        old_keys, old_states = self._parted(state, RUN_HEAD)
        hashes = np.concatenate((hashes_of(entries), hashes_of(state)))
        expires = np.concatenate((expires, state.column(EXPIRES).to_numpy()))
        keys = [pa.concat_arrays(pair) for pair in zip(new_keys, old_keys, strict=True)]
        numbers, first = match(hashes, expires if self.windowed else None, keys)
        # Combined entries are distinct, so that they have the numbers from 0 up.
        new = entries.num_rows
        states = [
            part.merge(pa.concat_arrays([mine, part.zero(first.size - new)]), numbers[new:], kept)
            for (part, _), mine, kept in zip(self._parts, new_states, old_states, strict=True)
        ]
        firsts = pa.array(first)
        keys = [key.take(firsts) for key in keys]
        run = self._run(hashes[first], expires[first], keys, states)
        results = self._results([key[:new] for key in keys], [each[:new] for each in states])
        return Changes(run, [results])

    def expire(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the final results, if they are asked for."""
        keys, states = self._parted(rows, RUN_HEAD)
        return self._finished(keys, states) if self.mode == "append" else empty(self._out)

    def entries_of(self, runs: pa.RecordBatch) -> pa.RecordBatch:
        """Return states as partial states."""
        times = runs.column(EXPIRES).to_numpy() if self.windowed else np.zeros(runs.num_rows)
        columns = [
            runs.column(HASH),
            pa.array(times.astype(np.int64)),
            pa.array(np.zeros(runs.num_rows, dtype=np.int64)),
            *self.kept_columns(runs),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.entry_schema)

    def merge(self, parts: pa.RecordBatch) -> pa.RecordBatch:
        """Merge the parts of each key; return the results that a batch changed or made final."""
        keys, states = self._parted(parts, PART_HEAD)
        expires = parts.column(EXPIRES).to_numpy() if self.windowed else None
        numbers, first = match(hashes_of(parts), expires, keys)
        column = TOUCHED if self.mode == "update" else FINAL
        marked = parts.column(column).to_numpy(zero_copy_only=False)
        comes = np.zeros(first.size, dtype=np.bool_)
        comes[numbers[marked]] = True
        merged = self._merged(first.size, numbers, states)
        chosen = pa.array(np.flatnonzero(comes))
        firsts = pa.array(first[comes])
        return self._finished(
            [key.take(firsts) for key in keys], [each.take(chosen) for each in merged]
        )

    def _parted(self, batch: pa.RecordBatch, head: int) -> tuple[list[pa.Array], list[pa.Array]]:
        """Return the keys and the states of entries, runs or parts."""
        end = head + len(self.keys)
        return batch.columns[head:end], batch.columns[end:]

    @property
    def _out(self) -> pa.Schema:
        return pa.schema(list(self.output))

    def _times(self, rows: pa.RecordBatch) -> NDArray[np.int64] | None:
        if not self.windowed:
            return None
        found: NDArray[np.int64] = rows.column(TIME).to_numpy()
        return found

    def _expiry(self, entries: pa.RecordBatch) -> NDArray[np.int64]:
        times = self._times(entries)
        return np.full(entries.num_rows, NEVER) if times is None else times

    def _merged(
        self, number: int, groups: NDArray[np.int64], states: Sequence[pa.Array]
    ) -> list[pa.Array]:
        return [
            part.merge(part.zero(number), groups, each)
            for (part, _), each in zip(self._parts, states, strict=True)
        ]

    def _run(
        self,
        hashes: NDArray[np.uint64],
        expires: NDArray[np.int64],
        keys: Sequence[pa.Array],
        states: Sequence[pa.Array],
    ) -> pa.RecordBatch:
        gone = pa.array(np.zeros(hashes.size, dtype=np.bool_))
        columns = [pa.array(hashes), gone, pa.array(expires), *keys, *states]
        return pa.RecordBatch.from_arrays(columns, schema=self.run_schema)

    def _results(self, keys: Sequence[pa.Array], states: Sequence[pa.Array]) -> pa.RecordBatch:
        return self._finished(keys, states) if self.mode == "update" else empty(self._out)

    def _finished(self, keys: Sequence[pa.Array], states: Sequence[pa.Array]) -> pa.RecordBatch:
        results = [part.finish(each) for (part, _), each in zip(self._parts, states, strict=True)]
        return pa.RecordBatch.from_arrays([*keys, *results], schema=self._out)
