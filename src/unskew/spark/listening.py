"""Spark's own hook for monitoring, with what a pipeline knows of each batch."""

from __future__ import annotations

from abc import abstractmethod
from weakref import WeakValueDictionary

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from unskew.spark.batch_report import BatchReport
from unskew.spark.cycle import Cycle

_cycles: WeakValueDictionary[str, Cycle] = WeakValueDictionary()
"""Of the queries that this driver has started, by the id of the run."""


class PipelineListener(StreamingQueryListener):
    """A StreamingQueryListener that is told of every batch of every pipeline of its session.

    Give it an `onBatch` and add it with ``spark.streams.addListener``. Spark's other events can be
    listened to as of any listener. Cycles that have no rows, at the end of a run and by ``flush``,
    are no batches of Spark's: ``start(..., watch=...)`` tells of those, too.

    Examples
    --------
    >>> class Alarm(PipelineListener):
    ...     def onBatch(self, report, progress):
    ...         print(progress.name, report.batch, report.loads[0].max() / report.loads[0].mean())
    >>> spark.streams.addListener(Alarm())                            # doctest: +SKIP
    """

    @abstractmethod
    def onBatch(  # noqa: N802
        self, report: BatchReport, progress: StreamingQueryProgress
    ) -> None:
        """Be told of a batch, by the pipeline and by Spark."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Look for the report of a batch that Spark tells of."""
        cycle = _cycles.get(str(event.progress.runId))
        report = None if cycle is None else cycle.reports.get(event.progress.batchId)
        if report is not None:
            self.onBatch(report, event.progress)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing."""


def register(run: str, cycle: Cycle) -> None:
    """Have listeners find the reports of a query."""
    _cycles[run] = cycle
