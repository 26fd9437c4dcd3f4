"""Pipelines without Spark: real operators and a real checkpoint, and this in place of the cycle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from unskew.aggregates import count
from unskew.balance import Plan
from unskew.keys import hash_keys
from unskew.operators import Aggregation, Operator
from unskew.operators.base import TIME
from unskew.operators.task import Work, task_of
from unskew.operators.task_report import TaskReport
from unskew.state import Checkpoint, Manifest, Spec
from unskew.state.decision import Decision
from unskew.state.runs import HASH, NEVER, NO_WATERMARK, hashes_of, merge
from unskew.state.segment import SegmentReader
from unskew.state.versions import INITIAL, Kind, batch_of, version_of


class Player:
    """Play batches of stages that all get the same rows, and commit what `Cycle` would.

    Parameters
    ----------
    folder : Path
        Of the state.
    stages : sequence of Operator
        Bound; keys first, then values.
    plan : Plan
        Of the first batch, of every stage.
    windowed : bool
        Whether the first key is a window and the second one its end in microseconds.
    """

    def __init__(
        self, folder: Path, stages: Sequence[Operator], plan: Plan, *, windowed: bool = False
    ) -> None:
        self.checkpoint = Checkpoint(folder)
        self.stages = stages
        self.plan = plan
        self.windowed = windowed
        self.checkpoint.open(
            Spec(
                f"stage {number}",
                repr(stage),
                plan.shards,
                tuple(f"{field.name}: {field.type}" for field in (*stage.keys, *stage.state)),
            )
            for number, stage in enumerate(stages)
        )

    def play(
        self,
        batch: int,
        rows: pa.RecordBatch,
        *,
        kind: Kind | None = Kind.BATCH,
        plan: Plan | None = None,
        watermark: int = NO_WATERMARK,
        done: bool = True,
    ) -> Manifest:
        """Do a batch, or what follows, or without a kind precedes it; return what was committed."""
        version = INITIAL if kind is None else version_of(batch, kind)
        number = len(self.stages)
        first = version == INITIAL
        base = Manifest.empty(number) if first else self.checkpoint.newest(version, number)
        before, self.plan = self.plan, plan or self.plan
        number = len(self.stages)
        decision = Decision([self.plan] * number, watermark, base.version, [{}] * number)
        self.checkpoint.decide(version, decision)
        state = [dict(shards) for shards in base.stages]
        tasks: list[dict[str, Any]] = []
        merges: list[dict[str, Any]] = []
        for number in range(len(self.stages)):
            told, merged = self._stage(number, version, base, before, rows, watermark)
            for report in told:
                for shard, runs in report.runs.items():
                    state[number][shard] = runs
                    if not runs:
                        del state[number][shard]
            tasks += [report.without_runs() for report in told]
            merges += merged
        facts = {
            "watermark": watermark,
            "seconds": 0.25,
            "tasks": tasks,
            "merges": merges,
            "moves": [len(self.plan.moves(before))] * len(self.stages),
            "hot_moves": [len(self.plan.hot_moves(before))] * len(self.stages),
            "key_moves": [self.plan.rehomed(before).keys.size] * len(self.stages),
        }
        output = [f"{version}.parquet"]
        (self.checkpoint.output / output[0]).write_bytes(b"what came out")
        manifest = Manifest(version, state, output, facts)
        self.checkpoint.commit(manifest)
        if done:
            self.checkpoint.mark_done(version)
        return manifest

    def _stage(
        self,
        number: int,
        version: int,
        base: Manifest,
        before: Plan,
        rows: pa.RecordBatch,
        watermark: int,
    ) -> tuple[list[TaskReport], list[dict[str, Any]]]:
        """Return what the tasks and the merges of a stage tell."""
        operator = self.stages[number]
        taken = self._rows(operator, rows)
        chosen = self.plan.route(hashes_of(taken), np.arange(taken.num_rows))
        told, parts = [], []
        for instance in range(self.plan.instances):
            name = f"run-{version}-{number}-{instance}-1"
            work = Work(
                operator=operator,
                plan=self.plan,
                instance=instance,
                shards=base.stages[number],
                segment=self.checkpoint.segments / f"{name}.arrow",
                stage=number,
                late=base.facts.get("watermark", NO_WATERMARK),
                watermark=watermark,
                cooled=self.plan.cooled(before),
                rehomed=self.plan.rehomed(before),
            )
            task = task_of(work, SegmentReader(self.checkpoint.segments))
            out = sum(
                each.num_rows for each in task.run([taken.filter(pa.array(chosen == instance))])
            )
            parts += task.parts
            task.report.rows_out = out
            task.report.seconds = 0.1
            task.report.node = {"name": "here:1", "cpu": 0.5, "memory": 0.5}
            told.append(task.report)
        out = operator.merge(pa.concat_batches(parts)).num_rows if parts else 0
        return told, [{"stage": number, "rows_out": out, "seconds": 0.1}] if parts else []

    def _rows(self, operator: Operator, rows: pa.RecordBatch) -> pa.RecordBatch:
        keys = [rows.column(field.name) for field in operator.keys]
        values = [rows.column(field.name) for field in operator.values]
        times = pa.array(np.full(rows.num_rows, NEVER))
        if self.windowed:
            times = keys[0].field("end").cast(pa.int64())
        hashes = pa.array(hash_keys(*keys[1 if self.windowed else 0 :]))
        schema = pa.schema(
            [(HASH, pa.uint64()), (TIME, pa.int64()), *operator.keys, *operator.values]
        )
        return pa.RecordBatch.from_arrays([hashes, times, *keys, *values], schema=schema)


def counting(*fields: pa.Field) -> Operator:
    """Return the operator that counts the rows of each key."""
    return Aggregation({"n": count()}).bind(fields, [])


def users(*names: str | None) -> pa.RecordBatch:
    """Return a batch of users."""
    return pa.record_batch({"user": pa.array(names, pa.string())})


def a_player(folder: Path, *, shards: int = 8, instances: int = 2, stages: int = 1) -> Player:
    """Return a pipeline that counts users."""
    stage = counting(pa.field("user", pa.string()))
    return Player(folder, [stage] * stages, Plan.even(shards, instances))


def play_initial(player: Player, rows: pa.RecordBatch) -> Manifest:
    """Make the state that is there before the first batch."""
    return player.play(batch_of(INITIAL), rows, kind=None)


def rows_by_shard(
    checkpoint: Checkpoint, manifest: Manifest, stage: int = 0
) -> dict[int, list[dict[str, Any]]]:
    """Return all rows that count, with what is ours alone, in the order that they have."""
    reader = SegmentReader(checkpoint.segments)
    return {
        shard: merge([reader(run) for run in runs], oldest=True).to_pylist()
        for shard, runs in manifest.stages[stage].items()
    }


__all__ = ["NEVER", "Player", "a_player", "counting", "play_initial", "rows_by_shard", "users"]
