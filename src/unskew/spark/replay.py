"""Replay: whether a lost task would get its rows in the same order, and what to do if not.

Spark runs a lost task again while what its other attempt sent stays in use. What the task sends
where must therefore depend only on what is the same in every attempt: the plan, the number of the
partition, its rows, and the order of the rows only where no shuffle lies upstream. This module
reads the logical plan, as it was analyzed: to ask Spark's RDD would execute, under adaptive
execution, the stages before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from unskew.errors import NotReplayable

_CHECKSUMS = "spark.sql.shuffle.orderIndependentChecksum"

_KEEPS_ORDER = frozenset(
    {
        "AppendColumns",
        "CTERelationDef",
        "CTERelationRef",
        "CollectMetrics",
        "DeserializeToObject",
        "EventTimeWatermark",
        "Expand",
        "Filter",
        "Generate",
        "LocalRelation",
        "MapElements",
        "MapInArrow",
        "MapInPandas",
        "MapPartitions",
        "OneRowRelation",
        "Project",
        "Range",
        "ResolvedHint",
        "Sample",
        "SerializeFromObject",
        "SubqueryAlias",
        "TypedFilter",
        "Union",
        "View",
        "WithCTE",
    }
)
"""Logical nodes that give the rows of a partition in an order that follows from their input's."""

_SOURCES = (
    "org.apache.spark.sql.execution.datasources.HadoopFsRelation",
    "org.apache.spark.sql.execution.datasources.v2.csv.",
    "org.apache.spark.sql.execution.datasources.v2.json.",
    "org.apache.spark.sql.execution.datasources.v2.orc.",
    "org.apache.spark.sql.execution.datasources.v2.parquet.",
    "org.apache.spark.sql.execution.datasources.v2.text.",
    "org.apache.spark.sql.execution.streaming.runtime.MemoryStream",
    "org.apache.spark.sql.execution.streaming.sources.Rate",
    "org.apache.spark.sql.execution.streaming.sources.TextSocket",
    "org.apache.spark.sql.kafka010.",
    "org.apache.spark.sql.v2.avro.",
)
"""Sources that read the same rows in the same order again: files, offsets. A database does not."""


@dataclass(frozen=True)
class Order:
    """Whether the rows of each partition come in the same order in every attempt, and why.

    Attributes
    ----------
    same : bool
        Whether they do.
    reason : str
        What it was concluded from, for people.
    """

    same: bool
    reason: str


def order_of(df: DataFrame) -> Order:
    """Return whether a lost task over `df` would get its rows in the same order again.

    Errs on the side of no: of an operator or a source that is not known to keep the order nothing
    is assumed. Runs no job.
    """
    if not isinstance(df, ClassicDataFrame):
        return Order(False, "Spark Connect does not show the plan, so nothing is assumed")
    plan = df._jdf.queryExecution().analyzed()
    loses = _first_to_lose_order(plan)
    if loses is not None:
        return Order(False, f"{loses} upstream may bring the rows in another order")
    if not plan.deterministic():
        return Order(False, "an expression upstream is not deterministic")
    return Order(True, "no shuffle upstream: files and offsets are read in the same order again")


def check_checksums(session: SparkSession) -> None:
    """Refuse a session that would not notice that a lost task came back with other rows.

    Raises
    ------
    NotReplayable
        If the order-independent checksums of shuffles, or the retry on a mismatch, are off.
    """

    def is_on(name: str) -> bool:
        # Without a default of ours: that would hide Spark's.
        return str(session.conf.get(f"{_CHECKSUMS}.{name}")).lower() == "true"

    if not is_on("enabled"):
        raise NotReplayable(
            f"{_CHECKSUMS}.enabled is false: if an executor is lost, tuples can be lost and "
            f"doubled unnoticed; set it to true, Spark's default"
        )
    retries = ("enableFullRetryOnMismatch", "enableQueryLevelRollbackOnMismatch")
    if not any(map(is_on, retries)):
        raise NotReplayable(
            f"{_CHECKSUMS}.{retries[0]} is false: Spark would notice that a lost task came back "
            f"with other rows, and go on; set it to true, Spark's default"
        )


def _first_to_lose_order(node: Any) -> str | None:
    """Return the operator or source, nearest to the root, that may change the order, or None."""
    name = node.nodeName()
    kind = node.getClass().getSimpleName()
    if kind == "LogicalRDD":
        level = node.rdd().outputDeterministicLevel().toString()
        return None if level == "DETERMINATE" else f"an RDD that is {level}"
    if not node.subqueries().isEmpty():
        return "a subquery"
    source = _source_of(node, kind)
    if source is not None:
        if not _is_replayable(source):
            return f"the source {source}"
        _check_kafka(node, kind, source)
    elif kind not in _KEEPS_ORDER:
        return str(name)
    children = node.children()
    for number in range(children.size()):
        found = _first_to_lose_order(children.apply(number))
        if found is not None:
            return found
    return None


def _source_of(node: Any, kind: str) -> str | None:
    """Return the class that a leaf reads with, or None if the node is no leaf of that kind."""
    if kind == "LogicalRelation":
        found = node.relation().getClass()
    elif kind in {"DataSourceV2Relation", "StreamingRelationV2"}:
        found = node.table().getClass()
    elif kind == "StreamingRelation":
        found = node.dataSource().providingClass()
    elif kind == "HiveTableRelation":
        found = node.getClass()
    else:
        return None
    return str(found.getName())


def _is_replayable(source: str) -> bool:
    return source.startswith(_SOURCES) or (
        source.startswith("org.apache.spark.sql.")
        and source.endswith(("FileFormat", "HiveTableRelation"))
    )


def _check_kafka(node: Any, kind: str, source: str) -> None:
    """Refuse a Kafka source that goes on where rows have vanished between two attempts."""
    if not source.startswith("org.apache.spark.sql.kafka010.") or kind == "LogicalRelation":
        return
    options = node.extraOptions() if kind == "StreamingRelationV2" else node.options()
    if str(options.get("failondataloss")).lower() == "false":
        raise NotReplayable(
            "the Kafka source has failOnDataLoss=false: a lost task could come back with fewer "
            "rows; set failOnDataLoss to true, Spark's default"
        )
