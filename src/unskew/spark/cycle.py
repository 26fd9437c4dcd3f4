"""The cycle of a pipeline: decide, run the stages, commit, deliver, and look at the balance.

Every step can be the last one before the driver dies: what was decided is read back, what was
committed is not done again, and what was not is done anew under other names.
"""

from __future__ import annotations

import json
import logging
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew.balance import Balancer, KeyPairs, Plan
from unskew.balance.resizing import resized
from unskew.errors import CheckpointTaken, WrongCheckpoint
from unskew.operators.hop import Hop
from unskew.operators.task_report import TaskReport
from unskew.spark import node_busy
from unskew.spark.batch_report import BatchReport, batch_report, report_of
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
from unskew.spark.planning import Planner
from unskew.spark.replay import Order, order_of
from unskew.spark.routing import Way, by_plan, route_to_all, send, with_placed
from unskew.spark.settings import Settings
from unskew.spark.shuffling import metered
from unskew.spark.sinks import Output, Sink
from unskew.spark.spark_checkpoint import SparkCheckpoint
from unskew.spark.stages import Stage
from unskew.state import Checkpoint, Manifest
from unskew.state.decision import Decision
from unskew.state.runs import FLUSH, HASH, NO_WATERMARK
from unskew.state.versions import INITIAL, batch_of, version_of

log = logging.getLogger("unskew.pipeline")

_INSTANCE = "unskew_instance"

_REPORTS = 100
"""Batches whose reports a driver holds, for listeners that are told late."""


@dataclass(frozen=True)
class _Done:
    """What a stage did in a batch: the reports of its tasks, and what the merge of parts added."""

    reports: list[TaskReport]
    merged: list[str]
    merge: dict[str, Any]
    pairs: KeyPairs
    shuffled: int

    @property
    def output(self) -> list[str]:
        return [*(name for report in self.reports for name in report.output), *self.merged]

    @property
    def entries(self) -> dict[int, list[str]]:
        """Files with what was folded for the next stage, by instance."""
        return {report.instance: report.entries for report in self.reports if report.entries}


