"""The cycle of a pipeline: decide, run one Spark job, commit, deliver, and look at the balance.

Every step can be the last one before the driver dies: what was decided is read back, what was
committed is not done again, and what was not is done anew under other names.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from unskew.balance import Balancer, Plan, Report
from unskew.errors import DamagedCheckpoint
from unskew.operators.task import MOST_BYTES, NO_WATERMARK
from unskew.spark.nodes import Pins, live_executors
from unskew.spark.pipeline_worker import TOLD, Step
from unskew.spark.replay import Order
from unskew.spark.routing import Way, by_plan, send
from unskew.spark.sinks import Output, Sink
from unskew.spark.stages import Stage
from unskew.state import Checkpoint, Manifest, Run
from unskew.state.checkpoint import INITIAL, batch_of, version_of
from unskew.state.runs import HASH

log = logging.getLogger("unskew.pipeline")

_INSTANCE = "unskew_instance"


@dataclass(frozen=True)
class Settings:
    """How a pipeline keeps its state.

    Attributes
    ----------
    kept : int
        Versions of the state to keep, the newest.
    grace : float
        Seconds before a file that nobody names is removed.
    clean_every : int
        Batches between two removals.
    most_bytes : int
        Entries that a task holds in memory.
    cache : str or None
        Folder on each machine for copies of state, where the checkpoint is far away.
    pin : bool
        Whether to keep instances on their executors, where there are several.
    """

    kept: int = 10
    grace: float = 3600.0
    clean_every: int = 10
    most_bytes: int = MOST_BYTES
    cache: str | None = None
    pin: bool = True


@dataclass(frozen=True)
class BatchReport:
    """What one batch of a pipeline did.

    Attributes
    ----------
    batch : int
        Its number.
    seconds : float
        From the call to the end of the sink.
    rows, late, rows_out : int
        That came in, that came too late, that came out.
    reports : list of Report
        Of each stage, as balancers see them.
    moves : list of int
        Shards of each stage that the batch had on another instance than the one before.
    loads : list of array of int64
        Rows of each instance, for every stage.
    bytes_read, bytes_written : int
        Of state: what was read anew, pages that were there already not counted, and written.
    facts : dict
        All that was measured.
    """

    batch: int
    seconds: float
    rows: int
    late: int
    rows_out: int
    reports: list[Report]
    moves: list[int]
    loads: list[NDArray[np.int64]]
    bytes_read: int
    bytes_written: int
    facts: dict[str, Any]


@dataclass
class Cycle:
    """The function that Spark calls with every batch.

    Attributes
    ----------
    stages : sequence of Stage
        In order.
    checkpoint : Checkpoint
        Of the state.
    offsets : Path
        Spark's own log of offsets, which knows the watermark of each batch.
    order : Order
        Whether the source brings its rows in the same order again.
    sink : Sink
        Takes what comes out.
    settings : Settings
        How state is kept.
    watch : callable
        Is told of every batch.
    """

    stages: Sequence[Stage]
    checkpoint: Checkpoint
    offsets: Path
    order: Order
    sink: Sink
    settings: Settings = field(default_factory=Settings)
    watch: Callable[[BatchReport], None] | None = None

    def __post_init__(self) -> None:
        """Begin a run: files of this driver have names that no other has."""
        self._run = uuid4().hex[:12]
        self._next: tuple[int, list[Plan]] | None = None
        self._pins = Pins()

    def __call__(self, df: DataFrame, batch: int) -> None:
        """Do all of a batch, or what was left of it."""
        self._advance(df, version_of(batch), lambda: self._watermark(batch))

    def begin(self, df: DataFrame) -> None:
        """Make the state that rows before the stream would have left, once; nothing comes out."""
        if self.checkpoint.manifest(INITIAL) is None:
            self._work(df, INITIAL, lambda: NO_WATERMARK)
            self.checkpoint.mark_done(INITIAL)

    def expire(self, df: DataFrame, version: int, watermark: int) -> None:
        """Expire state without new rows: `df` has the columns of the source and no rows."""
        self._advance(df, version, lambda: watermark)

    def _advance(self, df: DataFrame, version: int, watermark: Callable[[], int]) -> None:
        begin = perf_counter()
        spark = df.sparkSession
        manifest = self.checkpoint.manifest(version)
        if manifest is None:
            manifest = self._work(df, version, watermark)
        decision = self.checkpoint.plan(version)
        if decision is None:
            raise DamagedCheckpoint(
                f"{self.checkpoint.folder} has the manifest of batch {batch_of(version)} but not "
                f"its plan; restore the file from a copy"
            )
        if not self.checkpoint.is_done(version):
            self._deliver(spark, manifest)
            self.checkpoint.mark_done(version)
        self._think(version, decision, manifest)
        self._tell(version, manifest, perf_counter() - begin)
        if version % version_of(self.settings.clean_every) == 0:
            self.checkpoint.collect_garbage(self.settings.kept, self.settings.grace)

    def _work(self, df: DataFrame, version: int, watermark: Callable[[], int]) -> Manifest:
        """Decide, run, commit."""
        stages = len(self.stages)
        first = version == INITIAL
        base = Manifest.empty(stages) if first else self.checkpoint.newest(version, stages)
        decision = self.checkpoint.plan(version)
        if decision is None:
            decision = self._decide(version, base, watermark())
            self.checkpoint.decide(version, decision)
        began = perf_counter()
        told = self._told(df, version, base, decision)
        manifest = self._manifest(version, base, decision, told, perf_counter() - began)
        self.checkpoint.commit(manifest)
        return manifest

    def _decide(self, version: int, base: Manifest, watermark: int) -> dict[str, Any]:
        """Return plans, watermark and what the balancers remember, as JSON."""
        if self._next is not None and self._next[0] == base.version:
            plans = self._next[1]
        else:
            plans = self._plans_after(base)
        earlier = base.facts.get("watermark", NO_WATERMARK)
        return {
            "plans": [plan.to_json() for plan in plans],
            "watermark": max(watermark, earlier),
            "base": base.version,
            "balancers": [
                {"name": stage.balancer.name, "knows": _snapshot(stage.balancer)}
                for stage in self.stages
            ],
        }

    def _plans_after(self, base: Manifest) -> list[Plan]:
        """Return the plans that follow a manifest, as the driver that wrote it would have."""
        decision = self.checkpoint.plan(base.version)
        if decision is None:
            return [Plan.even(stage.shards, stage.instances) for stage in self.stages]
        self._think(base.version, decision, base)
        assert self._next is not None
        return self._next[1]

    def _think(self, version: int, decision: dict[str, Any], manifest: Manifest) -> None:
        """Show the balancers what was measured; keep the plans that they return."""
        plans = []
        for number, stage in enumerate(self.stages):
            plan = Plan.from_json(decision["plans"][number])
            known = decision["balancers"][number]
            # Another balancer than before begins with the plan, and knows nothing.
            if known.get("name") == stage.balancer.name:
                _restore(stage.balancer, known["knows"])
            report = report_of(manifest, number, stage)
            following = stage.balancer.next_plan(plan, report)
            plans.append(_for_instances(following, stage.instances))
        self._next = (version, plans)

    def _told(
        self, df: DataFrame, version: int, base: Manifest, decision: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Run the job of a batch; return what its tasks told."""
        rows = df
        earlier = self.checkpoint.plan(base.version)
        for number, stage in enumerate(self.stages):
            plan = Plan.from_json(decision["plans"][number])
            before = plan if earlier is None else Plan.from_json(earlier["plans"][number])
            cooled = sorted(before.hot.keys() - plan.hot.keys())
            step = self._step(number, version, base, decision, cooled)
            passed = [F.col(TOLD)] if number else []
            taken = rows.select(*passed, *stage.columns)
            order = self.order if number == 0 else Order(False, "a stage upstream is a shuffle")
            way = by_plan(taken, plan, F.col(HASH), order, seed=0, is_varied=False)
            sent = self._sent(taken, stage.instances, way)
            head = [StructField(name, _TYPES[kind]) for name, kind in step.schema()]
            out = StructType([*head, *([] if step.is_last else stage.output)])
            rows = sent.mapInArrow(_function(step.run), out)
            if plan.hot:
                merging = min(stage.instances, len(plan.hot))
                # Rows without a hash are no parts: they go where most of them are already.
                place = F.pmod(F.coalesce(HASH, F.spark_partition_id()), F.lit(merging))
                placed = rows.withColumn(_INSTANCE, place.cast("int"))
                met = placed.repartitionById(merging, F.col(_INSTANCE)).drop(_INSTANCE)
                rows = met.mapInArrow(_function(step.merge), out)
        with _not_adaptive(df.sparkSession):
            return [json.loads(row[0]) for row in rows.select(TOLD).collect()]

    def _sent(self, rows: DataFrame, instances: int, way: Way) -> DataFrame:
        """Return rows with their instances, which run where they did in the last batch."""
        if not self.settings.pin or len(live_executors(rows.sparkSession)) < 2:
            return send(rows, instances, way)
        # What tasks told has no key: it goes to the first.
        known = replace(way, instance=F.coalesce(way.instance, F.lit(0)))
        sent = send(rows, instances, known, _INSTANCE)
        return self._pins.pin(sent, instances, _INSTANCE).drop(_INSTANCE)

    def _step(
        self,
        number: int,
        version: int,
        base: Manifest,
        decision: dict[str, Any],
        cooled: list[int],
    ) -> Step:
        return Step(
            operator=self.stages[number].operator,
            plan=decision["plans"][number],
            cooled=cooled,
            stage=number,
            base=base.version,
            folder=str(self.checkpoint.folder),
            cache=self.settings.cache,
            name=f"{self._run}-{version}",
            watermark=decision["watermark"],
            is_last=number == len(self.stages) - 1,
            most_bytes=self.settings.most_bytes,
        )

    def _manifest(
        self,
        version: int,
        base: Manifest,
        decision: dict[str, Any],
        told: list[dict[str, Any]],
        seconds: float,
    ) -> Manifest:
        stages = [dict(shards) for shards in base.stages]
        output = []
        for number, stage in enumerate(self.stages):
            merged = [each for each in told if each["stage"] == number and "merge" in each]
            own = sorted(
                (each for each in told if each["stage"] == number and "merge" not in each),
                key=lambda each: each["instance"],
            )
            if [each["instance"] for each in own] != list(range(stage.instances)):
                raise RuntimeError(
                    f"stage {stage.name!r} has {stage.instances} instances, and "
                    f"{[each['instance'] for each in own]} told what they did; report this"
                )
            for each in own:
                for shard, runs in each["runs"].items():
                    if runs:
                        stages[number][int(shard)] = tuple(Run(*run) for run in runs)
                    else:
                        stages[number].pop(int(shard), None)
            output += [name for each in (*own, *merged) for name in each["output"]]
        facts = {
            "watermark": decision["watermark"],
            "seconds": seconds,
            "tasks": [{**each, "runs": None} for each in told if "merge" not in each],
            "merges": [each for each in told if "merge" in each],
            "moves": self._moves(base, decision),
        }
        return Manifest(version, stages, output, facts)

    def _moves(self, base: Manifest, decision: dict[str, Any]) -> list[int]:
        earlier = self.checkpoint.plan(base.version)
        if earlier is None:
            return [0] * len(self.stages)
        return [
            len(Plan.from_json(new).moves(Plan.from_json(old)))
            for old, new in zip(earlier["plans"], decision["plans"], strict=True)
        ]

    def _deliver(self, spark: SparkSession, manifest: Manifest) -> None:
        files = [self.checkpoint.output / name for name in manifest.output]
        output = Output(spark, files, self.stages[-1].output)
        self.sink.write(output, manifest.version)

    def _tell(self, version: int, manifest: Manifest, seconds: float) -> None:
        """Write the log line of a batch, and call who wants to know."""
        told = batch_report(manifest, self.stages, seconds)
        log.info(
            "batch %d: %d rows in %.2f s, %d late, %d out, %s shards moved",
            *(told.batch, told.rows, seconds, told.late, told.rows_out, sum(told.moves)),
        )
        if self.watch is not None:
            self.watch(told)

    def _watermark(self, batch: int) -> int:
        """Return the watermark that Spark has for a batch, in microseconds."""
        lines = (self.offsets / str(batch)).read_text().splitlines()
        millis = json.loads(lines[1]).get("batchWatermarkMs", 0)
        return int(millis) * 1000 if millis else NO_WATERMARK


