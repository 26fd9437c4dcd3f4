"""A function of the user's own on the rows of one key and its state."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.errors import BadOperator, BadParameter
from unskew.operators.base import ENTRY_HEAD, TIME, Changes, Operator
from unskew.operators.matching import match, select
from unskew.parameters import number
from unskew.state.runs import EXPIRES, NEVER, RUN_HEAD, empty, hashes_of

Rows = Any
"""A list of dicts, a pyarrow table or batch, or None."""

Function = Callable[[dict[str, Any], pa.RecordBatch, dict[str, Any] | None], Any]
Expired = Callable[[dict[str, Any], dict[str, Any]], Rows]


class PerKey(Operator):
    """Call a function once for every key of a batch, with its rows and its state.

    The function is Python and is called key by key: prefer aggregates where they do. It must depend
    on its arguments alone, as a lost task is run again. Rows of a key come in no certain order.

    Parameters
    ----------
    function : callable
        ``function(key, rows, state) -> (state, output)``. `key` is a dict, `rows` a
        pyarrow.RecordBatch of the values, `state` a dict or None if there is none; the new state is
        a dict, or None to forget the key; the output is a list of dicts, a table, or None.
    state, output : pyarrow.Schema
        Columns of the state, and of what comes out.
    ttl : float, optional
        Seconds of event time after the last row of a key until its state expires.
    expired : callable, optional
        ``expired(key, state) -> output`` when it does.

    Examples
    --------
    >>> from unskew.testing import run
    >>> def largest(key, rows, state):
    ...     most = max([*rows["ms"].to_pylist(), state["most"] if state else 0])
    ...     return {"most": most}, [{"user": key["user"], "most": most}]
    >>> schema = pa.schema({"most": pa.int64()})
    >>> operator = PerKey(largest, state=schema, output=pa.schema({"user": pa.string(), **{
    ...     "most": pa.int64()}}))
    >>> rows = pa.record_batch({"user": ["a", "b", "a"], "ms": [1, 2, 3]})
    >>> [batch.to_pydict() for batch in run(operator, [rows], keys=["user"])]
    [{'user': ['a', 'b'], 'most': [3, 2]}]
    """

    def __init__(
        self,
        function: Function,
        *,
        state: pa.Schema,
        output: pa.Schema,
        ttl: float | None = None,
        expired: Expired | None = None,
    ) -> None:
        if not callable(function):
            raise BadParameter(f"per_key needs a function of key, rows and state, not {function!r}")
        if expired is not None and ttl is None:
            raise BadParameter("expired is called when state expires, which it only does with ttl=")
        self.function = function
        self.ttl = None if ttl is None else number("ttl", ttl, above=0)
        self.expired = expired
        self.state, self.output = tuple(state), tuple(output)

    def __repr__(self) -> str:
        """Return what tells it from others."""
        named = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"per_key({named.rpartition('.')[2]}, ttl={self.ttl})"

    @property
    def kind(self) -> str:
        """What a checkpoint must agree with: the function may be changed and renamed."""
        return "per_key"

    def bind(self, keys: Sequence[pa.Field], values: Sequence[pa.Field]) -> PerKey:
        """Return the operator of rows with these columns."""
        bound = PerKey(
            self.function,
            state=pa.schema(self.state),
            output=pa.schema(self.output),
            ttl=self.ttl,
            expired=self.expired,
        )
        bound.keys, bound.values = tuple(keys), tuple(values)
        taken = {field.name for field in keys} & {field.name for field in self.state}
        if taken:
            raise BadParameter(
                f"state and keys both have {sorted(taken)}; call the state otherwise"
            )
        return bound

    def process(self, state: pa.RecordBatch, entries: pa.RecordBatch) -> Changes:
        """Call the function for each key."""
        width = len(self.keys)
        new = entries.num_rows
        keys = [
            pa.concat_arrays([entries.column(ENTRY_HEAD + i), state.column(RUN_HEAD + i)])
            for i in range(width)
        ]
        hashes = np.concatenate((hashes_of(entries), hashes_of(state)))
        numbers, first = match(hashes, None, keys)
        names = pa.RecordBatch.from_arrays(keys, schema=pa.schema(self.keys))
        texts = select(names, first).to_pylist()
        kept = dict(zip(numbers[new:].tolist(), self._states(state), strict=True))
        expires = dict(zip(numbers[new:].tolist(), state.column(EXPIRES).to_pylist(), strict=True))
        times = entries.column(TIME).to_numpy()
        values = pa.RecordBatch.from_arrays(
            entries.columns[ENTRY_HEAD + width :], schema=pa.schema(self.values)
        )
        outputs = []
        for group, rows in _groups(numbers[:new]):
            # A copy, as the function may change what it is given.
            key = dict(texts[group])
            kept[group], output = self._call(key, select(values, rows), kept.get(group))
            outputs.append(self._rows(output))
            if self.ttl is not None:
                last = int(times[rows].max()) + round(self.ttl * 1e6)
                expires[group] = max(last, expires.get(group, last))
        left = sorted(kept)
        run = self._run(
            hashes[first[left]],
            [kept[group] for group in left],
            [expires.get(group, NEVER) for group in left],
            [texts[group] for group in left],
        )
        return Changes(run, [_concat(outputs, pa.schema(self.output))])

    def expire(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Call the user's other function for each key."""
        schema = pa.schema(self.output)
        if self.expired is None:
            return empty(schema)
        width = len(self.keys)
        names = pa.RecordBatch.from_arrays(
            rows.columns[RUN_HEAD : RUN_HEAD + width], schema=pa.schema(self.keys)
        )
        outputs = []
        for key, state in zip(names.to_pylist(), self._states(rows), strict=True):
            try:
                output = self.expired(key, state)
            except Exception as error:
                raise BadOperator(
                    f"expired of {self!r} raised {type(error).__name__}: {error}, {_place(error)}; "
                    f"the key is {key}"
                ) from error
            outputs.append(self._rows(output))
        return _concat(outputs, schema)

    def _call(
        self, key: dict[str, Any], rows: pa.RecordBatch, state: dict[str, Any] | None
    ) -> tuple[dict[str, Any] | None, Rows]:
        try:
            answer = self.function(key, rows, state)
        except Exception as error:
            raise BadOperator(
                f"{self!r} raised {type(error).__name__}: {error}, {_place(error)}; the key is "
                f"{key}"
            ) from error
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise BadOperator(f"{self!r} must return (state, output), not {answer!r}; key {key}")
        new, output = answer
        if new is not None and not isinstance(new, Mapping):
            raise BadOperator(
                f"{self!r} must return a dict or None as state, not {new!r}; key {key}"
            )
        unknown = set(new or ()) - {field.name for field in self.state}
        if unknown:
            raise BadOperator(
                f"{self!r} returned a state with {sorted(unknown)}, which is not among "
                f"{_text(self.state)}; key {key}"
            )
        return None if new is None else dict(new), output

    def _rows(self, output: Rows) -> pa.RecordBatch:
        schema = pa.schema(self.output)
        if output is None:
            return empty(schema)
        try:
            if isinstance(output, pa.Table):
                return output.select(schema.names).cast(schema).combine_chunks().to_batches()[0]
            if isinstance(output, pa.RecordBatch):
                return output.select(schema.names).cast(schema)
            rows = list(output)
            if not all(isinstance(row, Mapping) for row in rows):
                raise TypeError("its rows are no dicts")
            unknown = {name for row in rows for name in row} - set(schema.names)
            if unknown:
                raise KeyError(f"there is no column {', '.join(map(repr, sorted(unknown)))}")
            return pa.RecordBatch.from_pylist(rows, schema)
        except (pa.ArrowException, KeyError, TypeError, AttributeError, IndexError) as error:
            raise BadOperator(
                f"{self!r} returned {output!r} as output, which is no list of dicts with "
                f"{_text(self.output)}: {error}"
            ) from error

    def _states(self, run: pa.RecordBatch) -> list[dict[str, Any]]:
        columns = run.columns[RUN_HEAD + len(self.keys) :]
        return list(pa.RecordBatch.from_arrays(columns, schema=pa.schema(self.state)).to_pylist())

    def _run(
        self,
        hashes: NDArray[np.uint64],
        states: list[dict[str, Any] | None],
        expires: list[int],
        keys: list[dict[str, Any]],
    ) -> pa.RecordBatch:
        """Return the states as a run; a key without one is gone, unless its hash has another."""
        has = np.array([state is not None for state in states], dtype=np.bool_)
        alone = ~np.isin(hashes, hashes[has])
        # Of a hash of which nothing is left one row says so.
        _, once = np.unique(hashes, return_index=True)
        marks = np.zeros(hashes.size, dtype=np.bool_)
        marks[once] = True
        rows = np.flatnonzero(has | (alone & marks))
        try:
            kept = pa.RecordBatch.from_pylist(
                [states[row] or {} for row in rows.tolist()], pa.schema(self.state)
            )
        except (pa.ArrowException, TypeError) as error:
            raise BadOperator(
                f"{self!r} returned a state that is not {_text(self.state)}: {error}"
            ) from error
        named = pa.RecordBatch.from_pylist(
            [keys[row] for row in rows.tolist()], pa.schema(self.keys)
        )
        columns = [
            pa.array(hashes[rows]),
            pa.array(~has[rows]),
            pa.array(np.array(expires, dtype=np.int64)[rows]),
            *named.columns,
            *kept.columns,
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.run_schema)


def _place(error: Exception) -> str:
    """Return where in the user's code an error was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"at {frame.filename}:{frame.lineno} in {frame.name}"


def _text(fields: Sequence[pa.Field]) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in fields)


def _groups(numbers: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    """Return each number with the rows that have it."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    groups = ordered[starts].tolist()
    return list(zip(groups, np.split(order, starts[1:]), strict=True)) if groups else []


def _concat(parts: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    return pa.concat_batches(parts) if parts else empty(schema)
