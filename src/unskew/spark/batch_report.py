"""What a batch of a pipeline did, for people and for balancers, out of what its tasks reported."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from unskew.balance import KeyPairs, Report
from unskew.operators.task_report import TaskReport
from unskew.spark.node_loads import node_loads
from unskew.spark.stages import Stage, ends_of
from unskew.state import Manifest
from unskew.state.runs import NEVER
from unskew.state.versions import batch_of, kind_of

_FEW = 6
"""Tasks of which costs are told by rows and pairs alone."""


@dataclass(frozen=True, repr=False)
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
    pause : float
        Of these, how long the balancers took. Moving costs no other wait: state is read by the task
        that needs it.
    rows : int
        That came in, late ones among them.
    late : int
        That came too late, to any stage.
    rows_out : int
        That came out of the last stage, or of all of those that no other follows.
    reports : list of Report
        Of each stage, as balancers see them.
    moves : list of int
        Shards of each stage that the batch had on another instance than the one before.
    hot_moves : list of int
        Keys of each stage that were split, or are, and that the batch had on other instances.
    key_moves : list of int
        Keys of each stage that the batch had in another place because they live with others.
    locality : list of float
        Of each stage but the first, the part of the rows for it that stayed on the instance where
        they came out of the stage before.
    bytes_shuffled : list of int
        That went through the exchange before each stage, as Spark counts them.
    loads : list of array of int64
        Rows of each instance, for every stage.
    bytes_read, bytes_written : int
        Of state: the rows of the keys that were touched, and runs that were merged; and new runs.
    bytes_checked : int
        Of state that a machine had not seen before, as after a move.
    bytes_moved : int
        Of state that went to another instance, with its shard or with a key that was split.
    shards_wanted : list of int
        Of each stage, the shards that its balancer would need, 0 where it has enough: ``unskew
        state CHECKPOINT --reshard N --to FOLDER`` makes more while the pipeline is stopped, once
        no key is split: one batch with balancer "static" and another number of instances sees to
        that.
    facts : mapping
        All that was measured, as the checkpoint has it.
    """

    batch: int
    kind: str
    seconds: float
    pause: float
    rows: int
    late: int
    rows_out: int
    reports: list[Report]
    moves: list[int]
    hot_moves: list[int]
    key_moves: list[int]
    locality: list[float]
    bytes_shuffled: list[int]
    loads: list[NDArray[np.int64]]
    bytes_read: int
    bytes_written: int
    bytes_checked: int
    bytes_moved: int
    shards_wanted: list[int]
    facts: Mapping[str, Any]

    def __repr__(self) -> str:
        """Return what matters of it in a line."""
        what = "" if self.kind == "batch" else f", {self.kind}"
        return (
            f"<batch {self.batch}{what}: {self.rows} rows in {self.seconds:.2f} s, "
            f"{self.late} late, {self.rows_out} out, {sum(self.moves)} shards and "
            f"{sum(self.hot_moves) + sum(self.key_moves)} keys moved>"
        )


def batch_report(
    manifest: Manifest, stages: Sequence[Stage], seconds: float, pause: float
) -> BatchReport:
    """Return what a manifest says of its batch."""
    tasks = [tasks_of(manifest, number) for number in range(len(stages))]
    ends = ends_of(stages)
    merges = [each for each in manifest.facts["merges"] if each["stage"] in ends]
    everyone = [task for each in tasks for task in each]
    return BatchReport(
        batch=batch_of(manifest.version),
        kind=kind_of(manifest.version).name.lower(),
        seconds=seconds,
        pause=pause,
        rows=sum(sum(task.rows.values()) + task.late for task in tasks[0]),
        late=sum(task.late + task.near_late for task in everyone),
        rows_out=sum(task.rows_out for end in ends for task in tasks[end])
        + sum(merge["rows_out"] for merge in merges),
        reports=[report_of(manifest, number, stage) for number, stage in enumerate(stages)],
        moves=list(manifest.facts["moves"]),
        # Checkpoints of earlier versions do not tell.
        hot_moves=list(manifest.facts.get("hot_moves", [0] * len(stages))),
        key_moves=list(manifest.facts.get("key_moves", [0] * len(stages))),
        locality=[
            _locality(tasks[stage.after], number)
            for number, stage in enumerate(stages)
            if stage.after is not None
        ],
        bytes_shuffled=list(manifest.facts.get("shuffled", [0] * len(stages))),
        loads=[np.array([sum(task.rows.values()) for task in each]) for each in tasks],
        bytes_read=sum(task.read for task in everyone),
        bytes_written=sum(task.written for task in everyone),
        bytes_checked=sum(task.checked for task in everyone),
        bytes_moved=sum(manifest.facts.get("bytes_moved", ()))
        + sum(task.taken_over for task in everyone),
        shards_wanted=[stage.balancer.shards_wanted for stage in stages],
        facts=manifest.facts,
    )


