"""Laws that hold for every registered balancer."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from unskew.balance import BALANCERS, Balancer, Plan, Report, balancer
from unskew.errors import BadParameter, BadSnapshot, UnknownBalancer, UnskewError

Maker = Callable[[], Balancer]
Snapshot = dict[str, NDArray[Any]]

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "greedy, hard to please": ("greedy", {"threshold": 0.001}),
    "greedy, easy to please": ("greedy", {"threshold": 2.0}),
    "consistent, in parts of the interval": ("consistent", {"relative": False}),
    "consistent, one pair at a time": ("consistent", {"pairings": 1, "samples": 1}),
    "ls-stream as in the paper": (
        "ls-stream",
        {"threshold": 1.0, "load": "resources", "objective": "mif", "can_split": False},
    ),
    "two-tier, hard to please": ("two-tier", {"theta": 0.01, "aim": 0.0}),
    "two-tier, looking at times": ("two-tier", {"theta": 0.5, "aim": 1.0, "period": 3}),
}

every_balancer = pytest.mark.parametrize(
    "make",
    [
        *(pytest.param(partial(balancer, name), id=name) for name in BALANCERS),
        *(
            pytest.param(partial(balancer, name, **parameters), id=variant)
            for variant, (name, parameters) in VARIANTS.items()
        ),
    ],
)

HOTTEST = 4
"""Keys that a report tells of: few, so that some that are split are missing."""

STEPS = 20
"""Reports after which a balancer must have come to rest."""

PARTS = (0.0, 0.2, 0.4, 0.5, 0.6, 0.9, 1.0, 1.1, 1.4, 2.0, 3.5)
"""Loads of keys, where one instance should have 1."""

hashes = st.integers(0, 2**64 - 1)
loads = st.one_of(
    st.just(0.0), st.integers(1, 9).map(float), st.floats(0, 1000), st.floats(1e3, 1e9)
)


@dataclass(frozen=True)
class World:
    """What tuples ask for, whatever the plan: of some keys, and of all others by shard."""

    keys: dict[int, float]
    rest: list[float]
    can_split: bool
    keeps: bool = False

    def report(self, plan: Plan) -> Report:
        """Return what an engine would measure under a plan."""
        busy = np.array(self.rest)
        rows = np.arange(plan.shards)
        homes = plan.shard_of(np.array(list(self.keys), dtype=np.uint64)).tolist()
        for (key, load), home in zip(self.keys.items(), homes, strict=True):
            if key not in plan.hot:
                busy[home] += load
                rows[home] += 1
        hottest = sorted(self.keys, key=lambda key: (-self.keys[key], key))[:HOTTEST]
        on = np.bincount(plan.assignment, weights=busy, minlength=plan.instances)
        return Report(
            seconds=1.0,
            rows=rows,
            busy=busy,
            state_bytes=rows.astype(np.float64),
            utilisation=np.minimum(1.0, on),
            queues=np.maximum(0.0, on - 1.0).astype(np.int64),
            hot={key: self.keys[key] for key in hottest},
            can_split=self.can_split,
            work=busy.copy() if self.keeps else None,
            stored=rows if self.keeps else None,
            watermark=0 if self.keeps else None,
            latest=10 if self.keeps else None,
        )


@st.composite
def worlds(
    draw: st.DrawFn, instances: int, shards: int, known: list[int], can_split: bool
) -> World:
    """Return loads of any size, or keys around what an instance should have."""
    keeps = draw(st.booleans())
    if draw(st.booleans()):
        keys = {key: draw(loads) for key in known}
        rest = draw(st.lists(loads, min_size=shards, max_size=shards))
        return World(keys, rest, can_split, keeps)
    parts = {key: draw(st.sampled_from(PARTS)) for key in known}
    weights = draw(st.lists(st.integers(0, 9), min_size=shards, max_size=shards))
    left = max(0.0, instances - sum(parts.values())) / max(1, sum(weights))
    return World(parts, [left * weight for weight in weights], can_split, keeps)


@st.composite
def situations(draw: st.DrawFn, intervals: int = 1) -> tuple[Plan, list[World]]:
    """Return a plan that may have hot keys, and loads that it may meet one after the other."""
    instances, shards = draw(st.integers(1, 8)), draw(st.integers(1, 20))
    instance = st.integers(0, instances - 1)
    known = draw(st.lists(hashes, max_size=7, unique=True))
    copies = st.lists(instance, min_size=1, max_size=9).map(tuple)
    hot = draw(st.dictionaries(st.sampled_from([*known, 5]), copies, max_size=3))
    table = draw(st.lists(instance, min_size=shards, max_size=shards))
    plan = Plan(np.array(table), instances, draw(st.integers(0, 2**40)), hot)
    can_split = draw(st.booleans())
    world = worlds(instances, shards, known, can_split)
    return plan, [draw(world) for _ in range(intervals)]


@st.composite
def reports(draw: st.DrawFn) -> tuple[Plan, Report]:
    """Return a plan and a report that may contradict itself, as measured times do."""
    plan, (world,) = draw(situations())
    told = world.report(plan)
    shares = draw(st.lists(st.floats(0, 3), min_size=len(told.hot), max_size=len(told.hot)))
    hot = {key: load * share for (key, load), share in zip(told.hot.items(), shares, strict=True)}
    measured = Report(
        told.seconds,
        told.rows,
        told.busy,
        told.state_bytes,
        told.utilisation,
        told.queues,
        hot,
        told.can_split,
        work=told.work,
        stored=told.stored,
    )
    return plan, measured


def meaning(plan: Plan) -> tuple[Any, ...]:
    """Return what a plan says, whatever the order in which it names the instances of a key."""
    hot = {key: sorted(copies) for key, copies in plan.hot.items()}
    return plan.assignment.tolist(), plan.instances, hot


def same(one: Snapshot, other: Snapshot) -> bool:
    """Return whether two snapshots hold the same."""
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


def saved(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot that was written to a file without pickle and read back."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **snapshot)
    file.seek(0)
    with np.load(file, allow_pickle=False) as loaded:
        return dict(loaded)


def follow(policy: Balancer, plan: Plan, worlds: list[World]) -> list[Plan]:
    """Return the plans that a balancer makes, one after the other."""
    plans = []
    for world in worlds:
        plan = policy.next_plan(plan, world.report(plan))
        plans.append(plan)
    return plans


some = settings(max_examples=25)


@every_balancer
@some
@given(case=reports())
def test_no_shard_is_lost_and_each_is_on_a_live_instance(
    make: Maker, case: tuple[Plan, Report]
) -> None:
    plan, report = case
    got = make().next_plan(plan, report)
    assert got.shards == plan.shards
    assert got.instances == plan.instances
    assert set(got.assignment.tolist()) <= set(range(plan.instances))


@every_balancer
@some
@given(case=reports())
def test_keys_are_split_only_where_they_can_be_and_have_live_instances(
    make: Maker, case: tuple[Plan, Report]
) -> None:
    plan, report = case
    got = make().next_plan(plan, report)
    new = got.hot.keys() - plan.hot.keys()
    assert new <= (report.hot.keys() if report.can_split else set())
    for copies in got.hot.values():
        assert copies
        assert set(copies) <= set(range(plan.instances))


@every_balancer
@some
@given(case=reports())
def test_the_epoch_grows_by_one_if_and_only_if_something_changed(
    make: Maker, case: tuple[Plan, Report]
) -> None:
    plan, report = case
    got = make().next_plan(plan, report)
    assert (got is plan) == (meaning(got) == meaning(plan))
    assert got.epoch == plan.epoch + (got is not plan)


@every_balancer
@some
@given(case=situations(intervals=4))
def test_the_same_reports_give_the_same_plans(make: Maker, case: tuple[Plan, list[World]]) -> None:
    plan, worlds = case
    one, other = make(), make()
    # Equal, but not the same object, and with its hot keys in another order.
    turned = Plan(plan.assignment, plan.instances, plan.epoch, dict(reversed([*plan.hot.items()])))
    assert follow(one, plan, worlds) == follow(other, turned, worlds)
    assert same(one.snapshot(), other.snapshot())


@every_balancer
@some
@given(case=reports())
def test_what_it_is_given_is_not_changed(make: Maker, case: tuple[Plan, Report]) -> None:
    plan, report = case
    told = (report.rows, report.busy, report.state_bytes, report.utilisation, report.queues)
    before = plan.to_json(), [array.copy() for array in told], dict(report.hot)
    make().next_plan(plan, report)
    assert plan.to_json() == before[0]
    assert all(map(np.array_equal, told, before[1]))
    assert report.hot == before[2]


@every_balancer
@some
@given(case=situations(intervals=5), cut=st.integers(0, 5))
def test_a_snapshot_continues_exactly_in_another_object(
    make: Maker, case: tuple[Plan, list[World]], cut: int
) -> None:
    plan, worlds = case
    policy, fresh, used = make(), make(), make()
    here = [plan, *follow(policy, plan, worlds[:cut])][-1]
    snapshot = saved(policy.snapshot())
    expected = follow(policy, here, worlds[cut:])
    fresh.restore(snapshot)
    follow(used, plan, worlds[::-1])
    used.restore(snapshot)
    for restored in (fresh, used):
        assert follow(restored, here, worlds[cut:]) == expected
        assert same(restored.snapshot(), policy.snapshot())


@every_balancer
@some
@given(case=situations())
# The turns of its hot key once followed each other, each as near to even as the other.
@example(case=(Plan(np.zeros(3, np.int32), 4), [World({0: 0.0, 1: 61.0}, [0.0, 6.0, 61.0], True)]))
def test_it_comes_to_rest_where_loads_stay_the_same(
    make: Maker, case: tuple[Plan, list[World]]
) -> None:
    plan, worlds = case
    plans = [plan, *follow(make(), plan, worlds * (STEPS + 3))]
    assert all(each is plans[STEPS] for each in plans[STEPS:])
    assert plans[STEPS].epoch <= plan.epoch + STEPS


@every_balancer
@some
@given(case=situations())
def test_one_instance_keeps_every_shard(make: Maker, case: tuple[Plan, list[World]]) -> None:
    plan, worlds = case
    alone = Plan(np.zeros(plan.shards, dtype=np.int32), 1)
    assert make().next_plan(alone, worlds[0].report(alone)) is alone


@every_balancer
def test_a_snapshot_that_is_not_its_own_is_refused(make: Maker) -> None:
    with pytest.raises(BadSnapshot, match="restore"):
        make().restore({"weather": np.arange(3)})


@pytest.mark.parametrize("name", BALANCERS)
def test_it_is_known_by_its_name(name: str) -> None:
    made = balancer(name)
    assert made.name == name
    assert type(made) is BALANCERS[name]
    assert balancer(made) is made


@pytest.mark.parametrize("name", ["", "Greedy", "no-such"])
def test_an_unknown_name_is_told_which_there_are(name: str) -> None:
    with pytest.raises(UnknownBalancer) as caught:
        balancer(name)
    assert (
        str(caught.value) == f"there is no balancer {name!r}; choose one of {', '.join(BALANCERS)}"
    )
    assert isinstance(caught.value, UnskewError)


@pytest.mark.parametrize("threshold", [0.0, -1.0, float("nan"), float("inf"), True, "a lot"])
def test_a_parameter_out_of_its_range_is_named(threshold: Any) -> None:
    with pytest.raises(BadParameter, match=f"threshold must be .*, not {threshold!r}"):
        balancer("greedy", threshold=threshold)
