"""Joins of two streams, as a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from math import isfinite
from typing import ClassVar, NamedTuple

import pyarrow as pa
from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DayTimeIntervalType, StructField, StructType

from unskew.balance import Balancer
from unskew.errors import BadParameter, UnknownColumn
from unskew.operators.base import STORED, TIME
from unskew.operators.interval_join import (
    LEFT,
    LEFT_ROW,
    RIGHT,
    RIGHT_ROW,
    ROW,
    SIDE,
    WITHOUT_TIME,
    IntervalJoin,
)
from unskew.parameters import one_of
from unskew.spark.aggregation_request import arrow_type
from unskew.spark.columns import check_data_frame, has_watermark, key_columns, quoted, row_hash
from unskew.spark.contrand import MEMBERS, deal
from unskew.spark.pipeline import Pipeline
from unskew.spark.stages import WATERMARK, Bound, micros, time_column
from unskew.state.runs import HASH

Length = str | timedelta | float
"""A length of time: "10 minutes" as Spark writes it, a timedelta, or seconds."""

GROUPINGS = ("key", "contrand")

_SIDES = ("left", "right")

_SPARK_NAMES = {
    "left_outer": "left",
    "leftouter": "left",
    "right_outer": "right",
    "rightouter": "right",
    "outer": "full",
    "full_outer": "full",
    "fullouter": "full",
}
"""What Spark calls joins, too."""

_Fold = Callable[[str], str]
"""Gives the same for two names that Spark takes for one."""


class JoinPipeline(Pipeline):
    """A pipeline that begins with a join, whose shards are as small as LS-Stream's partitions."""

    shards_per_instance: ClassVar[int] = 50


def join(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str],
    *,
    within: Length | tuple[Length, Length] | None = None,
    window: Length | None = None,
    how: str = "inner",
    time: tuple[str, str] | None = None,
    suffix: str = "_right",
    instances: int | None = None,
    shards: int | None = None,
    balancer: str | Balancer = "ls-stream",
    grouping: str = "key",
) -> Pipeline:
    """Return a pipeline that joins two streams on keys, where their times are close.

    Rows are kept until no row that is not late could be their partner. A key too large for one
    instance is split: each of its rows is kept by one instance and looks for partners at all.

    Parameters
    ----------
    left, right : DataFrame
        Streams, each with a watermark.
    on : str or sequence of str
        Columns that both have, of the same types; null is equal to nothing. What comes out has
        them as the left stream spells them.
    within : length, or two of them
        How far the times of two partners may be apart; of two, how much earlier and how much later
        the right one may be: ``("5 minutes", "1 hour")``.
    window : length, optional
        In place of `within`: partners are in the same one of windows of this length, one after the
        other, as of Spark's ``window``.
    how : {"inner", "left", "right", "full"}, default "inner"
        Of which streams rows without a partner come out, when they can have none any more. Spark's
        other names, ``"left_outer"`` or ``"outer"``, are known, too.
    time : tuple of str, optional
        Columns of event time of the two; those with the watermark by default. Only needed where a
        stream does not have that column any more: name one by the same clock, as the watermark says
        which rows are late.
    suffix : str, default "_right"
        Added to the names of the right stream's columns that the left one has too.
    instances, shards : int, optional
        As of `Pipeline`; 50 shards an instance by default.
    balancer : str or Balancer, default "ls-stream"
        Decides, after each batch, which instance each shard is on.
    grouping : {"key", "contrand"}, default "key"
        Where the rows of a key are: on the instance of their shard; or, for comparison, on one of
        two, where all rows look for partners at both (inner joins only).

    Raises
    ------
    UnknownColumn, UnhashableKey
        For keys that a stream does not have, or that have no hash.
    BadParameter
        For streams that are none, bounds, times and names that do not fit.

    Examples
    --------
    >>> from unskew.spark import join
    >>> query = (
    ...     join(orders, taxis, on="cell", within="10 minutes", how="left")
    ...     .start("orders-with-taxis", checkpoint="checkpoint")
    ... )                                                             # doctest: +SKIP
    """
    for name, df in zip(_SIDES, (left, right), strict=True):
        _check_stream(name, df)
    spark = left.sparkSession
    fold = _folding(spark)
    given = [on] if isinstance(on, str) or not isinstance(on, Sequence) else list(on)
    length = _window(spark, window)
    how = _SPARK_NAMES.get(how, how)
    operator = IntervalJoin(*_bounds(spark, within, length), how)
    sides = (
        _Side(left, LEFT, given, time, length, fold),
        _Side(right, RIGHT, given, time, length, fold),
    )
    _check_types(*sides)
    keys = sides[LEFT].keys
    # By place: keys have the names that they have on the left.
    both = sides[LEFT].rows(sides[RIGHT]).unionAll(sides[RIGHT].rows(sides[LEFT]))
    hashed, stored = F.xxhash64(*(F.col(quoted(key)) for key in keys)), F.lit(True)
    kind = "" if length is None else f" in windows of {length} us"
    if one_of("grouping", grouping, GROUPINGS) == "contrand":
        if how != "inner":
            raise BadParameter(
                f'grouping="contrand" is for inner joins, not for how={how!r}; leave it out: a key '
                f"that is too large is split"
            )
        both, hashed, stored = deal(both, hashed, F.col(ROW))
        kind += f" in groups of {MEMBERS}"
    pipeline = JoinPipeline(both, instances=instances, shards=shards, balancer=balancer)
    output = _output(sides, suffix, fold)
    kind = f" by {' and '.join(side.time_name for side in sides)}{kind}"
    return pipeline.with_stage(_bound(operator, output, hashed, stored, kind), "join")