def _locality(tasks: Sequence[TaskReport], following: int) -> float:
    near = sum(task.near.get(following, 0) for task in tasks)
    return near / max(1, sum(task.came_out for task in tasks))


def tasks_of(manifest: Manifest, number: int) -> list[TaskReport]:
    """Return the reports of a stage's tasks, in the order of their instances."""
    return [
        TaskReport.from_json(each) for each in manifest.facts["tasks"] if each["stage"] == number
    ]


def report_of(manifest: Manifest, number: int, stage: Stage) -> Report:
    """Return the report of one stage: a task's time is that of its shards by their work."""
    tasks = tasks_of(manifest, number)
    rows, keys, stored = np.zeros((3, stage.shards), dtype=np.int64)
    busy, work, state_bytes = np.zeros((3, stage.shards))
    hot: dict[int, float] = {}
    # Manifests of earlier versions do not tell how long it was until the next batch.
    interval = manifest.facts.get("interval", manifest.facts["seconds"])
    seconds = max(float(interval), 1e-9)
    cost = _Cost.of(tasks)
    for task in tasks:
        asked = {shard: cost.of_shard(task, shard) for shard in task.rows}
        # A shard may have had nothing but states that it took over.
        pace = task.busy / max(sum(asked.values()) + cost.task, 1e-12)
        for shard, size in asked.items():
            if shard < stage.shards:
                rows[shard] += task.rows[shard]
                keys[shard] += task.keys[shard]
                work[shard] += size
                busy[shard] += pace * size
        for key, size in cost.of_keys(task).items():
            hot[key] = hot.get(key, 0.0) + size
    for shard, size in manifest.state_bytes(number).items():
        if shard < stage.shards:
            state_bytes[shard] = size
            stored[shard] = sum(run.rows for run in manifest.stages[number][shard])
    keeps = stage.operator.appends
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
        nodes=node_loads(tasks, manifest, seconds),
        work=work,
        stored=stored if keeps else None,
        watermark=manifest.late(number) if keeps else None,
        latest=_latest(manifest, number) if keeps else None,
        pairs=_pairs(manifest, number),
        row_bytes=sum(task.bytes_out for task in tasks)
        / max(1, sum(task.came_out for task in tasks)),
        key_bytes=float(state_bytes.sum()) / max(1, sum(manifest.rows(number).values())),
    )


def _pairs(manifest: Manifest, number: int) -> dict[int, KeyPairs]:
    """Return the pairs of keys of a stage and of those that follow, where they were counted."""
    told = manifest.facts.get("pairs", ())
    if number >= len(told):
        return {}
    # In format 1 a stage has one that follows.
    own = told[number] if isinstance(told[number], dict) else {number + 1: told[number]}
    found = {int(stage): KeyPairs.from_bytes(b64decode(each)) for stage, each in own.items()}
    return {stage: pairs for stage, pairs in found.items() if pairs.counts.size}


def _latest(manifest: Manifest, number: int) -> int | None:
    """Return when the last of all that a stage keeps will have expired, if it keeps anything."""
    runs = (run for shard in manifest.stages[number].values() for run in shard)
    # A run that never expires says that older rows do not count.
    return max((run.latest for run in runs if run.latest != NEVER), default=None)


class _Cost(NamedTuple):
    """Seconds that a row takes, that a pair does, and a task without any, at the mean speed."""

    row: float
    pair: float
    task: float = 0.0

    @classmethod
    def of(cls, tasks: Sequence[TaskReport]) -> _Cost:
        """Return what explains best how long the tasks were busy."""
        rows = np.array([sum(task.rows.values()) + sum(task.probes.values()) for task in tasks])
        pairs = np.array([sum(task.pairs.values()) for task in tasks])
        busy = np.array([task.busy for task in tasks])
        by_rows = cls(float(busy.sum()) / max(1, int(rows.sum())), 0.0)
        if not pairs.any():
            return by_rows
        parts = np.stack((rows, pairs, np.ones(rows.size)), axis=1).astype(np.float64)
        # Few tasks cannot tell what comes with a task from what comes with its rows.
        for known in (3, 2) if len(tasks) > _FEW else (2,):
            try:
                costs, _ = nnls(parts[:, :known], busy)
            except (RuntimeError, np.linalg.LinAlgError):
                # An estimate: a query that has committed its batch must not end for want of it.
                continue
            if costs[:2].any():
                return cls(*costs.tolist())
        return by_rows

    def of_shard(self, task: TaskReport, shard: int) -> float:
        """Return the seconds of one shard."""
        came = task.rows[shard] + task.probes.get(shard, 0)
        return self.row * came + self.pair * task.pairs.get(shard, 0)

    def of_keys(self, task: TaskReport) -> dict[int, float]:
        """Return the seconds of the keys that a task tells of."""
        found: dict[int, float] = {}
        for cost, told in ((self.row, task.hot), (self.pair, task.hot_pairs)):
            for key, size in told:
                found[key] = found.get(key, 0.0) + cost * size
        return found
