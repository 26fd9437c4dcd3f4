"""A running pipeline: Spark's query, and what only a pipeline can be asked."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from unskew.errors import BadParameter
from unskew.spark.cycle import Cycle
from unskew.state.runs import FLUSH, NO_WATERMARK
from unskew.state.versions import Kind, version_of


class PipelineQuery(StreamingQuery):
    """The StreamingQuery of a pipeline; ``start`` returns it.

    Where the trigger is ``availableNow`` or ``once``, `awaitTermination` ends with one more cycle
    that has no rows: what the last watermark made final comes out, as of Spark's own stateful
    queries.
    """

    def __init__(self, query: Any, cycle: Cycle, source: DataFrame, *, ends: bool) -> None:
        super().__init__(query)
        self._cycle = cycle
        self._source = source
        self._ends = ends

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802
        """Wait for the end, then let expire what the last watermark has passed."""
        done = super().awaitTermination() if timeout is None else super().awaitTermination(timeout)
        if self._ends and not self.isActive and self.exception() is None:
            self._settle()
        if self.is_over():
            self._cycle.close()
        return done

    def stop(self) -> None:
        """Stop the query, and what it has running in the driver."""
        super().stop()
        self._cycle.close()

    def is_over(self) -> bool:
        """Return whether it will do no more, as it does when Spark is gone."""
        try:
            return not self.isActive
        except (Py4JError, OSError):
            return True

    def flush(self) -> None:
        """Let all state expire that ever would, and have what comes of it; the query must be over.

        Rows that come later for windows that were flushed are late.

        Raises
        ------
        BadParameter
            If the query is still running, has failed, or was stopped in the middle of a batch.
        """
        if self.isActive:
            raise BadParameter("a running query cannot be flushed; stop() it first")
        batch = self._cycle.spark_checkpoint.last_batch()
        if self.exception() is not None or self._has_begun_after(batch):
            raise BadParameter(
                "a query that was stopped in the middle of a batch cannot be flushed; start it "
                "once more, with availableNow=True, and flush that"
            )
        if batch is not None:
            self._expire(version_of(batch, Kind.FLUSHED), FLUSH)

    def _settle(self) -> None:
        """Expire what the watermark after the last batch has passed, unless more has happened."""
        cycle = self._cycle
        batch = cycle.spark_checkpoint.last_batch()
        if batch is None or self._has_begun_after(batch):
            return
        if cycle.checkpoint.decision(version_of(batch, Kind.FLUSHED)) is not None:
            return
        settled = version_of(batch, Kind.SETTLED)
        watermark = cycle.spark_checkpoint.watermark_after(batch)
        manifest = cycle.checkpoint.newest(settled, len(cycle.stages))
        # A driver may have died between the commit of this and its sink.
        begun = cycle.checkpoint.decision(settled) is not None
        if begun or watermark > manifest.facts.get("watermark", NO_WATERMARK):
            self._expire(settled, watermark)

    def _has_begun_after(self, batch: int | None) -> bool:
        following = version_of(0 if batch is None else batch + 1)
        return self._cycle.checkpoint.decision(following) is not None

    def _expire(self, version: int, watermark: int) -> None:
        self._cycle.expire(_without_rows(self._source), version, watermark)


def _without_rows(df: DataFrame) -> DataFrame:
    """Return the columns of a DataFrame and no rows, which Spark must not know beforehand."""
    spark = df.sparkSession
    return spark.createDataFrame(spark.sparkContext.emptyRDD(), df.schema)
