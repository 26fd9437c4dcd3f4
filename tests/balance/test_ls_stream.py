"""LS-Stream's balancer: the paper's example, tables of loads in and loads out."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from unskew.balance import LsStream, Plan, Report
from unskew.balance.annealing import Handover
from unskew.errors import BadParameter
from unskew.metrics import load_imbalance, shard_load


def report_of(
    plan: Plan,
    work: NDArray[np.float64],
    speeds: NDArray[np.float64] | None = None,
    hot: dict[int, float] | None = None,
) -> Report:
    """Return what an engine would measure where an interval takes as long as the straggler."""
    speeds = np.ones(plan.instances) if speeds is None else speeds
    busy = work / speeds[plan.assignment]
    on = np.bincount(plan.assignment, busy, plan.instances)
    for key, load in (hot or {}).items():
        for copy in plan.hot.get(key, ()):
            on[copy] += load / len(plan.hot[key])
    return Report(
        seconds=max(float(on.max()), 1e-9),
        rows=np.ones(plan.shards, dtype=np.int64),
        busy=busy,
        state_bytes=np.ones(plan.shards),
        utilisation=on / max(float(on.max()), 1e-9),
        queues=np.zeros(plan.instances, dtype=np.int64),
        hot=hot or {},
        can_split=True,
        work=work,
    )


def loads_of(plan: Plan, work: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.bincount(plan.assignment, work, plan.instances).astype(np.float64)


def test_the_example_of_the_paper() -> None:
    loads = shard_load([4, 4, 2, 1], [3, 4, 2, 3])
    assert loads.tolist() == [9.5, 12, 4, 3.5]
    plan = Plan(np.array([0, 0, 1, 1]), 2)
    assert loads_of(plan, loads).tolist() == [21.5, 7.5]
    assert load_imbalance([21.5, 7.5]) == pytest.approx(0.4828, abs=5e-5)
    assert LsStream(threshold=1.0).next_plan(plan, report_of(plan, loads)) is plan
    # Any shard is more than half of the difference; the smaller one still lowers the larger load.
    moved = LsStream(threshold=0.2).next_plan(plan, report_of(plan, loads))
    assert moved.moves(plan) == [(0, 0, 1)]
    assert loads_of(moved, loads).tolist() == [12, 17]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shape", [0.5, 1.0, 1.5])
def test_one_plan_brings_many_instances_under_the_threshold(seed: int, shape: float) -> None:
    generator = np.random.default_rng(seed)
    plan = Plan.even(shards=1000, instances=20)
    # None so large that it could not be balanced by moving.
    work = np.minimum(generator.pareto(shape + 2, 1000) + 0.01, 4)
    # One instance that has the largest shards of all.
    work[plan.assignment == 3] *= 4
    assert load_imbalance(loads_of(plan, work)) > 1
    moved = LsStream().next_plan(plan, report_of(plan, work))
    assert load_imbalance(loads_of(moved, work)) <= 0.2
    assert len(moved.moves(plan)) < 300


def test_a_handover_is_near_the_best_there_is() -> None:
    generator = np.random.default_rng(1)
    parts = []
    for seed in range(60):
        loads = generator.pareto(1.5, 8) + 0.05
        taker = float(generator.uniform(0, loads.sum() / 2))
        hand = Handover(float(loads.sum()), taker, np.inf, loads, loads, np.zeros(8))
        got = loads[hand.choose(seed=seed)].sum()
        sums = [loads[np.array(bits, dtype=bool)].sum() for bits in product((0, 1), repeat=8)]
        best = max(each for each in sums if 2 * each <= loads.sum() - taker)
        assert 2 * got <= loads.sum() - taker + 1e-9
        parts.append(1.0 if best == 0 else got / best)
    assert np.mean(parts) > 0.99


def test_tuples_that_move_cost() -> None:
    loads, tuples = np.full(6, 1.0), np.array([100.0, 100.0, 1.0, 1.0, 100.0, 100.0])
    hand = Handover(6.0, 2.0, 12.0, loads, loads, tuples)
    assert np.flatnonzero(hand.choose(seed=0)).tolist() == [2, 3]


def test_a_slow_instance_gets_less() -> None:
    speeds = np.array([1.0, 1.0, 1.0, 0.4])
    plan, work = Plan.even(200, 4), np.ones(200)
    policy = LsStream()
    for _ in range(6):
        plan = policy.next_plan(plan, report_of(plan, work, speeds))
    assert load_imbalance(loads_of(plan, work) / speeds) < 0.25
    assert loads_of(plan, work)[3] < 0.6 * loads_of(plan, work)[0]


def test_one_interval_out_of_the_ordinary_moves_nothing() -> None:
    plan, work = Plan.even(100, 4), np.ones(100)
    policy = LsStream()
    strange = work.copy()
    strange[plan.assignment == 0] = 10
    for load in (work, work, strange):
        assert policy.next_plan(plan, report_of(plan, load)) is plan
    assert policy.next_plan(plan, report_of(plan, strange)) is not plan


def test_a_key_larger_than_an_instance_is_split_and_the_rest_goes_elsewhere() -> None:
    plan, work = Plan.even(100, 4), np.ones(100)
    key = 8
    work[8] += 150
    moved = LsStream().next_plan(plan, report_of(plan, work, hot={key: 150.0}))
    assert len(moved.instances_of(key)) == 4
    whole = LsStream(can_split=False).next_plan(plan, report_of(plan, work, hot={key: 150.0}))
    assert not whole.hot
    # What does not fit is left alone with its instance.
    assert loads_of(whole, work).max() == pytest.approx(151, abs=3)


def test_intervals_without_load_or_with_less_leave_split_keys_as_they_are() -> None:
    plan, work, key = Plan(Plan.even(100, 4).assignment, 4, hot={8: (0, 1, 2, 3)}), np.ones(100), 8
    policy = LsStream()
    for part in (1.0, 1.0, 0.0, 1.0, 0.1, 1.0):
        told = report_of(plan, part * work, hot={key: 150.0 * part} if part else {})
        assert policy.next_plan(plan, told) is plan


def test_a_slow_instance_gets_less_of_a_key_that_is_split() -> None:
    speeds = np.array([1.0, 1.0, 1.0, 0.4])
    plan, work, key = Plan(Plan.even(100, 4).assignment, 4, hot={8: (0, 1, 2, 3)}), np.ones(100), 8
    policy = LsStream()
    for _ in range(6):
        plan = policy.next_plan(plan, report_of(plan, work, speeds, hot={key: 400.0}))
    loads = loads_of(plan, work)
    np.add.at(loads, list(plan.hot[key]), 400 / len(plan.hot[key]))
    assert load_imbalance(loads / speeds) < 0.25


def test_keys_that_share_instances_are_dealt_so_that_loads_are_even() -> None:
    hot = {8: (0, 1, 2), 9: (0, 1, 3)}
    plan = Plan(Plan.even(100, 4).assignment, 4, hot=hot)
    moved = LsStream().next_plan(plan, report_of(plan, np.ones(100), hot=dict.fromkeys(hot, 120.0)))
    assert {key: set(copies) for key, copies in moved.hot.items()} == {8: {0, 1, 2}, 9: {0, 1, 3}}
    loads = loads_of(moved, np.ones(100))
    for key in hot:
        np.add.at(loads, list(moved.hot[key]), 120 / len(moved.hot[key]))
    assert load_imbalance(loads) < 0.05


def test_instances_are_asked_for_when_they_are_busy_and_given_back_when_not() -> None:
    plan, work = Plan.even(200, 4), np.ones(200)
    policy = LsStream(instances=(2, 12))
    grown = policy.next_plan(plan, report_of(plan, work))
    assert grown.instances == 6
    assert load_imbalance(loads_of(grown, work)) <= 0.2
    told = report_of(grown, work)
    idle = Report(
        10 * told.seconds,
        told.rows,
        told.busy,
        told.state_bytes,
        told.utilisation / 10,
        told.queues,
    )
    shrunk = policy.next_plan(grown, idle)
    assert shrunk.instances == 2
    assert load_imbalance(loads_of(shrunk, work)) <= 0.2


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"load": "weight"}, "load must be one of work, resources, not 'weight'"),
        ({"objective": "best"}, "objective must be one of score, mif, not 'best'"),
        ({"instances": (5, 2)}, "the most instances must be from 5 to .*, not 2"),
        ({"samples": 0}, "samples must be from 1 to 1000, not 0"),
    ],
)
def test_parameters_out_of_range_are_named(given: dict[str, object], told: str) -> None:
    with pytest.raises(BadParameter, match=told):
        LsStream(**given)  # type: ignore[arg-type]
