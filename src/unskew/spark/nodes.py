"""Nodes: which executors there are, and how instances are kept on them.

An anchor is a cached table with one row for each instance, whose blocks lie on the executors. Rows
that are joined with it run where its block is, if Spark has no other wish: so instance i stays on
its executor, and finds there what it has read before. Nothing is wrong where that fails.
"""

from __future__ import annotations

import logging
import socket
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew.errors import UnsupportedFolder
from unskew.spark.columns import quoted
from unskew.spark.executor import executor

log = logging.getLogger("unskew.pipeline")

ANCHOR = "unskew_anchor"

_NEEDED = "spark.shuffle.reduceLocality.enabled=false and spark.locality.wait=30s"
"""Settings that a context must be started with."""

_LEAST_WAIT_MS = 10_000
"""Spark waits 3 s by default, which a busy executor is longer than."""

_SPREAD_SECONDS = 0.2
"""How long a task that makes an anchor lasts: shorter ones pile up on the first executor."""

_ATTEMPTS = 3


@dataclass(frozen=True)
class Anchor:
    """Where instances are kept.

    Attributes
    ----------
    table : DataFrame
        One cached row for each instance.
    executors : frozenset of str
        Those that were alive when it was made.
    """

    table: DataFrame
    executors: frozenset[str]


class Pins:
    """Keep every instance on an executor, as long as that lives; made anew when others come or go.

    On a single executor there is nothing to keep, and where the context was started without the
    settings that it takes, instances wander, with one warning.
    """

    def __init__(self) -> None:
        self._anchors: dict[int, Anchor] = {}
        self._warned = False
        self.made = 0

    def pin(self, sent: DataFrame, instances: int, column: str) -> DataFrame:
        """Return rows that were sent by a column so that each instance runs where it is kept."""
        spark = sent.sparkSession
        executors = live_executors(spark)
        if len(executors) < 2 or not self._is_possible(spark):
            return sent
        anchor = self._anchors.get(instances)
        if anchor is None or anchor.executors != executors:
            anchor = self._make(spark, instances, executors)
        kept = anchor.table.hint("shuffle_hash")
        joined = sent.join(kept, sent[quoted(column)] == kept[ANCHOR])
        return joined.drop(kept[ANCHOR])

    def _make(self, spark: SparkSession, instances: int, executors: frozenset[str]) -> Anchor:
        """Make anchors until one is spread evenly; keep the last if none is."""
        old = self._anchors.pop(instances, None)
        if old is not None:
            old.table.unpersist()
        for attempt in range(_ATTEMPTS):
            table = (
                spark.range(instances)
                .select(F.col("id").cast("int").alias(ANCHOR))
                .repartitionById(instances, F.col(ANCHOR))
                .mapInArrow(_slowly, f"{ANCHOR} int")
                .repartitionById(instances, F.col(ANCHOR))
                .cache()
            )
            table.count()
            places = Counter(row[0] for row in table.mapInArrow(_place, "node string").collect())
            most = -(-instances // len(executors))
            if max(places.values()) <= most or attempt == _ATTEMPTS - 1:
                break
            table.unpersist()
        self.made += 1
        log.info("%d instances on %s", instances, dict(places))
        self._anchors[instances] = Anchor(table, executors)
        return self._anchors[instances]

    def _is_possible(self, spark: SparkSession) -> bool:
        conf = spark.sparkContext._jsc.sc().conf()
        reduce_locality = conf.getBoolean("spark.shuffle.reduceLocality.enabled", True)
        wait = conf.getTimeAsMs("spark.locality.wait", "3s")
        possible = not reduce_locality and wait >= _LEAST_WAIT_MS
        if not possible and not self._warned:
            self._warned = True
            log.warning(
                "instances are not kept on their executors, as spark.shuffle.reduceLocality.enabled"
                " is %s and spark.locality.wait is %s ms; start the context with %s",
                *(str(reduce_locality).lower(), wait, _NEEDED),
            )
        return possible


def live_executors(spark: SparkSession) -> frozenset[str]:
    """Return the executors that are alive, the driver not among them unless it is the only one."""
    executors = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    found = {each.id(): each.hostPort() for each in map(executors.apply, range(executors.size()))}
    if len(found) > 1:
        found.pop("driver", None)
    return frozenset(found.values())


def check_executors(spark: SparkSession, folder: Path) -> None:
    """See that the executors have the folder of the driver, where there are several.

    Raises
    ------
    UnsupportedFolder
        If one of them does not.
    """
    executors = len(live_executors(spark))
    if executors < 2:
        return
    document = folder / "pipeline.json"

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(_SPREAD_SECONDS)
        if not document.exists():
            yield from _place(batches)

    tasks = spark.range(0, executors, 1, executors)
    blind = {row[0] for row in tasks.mapInArrow(look, "node string").collect()}
    if blind:
        raise UnsupportedFolder(
            f"{', '.join(sorted(blind))} cannot see {document}, which the driver has written; put "
            f"the state in a folder that the driver and all executors share"
        )


def _slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    time.sleep(_SPREAD_SECONDS)
    yield from batches


def _place(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    yield pa.RecordBatch.from_arrays([pa.array([node()["name"]])], ["node"])


def node() -> dict[str, Any]:
    """Return which executor this is, by its machine and process, its cores, and memory in use."""
    own = executor()
    found = {
        "name": f"{socket.gethostname()}:{own.process}",
        "memory": psutil.virtual_memory().percent / 100,
    }
    return found if own.cores is None else {**found, "cores": own.cores}
