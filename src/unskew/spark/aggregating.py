"""Balanced aggregation: partial states where the rows are sent, then one merge by Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from unskew.aggregates import Applied, Count
from unskew.aggregates.partial import Use
from unskew.errors import BadParameter
from unskew.grouping import grouping as make_grouping
from unskew.spark.aggregation_request import Request, arrow_type, resolved
from unskew.spark.aggregation_worker import merge_stage, partial_stage
from unskew.spark.columns import check_data_frame, quoted
from unskew.spark.explaining import Note, noted
from unskew.spark.observing import MOST_INSTANCES, balance_metrics
from unskew.spark.routing import repartition


def aggregate(
    df: DataFrame,
    keys: str | Column | Sequence[str | Column],
    aggregates: Mapping[str, Applied | Column],
    *,
    instances: int | None = None,
    grouping: str | None = "frugal",
    window: Column | None = None,
    seed: int = 0,
    observe: str | Observation | None = None,
    **parameters: Any,
) -> DataFrame:
    """Aggregate by keys of which a few carry most of the rows.

    Rows are sent to instances by a grouping, which splits the hot keys and no others; each instance
    makes one partial state for each of its keys, in Arrow, and Spark brings the partial states of a
    key together, where they are merged and finished. Spark's own aggregates (``F.sum``,
    ``F.count``, ...) are left to Spark, which combines them before its exchange and does not suffer
    from skew. `explain` says what was done.

    A task holds states of at most 64 MB, whatever its keys are. In a stream the state store keeps
    the partial states of a window until it is final: one of each batch that had rows for the key,
    and of each instance that got some.

    Parameters
    ----------
    df : DataFrame
        Batch or streaming.
    keys : str, Column, or sequence of them
        Group by these: any types that Spark can hash, nulls included.
    aggregates : mapping of str to aggregate
        Name of the result, and what it is: ``quantiles(0.5).of("latency")``, likewise `distinct`,
        `top`, `collect` and aggregates of your own, or one of Spark's as a Column. With both kinds
        a batch is read twice, and a stream is refused.
    instances : int, optional
        Instances of the partial stage; by default as many as Spark's shuffles have partitions.
    grouping : str or None, default "frugal"
        Which grouping sends the rows. None sends no rows: each task makes the states of what it has
        read, which is less work if the rows are spread evenly already and keys repeat in each task.
    window : Column, optional
        ``F.window("time", "10 minutes")``; a column of its name comes before the keys. Streams need
        one, and a watermark on its time if windows shall be final some day.
    seed, **parameters
        As of `repartition`: what the grouping takes, or ``plan=``.
    observe : str or Observation, optional
        Name under which Spark tells how balanced each batch of a stream was, which `Balance.of`
        reads from ``progress.observedMetrics[name]``; or, in a batch, what ``get`` is asked of.

    Returns
    -------
    DataFrame
        The window, the keys and the results in the order they were given. In a stream every output
        mode that Spark has for aggregates can be used.

    Raises
    ------
    BadParameter, BadAggregate, UnknownColumn, UnhashableKey
        For what does not fit, when it is called. An aggregate that raises, or returns another type
        or length than it declares, fails the query with a `BadAggregate` that names it.

    Examples
    --------
    >>> from unskew.aggregates import quantiles, top
    >>> aggregate(
    ...     requests,
    ...     "customer",
    ...     {"latency": quantiles(0.5, 0.99).of("seconds"), "paths": top(3).of("path")},
    ...     window=F.window("time", "10 minutes"),
    ... )  # doctest: +SKIP
    """
    check_data_frame(df)
    request = resolved(df, keys, aggregates, window)
    if not request.ours:
        _check_unused(grouping, observe, instances, parameters)
        found = _by_spark(df, request)
    else:
        if df.isStreaming:
            _check_stream(request)
        if grouping is None and (instances is not None or parameters):
            given = ["instances"] * (instances is not None) + list(parameters)
            raise BadParameter(f"{', '.join(given)} cannot be used without a grouping")
        if grouping is not None and instances is None:
            instances = int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
        if observe is not None:
            _check_observed(grouping, instances)
        rows = _selected(df, request)
        if grouping is not None and instances is not None:
            # A plan knows keys; a grouping parts their windows too, which then split less.
            sent_by = request.plain_key_names if "plan" in parameters else request.key_names
            names = map(quoted, sent_by)
            rows = repartition(rows, instances, *names, grouping=grouping, seed=seed, **parameters)
        parts = _parts(rows, request)
        if observe is not None and instances is not None:
            parts = _observed(parts, request, observe, instances)
        found = _finished(_collected(parts, request), request)
        if request.native:
            found = _joined(found, _by_spark(df, request), request)
    found = found.select(*map(quoted, [*request.key_names, *request.names]))
    note = _note(df, request, grouping)
    # A filter that is always true: the optimizer drops it, the analyzed plan keeps the note.
    return found.where(noted(F.lit(1), note) == F.lit(1))


def _check_unused(
    grouping: str | None,
    observe: str | Observation | None,
    instances: int | None,
    parameters: dict[str, Any],
) -> None:
    """Refuse what has no meaning where Spark does all; a grouping must at least exist."""
    if observe is not None:
        raise BadParameter(
            f"observe={observe!r} tells of rows that a grouping sent, and Spark's own aggregates "
            f"send none; leave it away"
        )
    if grouping is not None and "plan" not in parameters:
        make_grouping(grouping, instances or 1, **parameters)


def _check_stream(request: Request) -> None:
    if request.native:
        raise BadParameter(
            f"a stream has either Spark's own aggregates, here {', '.join(request.native)}, or "
            f"others, here {', '.join(request.ours)}: both would be two stateful operators; start "
            f"a query for each, or write the former as an unskew.aggregates.Reduction"
        )
    if not request.has_window and not request.has_watermark:
        raise BadParameter(
            "a stream is aggregated in windows, or its state would grow with every batch; give "
            'window=F.window("time", "10 minutes") with the name of your time column'
        )


def _by_spark(df: DataFrame, request: Request) -> DataFrame:
    """Return Spark's own aggregates, as Spark does them."""
    results = [column.alias(name) for name, column in request.native.items()]
    return df.groupBy(*request.keys).agg(*results)


