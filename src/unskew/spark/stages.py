"""A keyed stage of a pipeline: which columns it takes, and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType, TimestampNTZType, TimestampType

from unskew.aggregates import Aggregate, Applied
from unskew.aggregates.checked import Checked
from unskew.balance import Balancer
from unskew.errors import BadParameter
from unskew.operators import Aggregation, Operator, PerKey
from unskew.operators.base import TIME
from unskew.operators.passing import Passing
from unskew.operators.step import Step
from unskew.spark.aggregation_request import Request, arrow_type, resolved
from unskew.spark.columns import key_columns, quoted
from unskew.state import Spec
from unskew.state.runs import HASH, NEVER

WATERMARK = "spark.watermarkDelayMs"

Keys = str | Column | Sequence[str | Column]


class Taken(NamedTuple):
    """Columns that a stage takes of its input as they are, so that nobody has to compute them.

    Attributes
    ----------
    keys, values : tuple of str
        Their names.
    time : str or None
        Of event time, if it has one.
    """

    keys: tuple[str, ...]
    values: tuple[str, ...]
    time: str | None = None


@dataclass(frozen=True)
class Stage:
    """A stage whose columns and types are known.

    Attributes
    ----------
    name : str
        What reports call it.
    operator : Operator
        Bound to the columns.
    columns : list of Column
        What it takes of its input: hash, time, keys and values.
    output : StructType
        Of what comes out.
    instances, shards : int
        How many of each.
    balancer : Balancer
        Decides where the shards run.
    kind : str
        What a checkpoint must agree with, if that is more than the operator says.
    taken : Taken, optional
        The same columns by name, where it takes them as they are.
    after : int or None
        Number of the stage that feeds it; None for the first, which the source does.
    after_name : str or None
        Its name, where it is not the one before in the list.
    steps : tuple of Step
        What is made of the rows that come out, in the same task; `output` is what is left then.
    """

    name: str
    operator: Operator
    columns: list[Column]
    output: StructType
    instances: int
    shards: int
    balancer: Balancer
    kind: str = ""
    taken: Taken | None = None
    after: int | None = None
    after_name: str | None = None
    steps: tuple[Step, ...] = ()

    @property
    def passes(self) -> Sequence[pa.Field]:
        """Return the columns of what comes out, after the steps."""
        return list(self.steps[-1].output) if self.steps else self.operator.output

    @property
    def spec(self) -> Spec:
        """Return what a checkpoint has to agree with."""
        fields = (*self.operator.keys, *self.operator.state)
        return Spec(
            self.name,
            self.kind or self.operator.kind,
            self.shards,
            tuple(f"{field.name}: {field.type}" for field in fields),
            self.operator.appends,
            self.after_name,
        )


def followers_of(stages: Sequence[Stage], number: int) -> tuple[int, ...]:
    """Return the numbers of the stages that one feeds."""
    return tuple(place for place, stage in enumerate(stages) if stage.after == number)


def ends_of(stages: Sequence[Stage]) -> tuple[int, ...]:
    """Return the numbers of the stages that feed no other: what comes out of them is for sinks."""
    return tuple(place for place in range(len(stages)) if not followers_of(stages, place))


class Bound(NamedTuple):
    """An operator that is bound to its input.

    Attributes
    ----------
    operator : Operator
        Bound to its columns.
    columns : list of Column
        What it takes of its input: hash, time, keys, values.
    output : StructType
        What comes out.
    kind : str
        What a checkpoint must agree with, if that is more than the operator says.
    taken : Taken, optional
        The same columns by name, where it takes them as they are.
    """

    operator: Operator
    columns: list[Column]
    output: StructType
    kind: str = ""
    taken: Taken | None = None


def aggregation(
    df: DataFrame,
    keys: Keys,
    aggregates: Mapping[str, Applied],
    window: Column | None,
    mode: str,
) -> Bound:
    """Return the operator that keeps aggregates, what it takes of its input, and its output."""
    request = resolved(df, keys, aggregates, window)
    if request.native:
        raise BadParameter(
            f"a pipeline keeps aggregates of unskew.aggregates, not Spark's own, here "
            f"{', '.join(request.native)}; count(), quantiles(...), or a Reduction of your own"
        )
    names = [f"value{place}" for place in range(len(request.values))]
    applied = {
        name: Applied(_plain(use.aggregate), tuple(names[place] for place in use.places))
        for name, use in request.ours.items()
    }
    made = Aggregation(applied, mode=mode, windowed=window is not None)
    key_fields = [pa.field(each.name, arrow_type(each.dataType)) for each in request.key_fields]
    values = [pa.field(name, kind) for name, kind in zip(names, request.value_types, strict=True)]
    operator = made.bind(key_fields, values)
    # All windows of a key are in one shard; without a key each is one.
    hashed = (request.keys[1:] if window is not None else ()) or request.keys
    time = micros(request.keys[0]["end"]) if window is not None else F.lit(NEVER)

    columns = [
        F.xxhash64(*hashed).alias(HASH),
        time.alias(TIME),
        *request.keys,
        *(value.alias(name) for name, value in zip(names, request.values, strict=True)),
    ]
    kind = "" if window is None else f"{operator.kind} in {window}"
    plain = None if window is not None else _taken(df, request)
    return Bound(operator, columns, _output(operator, request.key_fields), kind, plain)


def passing(df: DataFrame, keys: Keys, aggregates: Mapping[str, Applied]) -> Bound:
    """Return the operator that lets rows through with aggregates, what it takes, and its output."""
    request = resolved(df, keys, aggregates, None)
    kept = [field for field in df.schema if field.name not in request.key_names]
    known = {field.name for field in kept}
    for name, each in aggregates.items():
        if name in request.native or not all(column in known for column in each.columns):
            raise BadParameter(
                f'mode="rows" lets rows through as they are, and {name!r} is not an aggregate of '
                f"unskew.aggregates over {', '.join(sorted(known)) or 'the key alone'}; compute "
                f"its column before the pipeline"
            )
    key_fields = [pa.field(each.name, arrow_type(each.dataType)) for each in request.key_fields]
    values = [pa.field(each.name, arrow_type(each.dataType)) for each in kept]
    plain = {
        name: Applied(_plain(use.aggregate), tuple(map(str, aggregates[name].columns)))
        for name, use in request.ours.items()
    }
    operator = Passing(plain).bind(key_fields, values)
    columns = [
        F.xxhash64(*request.keys).alias(HASH),
        F.lit(NEVER).alias(TIME),
        *request.keys,
        *(F.col(quoted(field.name)) for field in kept),
    ]
    taken = _taken(df, request)
    names = tuple(field.name for field in kept)
    return Bound(
        operator,
        columns,
        _output(operator, [*request.key_fields, *kept]),
        taken=None if taken is None else taken._replace(values=names),
    )


def per_key(df: DataFrame, keys: Keys, operator: PerKey, time: str | None) -> Bound:
    """Return the operator that calls a function, what it takes of its input, and its output."""
    given: list[Any] = [keys] if isinstance(keys, str | Column) else list(keys)
    columns = key_columns(df, tuple(given))
    key_fields = list(df.select(*columns).schema)
    taken = {each.name for each in key_fields}
    value_fields = [each for each in df.schema if each.name not in taken]
    time = time or next((each.name for each in df.schema if WATERMARK in each.metadata), None)
    if time is None and operator.ttl is not None:
        raise BadParameter(
            "ttl is in event time: name the column with time=, or give the source a watermark"
        )
    when = F.lit(NEVER) if time is None else micros(time_column(df, time))
    bound = operator.bind(
        [pa.field(each.name, arrow_type(each.dataType)) for each in key_fields],
        [pa.field(each.name, arrow_type(each.dataType)) for each in value_fields],
    )

    taken_of_input = [
        F.xxhash64(*columns).alias(HASH),
        when.alias(TIME),
        *columns,
        *(F.col(quoted(each.name)) for each in value_fields),
    ]
    return Bound(bound, taken_of_input, _output(bound, []))


def _taken(df: DataFrame, request: Request) -> Taken | None:
    """Return the columns of an aggregation by name, or nothing if some have to be computed."""
    parts = (request.keys, request.values)
    names = [[_name_of(df, column) for column in part] for part in parts]
    if any(name is None for part in names for name in part):
        return None
    keys, values = names
    return Taken(tuple(map(str, keys)), tuple(map(str, values)))


def _name_of(df: DataFrame, column: Column) -> str | None:
    """Return the name of a column that is one of a DataFrame's, as it is."""
    found: list[str] = [name for name in df.columns if str(column) == str(F.col(quoted(name)))]
    return found[0] if found else None


def _plain(aggregate: Aggregate) -> Aggregate:
    """Return an aggregate without the checks that the operator puts around it again."""
    return aggregate.aggregate if isinstance(aggregate, Checked) else aggregate


def micros(time: Column) -> Column:
    """Return a timestamp in microseconds."""
    return F.unix_micros(time.cast("timestamp"))


def time_column(df: DataFrame, name: str) -> Column:
    """Return a column of event time, or refuse what is none."""
    found = next((each for each in df.schema if each.name == name), None)
    if found is None or not isinstance(found.dataType, TimestampType | TimestampNTZType):
        kind = "there is none" if found is None else f"it is {found.dataType.simpleString()}"
        raise BadParameter(f"time={name!r} must be a column of timestamps, but {kind}")
    return F.col(quoted(name))


def _output(operator: Operator, keys: Sequence[StructField]) -> StructType:
    """Return Spark's schema of what comes out; keys keep the types that they had."""
    known = {each.name: each.dataType for each in keys}
    return StructType(
        [
            StructField(each.name, known.get(each.name) or from_arrow_type(each.type))
            for each in operator.output
        ]
    )
