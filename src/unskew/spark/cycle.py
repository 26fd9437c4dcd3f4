"""The cycle of a pipeline: decide, run the stages, commit, deliver, and look at the balance.

Every step can be the last one before the driver dies: what was decided is read back, what was
committed is not done again, and what was not is done anew under other names.
"""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StructField, StructType

from unskew.balance import Balancer, Plan
from unskew.balance.resizing import resized
from unskew.errors import CheckpointTaken, WrongCheckpoint
from unskew.operators.hop import Hop
from unskew.operators.parting import FOLDED
from unskew.spark import node_busy
from unskew.spark.batch_report import BatchReport, batch_report, report_of
from unskew.spark.pipeline_worker import StageWork
from unskew.spark.planning import Planner
from unskew.spark.readings import Reading, last_readings
from unskew.spark.replay import Order, order_of
from unskew.spark.settings import Settings
from unskew.spark.sinks import Output, Sink
from unskew.spark.spark_checkpoint import SparkCheckpoint
from unskew.spark.stage_jobs import Done, StageJobs
from unskew.spark.stages import Stage, delay_before, ends_of, followers_of
from unskew.state import Checkpoint, Manifest
from unskew.state.decision import Decision
from unskew.state.runs import FLUSH, NO_WATERMARK
from unskew.state.versions import INITIAL, batch_of, version_of

log = logging.getLogger("unskew.pipeline")

_REPORTS = 100
"""Batches whose reports a driver holds, for listeners that are told late."""