def _selected(df: DataFrame, request: Request) -> DataFrame:
    """Return the keys and, under names of our own, what is aggregated."""
    names = _own_names(request, "value", len(request.values))
    values = [value.alias(name) for name, value in zip(names, request.values, strict=True)]
    return df.select(*request.keys, *values)


def _parts(rows: DataFrame, request: Request) -> DataFrame:
    """Return the partial states of each key in each task, and of how many rows they are."""
    uses = [*request.ours.values(), _ROWS]
    names = [*_own_names(request, "state", len(request.ours)), *_own_names(request, "rows", 1)]
    states = [
        StructField(name, from_arrow_type(use.aggregate.state_type))
        for name, use in zip(names, uses, strict=True)
    ]
    # The keys' fields keep their metadata: it is how Spark knows event time.
    schema = StructType([*request.key_fields, *states])
    arrow = [pa.field(state.name, arrow_type(state.dataType)) for state in states]
    stage = partial_stage(len(request.keys), request.value_types, uses, arrow)
    return rows.mapInArrow(stage, schema)


_ROWS = Use(Count(), ())


def _check_observed(grouping: str | None, instances: int | None) -> None:
    if grouping is None or instances is None or instances > MOST_INSTANCES:
        raise BadParameter(
            f"the balance of at most {MOST_INSTANCES:,} instances of a grouping can be observed, "
            f"not of grouping={grouping!r} with instances={instances}; leave observe away"
        )