@dataclass
class Cycle:
    """The function that Spark calls with every batch.

    Attributes
    ----------
    stages : sequence of Stage
        In order.
    checkpoint : Checkpoint
        Of the state.
    spark_checkpoint : SparkCheckpoint
        Spark's own, which knows the watermark of each batch.
    order : Order
        Whether the source brings its rows in the same order again.
    sink : Sink
        Takes what comes out.
    settings : Settings
        How state is kept.
    before : callable
        Is told of every batch before it.
    watch : callable
        Is told of every version.
    reports : dict of int to BatchReport
        Of the last batches of this run, by their number.
    """

    stages: Sequence[Stage]
    checkpoint: Checkpoint
    spark_checkpoint: SparkCheckpoint
    order: Order
    sink: Sink
    settings: Settings = field(default_factory=Settings)
    before: Callable[[int], None] | None = None
    watch: Callable[[BatchReport], None] | None = None

    def __post_init__(self) -> None:
        """Begin a run: files of this driver have names that no other has."""
        self._driver = uuid4().hex[:12]
        self._next: tuple[int, list[Plan]] | None = None
        self._begun: float | None = None
        self._pins = Pins()
        self._planner = Planner(beside=self.settings.plan_beside)
        self.reports: dict[int, BatchReport] = {}

    def __call__(self, df: DataFrame, batch: int) -> None:
        """Do all of a batch, or what was left of it."""
        if self.before is not None:
            self.before(batch)
        self._advance(df, version_of(batch), lambda: self.spark_checkpoint.watermark(batch))

    def begin(self, df: DataFrame) -> None:
        """Make the state that rows before the stream would have left, once; nothing comes out."""
        if self.checkpoint.manifest(INITIAL) is None:
            self._commit(df, INITIAL, lambda: NO_WATERMARK)
            self.checkpoint.mark_done(INITIAL)

    def expire(self, df: DataFrame, version: int, watermark: int) -> None:
        """Expire state without new rows: `df` has the columns of the source and no rows."""
        self._advance(df, version, lambda: watermark)

    def _advance(self, df: DataFrame, version: int, watermark: Callable[[], int]) -> None:
        begin = perf_counter()
        manifest = self.checkpoint.manifest(version)
        if manifest is None:
            manifest = self._commit(df, version, watermark)
        else:
            self._check_query(manifest)
        self._deliver(df.sparkSession, manifest)
        delivered = perf_counter()
        self._balance(manifest)
        now = perf_counter()
        self._announce(manifest, seconds=now - begin, pause=now - delivered)
        if version % version_of(self.settings.clean_every) == 0:
            self.checkpoint.collect_garbage(self.settings.kept, self.settings.grace)

    def _commit(self, df: DataFrame, version: int, watermark: Callable[[], int]) -> Manifest:
        """Decide, run, and make it count."""
        number = len(self.stages)
        first = version == INITIAL
        base = Manifest.empty(number) if first else self.checkpoint.newest(version, number)
        self._check_query(base)
        if base.is_committed:
            # After the end of a run, or a flush, the driver may have died in the sink.
            self._deliver(df.sparkSession, base)
        decision = self.checkpoint.decision(version)
        if decision is None:
            decision = self._decide(base, watermark())
            self.checkpoint.decide(version, decision)
        if decision.base != base.version:
            raise CheckpointTaken(
                f"batch {batch_of(version)} was to go on from version {decision.base}, and "
                f"{self.checkpoint.folder} has {base.version} by now: another run of the query is "
                f"still at work; stop one of them, and start again"
            )
        began = perf_counter()
        done = self._run(df, version, base, decision)
        seconds = perf_counter() - began
        # A batch is given as long as the one before was: what comes after it is not known yet.
        interval = seconds if self._begun is None else max(seconds, began - self._begun)
        self._begun = began
        took = {
            "seconds": seconds,
            "interval": interval,
            "elsewhere": node_busy.elsewhere(self._driver, interval),
        }
        manifest = self._manifest(version, base, decision, done, took)
        tasks = [report for each in done for report in each.reports]
        node_busy.note(self._driver, seconds, node_busy.busy_of(tasks))
        self.checkpoint.commit(manifest)
        self._remove_intermediate(done)
        return manifest

    def _decide(self, base: Manifest, watermark: int) -> Decision:
        """Return plans, watermark and what the balancers remember."""
        if self._next is None or self._next[0] != base.version:
            self._next = (base.version, self._plans_after(base))
        return Decision(
            plans=self._next[1],
            watermark=max(watermark, base.facts.get("watermark", NO_WATERMARK)),
            base=base.version,
            balancers=[
                {"name": stage.balancer.name, "knows": _snapshot(stage.balancer)}
                for stage in self.stages
            ],
        )

    def _plans_after(self, base: Manifest) -> list[Plan]:
        """Return the plans that follow a manifest, as the driver that wrote it would have."""
        if not base.is_committed:
            return [Plan.even(stage.shards, stage.instances) for stage in self.stages]
        return self._balance(base)

    def _balance(self, manifest: Manifest) -> list[Plan]:
        """Show the balancers what was measured; return, and keep, their plans for what follows."""
        decision = self.checkpoint.decided(manifest.version)
        reports = [report_of(manifest, number, each) for number, each in enumerate(self.stages)]
        plans = []
        for number, stage in enumerate(self.stages):
            known = decision.balancers[number]
            # Another balancer than before begins with the plan, and knows nothing.
            if known.get("name") == stage.balancer.name:
                _restore(stage.balancer, known["knows"])
            if stage.balancer.is_joint:
                plans.append(decision.plans[number])
            else:
                plans.append(stage.balancer.next_plan(decision.plans[number], reports[number]))
        joint = self.stages[0].balancer
        if joint.is_joint:
            plans = self._planner.next_plans(joint, plans, reports)
        plans = [_for_instances(*each) for each in zip(plans, self.stages, strict=True)]
        self._next = (manifest.version, plans)
        return plans

    def _run(self, df: DataFrame, version: int, base: Manifest, decision: Decision) -> list[_Done]:
        """Run the stages, each as a job over what the one before has written.

        So every job has one shuffle and returns what its tasks did as rows: whichever attempts
        Spark takes, their files and their reports are those of the same ones.
        """
        rows, order = df, self.order
        done: list[_Done] = []
        for number, stage in enumerate(self.stages):
            work = self._work(number, version, base, decision)
            if done:
                work = replace(work, entries=done[-1].entries)
            done.append(self._run_stage(stage, work, rows, order))
            if number < len(self.stages) - 1:
                rows = self._output(df.sparkSession, stage, done[-1].output).rows()
                order = order_of(rows)
        return done

    def _work(self, number: int, version: int, base: Manifest, decision: Decision) -> StageWork:
        plan = decision.plans[number]
        before = self.checkpoint.decision(base.version) if base.is_committed else None
        earlier = before.plans[number] if before else plan
        return StageWork(
            operator=self.stages[number].operator,
            plan=plan.to_json(),
            cooled=plan.cooled(earlier),
            stage=number,
            base=base.version if base.is_committed else None,
            folder=str(self.checkpoint.folder),
            cache=self.settings.cache,
            name=f"{self._driver}-{version}",
            late=base.late(number),
            watermark=self._reached(number, decision.watermark),
            most_bytes=self.settings.most_bytes,
            rehomed=plan.rehomed(earlier),
            hop=self._hop(number, base, decision),
        )

    def _hop(self, number: int, base: Manifest, decision: Decision) -> Hop | None:
        """Return the hop from a stage to the next, if rows of that may be folded where they are."""
        if number + 1 == len(self.stages):
            return None
        stage, following = self.stages[number : number + 2]
        # Without a merge there is nothing that a part of a state could be.
        if following.taken is None or not following.operator.can_split:
            return None
        names = {field.name for field in stage.operator.output}
        own = tuple(field.name for field in stage.operator.keys)
        return Hop(
            operator=following.operator,
            plan=decision.plans[number + 1],
            keys=following.taken.keys,
            values=following.taken.values,
            time=following.taken.time,
            late=base.late(number + 1),
            own=own if names.issuperset(own) and not stage.operator.windowed else (),
            pairs=stage.balancer.counts_pairs,
        )

    def _run_stage(self, stage: Stage, work: StageWork, rows: DataFrame, order: Order) -> _Done:
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
        with _not_adaptive(rows.sparkSession), metered(rows.sparkSession) as meter:
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
        told = [each for each in result.column(PAIRS).to_pylist() if each is not None]
        pairs = KeyPairs.together([KeyPairs.from_bytes(each) for each in told])
        pairs = pairs.most(stage.balancer.counts_pairs)
        if not parts:
            return _Done(reports, [], {}, pairs, meter.written)
        path = self.checkpoint.output / f"{work.name}-{work.stage}-merge.parquet"
        rows_out = write_output([stage.operator.merge(pa.concat_batches(parts))], path)
        facts = {"stage": work.stage, "rows_out": rows_out, "seconds": perf_counter() - began}
        merged = [path.name] if rows_out else []
        return _Done(reports, merged, facts, pairs, meter.written)

    def _sent(self, rows: DataFrame, instances: int, way: Way) -> DataFrame:
        """Return rows with their instances, which run where they did in the last batch."""
        if not self.settings.pin or len(live_executors(rows.sparkSession)) < 2:
            return send(rows, instances, way)
        sent = send(rows, instances, way, _INSTANCE)
        return self._pins.pin(sent, instances, _INSTANCE).drop(_INSTANCE)

    def _manifest(
        self,
        version: int,
        base: Manifest,
        decision: Decision,
        done: list[_Done],
        took: dict[str, Any],
    ) -> Manifest:
        stages = [dict(shards) for shards in base.stages]
        for number, stage_done in enumerate(done):
            for report in stage_done.reports:
                for shard, runs in report.runs.items():
                    if runs:
                        stages[number][shard] = runs
                    else:
                        stages[number].pop(shard, None)
        is_flush = decision.watermark == FLUSH
        watermark = base.facts.get("watermark", NO_WATERMARK) if is_flush else decision.watermark
        facts = {
            "query": self.spark_checkpoint.query_id(),
            "watermark": watermark,
            "late": [
                max(
                    base.late(number),
                    self._reached(number, watermark),
                    self._flushed(number, done[number]),
                )
                for number in range(len(done))
            ],
            **took,
            "tasks": [report.without_runs() for each in done for report in each.reports],
            "merges": [each.merge for each in done if each.merge],
            "shuffled": [each.shuffled for each in done],
            "pairs": [b64encode(each.pairs.to_bytes()).decode() for each in done],
            **self._moved(base, decision),
        }
        return Manifest(version, stages, done[-1].output, facts)

    def _reached(self, number: int, watermark: int) -> int:
        """Return the watermark of a stage: those before it may let rows out that are behind it."""
        if watermark in (NO_WATERMARK, FLUSH):
            return watermark
        return watermark - sum(stage.operator.delay for stage in self.stages[:number])

    def _flushed(self, number: int, done: _Done) -> int:
        """Return the end of the last window that has come out: rows for it are late from now on."""
        if not self.stages[number].operator.windowed:
            return NO_WATERMARK
        return max(report.expired_up_to for report in done.reports)

    def _moved(self, base: Manifest, decision: Decision) -> dict[str, list[int]]:
        """Return of each stage what is elsewhere than before: shards, their bytes, hot keys."""
        earlier = self.checkpoint.decided(base.version).plans if base.is_committed else ()
        plans = list(zip(earlier or decision.plans, decision.plans, strict=True))
        moves = [new.moves(old) for old, new in plans]
        sizes = [base.state_bytes(number) for number in range(len(plans))]
        return {
            "moves": [len(each) for each in moves],
            "hot_moves": [len(new.hot_moves(old)) for old, new in plans],
            "key_moves": [_keys_moved(old, new) for old, new in plans],
            "bytes_moved": [
                sum(size.get(shard, 0) for shard, _, _ in each)
                for each, size in zip(moves, sizes, strict=True)
            ],
        }

    def _remove_intermediate(self, done: list[_Done]) -> None:
        """Remove what one stage has written for the next: nobody needs it any more."""
        for each in done[:-1]:
            folded = [name for names in each.entries.values() for name in names]
            for name in (*each.output, *folded):
                (self.checkpoint.output / name).unlink(missing_ok=True)

    def _deliver(self, spark: SparkSession, manifest: Manifest) -> None:
        """Give the sink a version, unless it is known to have it."""
        if not self.checkpoint.is_done(manifest.version):
            self.sink.write(self._output(spark, self.stages[-1], manifest.output), manifest.version)
            self.checkpoint.mark_done(manifest.version)

    def _output(self, spark: SparkSession, stage: Stage, names: Sequence[str]) -> Output:
        files = [self.checkpoint.output / name for name in names]
        return Output(spark, files, stage.output, self.spark_checkpoint.query_id())

    def _announce(self, manifest: Manifest, seconds: float, pause: float) -> None:
        """Write the log line of a batch, and call who wants to know."""
        report = batch_report(manifest, self.stages, seconds, pause)
        log.info(
            "batch %d: %d rows in %.2f s, %d late, %d out, %s shards moved",
            *(report.batch, report.rows, seconds, report.late, report.rows_out),
            sum(report.moves),
        )
        if report.kind == "batch":
            self.reports[report.batch] = report
            self.reports.pop(report.batch - _REPORTS, None)
        if self.watch is not None:
            self.watch(report)

    def _check_query(self, manifest: Manifest) -> None:
        """Refuse state of another query: its batches have the same numbers and other rows."""
        theirs, own = manifest.facts.get("query"), self.spark_checkpoint.query_id()
        if theirs is not None and theirs != own:
            raise WrongCheckpoint(
                f"{self.checkpoint.folder} is the state of query {theirs}, and this is query {own}"
                f"; start it with the checkpoint of Spark that it was written with, or name an "
                f"empty folder for the state"
            )


