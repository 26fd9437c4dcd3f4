"""The job of a stage in one batch: rows go to its instances, and what tasks did comes back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew.balance import KeyPairs, Plan
from unskew.operators.step import stepped
from unskew.operators.task_report import TaskReport
from unskew.spark.columns import quoted
from unskew.spark.nodes import Pins, live_executors
from unskew.spark.pipeline_worker import (
    PAIRS,
    PARTS,
    REPORT,
    RESULT,
    StageWork,
    unpacked,
    write_output,
)
from unskew.spark.replay import Order
from unskew.spark.routing import Way, by_plan, route_to_all, send, with_placed
from unskew.spark.shuffling import metered
from unskew.spark.stages import Stage
from unskew.state.runs import HASH

_INSTANCE = "unskew_instance"

_FOR_TASKS = {
    # Spark would leave out instances that have no rows: they have state that may expire.
    "spark.sql.adaptive.enabled": "false",
    # By count alone, batches of large rows are tens of megabytes: slow to grow and to send.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(4 << 20),
}
"""Spark's settings while tasks of a stage are planned."""


@dataclass(frozen=True)
class Done:
    """What a stage did in a batch.

    Attributes
    ----------
    reports : list of TaskReport
        Of its tasks, in order.
    merged : list of str
        Names of the files with what the merge of parts of hot keys let out.
    merge : dict
        What that took, in words that JSON knows.
    pairs : dict of int to KeyPairs
        By stage that follows, the pairs of keys that rows had most often.
    shuffled : int
        Bytes that went through the exchange before it.
    """

    reports: list[TaskReport]
    merged: list[str]
    merge: dict[str, Any]
    pairs: dict[int, KeyPairs]
    shuffled: int

    @property
    def output(self) -> list[str]:
        """Names of the files with what came out."""
        return [*(name for report in self.reports for name in report.output), *self.merged]

    def entries(self, following: int) -> dict[int, list[str]]:
        """Return the files with what was folded for a stage that follows, by instance."""
        return {
            report.instance: report.entries[following]
            for report in self.reports
            if following in report.entries
        }

    @property
    def folded(self) -> list[str]:
        """Files with what was folded, for whichever stage."""
        return [
            name for report in self.reports for names in report.entries.values() for name in names
        ]


class StageJobs:
    """Run stages; their instances stay on the executors where they were.

    Parameters
    ----------
    output : Path
        Folder of what comes out.
    pin : bool
        Whether to keep instances on their executors, where there are several.
    """

    def __init__(self, output: Path, *, pin: bool) -> None:
        self._output = output
        self._pin = pin
        self._pins = Pins()

    def run(self, stage: Stage, work: StageWork, rows: DataFrame, order: Order) -> Done:
        """Run the tasks of a stage, then merge what they told of hot keys."""
        plan = Plan.from_json(work.plan)
        taken = rows.select(*stage.columns)
        way = by_plan(taken, plan, F.col(HASH), order, seed=0, is_varied=False)
        names = [quoted(name) for name in taken.columns]
        if len(plan.placed):
            taken, way = with_placed(taken, plan, way)
        if stage.operator.looks_everywhere and plan.hot:
            taken, way = route_to_all(taken, plan, way)
        sent = self._sent(taken, plan.instances, way).select(*names)
        with _set_for_tasks(rows.sparkSession), metered(rows.sparkSession) as meter:
            result = sent.mapInArrow(_function(work.run), RESULT).toArrow()
        texts = result.column(REPORT).to_pylist()
        reports = [TaskReport.from_json(json.loads(text)) for text in texts]
        reports.sort(key=lambda report: report.instance)
        if [report.instance for report in reports] != list(range(plan.instances)):
            raise RuntimeError(
                f"stage {stage.name!r} has {plan.instances} instances, and "
                f"{[report.instance for report in reports]} told what they did; report this"
            )
        began = perf_counter()
        parts = unpacked(result.column(PARTS).to_pylist())
        pairs = _together(work, result.column(PAIRS).to_pylist(), stage.balancer.counts_pairs)
        if not parts:
            return Done(reports, [], {}, pairs, meter.written)
        path = self._output / f"{work.name}-{work.stage}-merge.parquet"
        made = stepped(stage.operator.merge(pa.concat_batches(parts)), stage.steps)
        rows_out = write_output([made], path)
        facts = {"stage": work.stage, "rows_out": rows_out, "seconds": perf_counter() - began}
        merged = [path.name] if rows_out else []
        return Done(reports, merged, facts, pairs, meter.written)

    def _sent(self, rows: DataFrame, instances: int, way: Way) -> DataFrame:
        """Return rows with their instances, which run where they did in the last batch."""
        if not self._pin or len(live_executors(rows.sparkSession)) < 2:
            return send(rows, instances, way)
        sent = send(rows, instances, way, _INSTANCE)
        return self._pins.pin(sent, instances, _INSTANCE).drop(_INSTANCE)


def _together(
    work: StageWork, told: Sequence[Sequence[bytes | None]], most: int
) -> dict[int, KeyPairs]:
    """Return the pairs that all tasks of a stage have counted, for each of its hops."""
    return {
        number: KeyPairs.together(
            [KeyPairs.from_bytes(each) for each in counted if each is not None]
        ).most(most)
        for number, counted in zip(sorted(work.hops), zip(*told, strict=True), strict=True)
    }


@contextmanager
def _set_for_tasks(spark: SparkSession) -> Iterator[None]:
    """Have Spark's settings as tasks need them."""
    before = {name: spark.conf.get(name, None) for name in _FOR_TASKS}
    for name, value in _FOR_TASKS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in before.items():
            if was is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, was)


def _function(work: Callable[[Any], Any]) -> Callable[[Any], Any]:
    # A small function of its own, as PySpark reads annotations.
    def run(batches: Any) -> Any:
        return work(batches)

    return run
