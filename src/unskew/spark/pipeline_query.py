"""A running pipeline: Spark's query, and what only a pipeline can be asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from unskew.errors import BadParameter
from unskew.operators.task import NO_WATERMARK
from unskew.spark.cycle import Cycle
from unskew.state.checkpoint import FLUSHED, SETTLED, version_of
from unskew.state.runs import NEVER


class PipelineQuery(StreamingQuery):
    """The StreamingQuery of a pipeline; ``start`` returns it.

    Where the trigger is ``availableNow``, `awaitTermination` ends with one more cycle that has no
    rows: what the last watermark made final comes out, as of Spark's own stateful queries.
    """

    def __init__(self, query: Any, cycle: Cycle, source: DataFrame, *, ends: bool) -> None:
        super().__init__(query)
        self._cycle = cycle
        self._source = source
        self._ends = ends

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802
        """Wait for the end, as of any query."""
        done = super().awaitTermination() if timeout is None else super().awaitTermination(timeout)
        if self._ends and not self.isActive and self.exception() is None:
            self._settle()
        return done

    def flush(self) -> None:
        """Let all state expire that ever would, and have what comes of it; the query must be over.

        Rows that come later for what was flushed are late.

        Raises
        ------
        BadParameter
            If the query is still running.
        """
        if self.isActive:
            raise BadParameter("a running query cannot be flushed; stop() it first")
        self._expire(FLUSHED, NEVER - 1)

    def _settle(self) -> None:
        """Expire what the watermark after the last batch has passed."""
        batch = self._last_batch()
        if batch is None:
            return
        watermark = self._latest_watermark()
        manifest = self._cycle.checkpoint.newest(
            version_of(batch, FLUSHED), len(self._cycle.stages)
        )
        checkpoint, settled = self._cycle.checkpoint, version_of(batch, SETTLED)
        # A driver may have died between the commit of the last one and its sink.
        begun = checkpoint.plan(settled) is not None and not checkpoint.is_done(settled)
        if begun or watermark > manifest.facts.get("watermark", NO_WATERMARK):
            self._expire(SETTLED, watermark)

    def _expire(self, kind: int, watermark: int) -> None:
        batch = self._last_batch()
        if batch is not None:
            self._cycle.expire(_without_rows(self._source), version_of(batch, kind), watermark)

    def _last_batch(self) -> int | None:
        """Return the last batch that Spark has committed."""
        folder = self._cycle.offsets.parent / "commits"
        numbers = [int(path.name) for path in folder.glob("[0-9]*")]
        return max(numbers, default=None)

    def _latest_watermark(self) -> int:
        """Return the watermark that the next batch would have."""
        batch = self._last_batch()
        path = Path(self._cycle.offsets.parent) / "commits" / str(batch)
        lines = path.read_text().splitlines()
        millis = json.loads(lines[1]).get("nextBatchWatermarkMs", 0)
        return int(millis) * 1000 if millis else NO_WATERMARK


def _without_rows(df: DataFrame) -> DataFrame:
    """Return the columns of a DataFrame and no rows, which Spark must not know beforehand."""
    spark = df.sparkSession
    return spark.createDataFrame(spark.sparkContext.emptyRDD(), df.schema)