def _check_stream(side: str, df: DataFrame) -> None:
    """Refuse what is no stream with a watermark."""
    check_data_frame(df)
    if not df.isStreaming:
        raise BadParameter(
            f"the {side} DataFrame is a batch, and this joins two streams; a batch is joined by "
            f"Spark itself, with a batch or with a stream: left.join(right, ...)"
        )
    if not has_watermark(df):
        raise BadParameter(
            f"both streams of a join need a watermark, as nothing could ever be forgotten without, "
            f'and the {side} one has none: df.withWatermark("time", "10 minutes")'
        )


def _folding(spark: SparkSession) -> _Fold:
    is_sensitive = str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true"
    return str if is_sensitive else str.lower


def _named(df: DataFrame, key: object, fold: _Fold) -> str:
    """Return the column that a name stands for, as it is spelled there."""
    if not isinstance(key, str):
        raise BadParameter(f'on= takes the names of columns, such as "cell", not {key!r}')
    alike = [name for name in df.columns if fold(name) == fold(key)]
    if not alike:
        raise UnknownColumn(
            f"there is no column {key!r}; there are {', '.join(map(repr, df.columns))}"
        )
    if len(alike) > 1:
        raise BadParameter(
            f"{key!r} stands for several columns, {', '.join(map(repr, alike))}; rename all but one"
        )
    return alike[0]


class _Side:
    """One of the streams."""

    def __init__(
        self,
        df: DataFrame,
        side: int,
        on: Sequence[object],
        time: object,
        window: int | None,
        fold: _Fold,
    ) -> None:
        self.df = df
        self.side = side
        self.keys = [_named(df, key, fold) for key in on]
        # Refuses what has no hash, as everywhere.
        key_columns(df, tuple(map(quoted, self.keys)))
        self.time_name = self._time_name(time, fold)
        own = micros(time_column(df, self.time_name))
        # Partners of a window have its end in common, and it is what they expire by.
        self.time = own if window is None else own - F.pmod(own, F.lit(window)) + window
        self.others = [each for each in df.schema if each.name not in self.keys]

    def _time_name(self, time: object, fold: _Fold) -> str:
        """Return the column of event time: that with the watermark."""
        marked = [each.name for each in self.df.schema if WATERMARK in each.metadata]
        whose = f"the {_SIDES[self.side]} stream has a watermark on {', '.join(marked)}"
        if time is None:
            if len(marked) == 1:
                return marked[0]
            gone = "" if marked else "a column that it does not have any more"
            raise BadParameter(f"{whose}{gone}; name the times of both with time=")
        if not isinstance(time, tuple | list) or len(time) != 2:
            raise BadParameter(
                f"time={time!r} must name two columns, of the left stream and of the right one: "
                f'time=("ordered", "seen")'
            )
        wanted = time[self.side]
        alike = (each for each in self.df.columns if fold(each) == fold(str(wanted)))
        name = next(alike, wanted)
        time_column(self.df, name)
        if marked and name not in marked:
            raise BadParameter(
                f"{whose}, by which rows are late, and time= names {name!r} for it; leave time= "
                f"out, or give {name!r} the watermark"
            )
        return name

    @property
    def type(self) -> StructType:
        """Return the type of the columns that are not keys."""
        return StructType([StructField(each.name, each.dataType) for each in self.others])

    def rows(self, other: _Side) -> DataFrame:
        """Return the rows as both streams have them."""
        own = F.struct(*(F.col(quoted(each.name)) for each in self.others)).cast(self.type)
        none = F.lit(None).cast(other.type)
        left, right = (own, none) if self.side == LEFT else (none, own)
        side = F.when(self.time.isNull(), self.side + WITHOUT_TIME).otherwise(self.side)
        return self.df.select(
            *(F.col(quoted(key)) for key in self.keys),
            self.time.alias(TIME),
            side.cast("byte").alias(SIDE),
            F.xxhash64(row_hash(self.df), F.lit(self.side)).alias(ROW),
            left.alias(LEFT_ROW),
            right.alias(RIGHT_ROW),
        )


