"""What is asked of `aggregate`, checked and resolved before anything is built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from unskew.aggregates import Aggregate, Applied
from unskew.aggregates.checked import Checked
from unskew.aggregates.partial import Use
from unskew.errors import BadParameter
from unskew.spark.columns import check_known, check_names, key_columns

_WINDOW, _SESSION, _WATERMARK = "spark.timeWindow", "spark.sessionWindow", "spark.watermarkDelayMs"


class Request(NamedTuple):
    """An aggregation whose columns and types are known.

    Attributes
    ----------
    keys, key_fields
        The window, if there is one, and the keys.
    native
        Spark's own aggregates by name.
    ours
        The others by name, each with the places of its columns among `values`.
    values, value_types
        The columns that are aggregated.
    names
        Of the results, as they were asked.
    """

    keys: list[Column]
    key_fields: list[StructField]
    native: dict[str, Column]
    ours: dict[str, Use]
    values: list[Column]
    value_types: list[pa.DataType]
    names: list[str]

    @property
    def key_names(self) -> list[str]:
        """How the keys are called in the result."""
        return [field.name for field in self.key_fields]

    @property
    def plain_key_names(self) -> list[str]:
        """The same without the window."""
        return [field.name for field in self.key_fields if _WINDOW not in field.metadata]

    @property
    def has_window(self) -> bool:
        """Whether one of the keys is a window of time."""
        return any(_WINDOW in field.metadata for field in self.key_fields)

    @property
    def has_watermark(self) -> bool:
        """Whether Spark knows when a group is final: one of the keys has a watermark."""
        return any(_WATERMARK in field.metadata for field in self.key_fields)


def resolved(
    df: DataFrame,
    keys: str | Column | Sequence[str | Column],
    aggregates: Mapping[str, Applied | Column],
    window: Column | None,
) -> Request:
    """Return what is asked, or raise an error that names what does not fit."""
    given: list[Any] = [keys] if isinstance(keys, str | Column) else list(keys)
    if window is not None:
        if not isinstance(window, Column):
            raise BadParameter(_WINDOW_IS.format(repr(window)))
        given = [window, *given]
    columns = key_columns(df, tuple(given))
    key_fields = list(df.select(*columns).schema)
    _check_sessions(key_fields)
    if window is not None:
        _check_window(window, key_fields[0])
    native, applied = _parted(aggregates, [field.name for field in key_fields])
    values, places = _values(applied)
    names = [each for one in applied.values() for each in one.columns if isinstance(each, str)]
    fields = _value_fields(df, values, names)
    value_types = [_arrow_of(field, "the column") for field in fields]
    if applied:
        for field in key_fields:
            _arrow_of(field, "the key")
    ours = {
        name: _use(name, each.aggregate, places[name], value_types)
        for name, each in applied.items()
    }
    return Request(columns, key_fields, native, ours, values, value_types, list(aggregates))


def arrow_type(kind: DataType) -> pa.DataType:
    """Return how Spark hands a type to Python; times are in UTC, as they are inside Spark."""
    return to_arrow_type(kind, timezone="UTC")


def _parted(aggregates: Any, taken: list[str]) -> tuple[dict[str, Column], dict[str, Applied]]:
    """Return Spark's own aggregates and the others."""
    if not isinstance(aggregates, Mapping) or not aggregates:
        raise BadParameter(
            f"aggregates must be a dict of at least one name and aggregate, not {aggregates!r}"
        )
    for name in aggregates:
        if not isinstance(name, str):
            raise BadParameter(f"the name of a result must be a str, not {name!r}")
    names = [*taken, *aggregates]
    # Spark does not tell upper case from lower case.
    spelt = [name.lower() for name in names]
    for name in names:
        if spelt.count(name.lower()) > 1:
            raise BadParameter(
                f"two columns of the result would be named {name!r}; call the aggregate otherwise, "
                f"or the key: F.col({name!r}).alias(...)"
            )
    native: dict[str, Column] = {}
    applied: dict[str, Applied] = {}
    for name, asked in aggregates.items():
        if isinstance(asked, Column):
            native[name] = asked
        else:
            applied[name] = _checked(name, asked)
    return native, applied


def _checked(name: str, asked: Any) -> Applied:
    if isinstance(asked, Aggregate):
        raise BadParameter(
            f'{asked!r} of {name!r} does not say of which columns; write {asked!r}.of("column")'
        )
    if not isinstance(asked, Applied) or not isinstance(asked.aggregate, Aggregate):
        raise BadParameter(
            f'{name!r} must be an aggregate of columns, such as quantiles(0.5).of("column"), or '
            f'a Column such as F.sum("column"), not {asked!r}; an aggregate of your own derives '
            f"from unskew.aggregates.Aggregate or Reduction"
        )
    for column in asked.columns:
        if not isinstance(column, str | Column):
            raise BadParameter(f"a column of {name!r} must be a name or a Column, not {column!r}")
    return asked


def _values(applied: Mapping[str, Applied]) -> tuple[list[Column], dict[str, tuple[int, ...]]]:
    """Return the columns that are aggregated, each name once, and their places for each result."""
    columns: list[Column] = []
    known: dict[str, int] = {}
    places = {}
    for name, each in applied.items():
        own = []
        for column in each.columns:
            place = len(columns)
            if isinstance(column, str):
                place = known.setdefault(column, place)
            if place == len(columns):
                columns.append(F.col(column) if isinstance(column, str) else column)
            own.append(place)
        places[name] = tuple(own)
    return columns, places


def _value_fields(
    df: DataFrame, columns: Sequence[Column], names: Iterable[str]
) -> list[StructField]:
    if not columns:
        return []
    check_names(df, names)
    try:
        return list(df.select(*columns).schema)
    except AnalysisException as error:
        check_known(error, df)
        raise


_WINDOW_IS = 'window must be a window of time such as F.window("time", "10 minutes"), not {}'


def _check_sessions(keys: Sequence[StructField]) -> None:
    if any(_SESSION in field.metadata for field in keys):
        raise BadParameter(
            "session windows cannot be split, since their rows decide where they end; use "
            "F.window, or Spark's own groupBy"
        )


def _check_window(window: Column, field: StructField) -> None:
    if _WINDOW not in field.metadata:
        raise BadParameter(_WINDOW_IS.format(window))


def _arrow_of(field: StructField, what: str) -> pa.DataType:
    try:
        return arrow_type(field.dataType)
    except PySparkException as error:
        raise BadParameter(
            f"{what} {field.name!r} has the type {field.dataType.simpleString()}, which Spark does "
            f"not hand to Python; cast it to another"
        ) from error


def _use(name: str, asked: Aggregate, places: tuple[int, ...], types: Sequence[pa.DataType]) -> Use:
    made = asked.for_types(*(types[place] for place in places))
    checked = Checked(name, made)
    for kind in (checked.state_type, checked.result_type):
        try:
            StructType([StructField("any", from_arrow_type(kind))])
        except PySparkException as error:
            raise BadParameter(
                f"Spark has no type for {kind}, which {made!r} of {name!r} declares; declare "
                f"another"
            ) from error
    return Use(checked, places)
