"""Run an aggregate and see that each of its methods keeps the contract."""

from __future__ import annotations

import traceback
from typing import Any

import pyarrow as pa

from unskew.aggregates.base import Aggregate, Groups
from unskew.errors import BadAggregate


class Checked(Aggregate):
    """Another aggregate, with errors that name it, the method, and what came back.

    Parameters
    ----------
    name : str
        What the result is called.
    aggregate : Aggregate
        The one to run; its types must be known.

    Examples
    --------
    >>> from unskew.aggregates import quantiles
    >>> Checked("middle", quantiles(0.5)).zero(2).type == quantiles(0.5).state_type
    True
    """

    def __init__(self, name: str, aggregate: Aggregate) -> None:
        self.name = name
        self.aggregate = aggregate
        for kind in ("state_type", "result_type"):
            given = getattr(aggregate, kind, None)
            if not isinstance(given, pa.DataType):
                raise BadAggregate(
                    f"{kind} of {self._title} must be a pyarrow.DataType, not {given!r}; set it as "
                    f"an attribute, or return an aggregate that has it from for_types"
                )
        self.state_type = aggregate.state_type
        self.result_type = aggregate.result_type

    def zero(self, number: int) -> pa.Array:
        """Return what the aggregate returns."""
        return self._run("zero", self.state_type, number, number)

    def update(self, states: pa.Array, groups: Groups, *values: pa.Array) -> pa.Array:
        """Return what the aggregate returns."""
        return self._run("update", self.state_type, len(states), states, groups, *values)

    def merge(self, states: pa.Array, groups: Groups, others: pa.Array) -> pa.Array:
        """Return what the aggregate returns."""
        return self._run("merge", self.state_type, len(states), states, groups, others)

    def finish(self, states: pa.Array) -> pa.Array:
        """Return what the aggregate returns."""
        return self._run("finish", self.result_type, len(states), states)

    @property
    def _title(self) -> str:
        return f"the aggregate {self.aggregate!r} of {self.name!r}"

    def _run(self, method: str, kind: pa.DataType, length: int, *arguments: Any) -> pa.Array:
        try:
            returned = getattr(self.aggregate, method)(*arguments)
        except Exception as error:
            raise BadAggregate(
                f"{method} of {self._title} raised {type(error).__name__}: {error} "
                f"({_place(error)}); it was given {', '.join(map(_describe, arguments))}"
            ) from error
        if not isinstance(returned, pa.Array):
            raise BadAggregate(
                f"{method} of {self._title} must return a pyarrow.Array of {kind}, not "
                f"{_describe(returned)}; convert with pyarrow.array"
            )
        if returned.type != kind:
            declared = "result_type" if method == "finish" else "state_type"
            raise BadAggregate(
                f"{method} of {self._title} must return {kind}, its {declared}, not "
                f"{returned.type}; cast it, or change {declared}"
            )
        if len(returned) != length:
            raise BadAggregate(
                f"{method} of {self._title} must return one element for each of {length} groups, "
                f"not {len(returned)}"
            )
        return returned


def _place(error: BaseException) -> str:
    """Return the file and line of an error: Spark shows only the last of several tracebacks."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}, line {frame.lineno}"


def _describe(thing: Any) -> str:
    """Return the type of an argument and how long it is."""
    if isinstance(thing, int):
        return str(thing)
    kind = getattr(thing, "type", None) or getattr(thing, "dtype", None)
    title = type(thing).__name__ if kind is None else f"{type(thing).__name__} of {kind}"
    return f"{title}, {len(thing)} long" if hasattr(thing, "__len__") else title
