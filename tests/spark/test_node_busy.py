"""Busy time of nodes: all pipelines of a session together, where CPU tells nothing of a node."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from unskew.balance import Static
from unskew.operators.interval_join import IntervalJoin
from unskew.operators.task_report import TaskReport
from unskew.spark import node_busy
from unskew.spark.batch_report import report_of
from unskew.spark.stages import Stage
from unskew.state import Manifest


def task(stage: int, instance: int, busy: float, node: str) -> TaskReport:
    told = {"name": node, "cpu": 0.9, "memory": 0.25}
    return TaskReport(stage, instance, rows={0: 1}, keys={0: 1}, busy=busy, node=told, seconds=1.0)


def cpu(tasks: list[TaskReport], elsewhere: dict[str, float]) -> dict[str, float]:
    """Return the CPU of each node that balancers get to see of the first stage."""
    facts = {
        "seconds": 2.0,
        "tasks": [each.to_json() for each in tasks],
        "elsewhere": elsewhere,
    }
    stage = Stage("join", IntervalJoin(0, 0), [], StructType(), 2, 4, Static())
    nodes = report_of(Manifest(0, [{}, {}], facts=facts), 0, stage).nodes
    assert nodes is not None
    return dict(zip(nodes.names, nodes.cpu.tolist(), strict=True))


def test_nodes_of_one_machine_have_the_busy_time_of_their_instances() -> None:
    tasks = [task(0, 0, 1.0, "a:1"), task(0, 1, 0.5, "a:2"), task(0, 2, 0.5, "a:2")]
    assert cpu(tasks, {}) == pytest.approx({"a:1": 0.5, "a:2": 0.25})


def test_a_node_that_has_its_machine_to_itself_has_its_cpu() -> None:
    tasks = [task(0, 0, 1.0, "a:1"), task(0, 1, 0.5, "b:2")]
    assert cpu(tasks, {"a:1": 9.0}) == pytest.approx({"a:1": 0.9, "b:2": 0.9})


def test_all_stages_and_other_pipelines_count() -> None:
    tasks = [task(0, 0, 0.2, "a:1"), task(0, 1, 0.5, "a:2"), task(1, 0, 0.4, "a:1")]
    assert cpu(tasks, {"a:1": 0.6, "a:9": 5.0}) == pytest.approx({"a:1": 0.6, "a:2": 0.25})


def test_of_others_counts_what_was_in_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_busy, "_past", node_busy._past.__class__(maxlen=10))
    monkeypatch.setattr(node_busy, "monotonic", lambda: 100.0)
    node_busy.note("one", 4.0, {"a:1": 2.0, "a:2": 1.0})
    node_busy.note("two", 1.0, {"a:1": 0.5})
    assert node_busy.elsewhere("two", 8.0) == pytest.approx({"a:1": 2.0, "a:2": 1.0})
    monkeypatch.setattr(node_busy, "monotonic", lambda: 102.0)
    # Half of what was from 96 to 100 is after 98.
    assert node_busy.elsewhere("two", 4.0) == pytest.approx({"a:1": 1.0, "a:2": 0.5})
    assert node_busy.elsewhere("one", 4.0) == pytest.approx({"a:1": 0.5})
    monkeypatch.setattr(node_busy, "monotonic", lambda: 110.0)
    assert node_busy.elsewhere("three", 5.0) == {}
