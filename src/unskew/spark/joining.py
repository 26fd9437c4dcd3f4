"""Joins of two streams, as a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar, NamedTuple

import pyarrow as pa
from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DayTimeIntervalType, StructField, StructType

from unskew.balance import Balancer
from unskew.errors import BadParameter
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
from unskew.spark.columns import check_data_frame, check_names, has_watermark, quoted, row_hash
from unskew.spark.pipeline import Pipeline
from unskew.spark.stages import WATERMARK, Bound, micros, time_column
from unskew.state.runs import HASH

Length = str | timedelta | float
"""A length of time: "10 minutes" as Spark writes it, a timedelta, or seconds."""

GROUPINGS = ("key", "contrand")

MEMBERS = 2
"""Instances of a group of `contrand`."""

_TURN, _MEMBER, _KEPT = "unskew_turn", "unskew_member", "unskew_kept"


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
        Columns that both have; null is equal to nothing.
    within : length, or two of them
        How far the times of two partners may be apart; of two, how much earlier and how much later
        the right one may be: ``("5 minutes", "1 hour")``.
    window : length, optional
        In place of `within`: partners are in the same one of windows of this length, one after the
        other, as of Spark's ``window``.
    how : {"inner", "left", "right", "full"}, default "inner"
        Of which streams rows without a partner come out, when they can have none any more.
    time : tuple of str, optional
        Columns of event time of the two; those with the watermark by default.
    suffix : str, default "_right"
        Added to the names of the right stream's columns that the left one has too.
    instances, shards : int, optional
        As of `Pipeline`; 50 shards an instance by default.
    balancer : str or Balancer, default "ls-stream"
        Decides, after each batch, which instance each shard is on.
    grouping : {"key", "contrand"}, default "key"
        Where the rows of a key are: on the instance of their shard; or, for comparison, on any of
        the two of a group, where all rows look for partners at both (inner joins only).

    Examples
    --------
    >>> from unskew.spark import join
    >>> query = (
    ...     join(orders, taxis, on="cell", within="10 minutes", how="left")
    ...     .start("orders-with-taxis", checkpoint="checkpoint")
    ... )                                                             # doctest: +SKIP
    """
    keys = [on] if isinstance(on, str) else list(on)
    for df in (left, right):
        check_data_frame(df)
        check_names(df, keys)
        if not has_watermark(df):
            raise BadParameter(
                "both streams of a join need a watermark, as nothing could ever be forgotten "
                'without: df.withWatermark("time", "10 minutes")'
            )
    _check_keys(left, right, keys)
    spark = left.sparkSession
    if (within is None) == (window is None):
        raise BadParameter('a join needs within= or window=, one of the two, such as "10 minutes"')
    before, after = within if isinstance(within, tuple) else (within, within)
    bounds = (0, 0) if window is not None else (_micros(spark, before), _micros(spark, after))
    operator = IntervalJoin(*bounds, how)
    length = None if window is None else _micros(spark, window)
    if length is not None and length <= 0:
        raise BadParameter(f"window={window!r} must be longer than nothing")
    sides = (_Side(left, LEFT, keys, time, length), _Side(right, RIGHT, keys, time, length))
    both = sides[0].rows(sides[1]).unionAll(sides[1].rows(sides[0]))
    if instances is None:
        instances = spark.sparkContext.defaultParallelism
    hashed = F.xxhash64(*(F.col(quoted(key)) for key in keys))
    if one_of("grouping", grouping, GROUPINGS) == "contrand":
        if how != "inner":
            raise BadParameter(f'grouping="contrand" is for inner joins, not for how={how!r}')
        both = _in_groups(both, hashed, instances)
    pipeline = JoinPipeline(both, instances=instances, shards=shards, balancer=balancer)
    places = _Places(hashed, F.lit(True), "" if length is None else f" in windows of {length} us")
    if grouping == "contrand":
        places = _places_in_groups(places, pipeline)
    return pipeline.with_stage(_bound(operator, both, keys, sides, suffix, places), "join")


class _Places(NamedTuple):
    """The hash by which rows find their shard, whether each is kept there, and that in words."""

    hashed: Column
    stored: Column
    kind: str


