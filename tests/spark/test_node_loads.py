"""Loads of nodes: as their machine has counted, or by their own share where several have it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from unskew.balance import NodeLoads, Static, TwoTier
from unskew.balance.plan import Plan
from unskew.operators.interval_join import IntervalJoin
from unskew.operators.task_report import TaskReport
from unskew.spark import BatchReport, MemorySink, Pipeline, node_busy
from unskew.spark.batch_report import report_of
from unskew.spark.readings import DISK_BYTES, NETWORK_BYTES
from unskew.spark.stages import Stage
from unskew.state import Manifest

STAGE = Stage("join", IntervalJoin(0, 0), [], StructType(), 2, 4, Static())

Counted = dict[str, float]


def task(stage: int, instance: int, busy: float, node: str, **told: Any) -> TaskReport:
    """Return a task that ran for a second."""
    where = {"name": node, "memory": 0.25, **told}
    return TaskReport(stage, instance, rows={0: 1}, keys={0: 1}, busy=busy, node=where, seconds=1.0)


def counted(began: float, ended: float, **grown: float) -> dict[str, Counted]:
    """Return two readings, the second with so many seconds more of each."""
    first = {"at": began, **dict.fromkeys(grown, 50.0)}
    last = {"at": ended, **{name: 50.0 + more for name, more in grown.items()}}
    return {"began": first, "ended": last}


def manifest(tasks: list[TaskReport], **facts: Any) -> Manifest:
    told = {"seconds": 2.0, "tasks": [each.to_json() for each in tasks], **facts}
    return Manifest(0, [{}, {}], facts=told)


def loads(tasks: list[TaskReport], **facts: Any) -> NodeLoads:
    """Return what balancers get to see of the first stage, in a batch of two seconds."""
    nodes = report_of(manifest(tasks, **facts), 0, STAGE).nodes
    assert nodes is not None
    return nodes


def cpu(tasks: list[TaskReport], **facts: Any) -> dict[str, float]:
    nodes = loads(tasks, **facts)
    return dict(zip(nodes.names, nodes.cpu.tolist(), strict=True))


def test_nodes_of_one_machine_have_the_busy_time_of_their_instances() -> None:
    tasks = [task(0, 0, 1.0, "a:1"), task(0, 1, 0.5, "a:2"), task(0, 2, 0.5, "a:2")]
    assert cpu(tasks) == pytest.approx({"a:1": 0.5, "a:2": 0.25})


def test_all_stages_and_other_pipelines_count() -> None:
    tasks = [task(0, 0, 0.2, "a:1"), task(0, 1, 0.5, "a:2"), task(1, 0, 0.4, "a:1")]
    elsewhere = {"a:1": 0.6, "a:9": 5.0}
    assert cpu(tasks, elsewhere=elsewhere) == pytest.approx({"a:1": 0.6, "a:2": 0.25})


def test_a_node_beside_one_of_another_stage_or_pipeline_shares_its_machine() -> None:
    told = counted(0.0, 2.0, cpu=2.0)
    tasks = [task(0, 0, 0.4, "a:1", **told), task(1, 0, 0.2, "a:2", **told)]
    assert cpu(tasks) == pytest.approx({"a:1": 0.2})
    assert cpu(tasks[:1], elsewhere={"a:7": 1.0}) == pytest.approx({"a:1": 0.2})


@pytest.mark.parametrize(
    ("readings", "since", "expected"),
    [
        pytest.param(
            [counted(10.0, 11.0, cpu=0.9), counted(10.5, 11.5, cpu=1.0)],
            {},
            0.25,
            id="of the first batch, what its tasks have seen, over the interval",
        ),
        pytest.param(
            [counted(10.0, 11.0, cpu=0.9), counted(10.5, 11.5, cpu=1.2)],
            {"at": 9.0, "cpu": 49.3},
            1.9 / 2.5 / 2,
            id="since the batch before, whoever used it, tasks or not",
        ),
        pytest.param(
            [counted(10.0, 11.0, cpu=0.9), counted(10.1, 11.1, cpu=0.8)],
            {"at": 9.9, "cpu": 50.0},
            0.2,
            id="a batch that comes at once is still given the interval",
        ),
        pytest.param(
            [counted(10.0, 11.0, cpu=0.9), counted(10.1, 11.1, cpu=0.8)],
            {"at": 5000.0, "cpu": 900.0},
            0.2,
            id="a machine that was started anew begins again",
        ),
    ],
)
def test_a_node_that_has_its_machine_to_itself_has_its_cpu_of_the_interval(
    readings: list[dict[str, Counted]], since: Counted, expected: float
) -> None:
    # Two instances on the first node, which tells no cores.
    first, second = readings
    tasks = [
        task(0, 0, 1.0, "a:1", **first),
        task(0, 1, 0.5, "a:1", **second),
        task(0, 2, 0.5, "b:2", **counted(3.0, 5.0, cpu=0.2)),
    ]
    found = cpu(tasks, since={"a": since} if since else {}, elsewhere={"a:1": 9.0})
    assert found == pytest.approx({"a:1": expected, "b:2": 0.1})


def test_nodes_whose_cores_are_all_busy_are_so_on_a_larger_machine_too() -> None:
    # Of sixteen cores four are in use, and on the other more than the executor has.
    tasks = [
        task(0, number, 2.0, name, cores=4, **counted(0.0, 2.0, cpu=used))
        for number, (name, used) in enumerate([*[("large:1", 8.0)] * 4, *[("small:1", 20.0)] * 4])
    ]
    nodes = loads(tasks)
    assert nodes.cpu.tolist() == [1.0, 1.0]
    assert nodes.cores is not None
    assert nodes.cores.tolist() == [4.0, 4.0]


@pytest.mark.parametrize(
    ("elsewhere", "expected"),
    [(0.0, 0.5), (3.0, 0.5), (6.0, 0.5), (6.5, 0.75), (7.0, 1.0)],
    ids=[
        "nobody else",
        "three instances of another pipeline, half busy",
        "on all of the other cores",
        "on more than these",
        "on all that is left",
    ],
)
@pytest.mark.parametrize("is_shared", [True, False])
def test_other_pipelines_count_as_far_as_they_take_the_cores_of_this_one(
    elsewhere: float, expected: float, is_shared: bool
) -> None:
    told = counted(0.0, 2.0, cpu=1.0 + elsewhere)
    tasks = [task(0, 0, 1.0, "a:1", cores=4, **told)]
    beside = {"a:2": 0.0} if is_shared else {}
    found = cpu(tasks, elsewhere={"a:1": elsewhere, **beside})
    assert found == pytest.approx({"a:1": expected})


def test_tasks_of_earlier_versions_have_seen_what_was_while_they_ran() -> None:
    tasks = [task(0, 0, 1.0, "a:1", cpu=0.9), task(0, 1, 0.5, "b:2", cpu=0.4)]
    nodes = loads(tasks)
    assert nodes.cpu.tolist() == pytest.approx([0.45, 0.2])
    assert (nodes.network, nodes.disk, nodes.cores) == (None, None, None)


def test_disk_and_network_of_a_machine_are_those_of_its_busiest_disk_and_link() -> None:
    used = {"cpu": 0.5, "disk sda": 0.2, "disk sdb": 0.8, "network e in": 0.1, "network e out": 0.3}
    tasks = [
        task(0, 0, 1.0, "a:1", **counted(0.0, 2.0, **used)),
        task(0, 1, 1.0, "b:1", **counted(0.0, 2.0, **{**used, "disk sdb": 0.0})),
    ]
    nodes = loads(tasks)
    assert nodes.disk is not None
    assert nodes.disk.tolist() == pytest.approx([0.4, 0.1])
    assert nodes.network is not None
    assert nodes.network.tolist() == pytest.approx([0.15, 0.15])


def test_nodes_of_one_machine_have_what_is_theirs_of_its_disk_and_network() -> None:
    told = counted(0.0, 2.0, cpu=0.5, disk=0.8, network=0.4)
    sizes = [(600, 50), (300, 50), (100, 100)]
    tasks = [
        task(number % 2, 0, 0.5, name, **told, **{DISK_BYTES: disk, NETWORK_BYTES: network})
        for number, (name, (disk, network)) in enumerate(
            zip(["a:1", "a:2", "a:2"], sizes, strict=True)
        )
    ]
    tasks[1].stage = 0
    nodes = loads(tasks)
    assert nodes.disk is not None
    assert nodes.disk.tolist() == pytest.approx([0.24, 0.16])
    assert nodes.network is not None
    assert nodes.network.tolist() == pytest.approx([0.05, 0.15])
    for each in tasks:
        each.node |= {DISK_BYTES: 0}
    silent = loads(tasks).disk
    assert silent is not None
    assert silent.tolist() == pytest.approx([0.2, 0.2])


def test_one_node_that_cannot_tell_leaves_all_unknown() -> None:
    told = counted(0.0, 2.0, cpu=0.5, disk=0.8)
    tasks = [
        task(0, 0, 0.5, "a:1", cores=4, **told),
        task(0, 1, 0.5, "b:2", **counted(0, 2, cpu=1)),
    ]
    nodes = loads(tasks)
    assert (nodes.disk, nodes.cores) == (None, None)


def test_a_node_has_the_cores_of_its_executor_that_its_instances_can_use() -> None:
    tasks = [task(0, 0, 1.0, "a:1", cores=2), *(task(0, n, 0.4, "a:2", cores=2) for n in (1, 2, 3))]
    nodes = loads(tasks)
    assert nodes.cores is not None
    assert nodes.cores.tolist() == [1.0, 2.0]
    # In parts of these cores, however many instances take turns on them.
    assert nodes.cpu.tolist() == pytest.approx([0.5, 0.3])


def test_weights_of_the_balancer_find_what_they_weigh() -> None:
    told = counted(0.0, 2.0, cpu=0.5, disk=1.0, network=0.5)
    other = counted(0.0, 2.0, cpu=0.5, disk=0.0, network=0.0)
    tasks = [task(0, 0, 0.5, "a:1", cores=2, **told), task(0, 1, 0.5, "b:2", cores=2, **other)]
    balancer = TwoTier(weights={"disk": 0.2, "network": 0.1})
    balancer.next_plan(Plan.even(4, 2), report_of(manifest(tasks), 0, STAGE))
    assert balancer.last is not None
    assert balancer.last.before.tolist() == pytest.approx([0.7 * 0.25 + 0.1 + 0.025, 0.7 * 0.25])


def test_a_pipeline_measures_what_its_balancer_weighs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    was_running = []
    note = node_busy.note

    def noted(owner: str, seconds: float, busy: Mapping[str, float]) -> None:
        was_running.append(owner in node_busy._running)
        note(owner, seconds, busy)

    monkeypatch.setattr(node_busy, "note", noted)
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(2):
        (texts / f"{number}.txt").write_text("a\nb\na\n")
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(texts))
    balancer = TwoTier(weights={"disk": 0.1, "network": 0.1})
    seen: list[BatchReport] = []
    counted = Pipeline(lines, instances=2, shards=4, balancer=balancer).count("value")
    query = counted.start(MemorySink(), tmp_path / "state", watch=seen.append, availableNow=True)
    query.awaitTermination()

    assert len(seen) == 2
    for report in seen:
        (measured,) = report.reports
        assert measured.nodes is not None
        assert len(measured.nodes.names) == 1
        assert 0 <= measured.nodes.cpu[0] <= 1
        assert measured.nodes.disk is not None
        assert 0 <= measured.nodes.disk[0] <= 1
        assert measured.nodes.network is not None
        # A local session was started with no cores for an executor.
        assert measured.nodes.cores is None
        for told in report.facts["tasks"]:
            # Three rows came, of a letter each; how much of files gets to disks the system decides.
            assert told["node"][DISK_BYTES] >= 0
        assert sum(told["node"][NETWORK_BYTES] for told in report.facts["tasks"]) > 3
    # Others see a batch until what it did is known.
    assert was_running == [True, True]
    # The first batch has none before it, and its tasks may end before a clock of the system ticks.
    last = seen[1].reports[0].nodes
    assert last is not None
    assert last.cpu[0] > 0
    assert [bool(report.facts["since"]) for report in seen] == [False, True]