def batch_report(manifest: Manifest, stages: Sequence[Stage], seconds: float) -> BatchReport:
    """Return what a manifest says of its batch."""
    tasks = manifest.facts["tasks"]
    first = [each for each in tasks if each["stage"] == 0]
    last = [each for each in tasks if each["stage"] == len(stages) - 1]
    merges = [each for each in manifest.facts["merges"] if each["stage"] == len(stages) - 1]
    late = sum(each["late"] for each in tasks)
    return BatchReport(
        batch=batch_of(manifest.version),
        seconds=seconds,
        rows=sum(sum(each["rows"].values()) + each["late"] for each in first),
        late=late,
        rows_out=sum(each["rows_out"] for each in (*last, *merges)),
        reports=[report_of(manifest, number, stage) for number, stage in enumerate(stages)],
        moves=list(manifest.facts["moves"]),
        loads=[_loads(tasks, number, stage) for number, stage in enumerate(stages)],
        bytes_read=sum(each["read"] for each in tasks),
        bytes_written=sum(each["written"] for each in tasks),
        facts=dict(manifest.facts),
    )


def _loads(tasks: list[dict[str, Any]], number: int, stage: Stage) -> NDArray[np.int64]:
    loads = np.zeros(stage.instances, dtype=np.int64)
    for each in tasks:
        if each["stage"] == number:
            loads[each["instance"]] = sum(each["rows"].values())
    return loads


