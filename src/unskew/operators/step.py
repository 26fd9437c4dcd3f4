"""A step without state between two stages, in the task of the one before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from unskew.errors import BadOperator
from unskew.state.runs import empty

StepFunction = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Rows in, rows out: as many as it likes, of other columns if it likes."""


class Step:
    """Make other rows of the rows that come out of a stage, where they are.

    The function is called with some of the rows of a task at a time, and again with the same ones
    if the task runs again: it must be pure, and must not depend on how they are cut.

    Parameters
    ----------
    function : callable
        Of a RecordBatch, returns one.
    output : pyarrow.Schema
        Columns that it returns, in any order; types are converted where nothing is lost by it.

    Examples
    --------
    >>> import pyarrow.compute as pc
    >>> def upper(rows):
    ...     return pa.record_batch({"tag": pc.utf8_upper(rows["tag"])})
    >>> Step(upper, pa.schema([("tag", pa.string())]))(pa.record_batch({"tag": ["a"]})).to_pydict()
    {'tag': ['A']}
    """

    def __init__(self, function: StepFunction, output: pa.Schema) -> None:
        self.function = function
        self.output = output

    def __repr__(self) -> str:
        """Return which function it is."""
        return f"step({getattr(self.function, '__name__', self.function)})"

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return what the function makes of some rows.

        Raises
        ------
        BadOperator
            If it raises, or returns other columns than it should.
        """
        try:
            found = self.function(rows)
        except Exception as error:
            raise BadOperator(f"{self!r} raised {type(error).__name__}: {error}") from error
        wanted = ", ".join(f"{field.name}: {field.type}" for field in self.output)
        if not isinstance(found, pa.RecordBatch):
            raise BadOperator(
                f"{self!r} must return a pyarrow.RecordBatch with {wanted}, not {found!r}"
            )
        if sorted(found.schema.names) != sorted(self.output.names):
            raise BadOperator(
                f"{self!r} returned the columns {', '.join(found.schema.names) or 'none'}, and its "
                f"output is to be {wanted}; return those, or name others with output="
            )
        try:
            return found.select(self.output.names).cast(self.output)
        except pa.ArrowException as error:
            raise BadOperator(
                f"{self!r} returned {', '.join(map(str, found.schema))}, which is not {wanted}: "
                f"{error}; cast it, or name another type with output="
            ) from error


def stepped(rows: pa.RecordBatch, steps: Sequence[Step]) -> pa.RecordBatch:
    """Return what steps, one after the other, make of some rows."""
    for step in steps:
        # No function has to know of rows that there are none of.
        rows = step(rows) if rows.num_rows else empty(step.output)
    return rows
