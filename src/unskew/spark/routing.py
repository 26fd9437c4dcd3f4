"""Repartition: the same rows, balanced over instances by a grouping or a plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf

from unskew.balance import Plan
from unskew.errors import BadParameter, BadPlan
from unskew.grouping import Key
from unskew.grouping import grouping as make_grouping
from unskew.operators.base import STORED
from unskew.parameters import whole_number
from unskew.spark import compiled, worker
from unskew.spark.columns import (
    check_data_frame,
    fresh_name,
    key_columns,
    key_names,
    key_types,
    row_hash,
)
from unskew.spark.explaining import Note, noted
from unskew.spark.profiling import Profile
from unskew.spark.replay import Order, check_checksums, order_of
from unskew.spark.versions import check_session
from unskew.state.runs import HASH


def repartition(
    df: DataFrame,
    instances: int,
    *keys: str | Column,
    grouping: str = "frugal",
    instance_column: str | None = None,
    seed: int = 0,
    plan: Plan | Profile | None = None,
    **parameters: Any,
) -> DataFrame:
    """Return the same rows in `instances` balanced partitions, hot keys split as far as needed.

    Works on batch and streaming DataFrames. Each task upstream is a source with a grouping of its
    own; only the hash of the keys goes to Python. With a plan nothing does: it becomes a native
    expression, unless a hot key is split after a shuffle and its rows may be alike. What a task
    sends where is the same if Spark has to run it again, see `explain`.

    Parameters
    ----------
    df : DataFrame
        Batch or streaming.
    instances : int
        Number of partitions to make, at least 1.
    *keys : str or Column
        The key: one or several columns or expressions. Maps cannot be keys.
    grouping : str, default "frugal"
        Decides which instance a tuple goes to; one of `unskew.groupings()`.
    instance_column : str, optional
        Name of a column to add that holds the instance of each row; none by default.
    seed : int, default 0
        Chooses the hash functions of the grouping.
    plan : Plan or Profile, optional
        What `profile` made; takes the place of the grouping.
    **parameters
        What the grouping takes, such as ``max_imbalance=0.05`` for frugal.

    Returns
    -------
    DataFrame
        The rows and columns of `df`; partition i is instance i.

    Raises
    ------
    UnknownColumn, UnhashableKey, BadParameter, UnknownGrouping
        For keys, numbers and names that do not fit.
    BadPlan
        For a plan made for other keys or another number of instances.
    NotReplayable
        Where Spark's order-independent shuffle checksums were switched off.

    Notes
    -----
    After a shuffle Spark may bring the rows of a task in another order when it runs it again. The
    rows of a partition are then routed in an order that follows from their content, for which the
    Python worker keeps 40 bytes a row. On Spark Connect the plan cannot be read, and this is always
    done.

    Examples
    --------
    >>> from unskew.spark import repartition
    >>> balanced = repartition(tweets, 16, "hashtag")                 # doctest: +SKIP
    >>> balanced.mapInPandas(slow_work, balanced.schema)              # doctest: +SKIP
    """
    instances = whole_number("instances", instances, least=1, most=2**31 - 1)
    _check_session(df)
    columns = key_columns(df, keys)
    if instance_column is not None and fresh_name(df, instance_column) != instance_column:
        raise BadParameter(
            f"instance_column {instance_column!r} is there already; choose another name"
        )
    names = key_names(df, keys)
    hashed = F.xxhash64(*columns)
    order = order_of(df)
    title = f"repartition by {', '.join(names)} to {instances} instances"
    if "source" in parameters:
        raise BadParameter("source is not yours to give: each task is a source of its own")
    if plan is None:
        made = make_grouping(grouping, instances, seed=seed, **parameters)
        router = worker.ByGrouping(type(made), instances, {"seed": seed, **parameters})
        if isinstance(made, Key):
            order = Order(True, "the instance of a tuple depends on its key alone")
        way = _online(df, router, hashed, order, f"{grouping}, in Python on the hash of the key")
    else:
        if parameters or grouping != "frugal":
            given = ", ".join(parameters) or f"grouping={grouping!r}"
            raise BadParameter(f"a plan takes the place of the grouping; leave {given} away")
        table = _plan_for(plan, instances, names, key_types(df, keys))
        varied = set(plan.varied) if isinstance(plan, Profile) else set()
        way = by_plan(
            df, table, hashed, order, seed, is_varied=bool(varied) and varied <= {*df.columns}
        )
    note = Note(title, {"routing": way.routing, "order": way.order, "why": order.reason})
    return send(df, instances, way, instance_column, note)


@dataclass(frozen=True)
class Way:
    """How rows find their instance.

    Attributes
    ----------
    instance : Column
        The instance of each row.
    routing, order : str
        What to tell of it.
    is_pure : bool
        Whether it depends on the row alone, so that Spark may compute it wherever it likes.
    """

    instance: Column
    routing: str
    order: str
    is_pure: bool = False


def _online(df: DataFrame, router: worker.Router, hashed: Column, order: Order, text: str) -> Way:
    """Return the way through Python workers."""

    # Small functions, as PySpark reads their annotations; what they call travels by reference.
    def in_row_order(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return worker.in_row_order(router, batches)

    def in_content_order(batches: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        return worker.in_content_order(router, batches)

    # PySpark's own types know no iterators with annotations.
    udf: Any = arrow_udf
    routing = f"online: {text}"
    # Not deterministic: the optimizer must neither repeat nor move them.
    if order.same:
        routed = udf(in_row_order, "int").asNondeterministic()(hashed)
        return Way(routed, routing, "as the rows come")
    routed = udf(in_content_order, "int").asNondeterministic()(hashed, row_hash(df))
    return Way(
        routed, routing, "by content: each partition is read whole and ordered by row hashes"
    )


def by_plan(
    df: DataFrame, plan: Plan, hashed: Column, order: Order, seed: int, *, is_varied: bool
) -> Way:
    """Return the way that a plan describes, native wherever rows can be told apart natively."""
    text = f"plan of epoch {plan.epoch} with {len(plan.hot)} hot keys"
    native = f"compiled: {text}, no Python"
    if not any(len(set(copies)) > 1 for copies in plan.hot.values()):
        instance = compiled.instance(plan, hashed, F.lit(0))
        return Way(instance, native, "none: every key has one instance", is_pure=True)
    if order.same:
        turn = F.xxhash64(F.monotonically_increasing_id(), F.lit(seed))
        return Way(compiled.instance(plan, hashed, turn), native, "as the rows come")
    if is_varied:
        turn = F.xxhash64(row_hash(df), F.lit(seed))
        instance = compiled.instance(plan, hashed, turn)
        return Way(
            instance,
            native,
            "none: a row of a hot key goes by a hash of all it holds",
            is_pure=True,
        )
    text += ", in Python, as rows of hot keys may be alike and their hashes would not part them"
    return _online(df, worker.ByPlan(plan), hashed, order, text)


def send(
    df: DataFrame,
    instances: int,
    way: Way,
    instance_column: str | None = None,
    note: Note | None = None,
) -> DataFrame:
    """Return the rows, each in the partition that its way leads to; those without a key in 0."""
    if way.is_pure and instance_column is None:
        # Nothing to carry through the shuffle: Spark computes the instance while it sends.
        return df.repartitionById(instances, _target(way.instance, note))
    name = instance_column or fresh_name(df, "unskew_instance")
    sent = df.withColumn(name, way.instance).repartitionById(instances, _target(F.col(name), note))
    return sent if instance_column else sent.drop(name)


def route_to_all(df: DataFrame, plan: Plan, way: Way) -> tuple[DataFrame, Way]:
    """Return rows once for every instance that may have partners of theirs: for joins.

    A row is kept where its way leads, and only looks for partners elsewhere: the column `STORED`
    says which.
    """
    kept, target = fresh_name(df, "unskew_kept"), fresh_name(df, "unskew_target")
    chosen = df.withColumn(kept, way.instance)
    holders = compiled.holders(plan, F.col(HASH))
    everyone = F.array_union(F.array(F.col(kept)), holders)
    copies = chosen.withColumn(target, F.explode(everyone))
    marked = copies.withColumn(STORED, F.col(STORED) & (F.col(target) == F.col(kept)))
    # The target is a column by now, and goes through the shuffle with its row.
    return marked.drop(kept), replace(way, instance=F.col(target), is_pure=True)


def with_placed(df: DataFrame, plan: Plan, way: Way) -> tuple[DataFrame, Way]:
    """Return rows and their way where keys are placed: looked up in a table that every task has."""
    placed, chosen = fresh_name(df, "unskew_placed"), fresh_name(df, "unskew_chosen")
    cold = ~np.isin(plan.placed.keys, plan.hot_hashes)
    table = pa.table(
        {
            placed: plan.placed.keys[cold].view(np.int64),
            chosen: plan.assignment[plan.placed.shards[cold]],
        }
    )
    places = F.broadcast(df.sparkSession.createDataFrame(table))
    found = df.join(places, F.col(HASH) == F.col(placed), "left").drop(placed)
    instance = F.coalesce(F.col(chosen), way.instance)
    return found, replace(way, instance=instance, is_pure=way.is_pure)


def _target(instance: Column, note: Note | None) -> Column:
    return instance if note is None else noted(instance, note)


def _plan_for(given: Plan | Profile, instances: int, names: list[str], types: list[str]) -> Plan:
    """Return the plan itself, once it is sure that it was made for this."""
    if isinstance(given, Profile):
        if given.keys != names or given.types != types:
            raise BadPlan(
                f"the profile is of keys {_listed(given.keys, given.types)}, not of "
                f"{_listed(names, types)}; profile these keys"
            )
        given = given.plan
    if not isinstance(given, Plan):
        raise BadParameter(f"plan must be a Plan or a Profile, not {type(given).__name__}")
    if given.instances != instances:
        raise BadPlan(
            f"the plan is for {given.instances} instances, not for {instances}; profile with "
            f"instances={instances}"
        )
    return given


def _listed(names: list[str], types: list[str]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in zip(names, types, strict=True))


def _check_session(df: DataFrame) -> None:
    """Refuse sessions that are too old, or that would lose tuples unnoticed."""
    check_data_frame(df)
    check_session(df.sparkSession.version)
    check_checksums(df.sparkSession)
