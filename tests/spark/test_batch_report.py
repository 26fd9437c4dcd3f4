"""How the busy time of tasks becomes the work of shards and keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from pyspark.sql.types import StructType

from unskew.balance import Report, Static
from unskew.operators.interval_join import IntervalJoin
from unskew.operators.task_report import TaskReport
from unskew.spark.batch_report import report_of
from unskew.spark.stages import Stage
from unskew.state import Manifest
from unskew.state.manifest import Run

NODE = {"name": "here", "cpu": 0.5, "memory": 0.25}
SHARDS = 4


def reported(tasks: Sequence[TaskReport], runs: dict[int, tuple[Run, ...]] | None = None) -> Report:
    """Return what balancers get to see of a stage with two instances and its tasks."""
    facts = {"seconds": 2.0, "tasks": [task.to_json() for task in tasks]}
    stage = Stage("join", IntervalJoin(0, 0), [], StructType(), 2, SHARDS, Static())
    return report_of(Manifest(0, [runs or {}], facts=facts), 0, stage)


def task(instance: int, busy: float, rows: dict[int, int], pairs: dict[int, int]) -> TaskReport:
    return TaskReport(
        *(0, instance), rows=rows, keys=dict(rows), pairs=pairs, busy=busy, node=NODE, seconds=1.0
    )


def test_what_rows_and_pairs_cost_is_found_by_the_tasks_that_had_more_of_one() -> None:
    row, pair = 1e-3, 1e-4
    first, second = {0: 100, 2: 50}, {1: 10, 3: 40}
    some, many = {0: 200, 2: 0}, {1: 5000, 3: 1000}
    busy = [150 * row + 200 * pair, 50 * row + 6000 * pair]
    report = reported([task(0, busy[0], first, some), task(1, busy[1], second, many)])
    wanted = [
        100 * row + 200 * pair,
        10 * row + 5000 * pair,
        50 * row,
        40 * row + 1000 * pair,
    ]
    assert report.work == pytest.approx(wanted)
    assert report.busy == pytest.approx(wanted)


def test_a_slow_instance_is_busy_for_longer_with_the_same_work() -> None:
    same = {0: 100, 2: 100}, {1: 100, 3: 100}
    tasks = [task(number, 1.0 + number, rows, {}) for number, rows in enumerate(same)]
    report = reported(tasks)
    assert report.work is not None
    assert report.work.tolist() == pytest.approx([0.75] * SHARDS)
    assert report.busy.tolist() == pytest.approx([0.5, 1.0, 0.5, 1.0])
    assert report.utilisation.tolist() == [0.5, 1.0]


def test_a_key_of_two_instances_costs_what_it_costs_at_both() -> None:
    tasks = [task(0, 1.0, {0: 100}, {}), task(1, 1.0, {1: 100}, {})]
    for each in tasks:
        each.hot = [(7, 30)]
    assert reported(tasks).hot == pytest.approx({7: 0.6})


def test_what_shards_keep_is_of_the_manifest_without_the_parts_of_hot_keys() -> None:
    run = Run("segment", 0, 64, 1, 9, 5)
    tasks = [task(0, 1.0, {0: 1}, {}), task(1, 1.0, {}, {})]
    report = reported(tasks, {2: (run, run), SHARDS: (run,)})
    assert report.stored is not None
    assert report.stored.tolist() == [0, 0, 18, 0]
    assert report.state_bytes.tolist() == [0.0, 0.0, 128.0, 0.0]
    assert report.nodes is not None
    # Half of the CPU for one of two seconds.
    assert np.array_equal(report.nodes.cpu, [0.25])