def _check_types(left: _Side, right: _Side) -> None:
    for ours, theirs in zip(left.keys, right.keys, strict=True):
        kinds = [left.df.schema[ours].dataType, right.df.schema[theirs].dataType]
        if kinds[LEFT] != kinds[RIGHT]:
            raise BadParameter(
                f"{ours!r} is {kinds[LEFT].simpleString()} on the left and "
                f"{kinds[RIGHT].simpleString()} on the right; cast one of them"
            )


class _Output(NamedTuple):
    """What comes out: the keys, then the other columns of each stream, under their new names."""

    keys: StructType
    left: StructType
    right: StructType

    @property
    def all(self) -> StructType:
        return StructType([*self.keys, *self.left, *self.right])


def _output(sides: tuple[_Side, _Side], suffix: str, fold: _Fold) -> _Output:
    """Return the columns of a pair; those of the right stream have a suffix where they need one."""
    left, right = sides
    taken = {fold(name) for name in (*left.keys, *left.type.names)}
    renamed = [
        StructField(
            f"{each.name}{suffix}" if fold(each.name) in taken else each.name, each.dataType
        )
        for each in right.type
    ]
    keys = [StructField(key, left.df.schema[key].dataType) for key in left.keys]
    output = _Output(StructType(keys), left.type, StructType(renamed))
    names = output.all.names
    if len({fold(name) for name in names}) < len(names):
        raise BadParameter(
            f"two columns of a join would have the same name among {', '.join(names)}; rename one, "
            f"or choose another suffix than {suffix!r}"
        )
    return output


def _bound(
    operator: IntervalJoin, output: _Output, hashed: Column, stored: Column, kind: str
) -> Bound:
    """Return the operator, what it takes of its input, and its output."""
    values = [
        pa.field(SIDE, pa.int8()),
        pa.field(STORED, pa.bool_()),
        pa.field(ROW, pa.int64()),
        pa.field(LEFT_ROW, arrow_type(output.left)),
        pa.field(RIGHT_ROW, arrow_type(output.right)),
    ]
    columns = [
        hashed.alias(HASH),
        F.col(TIME),
        *(F.col(quoted(key)) for key in output.keys.names),
        F.col(SIDE),
        stored.alias(STORED),
        F.col(ROW),
        F.col(LEFT_ROW),
        F.col(RIGHT_ROW).cast(output.right).alias(RIGHT_ROW),
    ]
    keys = [pa.field(each.name, arrow_type(each.dataType)) for each in output.keys]
    bound = operator.bind(keys, values)
    return Bound(bound, columns, output.all, f"{bound.kind}{kind}")


def _window(spark: SparkSession, window: Length | None) -> int | None:
    """Return the length of windows in microseconds, if there are any."""
    length = None if window is None else _micros(spark, window)
    if length is not None and length <= 0:
        raise BadParameter(f"window={window!r} must be longer than nothing")
    return length


def _bounds(
    spark: SparkSession, within: Length | tuple[Length, Length] | None, window: int | None
) -> tuple[int, int]:
    """Return how much earlier, and how much later, the right partner may be, in microseconds."""
    if (within is None) == (window is None):
        raise BadParameter('a join needs within= or window=, one of the two, such as "10 minutes"')
    if within is None:
        return 0, 0
    if not isinstance(within, tuple | list):
        both = _micros(spark, within)
        return both, both
    if len(within) != 2:
        raise BadParameter(
            f"within={within!r} must be one length, or two: how much earlier and how much later "
            f'the right partner may be, ("5 minutes", "1 hour")'
        )
    before, after = (_micros(spark, each) for each in within)
    return before, after


def _micros(spark: SparkSession, length: Length) -> int:
    """Return a length of time in microseconds."""
    if isinstance(length, timedelta):
        return length // timedelta(microseconds=1)
    if isinstance(length, int | float) and not isinstance(length, bool) and isfinite(length):
        return round(length * 1e6)
    try:
        found = spark.sql("select interval '{}'".format(str(length).replace("'", "''")))
    except ParseException as error:
        raise BadParameter(f'a length of time is such as "10 minutes", not {length!r}') from error
    if not isinstance(found.schema[0].dataType, DayTimeIntervalType):
        raise BadParameter(f"{length!r} has months, which are not all of one length")
    return _micros(spark, found.collect()[0][0])
