"""Plans that are thought of beside batches: later, never instead of them."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock

import numpy as np
import psutil
import pytest
from pyspark.sql import SparkSession
from spark.balancers import Thinking

from unskew.aggregates import count
from unskew.balance import Balancer, NodeLoads, Plan, Report, TwoTier
from unskew.balance.base import Thought
from unskew.spark import MemorySink, Pipeline
from unskew.spark.planning import Planner

PLANS = [Plan.even(4, 2), Plan.even(4, 2)]
REPORT = Report(
    *(1.0, np.ones(4, dtype=np.int64), np.ones(4), np.zeros(4), np.zeros(2)),
    np.zeros(2, dtype=np.int64),
)


@pytest.fixture
def planner() -> Iterator[Planner]:
    made = Planner(beside=True)
    yield made
    made.close()


def until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def ask(planner: Planner, balancer: Balancer, plans: list[Plan] | None = None) -> list[Plan]:
    reports = [REPORT, REPORT]
    return planner.next_plans(balancer, PLANS if plans is None else plans, reports)


def test_a_plan_comes_later_and_batches_do_not_wait_for_it(planner: Planner) -> None:
    thinking = Thinking(0.5)
    begin = time.monotonic()
    assert ask(planner, thinking) == PLANS
    assert time.monotonic() - begin < 0.4
    assert until(lambda: ask(planner, thinking) != PLANS)
    assert planner.process not in (None, os.getpid())


@pytest.mark.parametrize("beside", [True, False])
def test_a_balancer_that_is_quick_is_not_waited_for(beside: bool) -> None:
    plan = Plan(np.array([0, 0, 0, 1]), 2)
    used = np.array([0.8, 0.1])
    nodes = NodeLoads(("a", "b"), np.array([0, 1], dtype=np.int32), used, np.zeros(2))
    busy, none = np.array([0.3, 0.3, 0.2, 0.1]), np.zeros(4)
    report = Report(1.0, none.astype(np.int64), busy, none, used, np.zeros(2, int), nodes=nodes)
    (following,) = Planner(beside=beside).next_plans(TwoTier(), [plan], [report])

    # Measured under the plan that was in force, its plan would be wrong a batch later.
    assert following.assignment.tolist() == [1, 0, 0, 1]


def test_without_beside_the_batch_waits() -> None:
    planner = Planner(beside=False)
    assert ask(planner, Thinking())[0].assignment.tolist() == [1, 1, 0, 1]
    assert planner.process is None


def test_a_thought_that_fails_leaves_the_plans_and_the_next_one_counts(
    planner: Planner, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "unskew.pipeline"):
        assert until(lambda: ask(planner, Thinking(fails=True)) == PLANS and bool(caplog.records))
    assert "ValueError: could not think" in caplog.text
    assert "the next period thinks again" in caplog.text
    assert until(lambda: ask(planner, Thinking()) != PLANS)


def test_a_process_that_is_killed_leaves_the_plans_and_the_next_one_counts(
    planner: Planner, caplog: pytest.LogCaptureFixture
) -> None:
    assert ask(planner, Thinking(60)) == PLANS
    assert until(lambda: planner.process is not None)
    killed = planner.process
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    with caplog.at_level(logging.WARNING, "unskew.pipeline"):
        assert until(lambda: ask(planner, Thinking()) != PLANS)
    assert f"process {killed} ended" in caplog.text
    assert planner.process not in (None, killed)


def test_what_cannot_be_sent_hurts_no_batch(
    planner: Planner, caplog: pytest.LogCaptureFixture
) -> None:
    class Stuck(Thinking):
        def think(self, plans: Sequence[Plan], reports: Sequence[Report]) -> Thought | None:
            lock = Lock()
            return lambda: list(plans) if lock.locked() else []

    with caplog.at_level(logging.WARNING, "unskew.pipeline"):
        assert until(lambda: ask(planner, Stuck()) == PLANS and bool(caplog.records))
    assert "cannot be sent" in caplog.text
    assert until(lambda: ask(planner, Thinking()) != PLANS)


def test_a_thought_of_the_users_own_script_is_sent_by_value(planner: Planner) -> None:
    class Own(Thinking):
        def think(self, plans: Sequence[Plan], reports: Sequence[Report]) -> Thought | None:
            return lambda: [plan.move({1: 0}) for plan in plans]

    assert until(lambda: ask(planner, Own()) != PLANS)


def test_plans_for_other_instances_are_not_taken(planner: Planner) -> None:
    assert ask(planner, Thinking()) == PLANS
    others = [Plan.even(4, 4), Plan.even(4, 4)]
    thought = planner._thought
    assert thought is not None
    assert until(thought.done)
    assert thought.exception() is None
    assert ask(planner, Thinking(), others) == others


def test_nothing_is_left_when_the_query_is_over(planner: Planner) -> None:
    is_over = False
    planner.until(lambda: is_over)
    assert ask(planner, Thinking(60)) == PLANS
    assert until(lambda: planner.process is not None)
    process = planner.process
    assert process is not None
    is_over = True
    assert until(lambda: not psutil.pid_exists(process))
    # Nor is another one started.
    ask(planner, Thinking())
    ask(planner, Thinking())
    assert planner.process is None


@pytest.mark.parametrize("way", ["stop()", "stopped by Spark", "failed"])
def test_a_query_leaves_no_process_behind(spark: SparkSession, tmp_path: Path, way: str) -> None:
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20)
    rows = reader.option("startTimestamp", 0).load()
    made = Pipeline(rows, instances=2, balancer=Thinking(60)).aggregate("value", {"n": count()})
    fails = False

    def before(batch: int) -> None:
        if fails:
            raise RuntimeError("refused")

    query = made.start(MemorySink(), tmp_path, before=before)

    def started() -> list[int]:
        return [each.pid for each in psutil.Process().children() if _is_beside(each)]

    assert until(lambda: len(started()) == 1)
    if way == "stop()":
        query.stop()
        assert not started()
    elif way == "failed":
        fails = True
    else:
        next(each for each in spark.streams.active if each.id == query.id).stop()
    assert until(lambda: not started())
    query.stop()


def _is_beside(process: psutil.Process) -> bool:
    """Return whether a process is one that thinks: others may start processes, too."""
    try:
        return any("unskew.beside" in part for part in process.cmdline())
    except psutil.Error:
        # It is over.
        return False
