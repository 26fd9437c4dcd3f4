"""What a batch of a pipeline did, for people and for balancers, out of what its tasks reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.balance import NodeLoads, Report
from unskew.operators.task_report import TaskReport
from unskew.spark.stages import Stage
from unskew.state import Manifest
from unskew.state.versions import batch_of, kind_of


@dataclass(frozen=True)
class BatchReport:
    """What one batch of a pipeline did, or what followed it.

    Attributes
    ----------
    batch : int
        Its number.
    kind : {"batch", "settled", "flushed"}
        The batch itself; what expired at the end of a run after it; a flush after that.
    seconds : float
        From the call until the next plan was made.
    rows : int
        That came in, late ones among them.
    late : int
        That came too late, to any stage.
    rows_out : int
        That came out of the last stage.
    reports : list of Report
        Of each stage, as balancers see them.
    moves : list of int
        Shards of each stage that the batch had on another instance than the one before.
    hot_moves : list of int
        Keys of each stage that were split, or are, and that the batch had on other instances.
    loads : list of array of int64
        Rows of each instance, for every stage.
    bytes_read, bytes_written : int
        Of state: the rows of the keys that were touched, and runs that were merged; and new runs.
    bytes_checked : int
        Of state that a machine had not seen before, as after a move.
    bytes_moved : int
        Of state that went to another instance, with its shard or with a key that was split.
    facts : mapping
        All that was measured, as the checkpoint has it.
    """

    batch: int
    kind: str
    seconds: float
    rows: int
    late: int
    rows_out: int
    reports: list[Report]
    moves: list[int]
    hot_moves: list[int]
    loads: list[NDArray[np.int64]]
    bytes_read: int
    bytes_written: int
    bytes_checked: int
    bytes_moved: int
    facts: Mapping[str, Any]


def batch_report(manifest: Manifest, stages: Sequence[Stage], seconds: float) -> BatchReport:
    """Return what a manifest says of its batch."""
    tasks = [tasks_of(manifest, number) for number in range(len(stages))]
    merges = [each for each in manifest.facts["merges"] if each["stage"] == len(stages) - 1]
    everyone = [task for each in tasks for task in each]
    return BatchReport(
        batch=batch_of(manifest.version),
        kind=kind_of(manifest.version).name.lower(),
        seconds=seconds,
        rows=sum(sum(task.rows.values()) + task.late for task in tasks[0]),
        late=sum(task.late for task in everyone),
        rows_out=sum(task.rows_out for task in tasks[-1]) + sum(m["rows_out"] for m in merges),
        reports=[report_of(manifest, number, stage) for number, stage in enumerate(stages)],
        moves=list(manifest.facts["moves"]),
        # Checkpoints of earlier versions do not tell.
        hot_moves=list(manifest.facts.get("hot_moves", [0] * len(stages))),
        loads=[np.array([sum(task.rows.values()) for task in each]) for each in tasks],
        bytes_read=sum(task.read for task in everyone),
        bytes_written=sum(task.written for task in everyone),
        bytes_checked=sum(task.checked for task in everyone),
        bytes_moved=sum(manifest.facts.get("bytes_moved", ()))
        + sum(task.taken_over for task in everyone),
        facts=manifest.facts,
    )


def tasks_of(manifest: Manifest, number: int) -> list[TaskReport]:
    """Return the reports of a stage's tasks, in the order of their instances."""
    return [
        TaskReport.from_json(each) for each in manifest.facts["tasks"] if each["stage"] == number
    ]


def report_of(manifest: Manifest, number: int, stage: Stage) -> Report:
    """Return the report of one stage: a task's time is that of its shards by their rows."""
    tasks = tasks_of(manifest, number)
    rows, keys = np.zeros((2, stage.shards), dtype=np.int64)
    busy, state_bytes = np.zeros((2, stage.shards))
    hot: dict[int, float] = {}
    seconds = max(float(manifest.facts["seconds"]), 1e-9)
    for task in tasks:
        # A shard may have had nothing but states that it took over.
        per_row = task.busy / max(1, sum(task.rows.values()))
        for shard, size in task.rows.items():
            if shard < stage.shards:
                rows[shard] += size
                keys[shard] += task.keys[shard]
                busy[shard] += per_row * size
        for key, size in task.hot:
            hot[key] = hot.get(key, 0.0) + per_row * size
    for shard, size in manifest.state_bytes(number).items():
        if shard < stage.shards:
            state_bytes[shard] = size
    return Report(
        seconds=seconds,
        rows=rows,
        keys=keys,
        busy=busy,
        state_bytes=state_bytes,
        utilisation=np.array([min(1.0, task.busy / seconds) for task in tasks]),
        queues=np.zeros(len(tasks), dtype=np.int64),
        hot=hot,
        can_split=stage.operator.can_split,
        nodes=_node_loads(tasks),
    )


def _node_loads(tasks: Sequence[TaskReport]) -> NodeLoads:
    """Return where the tasks of a stage ran: each of them has seen its node for a while."""
    names, of_instance = np.unique([task.node["name"] for task in tasks], return_inverse=True)
    seconds = np.array([max(task.seconds, 1e-9) for task in tasks])
    cpu = np.bincount(of_instance, seconds * [task.node["cpu"] for task in tasks])
    memory = np.zeros(names.size)
    np.maximum.at(memory, of_instance, [task.node["memory"] for task in tasks])
    return NodeLoads(
        tuple(names.tolist()),
        of_instance.astype(np.int32),
        cpu / np.bincount(of_instance, seconds),
        memory,
    )
