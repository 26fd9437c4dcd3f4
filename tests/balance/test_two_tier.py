"""Both tiers: loads in, loads out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.balance import NodeLoads, Plan, Report, TwoTier
from unskew.balance.band import Band
from unskew.balance.between_nodes import even_nodes
from unskew.balance.node_view import node_view
from unskew.balance.resting import REST
from unskew.balance.splitting import split_hot_keys
from unskew.balance.standing import Standing
from unskew.errors import BadParameter

Slots = list[list[float]]
"""Loads of the shards of each slot."""


def situation(
    slots: Slots,
    nodes: list[int] | None = None,
    *,
    foreign: list[float] | None = None,
    seconds: float = 1.0,
    **others: Any,
) -> tuple[Plan, Report]:
    """Return a plan and what it measured: slots, on one node unless others are named."""
    busy = np.array([load for slot in slots for load in slot])
    table = np.array([place for place, slot in enumerate(slots) for _ in slot])
    plan = Plan(table, len(slots))
    return plan, measured(plan, busy, nodes, foreign=foreign, seconds=seconds, **others)


def measured(
    plan: Plan,
    busy: np.ndarray[Any, Any],
    nodes: list[int] | None = None,
    *,
    foreign: list[float] | None = None,
    seconds: float = 1.0,
    cores: list[float] | None = None,
    **others: Any,
) -> Report:
    """Return what an engine would measure, where each slot has a core of its own."""
    slots = np.bincount(plan.assignment, busy, plan.instances)
    for key, copies in plan.hot.items():
        np.add.at(slots, list(copies), others.get("hot", {}).get(key, 0.0) / len(copies))
    used = np.minimum(1.0, slots / seconds)
    loads = None
    if nodes is not None:
        of_instance = np.array(nodes, dtype=np.int32)
        count = int(of_instance.max()) + 1
        room = np.bincount(of_instance, minlength=count) if cores is None else np.array(cores)
        cpu = np.bincount(of_instance, used, count) / room
        cpu += np.zeros(count) if foreign is None else np.array(foreign)
        names = tuple("abcdefgh"[:count])
        told = None if cores is None else np.array(cores)
        loads = NodeLoads(names, of_instance, cpu, np.full(count, 0.5), cores=told)
    rows = np.arange(1, busy.size + 1)
    return Report(
        seconds,
        rows,
        busy,
        rows.astype(float),
        used,
        np.zeros(plan.instances, np.int64),
        nodes=loads,
        **others,
    )


def after(plan: Plan, busy: np.ndarray[Any, Any]) -> list[float]:
    """Return the load of each slot under a plan."""
    return [round(float(load), 3) for load in np.bincount(plan.assignment, busy, plan.instances)]


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        pytest.param([[0.4], [0.5], [0.3]], [0.4, 0.5, 0.3], id="nothing to do"),
        pytest.param([[0.0], [0.0]], [0.0, 0.0], id="no load at all"),
        pytest.param(
            [[0.4, 0.3, 0.1], [0.2], [0.2]], [0.4, 0.5, 0.3], id="one hot slot gives what fits"
        ),
        pytest.param(
            [[0.3, 0.3, 0.2], [0.1]], [0.5, 0.4], id="one hot slot gives its largest shard"
        ),
        pytest.param(
            [[0.5, 0.2], [0.1]],
            [0.5, 0.3],
            id="the largest would leave its slot low, the next goes",
        ),
        pytest.param(
            [[0.9], [0.1]], [0.9, 0.1], id="a shard larger than L_max that cannot be split stays"
        ),
        pytest.param(
            [[0.35, 0.35], [0.35, 0.35], [0.05], [0.05]],
            [0.35, 0.35, 0.4, 0.4],
            id="two hot slots give to the two lowest",
        ),
        pytest.param(
            [[0.31, 0.25], [0.2], [0.4]],
            [0.31, 0.45, 0.4],
            id="a slot just above the band is brought well inside",
        ),
    ],
)
def test_slots_of_a_node(slots: Slots, expected: list[float]) -> None:
    plan, report = situation(slots)
    got = TwoTier().next_plan(plan, report)

    assert after(got, report.busy) == expected
    assert (got is plan) == (expected == after(plan, report.busy))


@pytest.mark.parametrize(
    ("slots", "nodes", "foreign", "before", "expected", "dropped"),
    [
        pytest.param(
            [[0.5], [0.4], [0.5], [0.6]],
            [0, 1, 2, 3],
            None,
            [0.5, 0.4, 0.5, 0.6],
            [0.5, 0.4, 0.5, 0.6],
            [],
            id="nothing to do",
        ),
        pytest.param(
            [[0.3, 0.3, 0.2], [0.1], [0.45]],
            [0, 1, 2],
            None,
            [0.8, 0.1, 0.45],
            [0.5, 0.4, 0.45],
            [],
            id="a high node gives to a low one",
        ),
        pytest.param(
            [[0.3, 0.1], [0.25, 0.2], [0.1], [0.45]],
            [0, 1, 2, 3],
            None,
            [0.4, 0.45, 0.1, 0.45],
            [0.4, 0.25, 0.3, 0.45],
            [],
            id="where none is high a normal node gives, the highest first",
        ),
        pytest.param(
            [[0.3, 0.3, 0.1, 0.1], [0.1], [0.1]],
            [0, 1, 2],
            None,
            [0.8, 0.1, 0.1],
            [0.3, 0.4, 0.3],
            [],
            id="more low nodes than normal: the second waits for the next round",
        ),
        pytest.param(
            [[0.2, 0.2, 0.2, 0.2, 0.2], [0.3, 0.3, 0.3], [0.0], [0.0], [0.0], [0.45]],
            [0, 1, 2, 3, 4, 5],
            None,
            [1.0, 0.9, 0.0, 0.0, 0.0, 0.45],
            [0.4, 0.3, 0.4, 0.3, 0.5, 0.45],
            [("f", "e"), ("b", "d")],
            id="more low nodes than givers: all are filled in turn",
        ),
        pytest.param(
            [[0.65], [0.2, 0.38], [0.1], [0.47]],
            [0, 1, 2, 3],
            None,
            [0.65, 0.58, 0.1, 0.47],
            [0.65, 0.38, 0.3, 0.47],
            [("a", "c"), ("a", "b"), ("a", "d")],
            id="a pairing that would empty the giver is dropped, and the next node tried",
        ),
        pytest.param(
            [[0.7, 0.1], [0.35, 0.2], [0.1], [0.35]],
            [0, 1, 2, 3],
            None,
            [0.8, 0.55, 0.1, 0.35],
            [0.7, 0.35, 0.4, 0.35],
            [("a", "c"), ("a", "d"), ("a", "b")],
            id="what would take the low node over L_max stays, and others help",
        ),
        pytest.param(
            [[0.9, 0.1], [0.5, 0.5], [1.0]],
            [0, 1, 2],
            None,
            [1.0, 1.0, 1.0],
            [1.0, 1.0, 1.0],
            [],
            id="all nodes are full alike, and none is above the mean",
        ),
        pytest.param(
            [[0.2, 0.1, 0.1], [0.2], [0.3]],
            [0, 1, 2],
            [0.4, 0.0, 0.0],
            [0.8, 0.2, 0.3],
            [0.5, 0.5, 0.3],
            [],
            id="what others do on a node stays there",
        ),
        pytest.param(
            [[0.35, 0.35], [0.4], [0.35], [0.45]],
            [0, 1, 2, 3],
            None,
            [0.7, 0.4, 0.35, 0.45],
            [0.7, 0.4, 0.35, 0.45],
            [("a", "c"), ("a", "b"), ("a", "d")],
            id="a high node that only could make another high keeps what it has",
        ),
        pytest.param(
            [[0.25, 0.25, 0.2], [0.4], [0.35], [0.45]],
            [0, 1, 2, 3],
            None,
            [0.7, 0.4, 0.35, 0.45],
            [0.5, 0.4, 0.55, 0.45],
            [],
            id="a high node gives to the lowest where none is low",
        ),
    ],
)
def test_nodes(
    slots: Slots,
    nodes: list[int],
    foreign: list[float] | None,
    before: list[float],
    expected: list[float],
    dropped: list[tuple[str, str]],
) -> None:
    plan, report = situation(slots, nodes, foreign=foreign)
    balancer = TwoTier()
    got = balancer.next_plan(plan, report)

    assert balancer.last is not None
    assert balancer.last.before.round(3).tolist() == before
    assert balancer.last.after.round(3).tolist() == expected
    assert list(balancer.last.dropped) == dropped
    now = measured(got, report.busy, nodes, foreign=foreign).nodes
    assert now is not None
    assert now.cpu.round(3).tolist() == expected
    assert len(balancer.last.between) == len(got.moves(plan))


@pytest.mark.parametrize(
    ("slots", "dropped"),
    [
        pytest.param(
            [[0.9, 0.1], [0.5, 0.4], [0.4, 0.3]],
            [(0, 2), (0, 1), (1, 2), (1, 0), (2, 1), (2, 0)],
            id="all nodes high: nobody can take anything",
        ),
        pytest.param([[0.2, 0.05], [0.2], [0.1, 0.1]], [], id="all nodes low: nobody can give any"),
    ],
)
def test_nodes_that_are_all_out_of_a_given_band_keep_what_they_have(
    slots: Slots, dropped: list[tuple[int, int]]
) -> None:
    # Not around a mean, of which all cannot be above or below.
    band = Band.between(0.3, 0.6, 0.5)
    plan, report = situation(slots, [0, 1, 2])
    view = node_view([report], measure="cpu", q=1.0, weights={}, capacities={})
    split = split_hot_keys(plan, report, above=4 / 3)
    standing = Standing([plan], [report], [split], [np.ones(report.busy.size, dtype=bool)], view)
    before = standing.loads.copy()
    is_out = (before > band.high) | (before < band.low)

    assert is_out.all()
    assert sorted(even_nodes(standing, band)) == sorted(dropped)
    assert standing.loads.tolist() == before.tolist()
    assert standing.tables[0].tolist() == plan.assignment.tolist()


def test_a_key_larger_than_l_max_is_split_over_slots_where_the_operator_can_be() -> None:
    hot = 4
    # The shard of key 4 of five is its hash modulo five.
    plan = Plan(np.array([1, 1, 2, 3, 0]), 4)
    report = measured(plan, np.array([0.1, 0.2, 0.2, 0.2, 1.3]), hot={hot: 1.2}, can_split=True)
    balancer = TwoTier()
    got = balancer.next_plan(plan, report)

    assert balancer.last is not None
    assert balancer.last.split == ((0, hot),)
    assert len(set(got.hot[hot])) == 4
    whole = replace(report, can_split=False)
    assert TwoTier().next_plan(plan, whole) is plan
    # What was split is not moved: its slots are normal now.
    assert not balancer.last.within
    later = measured(got, np.array([0.1, 0.2, 0.2, 0.2, 0.1]), hot={hot: 1.2}, can_split=True)
    assert later.utilisation.max() < (1 + 1 / 3) * later.utilisation.mean()
    assert balancer.next_plan(got, later) is got


def test_slots_come_before_nodes_in_one_plan() -> None:
    plan, report = situation([[0.4, 0.3, 0.3], [0.1], [0.15], [0.05]], [0, 0, 1, 1])
    balancer = TwoTier()
    got = balancer.next_plan(plan, report)

    assert balancer.last is not None
    assert balancer.last.within == ((0, 0, 0, 1),)
    assert balancer.last.between == ((0, 1, 0, 3), (0, 3, 1, 2))
    assert got.epoch == plan.epoch + 1
    assert after(got, report.busy) == [0.3, 0.4, 0.25, 0.35]


def test_the_first_time_a_given_band_holds_while_there_is_less_load() -> None:
    plan, report = situation([[0.1, 0.1, 0.1], [0.03]], [0, 1])
    balancer = TwoTier(band=(0.25, 0.5))

    assert balancer.next_plan(plan, report) is plan
    assert balancer.last is not None
    assert balancer.last.band[:2] == pytest.approx((0.25, 0.5))
    # From then on the mean counts, however low.
    assert balancer.next_plan(plan, report) is not plan
    assert balancer.last.band[:2] == pytest.approx((0.11, 0.22))
    # A mean within the band is load enough the first time.
    assert TwoTier(band=(0.16, 0.5)).next_plan(plan, report) is not plan


def test_it_looks_when_the_clock_strikes() -> None:
    plan, report = situation([[0.3, 0.3, 0.2], [0.1]])
    balancer = TwoTier(period=3)

    assert [balancer.next_plan(plan, report) is plan for _ in range(6)] == [
        *(True, True, False),
        *(True, True, False),
    ]


def test_nodes_of_twice_the_cores_take_twice_the_load() -> None:
    # Six cores, 3.0 of them busy: 90 % of two, 30 % of four.
    slots = [[0.3, 0.3, 0.3], [0.3, 0.3, 0.3], [0.3], [0.3], [0.3], [0.3]]
    plan, report = situation(slots, [0, 0, 1, 1, 1, 1])
    balancer = TwoTier()
    balancer.next_plan(plan, report)

    assert balancer.last is not None
    assert balancer.last.band[:2] == pytest.approx((1 / 3, 2 / 3))
    assert balancer.last.after.tolist() == pytest.approx([0.6, 0.45])


@pytest.mark.parametrize("name", ["b", "b:41"], ids=["by name", "by machine"])
def test_capacities_can_be_given(name: str) -> None:
    plan, report = situation([[0.2, 0.2, 0.2], [0.6]], [0, 1])
    assert report.nodes is not None
    # The second node has four cores, of which its only slot can use one.
    nodes = replace(report.nodes, names=("a", name), cpu=np.array([0.6, 0.15]))
    report = replace(report, nodes=nodes)
    balancer = TwoTier(capacities={"b": 4.0}, band=(0.1, 0.2))
    balancer.next_plan(plan, report)

    assert balancer.last is not None
    assert balancer.last.before.tolist() == pytest.approx([0.6, 0.15])
    assert balancer.last.after.tolist() == pytest.approx([0.2, 0.25])
    told = replace(report, nodes=replace(nodes, cores=np.array([1.0, 4.0])))
    other = TwoTier(band=(0.1, 0.2))
    other.next_plan(plan, told)
    assert other.last is not None
    assert other.last.after.tolist() == pytest.approx([0.2, 0.25])


def test_memory_network_and_disk_count_by_their_weights() -> None:
    plan, report = situation([[0.25, 0.25], [0.5]], [0, 1])
    assert report.nodes is not None
    nodes = replace(report.nodes, memory=np.array([0.9, 0.1]), disk=np.array([1.0, 0.0]))
    report = replace(report, nodes=nodes)

    assert TwoTier().next_plan(plan, report) is plan
    balancer = TwoTier(q=0.5)
    assert balancer.next_plan(plan, report) is not plan
    assert balancer.last is not None
    assert balancer.last.before.tolist() == pytest.approx([0.7, 0.3])
    balancer = TwoTier(weights={"disk": 0.5})
    assert balancer.next_plan(plan, report) is not plan
    assert balancer.last is not None
    assert balancer.last.before.tolist() == pytest.approx([0.75, 0.25])
    with pytest.raises(BadParameter, match="weights= has network, which was not measured"):
        TwoTier(weights={"network": 0.1}).next_plan(plan, report)


def test_work_that_waits_is_seen_by_how_busy_its_slots_are() -> None:
    plan, report = situation([[0.3, 0.3, 0.2], [0.1]], [0, 1])
    assert report.nodes is not None
    # Both nodes are alike by their CPU, of which service takes next to nothing.
    report = replace(report, nodes=replace(report.nodes, cpu=np.array([0.5, 0.5])))

    assert TwoTier().next_plan(plan, report) is plan
    assert after(TwoTier(measure="busy").next_plan(plan, report), report.busy) == [0.5, 0.4]


def test_of_several_stages_it_sees_the_sum() -> None:
    nodes = [0, 1]
    one, first = situation([[0.2, 0.2], [0.2, 0.2]], nodes)
    two, second = situation([[0.2, 0.2], [0.0]], nodes)
    assert first.nodes is not None
    # Each of the two by itself would move nothing of the first.
    whole = replace(first.nodes, cpu=np.array([0.8, 0.4]), cores=np.array([1.0, 1.0]))
    reports = [replace(first, nodes=whole), replace(second, nodes=whole)]
    balancer = TwoTier(theta=0.2)
    plans = balancer.next_plans([one, two], reports)

    assert balancer.last is not None
    assert balancer.last.before.tolist() == pytest.approx([0.8, 0.4])
    assert balancer.last.after.tolist() == pytest.approx([0.6, 0.6])
    assert len(balancer.last.between) == 1
    assert sum(
        after(plan, report.busy)[0] for plan, report in zip(plans, reports, strict=True)
    ) == (pytest.approx(0.6))


def test_a_stage_without_a_slot_on_the_low_node_gives_nothing() -> None:
    one, first = situation([[0.4], [0.4]], [0, 0])
    two, second = situation([[0.1, 0.1], [0.1]], [0, 1])
    assert first.nodes is not None
    assert second.nodes is not None
    cpu = np.array([0.9, 0.1])
    alone = replace(first.nodes, cpu=cpu[:1], cores=np.ones(1))
    both = replace(second.nodes, cpu=cpu, cores=np.ones(2))
    balancer = TwoTier()
    plans = balancer.next_plans(
        [one, two], [replace(first, nodes=alone), replace(second, nodes=both)]
    )

    assert plans[0] is one
    assert after(plans[1], second.busy) == [0.0, 0.3]


def test_the_offset_degree_of_each_node_is_told() -> None:
    slots = [[0.6, 0.2], [0.1], [0.4], [0.4]]
    plan, report = situation(slots, [0, 0, 1, 1], keys=np.array([1, 1, 2, 3, 3]))
    balancer = TwoTier()
    balancer.next_plan(plan, report)

    assert balancer.last is not None
    # Tuples 1, 2 | 3: half of them are on half of the keys; nothing is high on the second node.
    assert balancer.last.offsets[0].tolist() == pytest.approx([(3 / 6) / (2 / 4), 1.0])


Case = tuple[Plan, list[int], list[float], list[float]]


@st.composite
def clusters(draw: st.DrawFn) -> Case:
    """Return a plan, the node of each slot, the load of each shard, and that of others."""
    nodes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=8))
    nodes = [sorted(set(nodes)).index(node) for node in nodes]
    busy = draw(st.lists(st.floats(0, 0.5), min_size=1, max_size=24))
    slot = st.integers(0, len(nodes) - 1)
    table = draw(st.lists(slot, min_size=len(busy), max_size=len(busy)))
    count = max(nodes) + 1
    foreign = draw(st.lists(st.sampled_from([0.0, 0.1, 0.4]), min_size=count, max_size=count))
    return Plan(np.array(table), len(nodes)), nodes, busy, foreign


def seen(case: Case, plan: Plan) -> Report:
    _, nodes, busy, foreign = case
    return measured(plan, np.array(busy), nodes, foreign=foreign)


@settings(max_examples=150)
@given(
    case=clusters(),
    aim=st.sampled_from([0.0, 0.5, 1.0]),
    theta=st.floats(0.05, 0.9),
    noise=st.sampled_from([0.0, 0.05]),
    most=st.sampled_from([1.0, 1.5, 3.0]),
)
def test_no_shard_moves_twice_in_three_intervals_without_a_change_of_load(
    case: Case, aim: float, theta: float, noise: float, most: float
) -> None:
    balancer, (plan, nodes, busy, foreign) = TwoTier(aim=aim, theta=theta), case
    draws = np.random.default_rng(7)
    moved: dict[int, int] = {}
    for interval in range(12):
        # More comes in some intervals, and each shard has its part of it.
        load = np.array(busy) * draws.uniform(1 - noise, 1 + noise, len(busy))
        load *= draws.uniform(1, most)
        got = balancer.next_plan(plan, measured(plan, load, nodes, foreign=foreign))
        for shard, _, _ in got.moves(plan):
            assert interval - moved.get(shard, -REST) >= REST
            moved[shard] = interval
        plan = got


@settings(max_examples=100)
@given(case=clusters(), aim=st.sampled_from([0.0, 0.5, 1.0]), theta=st.floats(0.05, 0.9))
def test_it_comes_to_rest_on_nodes(case: Case, aim: float, theta: float) -> None:
    balancer, plans = TwoTier(aim=aim, theta=theta), [case[0]]
    for _ in range(30):
        plans.append(balancer.next_plan(plans[-1], seen(case, plans[-1])))
    assert plans[-1] is plans[-1 - REST]


@settings(max_examples=150)
@given(case=clusters())
def test_nothing_that_was_normal_leaves_the_band_and_nothing_gets_worse(case: Case) -> None:
    balancer = TwoTier(aim=1.0)
    plan = case[0]
    balancer.next_plan(plan, seen(case, plan))
    told = balancer.last
    if told is None:
        return
    low, high = told.band.low - 1e-9, told.band.high + 1e-9
    was_normal = (told.before >= low) & (told.before <= high)
    assert np.all((told.after >= low)[was_normal])
    assert np.all((told.after <= high)[was_normal])
    assert told.after.max() <= max(told.before.max() + 1e-9, high)
    assert told.after.min() >= min(told.before.min() - 1e-9, low)


def test_a_shard_whose_load_changes_may_move_at_once() -> None:
    busy = np.array([0.3, 0.3, 0.2, 0.1])
    plan = Plan(np.array([0, 0, 0, 1]), 2)
    balancer = TwoTier()
    moved = balancer.next_plan(plan, measured(plan, busy))
    (shard, _, to), *others = moved.moves(plan)
    assert not others
    # The other one there becomes too large to go. It could, and does once its load has changed.
    quiet = np.array([0.04, 0.04, 0.04, 0.8])
    quiet[shard] = busy[shard]
    assert balancer.next_plan(moved, measured(moved, quiet)) is moved
    # A load is a part of what there is in all.
    quiet = np.array([0.1, 0.1, 0.1, 0.8])
    quiet[shard] = 0.24
    again = balancer.next_plan(moved, measured(moved, quiet))
    assert again.moves(moved) == [(shard, to, 1 - to)]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"theta": 0.0}, "theta must be above 0 and below 1, not 0"),
        ({"theta": 1.0}, "theta must be above 0 and below 1, not 1"),
        ({"band": (0.6, 0.3)}, "the high end of band must be above 0.6, not 0.3"),
        ({"band": (0.6,)}, "band must be the lowest and the highest normal load"),
        ({"period": 0}, "period must be from 1"),
        ({"aim": 1.5}, "aim must be from 0 to 1, not 1.5"),
        ({"q": -0.1}, "q must be at least 0, not -0.1"),
        ({"measure": "memory"}, "measure must be one of cpu, busy, not 'memory'"),
        ({"weights": {"gpu": 0.1}}, "a name in weights must be one of network, disk, not 'gpu'"),
        ({"weights": {"disk": 1.0}}, "weights must be below 1 together"),
        ({"capacities": {"a": 0}}, "the capacity of a must be above 0, not 0"),
    ],
)
def test_a_parameter_out_of_its_range_is_named(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(BadParameter, match=message):
        TwoTier(**parameters)
