"""Consistent: who gives what to whom, what it remembers, and batches with a slow machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from unskew.balance import Consistent, Plan, Report
from unskew.balance.consistent import _STAY
from unskew.balance.first_shards import first_shards
from unskew.balance.shard_parts import shard_parts
from unskew.errors import BadParameter, BadSnapshot
from unskew.grouping import RandomChoices

Speeds = NDArray[np.float64]

PAPER: dict[str, Any] = {
    "relative": False,
    "pairings": 1,
    "is_careful": False,
    "samples": 1,
    "enough": 0,
}


def measured(
    plan: Plan,
    work: NDArray[np.float64],
    speeds: Speeds,
    seconds: float | None = 1.0,
    **others: Any,
) -> Report:
    """Return what an engine would tell of shards of so much work, whatever is hot."""
    busy = work / speeds[plan.assignment]
    on = np.bincount(plan.assignment, busy, plan.instances)
    told = others.pop("hot", {})
    for key, size in told.items():
        if key in plan.hot:
            turns = np.bincount(plan.hot[key], minlength=plan.instances)
            on += size * turns / turns.sum() / speeds
    # A batch takes as long as its slowest instance.
    length = float(on.max()) if seconds is None else seconds
    pace = busy.sum() / work.sum() if work.any() else 1.0
    return Report(
        seconds=length,
        rows=work.astype(np.int64),
        busy=busy,
        state_bytes=np.zeros(work.size),
        utilisation=np.minimum(1.0, on / length),
        queues=np.zeros(plan.instances, dtype=np.int64),
        work=work * pace,
        hot={key: size * pace for key, size in told.items()},
        **others,
    )


def used(plan: Plan, work: NDArray[np.float64], speeds: Speeds) -> NDArray[np.float64]:
    """Return the time that each instance takes."""
    taken: NDArray[np.float64] = np.bincount(plan.assignment, work, plan.instances) / speeds
    return taken


Case = tuple[dict[str, Any], Sequence[float], Sequence[int], Sequence[float], Sequence[int]]

TABLE: dict[str, Case] = {
    # parameters, work of shards, where they are, speeds, where they should be
    "nothing to do": ({}, [1, 1, 1, 1], [0, 0, 1, 1], [1, 1], [0, 0, 1, 1]),
    "the busy one gives to the idle one": ({}, [1] * 4, [0, 0, 0, 1], [1, 1], [1, 0, 0, 1]),
    "the slow one gives until it fits its speed": (
        {},
        [1] * 6,
        [0, 0, 0, 1, 1, 1],
        [2, 1],
        [0, 0, 0, 0, 1, 1],
    ),
    "the shard goes that fits best": ({}, [3, 1, 2, 2], [0, 0, 0, 1], [1, 1], [0, 0, 1, 1]),
    "the last shard stays": ({}, [9, 1], [0, 1], [1, 1], [0, 1]),
    "a shard that would only change who is busy stays": ({}, [3] * 3, [0, 0, 1], [1, 1], [0, 0, 1]),
    "the paper moves one shard for each pair": (
        PAPER,
        [0.3] * 6,
        [0] * 5 + [1],
        [1, 1],
        [1, 0, 0, 0, 0, 1],
    ),
    "the paper lets all be busy": (PAPER, [0.5] * 4, [0, 0, 1, 1], [1, 1], [0, 0, 1, 1]),
    "the paper lets all be idle": (PAPER, [0.1] * 4, [0, 0, 0, 1], [1, 1], [0, 0, 0, 1]),
}


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_one_interval(case: Case) -> None:
    parameters, work, table, speeds, wanted = case
    plan = Plan(np.array(table), len(speeds))
    report = measured(plan, np.array(work, dtype=np.float64), np.array(speeds, dtype=np.float64))
    got = Consistent(**parameters).next_plan(plan, report).assignment

    weights = np.array(work, dtype=np.float64)
    # Which of several alike goes does not matter.
    assert np.bincount(got, weights, len(speeds)).tolist() == pytest.approx(
        np.bincount(wanted, weights, len(speeds)).tolist()
    )
    assert np.count_nonzero(got != table) == np.count_nonzero(np.array(wanted) != table)


def test_where_none_is_idle_who_was_busy_longest_ago_takes() -> None:
    balancer = Consistent(**PAPER)
    plan = Plan.even(60, 3)

    def told(*loads: float) -> Plan:
        work = np.array(loads)[plan.assignment] / 20
        return balancer.next_plan(plan, measured(plan, work, np.ones(3)))

    # First 1 is busy, then 2; then 0 is, and none is idle.
    assert told(0.8, 0.9, 0.8).moves(plan)[0][1:] == (1, 0)
    assert told(0.8, 0.8, 0.9).moves(plan)[0][1:] == (2, 0)
    assert told(0.9, 0.8, 0.8).moves(plan)[0][1:] == (0, 1)


def test_a_busy_one_that_waits_is_served_first() -> None:
    balancer = Consistent(**PAPER)
    plan = Plan.even(60, 3)
    busy = measured(plan, np.array([0.9, 0.95, 0.9])[plan.assignment] / 20, np.ones(3))
    assert balancer.next_plan(plan, busy) is plan
    assert balancer.snapshot()["busy"].tolist() == [0, 1, 2]
    idle = measured(plan, np.array([0.3, 0.95, 0.9])[plan.assignment] / 20, np.ones(3))
    assert balancer.next_plan(plan, idle).moves(plan)[0][1:] == (1, 0)
    assert balancer.snapshot()["idle"].tolist() == [0]


def batches(
    balancer: Consistent,
    speeds: Speeds,
    count: int,
    *,
    plan: Plan | None = None,
    noise: float = 0.0,
    hot: float = 0.0,
    instances: int = 3,
    seed: int = 0,
) -> list[tuple[Plan, float]]:
    """Return the plans of batches, and how long each takes over the best that there is."""
    chance = np.random.default_rng(seed)
    plan = plan or Plan.even(16 * instances, instances)
    key, took = 12345, []
    for _ in range(count):
        work = chance.poisson(1000 / plan.shards * 50, plan.shards).astype(np.float64)
        size = hot / (1 - hot) * work.sum()
        home = plan.shard_of(np.array([key], dtype=np.uint64))
        shown = work.copy()
        if key not in plan.hot:
            shown[home] += size
        pace = speeds * (1 + noise * chance.uniform(-1, 1, instances))
        told = {key: size} if size else {}
        report = measured(plan, shown, pace, None, hot=told, can_split=bool(hot))
        times = used(plan, shown, speeds)
        if key in plan.hot:
            turns = np.bincount(plan.hot[key], minlength=instances)
            times = times + size * turns / turns.sum() / speeds
        took.append((plan, float(times.max() / ((work.sum() + size) / speeds.sum()))))
        plan = balancer.next_plan(plan, report)
    return took


def swings(plans: list[Plan]) -> list[int]:
    """Return the shards that went back to where they had been not long ago, over others too."""
    left: dict[tuple[int, int], int] = {}
    found = []
    for number, (before, after) in enumerate(pairwise(plans)):
        for shard, giver, taker in after.moves(before):
            if number - left.get((shard, taker), -1000) <= _STAY:
                found.append(shard)
            left[shard, giver] = number
    return found


@pytest.mark.parametrize("hot", [0.0, 0.32])
@pytest.mark.parametrize("seed", range(3))
def test_batches_are_within_a_tenth_of_the_best_after_five_and_stay_there(
    hot: float, seed: int
) -> None:
    took = batches(Consistent(), np.array([1.0, 1.0, 0.3]), 30, hot=hot, seed=seed)

    assert took[0][1] > 1.5
    assert max(ratio for _, ratio in took[5:]) < 1.1
    # At rest nothing moves but for chance.
    moves = [len(after.moves(before)) for (before, _), (after, _) in pairwise(took[5:])]
    assert sum(moves) <= 6


@pytest.mark.parametrize("slow", [0.05, 0.01, 0.005])
def test_a_machine_that_hardly_does_anything_keeps_next_to_nothing(slow: float) -> None:
    plan, _ = batches(Consistent(), np.array([1.0, 1.0, slow]), 12)[-1]

    assert np.bincount(plan.assignment)[2] <= 2


def test_a_machine_that_becomes_slow_is_noticed_within_five_batches() -> None:
    balancer = Consistent()
    before = batches(balancer, np.ones(3), 6)
    after = batches(balancer, np.array([1.0, 0.3, 1.0]), 20, plan=before[-1][0])

    assert before[-1][1] < 1.1
    assert after[0][1] > 2
    assert max(ratio for _, ratio in after[5:]) < 1.1


def test_shards_that_were_served_in_part_where_they_were_do_not_hide_speeds() -> None:
    # As where sources hear of a plan late: half of what a shard that moved got, it got there.
    balancer, speeds = Consistent(), np.array([10.0, 10.0] + [1.0] * 8)
    plan = before = Plan.even(1000, 10)
    work = np.full(1000, 1e-3)
    for _ in range(2):
        report = measured(plan, work, speeds)
        late = work / 2 / speeds[plan.assignment] + work / 2 / speeds[before.assignment]
        told = replace(report, busy=late, work=work * late.sum() / work.sum())
        before, plan = plan, balancer.next_plan(plan, told)

    within = used(plan, work, speeds)
    assert within.max() / within.min() < balancer.busy / balancer.idle
    # The second time it had nothing to add.
    assert plan.assignment.tolist() == before.assignment.tolist()


def test_times_that_are_measured_badly_do_not_make_shards_swing() -> None:
    took = batches(Consistent(), np.array([1.0, 1.0, 0.3]), 60, noise=0.1)

    assert max(ratio for _, ratio in took[5:]) < 1.2
    assert swings([plan for plan, _ in took]) == []


def few_tuples(
    balancer: Consistent, rates: NDArray[np.float64], count: int, plan: Plan | None = None
) -> list[Plan]:
    """Return the plans of intervals in which shards have some tuples of a second each."""
    chance, plans = np.random.default_rng(0), [plan or Plan.even(rates.size, 4)]
    for _ in range(count):
        work = chance.poisson(rates).astype(np.float64)
        plans.append(balancer.next_plan(plans[-1], measured(plans[-1], work, np.ones(4))))
    return plans


def test_chance_moves_few_shards() -> None:
    even, uneven = np.full(400, 5.0), Plan(np.repeat([0, 1, 2, 3], [40, 80, 120, 160]), 4)
    calm, jumpy = (
        few_tuples(Consistent(enough=enough), even, 100, uneven) for enough in (50_000, 0)
    )
    moves, others = (
        [len(after.moves(before)) for before, after in pairwise(plans)] for plans in (calm, jumpy)
    )
    assert sum(moves[:10]) > 60
    assert sum(moves[10:]) < 0.2 * sum(others[10:])
    loads = np.bincount(calm[-1].assignment)
    assert loads.max() - loads.min() <= 8


@pytest.mark.parametrize(
    ("rate", "times", "intervals"),
    [
        pytest.param(20.0, 2.0, 1, id="more than chance explains, at once"),
        pytest.param(2.0, 1.3, 20, id="what could be chance, after some intervals"),
    ],
)
def test_work_that_changes_is_followed_though_tuples_are_few(
    rate: float, times: float, intervals: int
) -> None:
    balancer, even = Consistent(), np.full(400, rate)
    plan = few_tuples(balancer, even, 50)[-1]
    more = np.where(plan.assignment == 0, times * even, even)
    after = few_tuples(balancer, more, intervals, plan)[-1]
    assert used(after, more, np.ones(4)) == pytest.approx([more.sum() / 4] * 4, rel=0.1)


def test_split_keys_are_followed_where_hardly_anything_else_comes() -> None:
    balancer, plan, speeds = Consistent(), Plan.even(40, 4), np.ones(4)
    for sizes in [{5: 180.0, 77: 20.0, 123: 180.0}] * 10 + [{5: 20.0, 77: 180.0, 123: 180.0}] * 2:
        shown = np.ones(40)
        for key in sizes.keys() - plan.hot.keys():
            shown[plan.shard_of(np.array([key], dtype=np.uint64))] += sizes[key]
        report = measured(plan, shown, speeds, hot=sizes, can_split=True)
        plan = balancer.next_plan(plan, report)
    # What is split was counted, too: 420 tuples now, and 0.9 of as many before.
    assert balancer.snapshot()["tuples"] == pytest.approx(798)
    loads = used(plan, np.ones(40), speeds)
    for key, size in sizes.items():
        turns = np.bincount(plan.hot[key], minlength=4)
        loads += size * turns / turns.sum()
    assert loads == pytest.approx([loads.mean()] * 4, rel=0.1)


def test_a_snapshot_of_before_work_was_pooled_continues() -> None:
    old, balancer = Consistent(), Consistent()
    plan = few_tuples(old, np.full(400, 20.0), 5)[-1]
    snapshot = {
        name: each for name, each in old.snapshot().items() if name not in ("shares", "tuples")
    }
    balancer.restore(snapshot)
    report = measured(plan, np.where(plan.assignment == 0, 9.0, 1.0), np.ones(4))
    assert balancer.next_plan(plan, report) is not plan
    with pytest.raises(BadSnapshot, match="consistent remembers"):
        balancer.restore({"shares": np.zeros(4)})


@settings(max_examples=40, deadline=None)
@given(
    speeds=st.lists(st.sampled_from([0.2, 0.3, 0.5, 1.0, 3.0]), min_size=2, max_size=6),
    parameters=st.sampled_from([{}, {"pairings": 1, "samples": 1}, {"busy": 0.81, "idle": 0.79}]),
    seed=st.integers(0, 999),
)
def test_no_shard_goes_back_within_ten_intervals_without_a_change_of_load(
    speeds: list[float], parameters: dict[str, Any], seed: int
) -> None:
    took = batches(
        Consistent(**parameters), np.array(speeds), 30, instances=len(speeds), noise=0.02, seed=seed
    )
    assert swings([plan for plan, _ in took]) == []


def test_a_hot_key_is_on_the_first_shards_of_its_sequence_and_moves_along() -> None:
    balancer = Consistent()
    took = batches(balancer, np.array([1.0, 1.0, 0.3]), 6, hot=0.32)
    before = took[-1][0]
    # Now another one is slow, and shards of the key leave it.
    took += batches(balancer, np.array([0.3, 1.0, 1.0]), 6, plan=before, hot=0.32)
    plans = [plan for plan, _ in took if plan.hot]
    [(key, copies)] = before.hot.items()

    # 32 % of 48 shards, each with room for 1 % more than the mean.
    assert len(copies) == 16
    shards = first_shards(key, 16, before.shards)
    assert (before.assignment[shards] != plans[-1].assignment[shards]).any()
    for plan in plans:
        assert sorted(plan.hot[key]) == sorted(plan.assignment[shards].tolist())


@pytest.mark.parametrize("key", [0, 7, 2**64 - 1])
def test_the_sequence_of_a_key_is_that_of_random_choices(key: int) -> None:
    router = RandomChoices(20, e=1e-9, tries=10_000)
    chosen = router.route(np.full(400, key, dtype=np.uint64)).tolist()
    # With next to no room, a key fills its shards in the order of its sequence.
    assert first_shards(key, 20, 20).tolist()[:2] == list(dict.fromkeys(chosen))[:2]
    assert sorted(first_shards(key, 30, 20).tolist()) == list(range(20))


@pytest.mark.parametrize(
    ("share", "before", "expected"),
    [
        pytest.param(0.02, 0, 0, id="a key that fits into a shard stays whole"),
        pytest.param(0.32, 0, 13, id="one that does not gets as many as it fills"),
        pytest.param(0.32, 20, 20, id="one that fills more than half of its shards keeps them"),
        pytest.param(0.32, 30, 13, id="one that fills less gives some back"),
        pytest.param(0.32, 5, 13, id="one that has grown gets more"),
        pytest.param(0.01, 2, 0, id="one that has cooled is whole again"),
    ],
)
def test_how_many_shards_a_key_has(share: float, before: int, expected: int) -> None:
    hot = {5: (0, 1) * (before // 2) + (0,) * (before % 2)} if before else {}
    plan = replace(Plan.even(40, 2), hot=hot)
    work = np.full(40, (1 - share) / 40)
    if not before:
        work[5] += share
    report = measured(plan, work, np.ones(2), hot={5: share}, can_split=True)
    found = shard_parts(plan, report, work, e=0.01, seed=0)

    wanted = np.full(40, (1 - share) / 40)
    if expected:
        assert found.parts[5].tolist() == first_shards(5, expected, 40).tolist()
        wanted[found.parts[5]] += share / expected
    else:
        assert found.parts == {}
        wanted[5] += share
    assert found.work == pytest.approx(wanted)


@pytest.mark.parametrize(("shards", "wanted"), [(50, 176), (100, 176), (1000, 0)], ids=str)
def test_too_few_shards_are_told(shards: int, wanted: int) -> None:
    speeds = np.array([5.0] * 3 + [1.0] * 7)
    balancer, plan = Consistent(), Plan.even(shards, 10)
    work = np.full(shards, 0.8 * 22 / shards)
    for _ in range(5):
        plan = balancer.next_plan(plan, measured(plan, work, speeds))

    within = used(plan, work, speeds)
    assert balancer.shards_wanted == wanted
    assert (wanted == 0) == (within.min() >= 0.75 and within.max() <= 0.85)


@pytest.mark.parametrize(
    ("fast", "times", "many", "few"),
    [(3, 5, 227.3, 45.5), (5, 4, 160.0, 40.0), (2, 10, 357.1, 35.7)],
)
def test_1000_shards_are_dealt_in_proportion_to_capacity(
    fast: int, times: int, many: float, few: float
) -> None:
    speeds = np.array([float(times)] * fast + [1.0] * (10 - fast))
    balancer, plan = Consistent(), Plan.even(1000, 10)
    for _ in range(4):
        plan = balancer.next_plan(plan, measured(plan, np.full(1000, 1e-3), speeds))

    counts = np.bincount(plan.assignment)
    # Within a tenth of the band, at which it aims, and a shard.
    assert np.abs(counts[:fast] - many).max() <= 0.05 / 0.8 / 10 * many + 1
    assert np.abs(counts[fast:] - few).max() <= 0.05 / 0.8 / 10 * few + 1


def test_more_shards_than_the_bound_always_fit() -> None:
    for shards in (176, 200, 230, 300):
        speeds = np.array([5.0] * 3 + [1.0] * 7)
        balancer, plan = Consistent(), Plan.even(shards, 10)
        work = np.full(shards, 0.8 * 22 / shards)
        for _ in range(3):
            plan = balancer.next_plan(plan, measured(plan, work, speeds))
        assert used(plan, work, speeds).min() >= 0.75
        assert used(plan, work, speeds).max() <= 0.85


@pytest.mark.parametrize("signal", ["queue", "utilisation", "own"])
def test_other_signals_move_shards_too(signal: str) -> None:
    plan = Plan(np.array([0, 0, 0, 1]), 2)
    report = Report(
        1.0,
        np.ones(4, dtype=np.int64),
        np.ones(4),
        np.zeros(4),
        utilisation=np.array([0.9, 0.3]) if signal == "utilisation" else np.zeros(2),
        queues=np.array([900, 300]) if signal == "queue" else np.zeros(2, dtype=np.int64),
    )

    def own(plan: Plan, report: Report) -> list[float]:
        return [0.9, 0.3]

    balancer = Consistent(signal=own if signal == "own" else signal)
    assert len(balancer.next_plan(plan, report).moves(plan)) == 1


def test_a_signal_of_the_wrong_size_is_named() -> None:
    plan = Plan.even(4, 2)
    with pytest.raises(BadParameter, match=r"signal of 2 instances .* not \[1.0\]"):
        Consistent(signal=lambda plan, report: [1.0]).next_plan(
            plan, measured(plan, np.ones(4), np.ones(2))
        )


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("idle", 0.0),
        ("busy", 0.7),
        ("pairings", 0),
        ("signal", "smoke"),
        ("samples", 0),
        ("enough", -1),
        ("e", 0.0),
    ],
)
def test_a_parameter_out_of_its_range_is_named(parameter: str, value: Any) -> None:
    with pytest.raises(BadParameter, match=f"{parameter} must be .*, not {value!r}"):
        Consistent(**{parameter: value})