def _observed(
    parts: DataFrame, request: Request, observe: str | Observation, instances: int
) -> DataFrame:
    """Return the same, with Spark measuring the balance under a name."""
    (rows,) = _own_names(request, "rows", 1)
    (place,) = _own_names(request, "instance", 1)
    plain = request.plain_key_names
    keys = [F.col(quoted(name)) for name in plain]
    windows = [F.col(quoted(name)) for name in request.key_names if name not in plain]
    metrics = balance_metrics(keys, windows, instances, F.col(quoted(rows)), F.col(quoted(place)))
    # Partition i is instance i.
    placed = parts.withColumn(place, F.spark_partition_id())
    return placed.observe(observe, *metrics).drop(place)


def _collected(parts: DataFrame, request: Request) -> DataFrame:
    """Return for each key a list of its partial states."""
    states = _own_names(request, "state", len(request.ours))
    together = F.collect_list(F.struct(*map(quoted, states)))
    (name,) = _own_names(request, "states", 1)
    return parts.groupBy(*map(quoted, request.key_names)).agg(together.alias(name))


def _finished(collected: DataFrame, request: Request) -> DataFrame:
    """Return the results of lists of partial states."""
    checked = [use.aggregate for use in request.ours.values()]
    results = StructType(
        [StructField(str(i), from_arrow_type(each.result_type)) for i, each in enumerate(checked)]
    )
    merge = merge_stage(checked, arrow_type(results))

    # A small function, as PySpark reads its annotations; what it calls travels by reference.
    def finish(lists: pa.Array) -> pa.Array:
        return merge(lists)

    # PySpark's own types know no functions with annotations.
    udf: Any = arrow_udf
    keys = list(map(quoted, request.key_names))
    (name,) = _own_names(request, "result", 1)
    finished = collected.select(*keys, udf(finish, results)(collected.columns[-1]).alias(name))
    own = [F.col(quoted(name))[str(i)].alias(each) for i, each in enumerate(request.ours)]
    return finished.select(*keys, *own)


def _joined(ours: DataFrame, theirs: DataFrame, request: Request) -> DataFrame:
    """Return both halves of each key; both have every key."""
    others = _own_names(request, "key", len(request.keys))
    renamed = theirs.withColumnsRenamed(dict(zip(request.key_names, others, strict=True)))
    equal = F.lit(True)
    for name, other in zip(request.key_names, others, strict=True):
        equal = equal & F.col(quoted(name)).eqNullSafe(F.col(quoted(other)))
    return ours.join(renamed, equal)


def _own_names(request: Request, wanted: str, number: int) -> list[str]:
    """Return names for columns that the user does not see, different from those that he does."""
    taken = {name.lower() for name in [*request.key_names, *request.names]}
    while any(name.startswith(wanted) for name in taken):
        wanted = "_" + wanted
    return [f"{wanted}{i}" for i in range(number)]


def _note(df: DataFrame, request: Request, grouping: str | None) -> Note:
    """Return what was done and why, for `explain`."""
    facts = {}
    if request.native:
        facts["by Spark"] = (
            f"{', '.join(request.native)}: combined before Spark's exchange, so skew does no harm"
        )
    if request.native and request.ours:
        facts["joined"] = "both halves on the keys, nulls equal; the input is read twice"
    if request.ours:
        described = ", ".join(_text(name, use) for name, use in request.ours.items())
        facts["by states"] = f"{described}: partial states in Python, merged once for each key"
        facts["rows"] = (
            f"sent by {grouping}, which splits hot keys"
            if grouping
            else "stay in their tasks, as grouping is None"
        )
        facts["merge"] = (
            "Spark collects the states of a key, which are merged and finished in Arrow"
        )
    if df.isStreaming:
        facts["stream"] = (
            "a window is final once the watermark has passed it"
            if request.has_watermark
            else "without a watermark: modes update and complete only, and no state is ever dropped"
        )
    return Note(f"aggregate by {', '.join(request.key_names)}", facts)


def _text(name: str, use: Use) -> str:
    made = getattr(use.aggregate, "aggregate", use.aggregate)
    return f"{name} = {made!r}"