def report_of(manifest: Manifest, number: int, stage: Stage) -> Report:
    """Return the report of one stage: a task's time is that of its shards by their rows."""
    rows = np.zeros(stage.shards, dtype=np.int64)
    busy = np.zeros(stage.shards)
    # As many as there were, if the pipeline has been opened with another number since.
    instances = 1 + max(
        each["instance"] for each in manifest.facts["tasks"] if each["stage"] == number
    )
    utilisation = np.zeros(instances)
    hot: dict[int, float] = {}
    seconds = max(float(manifest.facts["seconds"]), 1e-9)
    for each in manifest.facts["tasks"]:
        if each["stage"] != number:
            continue
        own = {int(shard): size for shard, size in each["rows"].items()}
        # A shard may have had nothing but states that it took over.
        total = max(1, sum(own.values()))
        utilisation[each["instance"]] = min(1.0, each["busy"] / seconds)
        for shard, size in own.items():
            if shard < stage.shards:
                rows[shard] += size
                busy[shard] += each["busy"] * size / total
        for key, size in each["hot"]:
            hot[key] = hot.get(key, 0.0) + each["busy"] * size / total
    sizes = np.zeros(stage.shards)
    for shard, size in manifest.state_bytes(number).items():
        if shard < stage.shards:
            sizes[shard] = size
    return Report(
        seconds=seconds,
        rows=rows,
        busy=busy,
        state_bytes=sizes,
        utilisation=utilisation,
        queues=np.zeros(instances, dtype=np.int64),
        hot=hot,
        can_split=stage.operator.can_split,
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


_TYPES = {"string": StringType(), "bigint": LongType(), "binary": BinaryType()}


def _function(work: Callable[[Any], Any]) -> Callable[[Any], Any]:
    # A small function of its own, as PySpark reads annotations.
    def run(batches: Any) -> Any:
        return work(batches)

    return run


def _for_instances(plan: Plan, instances: int) -> Plan:
    """Return a plan for another number of instances, if that was changed."""
    if plan.instances == instances:
        return plan
    table = plan.assignment % instances
    return Plan(table, instances, plan.epoch + 1)


def _snapshot(balancer: Balancer) -> dict[str, Any]:
    return {
        name: {"type": array.dtype.str, "values": array.tolist()}
        for name, array in balancer.snapshot().items()
    }


def _restore(balancer: Balancer, data: dict[str, Any]) -> None:
    arrays: dict[str, NDArray[Any]] = {
        name: np.array(each["values"], dtype=each["type"]) for name, each in data.items()
    }
    balancer.restore(arrays)