def _in_groups(rows: DataFrame, hashed: Column, instances: int) -> DataFrame:
    """Return each row once for every instance of its key's group, as `ContRand` has them."""
    groups = -(-instances // MEMBERS)
    first = F.pmod(F.pmod(hashed, F.lit(instances)), F.lit(groups))
    all_members = F.array(*(first + groups * turn for turn in range(MEMBERS)))
    members = F.filter(all_members, lambda member: member < instances)
    copies = rows.select("*", F.posexplode(members).alias(_TURN, _MEMBER))
    kept = F.pmod(F.col(ROW), F.size(members)) == F.col(_TURN)
    return copies.withColumn(_KEPT, kept)


def _places_in_groups(places: _Places, pipeline: Pipeline) -> _Places:
    # The hash of a member: that of the key, but for a remainder that leads to a shard of its
    # instance. Halved first, so that adding the remainder cannot overflow 64 bits.
    half = F.shiftright(places.hashed, 1)
    layers = pipeline.shards // pipeline.instances
    layer = F.pmod(F.xxhash64(places.hashed), F.lit(layers)) * pipeline.instances
    own = half - F.pmod(half, F.lit(pipeline.shards)) + layer + F.col(_MEMBER)
    kind = f"{places.kind} in groups of {pipeline.instances} instances, {pipeline.shards} shards"
    return _Places(own, F.col(_KEPT), kind)


class _Side:
    """One of the streams."""

    def __init__(
        self,
        df: DataFrame,
        side: int,
        keys: list[str],
        time: tuple[str, str] | None,
        window: int | None,
    ) -> None:
        self.df = df
        self.side = side
        self.keys = keys
        marked = [each.name for each in df.schema if WATERMARK in each.metadata]
        if time is None and len(marked) != 1:
            raise BadParameter(
                f"the {('left', 'right')[side]} stream has a watermark on "
                f"{', '.join(marked) or 'a column that it does not have any more'}; name the times "
                f"of both with time="
            )
        self.time_name = time[side] if time else marked[0]
        own = micros(time_column(df, self.time_name))
        # Partners of a window have its end in common, and it is what they expire by.
        self.time = own if window is None else own - F.pmod(own, F.lit(window)) + window
        self.others = [each for each in df.schema if each.name not in keys]

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


def _bound(
    operator: IntervalJoin,
    both: DataFrame,
    keys: list[str],
    sides: tuple[_Side, _Side],
    suffix: str,
    places: _Places,
) -> Bound:
    """Return the operator, what it takes of its input, and its output."""
    types = {each.name: each.dataType for each in both.schema}
    left, right = sides
    taken = {name.lower() for name in (*keys, *left.type.names)}
    renamed = StructType(
        [
            StructField(
                f"{each.name}{suffix}" if each.name.lower() in taken else each.name, each.dataType
            )
            for each in right.type
        ]
    )
    output = StructType(
        [*(StructField(key, types[key]) for key in keys), *left.type.fields, *renamed.fields]
    )
    # Spark does not tell upper from lower case.
    if len({name.lower() for name in output.names}) < len(output.names):
        raise BadParameter(
            f"two columns of a join would have the same name among {', '.join(output.names)}; "
            f"rename one, or choose another suffix than {suffix!r}"
        )
    values = [
        pa.field(SIDE, pa.int8()),
        pa.field(STORED, pa.bool_()),
        pa.field(ROW, pa.int64()),
        pa.field(LEFT_ROW, arrow_type(left.type)),
        pa.field(RIGHT_ROW, arrow_type(renamed)),
    ]
    columns = [
        places.hashed.alias(HASH),
        F.col(TIME),
        *(F.col(quoted(key)) for key in keys),
        F.col(SIDE),
        places.stored.alias(STORED),
        F.col(ROW),
        F.col(LEFT_ROW),
        F.col(RIGHT_ROW).cast(renamed).alias(RIGHT_ROW),
    ]
    bound = operator.bind([pa.field(key, arrow_type(types[key])) for key in keys], values)
    times = " and ".join(side.time_name for side in sides)
    return Bound(bound, columns, output, f"{bound.kind} by {times}{places.kind}")


def _check_keys(left: DataFrame, right: DataFrame, keys: list[str]) -> None:
    if not keys:
        raise BadParameter("a join needs at least one column in on=")
    for key in keys:
        kinds = [df.select(F.col(quoted(key))).schema[0].dataType for df in (left, right)]
        if kinds[0] != kinds[1]:
            raise BadParameter(
                f"{key!r} is {kinds[0].simpleString()} on the left and {kinds[1].simpleString()} "
                f"on the right; cast one of them"
            )


def _micros(spark: SparkSession, length: Length | None) -> int:
    """Return a length of time in microseconds."""
    if isinstance(length, timedelta):
        return round(length / timedelta(microseconds=1))
    if isinstance(length, int | float) and not isinstance(length, bool):
        return round(length * 1e6)
    try:
        found = spark.sql("select interval '{}'".format(str(length).replace("'", "''")))
    except ParseException as error:
        raise BadParameter(f'a length of time is such as "10 minutes", not {length!r}') from error
    if not isinstance(found.schema[0].dataType, DayTimeIntervalType):
        raise BadParameter(f"{length!r} has months, which are not all of one length")
    return _micros(spark, found.collect()[0][0])
