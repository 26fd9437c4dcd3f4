"""Locality: the paper's example, tables of repairs, and laws of all plans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from unskew import hash_keys
from unskew.balance import KeyPairs, Locality, Placed, Plan, Report
from unskew.balance.key_graph import KeyGraph
from unskew.balance.locality import with_places
from unskew.balance.placing import distances, leaves, places_of
from unskew.balance.repairing import repaired
from unskew.errors import BadParameter, BadSnapshot


def pairs_of(pairs: dict[tuple[str, str], int]) -> KeyPairs:
    first, second = (hash_keys([pair[end] for pair in pairs]) for end in (0, 1))
    return KeyPairs(first, second, np.array(list(pairs.values())))


def report(plan: Plan, rows: NDArray[np.int64] | None = None, **more: object) -> Report:
    rows = np.zeros(plan.shards, dtype=np.int64) if rows is None else rows
    none = np.zeros(plan.instances)
    base = (1.0, rows, rows.astype(np.float64), np.zeros(plan.shards), none, none.astype(np.int64))
    return Report(*base, **{"row_bytes": 1.0, "key_bytes": 1.0, **more})  # type: ignore[arg-type]


def instance_of(plan: Plan, *names: str) -> list[int]:
    found: list[int] = plan.assignment[plan.shard_of(hash_keys(list(names)))].tolist()
    return found


PAPER = {
    ("Asia", "#java"): 3463,
    ("Asia", "#ruby"): 3011,
    ("Africa", "#python"): 2923,
    ("Oceania", "#python"): 3108,
}


def test_the_example_of_the_paper() -> None:
    plans = [Plan.even(8, 2), Plan.even(8, 2)]
    told = [report(plans[0], pairs={1: pairs_of(PAPER)}), report(plans[1])]
    regions, tags = Locality(period=1, imbalance=1.1).next_plans(plans, told)
    asia, africa, oceania = instance_of(regions, "Asia", "Africa", "Oceania")
    assert instance_of(tags, "#java", "#ruby", "#python") == [asia, asia, 1 - asia]
    assert africa == oceania == 1 - asia
    graph = KeyGraph.of([(0, 1, pairs_of(PAPER))])
    places = np.where(graph.stages == 0, 0, 0).astype(np.int32)
    for stage, plan in enumerate((regions, tags)):
        own = graph.stages == stage
        places[own] = plan.assignment[plan.shard_of(graph.keys[own])]
    assert graph.locality(places) == 1.0


def test_plans_come_after_every_period_and_of_its_pairs_alone() -> None:
    plans = [Plan.even(8, 2), Plan.even(8, 2)]
    policy = Locality(period=3, imbalance=2, pays=0, memory=0)
    told = [report(plans[0], pairs={1: pairs_of(PAPER)}), report(plans[1])]
    seen = []
    for _ in range(6):
        following = policy.next_plans(plans, told)
        seen.append(following != plans)
        plans = following
    assert seen == [False, False, True, False, False, False]
    other = pairs_of({("Asia", "#python"): 5, ("Africa", "#java"): 5})
    for _ in range(3):
        plans = policy.next_plans(plans, [report(plans[0], pairs={1: other}), report(plans[1])])
    regions, tags = plans
    assert instance_of(regions, "Asia", "Africa") == instance_of(tags, "#python", "#java")


def test_offline_plans_once() -> None:
    plans = [Plan.even(8, 2), Plan.even(8, 2)]
    policy = Locality(period=1, once=True, pays=0)
    first = policy.next_plans(
        plans, [report(plans[0], pairs={1: pairs_of(PAPER)}), report(plans[1])]
    )
    assert first != plans
    swapped = pairs_of({("Asia", "#python"): 900, ("Africa", "#java"): 900})
    told = [report(first[0], pairs={1: swapped}), report(first[1])]
    assert policy.next_plans(first, told) == first


@pytest.mark.parametrize(
    ("row_bytes", "key_bytes", "moves"),
    [
        pytest.param(10.0, 1.0, True, id="rows that are larger than states"),
        pytest.param(1.0, 1e6, False, id="states that are larger than all rows"),
        pytest.param(0.0, 1.0, False, id="nothing is known of the rows"),
    ],
)
def test_nothing_moves_unless_it_pays(row_bytes: float, key_bytes: float, moves: bool) -> None:
    plans = [Plan.even(8, 2), Plan.even(8, 2)]
    sizes: dict[str, Any] = {"row_bytes": row_bytes, "key_bytes": key_bytes}
    told = [report(plans[0], pairs={1: pairs_of(PAPER)}, **sizes), report(plans[1], **sizes)]
    assert (Locality(period=1).next_plans(plans, told) != plans) == moves


@st.composite
def graphs(draw: st.DrawFn) -> KeyGraph:
    keys = st.integers(0, 20)
    drawn = draw(st.dictionaries(st.tuples(keys, keys), st.integers(1, 50), min_size=1))
    ends = np.array(list(drawn), dtype=np.uint64)
    return KeyGraph.of([(0, 1, KeyPairs(ends[:, 0], ends[:, 1], np.array(list(drawn.values()))))])


@settings(max_examples=40)
@given(graphs(), st.integers(1, 5), st.integers(0, 3))
def test_every_key_has_an_instance_and_none_has_too_much(
    graph: KeyGraph, instances: int, seed: int
) -> None:
    before = (graph.keys % np.uint64(instances)).astype(np.int32)
    rest = np.zeros((2, instances))
    places = places_of(graph, before, rest, list(range(instances)), most=1.03, seed=seed)
    assert places.size == graph.keys.size
    assert set(places.tolist()) <= set(range(instances))
    for stage in (0, 1):
        weights = graph.weights[graph.stages == stage]
        loads = np.bincount(places[graph.stages == stage], weights, instances)
        # What a single key has cannot be made up by moving.
        assert loads.max() <= 1.03 * loads.mean() + weights.max()


def test_racks_are_cut_first() -> None:
    # Four communities in two groups of two, with some traffic inside of each group.
    keys, counts = [], []
    for one in range(4):
        for other in range(4):
            near = 100 if one == other else 20 if one // 2 == other // 2 else 1
            keys += [(10 * one + i, 100 + 10 * other + i) for i in range(5)]
            counts += [near] * 5
    ends = np.array(keys, dtype=np.uint64)
    graph = KeyGraph.of([(0, 1, KeyPairs(ends[:, 0], ends[:, 1], np.array(counts)))])
    before = np.zeros(graph.keys.size, dtype=np.int32)
    places = places_of(graph, before, np.zeros((2, 4)), [[0, 2], [1, 3]], most=1.03, seed=0)
    racks = np.array([0, 1, 0, 1])[places]
    assert graph.locality(racks) >= (4 * 100 + 4 * 20) / (4 * 100 + 4 * 20 + 8)
    assert graph.locality(places) >= 400 / 488
    assert leaves([[0, 2], [1, 3]]) == [0, 2, 1, 3]


@st.composite
def grouped(draw: st.DrawFn) -> KeyGraph:
    """Draw keys of eight communities, of which two halves have more to do with their own."""
    chance = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = draw(st.integers(500, 5000))
    first = chance.integers(0, 8, rows)
    half = first // 4 * 4 + chance.integers(0, 4, rows)
    drawn = chance.random(rows)
    second = np.where(drawn < 0.6, first, np.where(drawn < 0.95, half, chance.integers(0, 8, rows)))
    ends = [1000 * each + chance.zipf(1.5, rows) % 60 for each in (first, second)]
    keys = [each.astype(np.uint64) for each in ends]
    pairs = KeyPairs(keys[0], keys[1], np.ones(rows, dtype=np.int64)).added_up()
    return KeyGraph.of([(0, 1, pairs)])


@settings(max_examples=25)
@given(
    grouped(), st.sampled_from([[[0, 1, 2], [3, 4, 5]], [[0, 2, 4, 6], [1, 3, 5, 7]]]), st.data()
)
def test_with_racks_tuples_go_no_farther_than_by_a_plain_cut(
    graph: KeyGraph, tree: list[list[int]], data: st.DataObject
) -> None:
    count = len(leaves(tree))
    apart, rest = distances(tree), np.zeros((2, count))
    before = (graph.keys % np.uint64(count)).astype(np.int32)
    seed = data.draw(st.integers(0, 9))
    by_tree = places_of(graph, before, rest, tree, most=1.03, seed=seed)
    plain = places_of(graph, before, rest, list(range(count)), most=1.03, seed=seed)
    # The plain cut is mended without regard to racks, by chance for the better.
    slack = 0.01 * graph.counts.sum()
    assert graph.distance(by_tree, apart) <= graph.distance(plain, apart) + slack
    for stage in (0, 1):
        own = graph.stages == stage
        loads = np.bincount(by_tree[own], graph.weights[own], count)
        assert loads.max() <= 1.03 * loads.mean() + graph.weights[own].max()


def test_where_racks_matter_tuples_go_a_fifth_less_far() -> None:
    chance = np.random.default_rng(0)
    first = chance.integers(0, 8, 20_000)
    half = first // 4 * 4 + chance.integers(0, 4, first.size)
    second = np.where(chance.random(first.size) < 0.6, first, half)
    ends = [10 * each + chance.integers(0, 10, first.size) for each in (first, second)]
    keys = [each.astype(np.uint64) for each in ends]
    pairs = KeyPairs(keys[0], keys[1], np.ones_like(first)).added_up()
    graph = KeyGraph.of([(0, 1, pairs)])
    tree = [[0, 2, 4, 6], [1, 3, 5, 7]]
    before = np.zeros(graph.keys.size, dtype=np.int32)
    found = [
        graph.distance(
            places_of(graph, before, np.zeros((2, 8)), each, most=1.1, seed=0), distances(tree)
        )
        for each in (tree, list(range(8)))
    ]
    assert found[0] < 0.8 * found[1]


@pytest.mark.parametrize(
    ("tree", "rack"),
    [
        pytest.param([[0, 1], [2, 3]], {0, 1}, id="what is too much goes to the same rack"),
        pytest.param([[0, 3], [1, 2]], {0, 3}, id="whichever instances that has"),
        pytest.param([0, 1, 2, 3], {0, 1, 2, 3}, id="without racks to all"),
    ],
)
def test_the_repair_knows_racks(tree: list[Any], rack: set[int]) -> None:
    keys = np.arange(40, dtype=np.uint64)
    graph = KeyGraph.of([(0, 1, KeyPairs(keys, keys, np.full(40, 10)))])
    # The instances of the other rack have something to do, but not too much of it.
    rest = np.zeros((2, 4))
    rest[:, sorted({0, 1, 2, 3} - rack)] = 150
    places = repaired(graph, np.zeros(80, dtype=np.int32), rest, 1.3, distances(tree))
    assert set(places.tolist()) == rack


def test_a_rack_that_is_full_lets_keys_go_to_another() -> None:
    keys = np.arange(40, dtype=np.uint64)
    graph = KeyGraph.of([(0, 1, KeyPairs(keys, keys, np.full(40, 10)))])
    tree = [[0, 1], [2, 3]]
    places = repaired(graph, np.zeros(80, dtype=np.int32), np.zeros((2, 4)), 1.0, distances(tree))
    for stage in (0, 1):
        assert np.bincount(places[graph.stages == stage]).tolist() == [10, 10, 10, 10]


@given(
    st.dictionaries(st.integers(0, 2**64 - 1), st.integers(0, 3), max_size=30),
    st.dictionaries(st.integers(0, 2**64 - 1), st.integers(0, 7), max_size=30),
    st.integers(1, 40),
)
def test_keys_are_placed_on_their_instance_and_others_stay(
    wanted: dict[int, int], before: dict[int, int], most: int
) -> None:
    old = Placed(np.array(list(before), dtype=np.uint64), np.array(list(before.values())))
    plan = Plan.even(8, 4)
    plan = Plan(plan.assignment, 4, 3, placed=old)
    keys = np.array(sorted(wanted), dtype=np.uint64)
    places = np.array([wanted[key] for key in sorted(wanted)], dtype=np.int32)
    new = with_places(plan, keys, places, most)
    assert len(new.placed) <= most
    if len(keys) + len(old) <= most:
        assert new.assignment[new.shard_of(keys)].tolist() == places.tolist()
        others = np.array(sorted(before.keys() - wanted.keys()), dtype=np.uint64)
        assert new.shard_of(others).tolist() == plan.shard_of(others).tolist()


def test_parts_keep_their_names_where_they_can() -> None:
    plans = [Plan.even(16, 4), Plan.even(16, 4)]
    names = {(f"r{i}", f"t{i}"): 10 for i in range(40)}
    policy = Locality(period=1, pays=0)
    for _ in range(3):
        told = [report(plans[0], pairs={1: pairs_of(names)}), report(plans[1])]
        before, plans = plans, policy.next_plans(plans, told)
    assert plans == before


def test_a_tree_of_other_instances_is_refused() -> None:
    plans = [Plan.even(8, 2), Plan.even(8, 2)]
    told = [report(plans[0], pairs={1: pairs_of(PAPER)}), report(plans[1])]
    with pytest.raises(BadParameter, match=r"tree=\[\[0\], \[2\]\] has instances \[0, 2\]"):
        Locality(period=1, tree=[[0], [2]]).next_plans(plans, told)


def test_pairs_survive_a_snapshot() -> None:
    plans = [Plan.even(8, 2), Plan.even(8, 2)]
    told = [report(plans[0], pairs={1: pairs_of(PAPER)}), report(plans[1])]
    one, other = Locality(period=2, pays=0), Locality(period=2, pays=0)
    one.next_plans(plans, told)
    other.restore(one.snapshot())
    nothing = [report(plans[0]), report(plans[1])]
    assert other.next_plans(plans, nothing) == one.next_plans(plans, nothing) != plans
    with pytest.raises(BadSnapshot, match="loads"):
        other.restore({"loads": np.zeros(3)})
