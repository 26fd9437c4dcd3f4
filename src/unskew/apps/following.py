"""Follow a streaming query, batch by batch, to its end."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from unskew.apps.base import Batch, Watch
from unskew.spark import Balance

OBSERVED = "balance"
"""Name under which `aggregate` observes the balance."""

_ENOUGH = "all batches that were asked for are done"


class Enough(RuntimeError):
    """Raised in a batch to end an endless stream before it: the batch is not committed."""

    def __init__(self) -> None:
        super().__init__(_ENOUGH)


def committed(checkpoint: Path) -> int:
    """Return how many batches earlier runs have committed."""
    commits = checkpoint / "commits"
    numbers = [int(path.name) for path in commits.glob("[0-9]*")] if commits.is_dir() else []
    return max(numbers, default=-1) + 1


@contextmanager
def all_offsets(spark: SparkSession) -> Iterator[None]:
    """Have Spark keep its notes on every batch of a query that is started, for `watermarks`."""
    name = "spark.sql.streaming.minBatchesToRetain"
    before = spark.conf.get(name) or "100"
    spark.conf.set(name, str(2**30))
    try:
        yield
    finally:
        spark.conf.set(name, before)


def watermarks(checkpoint: Path, batches: int) -> list[int]:
    """Return the watermark that Spark had for each of the first batches, in milliseconds."""
    notes = (checkpoint / "offsets" / str(batch) for batch in range(batches))
    return [json.loads(note.read_text().splitlines()[1])["batchWatermarkMs"] for note in notes]


def follow(query: StreamingQuery, watch: Watch) -> list[Batch]:
    """Tell of the batches as they end, until the query does; return them."""
    batches: list[Batch] = []

    def look() -> None:
        for progress in query.recentProgress:
            seen = batches[-1].number if batches else -1
            if progress.numInputRows and progress.batchId > seen:
                batches.append(_batch(progress))
                watch(batches[-1])

    wait(query, look)
    return batches


def wait(query: StreamingQuery, look: Callable[[], None] = lambda: None) -> None:
    """Wait until a query ends, by `Enough` too; look after it every second, and once at the end."""
    with _quiet_end():
        try:
            while True:
                active = query.isActive
                look()
                if not active:
                    break
                with suppress(StreamingQueryException):
                    query.awaitTermination(1)
            failure = query.exception()
            if failure is not None and _ENOUGH not in str(failure):
                raise failure
        finally:
            query.stop()


def _batch(progress: Any) -> Batch:
    return Batch(
        number=progress.batchId,
        rows=progress.numInputRows,
        keys=progress.stateOperators[0].numRowsUpdated,
        seconds=progress.batchDuration / 1000,
        balance=Balance.of(progress.observedMetrics[OBSERVED]),
    )


@contextmanager
def _quiet_end() -> Iterator[None]:
    """Keep py4j from logging the error that ends an endless stream."""
    logger = logging.getLogger("py4j.clientserver")

    def is_news(record: logging.LogRecord) -> bool:
        return not (record.exc_info and _ENOUGH in str(record.exc_info[1]))

    logger.addFilter(is_news)
    try:
        yield
    finally:
        logger.removeFilter(is_news)