@contextmanager
def _not_adaptive(spark: SparkSession) -> Iterator[None]:
    """Keep Spark from leaving out instances that have no rows: they have state that may expire."""
    name = "spark.sql.adaptive.enabled"
    before = spark.conf.get(name) or "true"
    spark.conf.set(name, "false")
    try:
        yield
    finally:
        spark.conf.set(name, before)


def _function(work: Callable[[Any], Any]) -> Callable[[Any], Any]:
    # A small function of its own, as PySpark reads annotations.
    def run(batches: Any) -> Any:
        return work(batches)

    return run


def _for_instances(plan: Plan, stage: Stage) -> Plan:
    """Return a plan for as many instances as a balancer asks for, where it may, or as were given.

    Where another number was given than before, all keys are whole in it.
    """
    if stage.balancer.bounds is not None:
        least, most = stage.balancer.bounds
        return resized(plan, min(most, max(least, plan.instances)))
    if plan.instances == stage.instances:
        return plan
    new = resized(plan, stage.instances)
    return Plan(new.assignment, new.instances, new.epoch, placed=new.placed)


def _keys_moved(old: Plan, new: Plan) -> int:
    """Return how many keys another plan has on another instance because they are placed there."""
    _, shards, to = new.rehomed(old)
    return int(np.count_nonzero(old.assignment[shards] != new.assignment[to]))


def _snapshot(balancer: Balancer) -> dict[str, Any]:
    return {
        name: {
            "type": array.dtype.str,
            "shape": array.shape,
            "data": b64encode(array.tobytes()).decode(),
        }
        for name, array in balancer.snapshot().items()
    }


def _restore(balancer: Balancer, data: dict[str, Any]) -> None:
    balancer.restore({name: _array(each) for name, each in data.items()})


def _array(data: dict[str, Any]) -> NDArray[Any]:
    if "values" in data:
        # As earlier versions wrote it.
        return np.array(data["values"], dtype=data["type"])
    return np.frombuffer(b64decode(data["data"]), data["type"]).reshape(data["shape"]).copy()
