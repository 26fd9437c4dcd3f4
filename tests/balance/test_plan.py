from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.balance import Plan
from unskew.errors import BadParameter, BadPlan

HASHES = st.integers(0, 2**64 - 1)


@st.composite
def plans(draw: st.DrawFn, shards: int = 8) -> Plan:
    instances = draw(st.integers(1, 9))
    instance = st.integers(0, instances - 1)
    table = draw(st.lists(instance, min_size=shards, max_size=shards))
    hot = draw(st.dictionaries(HASHES, st.lists(instance, min_size=1, max_size=5), max_size=4))
    copies = {key: tuple(found) for key, found in hot.items()}
    leaving = {
        key: {at: draw(st.integers(-(2**62), 2**62)) for at in {*range(instances)} - {*found}}
        for key, found in hot.items()
        if draw(st.booleans())
    }
    return Plan(np.array(table), instances, draw(st.integers(0, 9)), copies, leaving)


@given(plans())
def test_json_brings_a_plan_back(plan: Plan) -> None:
    back = Plan.from_json(json.dumps(plan.to_json()))
    assert back.assignment.tolist() == plan.assignment.tolist()
    assert (back.instances, back.epoch) == (plan.instances, plan.epoch)
    assert (back.hot, back.leaving) == (plan.hot, plan.leaving)


@given(plans())
def test_arrow_brings_a_plan_back(plan: Plan) -> None:
    back = Plan.from_arrow(plan.to_arrow())
    assert back == plan
    assert back != Plan(plan.assignment, plan.instances + 1, plan.epoch, plan.hot, plan.leaving)


def test_another_table_is_no_plan() -> None:
    with pytest.raises(BadPlan, match=r"no plan as Plan\.to_arrow makes it"):
        Plan.from_arrow(pa.table({"shard": [1]}))


@given(plans(), st.lists(st.tuples(HASHES, st.integers(0, 2**62)), max_size=30))
def test_a_tuple_goes_where_its_key_may_go(plan: Plan, tuples: list[tuple[int, int]]) -> None:
    drawn = [(key, turn) for key, turn in tuples] + [(key, 3) for key in plan.hot]
    keys = np.array([key for key, _ in drawn], dtype=np.uint64)
    turns = np.array([turn for _, turn in drawn], dtype=np.int64)
    for (key, turn), instance in zip(drawn, plan.route(keys, turns).tolist(), strict=True):
        signed = key - 2**64 if key >= 2**63 else key
        copies = plan.hot.get(key, (int(plan.assignment[signed % plan.shards]),))
        assert instance == copies[turn % len(copies)]
        assert instance in plan.instances_of(key)


def test_moves_name_shards_and_hot_moves_name_keys() -> None:
    before = Plan(np.array([0, 1, 2, 0]), 3, hot={1: (0, 1), 6: (2,)})
    after = Plan(np.array([0, 1, 1, 0]), 3, 1, hot={1: (1, 0, 0)})
    assert after.moves(before) == [(2, 2, 1)]
    # Key 1 is on the same instances in other parts; key 6 went back to its shard, 2.
    assert after.hot_moves(before) == [(6, frozenset({2}), frozenset({1}))]


def test_hot_keys_stay_hot_when_shards_move() -> None:
    plan = Plan(np.array([0, 1]), 2, hot={5: (0, 1)})
    assert dict(plan.move({0: 1}).hot) == {5: (0, 1)}


@pytest.mark.parametrize(
    "copies", [pytest.param((), id="no instance"), pytest.param((2,), id="a dead instance")]
)
def test_a_hot_key_needs_live_instances(copies: tuple[int, ...]) -> None:
    with pytest.raises(BadParameter, match="hot key 5"):
        Plan(np.array([0, 1]), 2, hot={5: copies})


@pytest.mark.parametrize(
    ("leaving", "said"),
    [
        pytest.param({5: {2: 9}}, "leave", id="a dead instance"),
        pytest.param({5: {0: 9}}, "get no more", id="an instance that gets more"),
        pytest.param({6: {1: 9}}, "not hot", id="a key that is whole"),
    ],
)
def test_only_instances_that_get_no_more_are_left(
    leaving: dict[int, dict[int, int]], said: str
) -> None:
    with pytest.raises(BadParameter, match=said):
        Plan(np.array([0, 1]), 2, hot={5: (0,)}, leaving=leaving)


def test_plans_of_the_first_format_are_read() -> None:
    text = '{"format": 1, "instances": 2, "epoch": 3, "assignment": [1, 0], "hot": {"5": [0, 1]}}'
    assert Plan.from_json(text) == Plan(np.array([1, 0]), 2, 3, {5: (0, 1)})


@given(plans(), plans())
def test_whoever_looks_for_a_key_finds_all_of_it(plan: Plan, before: Plan) -> None:
    if before.instances > plan.instances:
        before, plan = plan, before
    # Some keys stay hot, on one instance.
    hot = {**plan.hot, **dict.fromkeys(sorted(before.hot)[::2], (0,))}
    plan = Plan(plan.assignment, plan.instances, 9, hot)
    gone = plan.cooled(before)
    for key in before.hot:
        stay = {at for at in before.holders_of(key) if key not in gone.get(before.shards + at, ())}
        assert stay <= plan.holders_of(key)


def test_tables_cannot_be_written() -> None:
    plan = Plan(np.array([0, 1]), 2, hot={5: (0, 1)})
    with pytest.raises(ValueError, match="read-only"):
        plan.assignment[0] = 1
    with pytest.raises(TypeError):
        plan.hot[6] = (0,)  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param('{"format": 3}', "newer unskew", id="of a later version"),
        pytest.param("[1, 2]", "no plan", id="something else"),
        pytest.param('{"format": 1, "inst', "no plan", id="cut short"),
        pytest.param(
            '{"format": 1, "instances": 2, "epoch": 0, "assignment": [5], "hot": {}}',
            "live instance",
            id="a shard on no instance",
        ),
    ],
)
def test_broken_json_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadPlan, match=said):
        Plan.from_json(text)
