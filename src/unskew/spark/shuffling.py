"""What went through an exchange, as Spark's own metrics count it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

_WAIT_MS = 5_000
"""How long to wait for Spark to hear of all that its tasks did."""


class ShuffleMeter:
    """Bytes that jobs have written for an exchange; known when they are over.

    Attributes
    ----------
    written : int
        Bytes, or 0 where Spark does not tell in time.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.written = 0
        self._spark = spark
        self._tag = f"unskew-{uuid4().hex}"

    def start(self) -> None:
        """Count the jobs that this thread begins from now on."""
        self._spark.sparkContext.addJobTag(self._tag)

    def stop(self) -> None:
        """Count no more, and ask Spark."""
        context = self._spark.sparkContext
        context.removeJobTag(self._tag)
        inner = context._jsc.sc()
        with suppress(Py4JJavaError):
            inner.listenerBus().waitUntilEmpty(_WAIT_MS)
        store = inner.statusStore()
        for job in inner.statusTracker().getJobIdsForTag(self._tag):
            stages = store.job(job).stageIds()
            for place in range(stages.size()):
                with suppress(Py4JJavaError):
                    stage = store.lastStageAttempt(stages.apply(place))
                    self.written += stage.shuffleWriteBytes()


@contextmanager
def metered(spark: SparkSession) -> Iterator[ShuffleMeter]:
    """Count what the jobs of a block write for exchanges."""
    meter = ShuffleMeter(spark)
    meter.start()
    try:
        yield meter
    finally:
        meter.stop()