@dataclass
class Cycle:
    """The function that Spark calls with every batch.

    Attributes
    ----------
    stages : sequence of Stage
        In order: each comes after the one that feeds it.
    checkpoint : Checkpoint
        Of the state.
    spark_checkpoint : SparkCheckpoint
        Spark's own, which knows the watermark of each batch.
    order : Order
        Whether the source brings its rows in the same order again.
    sinks : mapping of int to Sink
        By the number of each stage that feeds no other: takes what comes out of it.
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
    sinks: Mapping[int, Sink]
    settings: Settings = field(default_factory=Settings)
    before: Callable[[int], None] | None = None
    watch: Callable[[BatchReport], None] | None = None

    def __post_init__(self) -> None:
        """Begin a run: files of this driver have names that no other has."""
        self._driver = uuid4().hex[:12]
        self._next: tuple[int, list[Plan]] | None = None
        self._begun: float | None = None
        self._since: dict[str, Reading] = {}
        self._jobs = StageJobs(self.checkpoint.output, pin=self.settings.pin)
        self._planner = Planner(beside=self.settings.plan_beside)
        self._asked_for: dict[str, int] = {}
        self.reports: dict[int, BatchReport] = {}

    def until(self, is_over: Callable[[], bool]) -> None:
        """Name what says whether the query is over."""
        self._planner.until(is_over)

    def close(self) -> None:
        """Leave nothing behind that only a running query needs."""
        self._planner.close()
        node_busy.forget(self._driver)

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
        with node_busy.running(self._driver):
            done = self._run(df, version, base, decision)
            seconds = perf_counter() - began
            # A batch is given as long as the one before was: what comes after it is not known yet.
            interval = seconds if self._begun is None else max(seconds, began - self._begun)
            self._begun = began
            took = {
                "seconds": seconds,
                "interval": interval,
                "elsewhere": node_busy.elsewhere(self._driver, interval),
                "since": self._since,
            }
            manifest = self._manifest(version, base, decision, done, took)
            tasks = [report for each in done for report in each.reports]
            self._since = last_readings(tasks)
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

    def _run(self, df: DataFrame, version: int, base: Manifest, decision: Decision) -> list[Done]:
        """Run the stages, each as a job over what the one that feeds it has written.

        So every job has one shuffle and returns what its tasks did as rows: whichever attempts
        Spark takes, their files and their reports are those of the same ones.
        """
        done: list[Done] = []
        for number, stage in enumerate(self.stages):
            rows, order = df, self.order
            work = self._work(number, version, base, decision)
            if stage.after is not None:
                before = done[stage.after]
                work = replace(work, entries=before.entries(number))
                rows = self._passed_on(df.sparkSession, before, number)
                order = order_of(rows)
            done.append(self._jobs.run(stage, work, rows, order))
        return done

    def _passed_on(self, spark: SparkSession, before: Done, number: int) -> DataFrame:
        """Return the rows that a stage has to read, of what the one that feeds it has written."""
        after = self.stages[number].after
        assert after is not None
        output = self._output(spark, self.stages[after], before.output)
        followers = followers_of(self.stages, after)
        if len(followers) == 1:
            return output.rows()
        output.schema = StructType([*output.schema, StructField(FOLDED, LongType())])
        folded = F.coalesce(F.col(FOLDED), F.lit(0))
        has = folded.bitwiseAND(F.lit(1 << followers.index(number)))
        return output.rows().where(has == 0).drop(FOLDED)

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
            steps=self.stages[number].steps,
            followers=followers_of(self.stages, number),
            hops=self._hops(number, base, decision),
            speeds=self.settings.speeds.at(batch_of(version)) if self.settings.speeds else (),
        )

    def _hops(self, number: int, base: Manifest, decision: Decision) -> dict[int, Hop]:
        """Return the hops from a stage to those that follow, where rows may be folded for them."""
        stage = self.stages[number]
        types = {field.name: field.type for field in stage.comes_out}
        own = tuple(field.name for field in stage.operator.keys)
        # A step may leave out a key, or make something else of it.
        is_there = all(types.get(field.name) == field.type for field in stage.operator.keys)
        found = {}
        for following in followers_of(self.stages, number):
            taken, operator = self.stages[following].taken, self.stages[following].operator
            # Without a merge there is nothing that a part of a state could be.
            if taken is None or not operator.can_split:
                continue
            found[following] = Hop(
                operator=operator,
                plan=decision.plans[following],
                keys=taken.keys,
                values=taken.values,
                time=taken.time,
                late=base.late(following),
                own=own if is_there and not stage.operator.windowed else (),
                pairs=stage.balancer.counts_pairs,
            )
        return found

    def _manifest(
        self,
        version: int,
        base: Manifest,
        decision: Decision,
        done: list[Done],
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
            "pairs": [
                {stage: b64encode(pairs.to_bytes()).decode() for stage, pairs in each.pairs.items()}
                for each in done
            ],
            **self._moved(base, decision),
        }
        ends = {end: done[end].output for end in ends_of(self.stages)}
        names = [name for each in ends.values() for name in each]
        return Manifest(version, stages, names, facts, ends if len(ends) > 1 else {})

    def _reached(self, number: int, watermark: int) -> int:
        """Return the watermark of a stage: those before it may let rows out that are behind it."""
        if watermark in (NO_WATERMARK, FLUSH):
            return watermark
        return watermark - delay_before(self.stages, number)

    def _flushed(self, number: int, done: Done) -> int:
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

    def _remove_intermediate(self, done: list[Done]) -> None:
        """Remove what one stage has written for others: nobody needs it any more."""
        ends = ends_of(self.stages)
        for number, each in enumerate(done):
            for name in () if number in ends else (*each.output, *each.folded):
                (self.checkpoint.output / name).unlink(missing_ok=True)

    def _deliver(self, spark: SparkSession, manifest: Manifest) -> None:
        """Give the sinks a version, unless all are known to have it."""
        if not self.checkpoint.is_done(manifest.version):
            before = self.checkpoint.decided(manifest.version).base
            for end, sink in self.sinks.items():
                names = manifest.output_of(end)
                output = self._output(spark, self.stages[end], names, before)
                sink.write(output, manifest.version)
            self.checkpoint.mark_done(manifest.version)

    def _output(
        self, spark: SparkSession, stage: Stage, names: Sequence[str], before: int = INITIAL
    ) -> Output:
        files = [self.checkpoint.output / name for name in names]
        return Output(spark, files, stage.output, self.spark_checkpoint.query_id(), before)

    def _announce(self, manifest: Manifest, seconds: float, pause: float) -> None:
        """Write the log line of a batch, and call who wants to know."""
        report = batch_report(manifest, self.stages, seconds, pause)
        log.info(
            "batch %d: %d rows in %.2f s, %d late, %d out, %d shards and %d keys moved",
            *(report.batch, report.rows, seconds, report.late, report.rows_out),
            sum(report.moves),
            sum(report.hot_moves) + sum(report.key_moves),
        )
        self._ask_for_shards(report)
        if report.kind == "batch":
            self.reports[report.batch] = report
            self.reports.pop(report.batch - _REPORTS, None)
        if self.watch is not None:
            self.watch(report)

    def _ask_for_shards(self, report: BatchReport) -> None:
        """Tell, once for each number, that a balancer cannot do its work with so few shards."""
        for stage, wanted in zip(self.stages, report.shards_wanted, strict=True):
            if wanted > self._asked_for.get(stage.name, stage.shards):
                self._asked_for[stage.name] = wanted
                log.warning(
                    "stage %r has %d shards, too few for speeds as different as these: stop, make "
                    "%d with unskew state CHECKPOINT --reshard %d --to FOLDER, and start with "
                    "state=FOLDER; keys that are split have to be whole first, which one batch "
                    'with balancer="static" and another number of instances makes them',
                    *(stage.name, stage.shards, wanted, wanted),
                )

    def _check_query(self, manifest: Manifest) -> None:
        """Refuse state of another query: its batches have the same numbers and other rows."""
        theirs, own = manifest.facts.get("query"), self.spark_checkpoint.query_id()
        if theirs is not None and theirs != own:
            raise WrongCheckpoint(
                f"{self.checkpoint.folder} is the state of query {theirs}, and this is query {own}"
                f"; start it with the checkpoint of Spark that it was written with, or name an "
                f"empty folder for the state"
            )


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
