"""What the batches of a pipeline did, noted one by one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from unskew.apps.base import App, Batch, Options, Summary, Watch
from unskew.spark import Balance, BatchReport


class Log(ABC):
    """The batches of a run, as the pipeline tells and as the stream is known to be.

    Attributes
    ----------
    batches, reports : list
        Of this run.
    """

    def __init__(self, watch: Watch) -> None:
        self.batches: list[Batch] = []
        self.reports: list[BatchReport] = []
        self._watch = watch

    @abstractmethod
    def note(self, report: BatchReport) -> None:
        """Take the report of a batch."""

    def summary(self, app: App, options: Options, **other: Any) -> Summary:
        """Return what the batches come to, with the other attributes."""
        return Summary(
            app=app.name,
            strategy=app.strategy(options),
            rows_in=sum(batch.rows for batch in self.batches),
            rows_out=sum(report.rows_out for report in self.reports),
            batches=self.batches,
            **other,
        )

    def _add(self, report: BatchReport, rows: int, keys: int, balance: Balance) -> None:
        """Keep what a batch did, and tell of it."""
        self.reports.append(report)
        self.batches.append(Batch(report.batch, rows, keys, report.seconds, balance))
        self._watch(self.batches[-1])
