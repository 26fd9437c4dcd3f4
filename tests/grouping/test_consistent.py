"""Consistent Grouping: the walk is that of its own grouping, the rest is the plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from grouping.plain import Keys, instance_counts, seeds, sources, streams, zipf
from hypothesis import given
from hypothesis import strategies as st

from unskew.balance import Plan
from unskew.errors import BadParameter
from unskew.grouping import BoundedRing, Consistent, RandomChoices, Shuffle
from unskew.metrics import imbalance, utilisation

WALKS: dict[str, type[RandomChoices] | type[BoundedRing]] = {
    "random-choices": RandomChoices,
    "bounded-ring": BoundedRing,
}
walks = st.sampled_from(sorted(WALKS))


@given(streams, instance_counts, seeds, sources, walks, st.integers(1, 5))
def test_shards_are_those_of_the_walk_and_instances_those_of_the_plan(
    keys: Keys, instances: int, seed: int, source: int, walk: str, each: int
) -> None:
    router, twin = (
        Consistent(instances, seed=seed, source=source, walk=walk, shards_per_instance=each)
        for _ in range(2)
    )
    plain = WALKS[walk](instances * each, seed=seed, source=source)
    table = np.arange(instances * each)[::-1] % instances
    router.plan = twin.plan = table
    shards = plain.route(keys)

    assert router.shards_of(keys).tolist() == shards.tolist()
    assert twin.route(keys).tolist() == table[shards].tolist()
    assert router.shard_loads.tolist() == plain.loads.tolist()
    assert router.loads.tolist() == twin.loads.tolist()


def test_a_plan_sends_tuples_that_are_still_to_come_elsewhere() -> None:
    keys = zipf(1.2, 4000)
    router, other = Consistent(4), Consistent(4)
    plan = Plan(np.zeros(40, dtype=np.int32), 4)
    before = router.route(keys[:2000])
    router.plan = plan

    assert before.tolist() == other.route(keys[:2000]).tolist()
    assert router.route(keys[2000:]).tolist() == [0] * 2000
    assert router.plan.tolist() == plan.assignment.tolist()
    # The walk does not know: what a shard has had is the same.
    other.route(keys[2000:])
    assert router.shard_loads.tolist() == other.shard_loads.tolist()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        pytest.param([0] * 7, r"shape \(7,\)", id="too few shards"),
        pytest.param([0.5] * 8, "float64", id="no whole numbers"),
        pytest.param([0] * 7 + [4], "instances 0 to 4", id="an instance too many"),
        pytest.param([-1] + [0] * 7, "instances -1 to 0", id="below the first instance"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(given: Any, told: str) -> None:
    router = Consistent(4, shards=8)
    with pytest.raises(BadParameter, match=told):
        router.plan = given
    assert router.plan.tolist() == [0, 1, 2, 3] * 2


@pytest.mark.parametrize("walk", sorted(WALKS))
@pytest.mark.parametrize("source", [0, 5])
def test_split_shards_go_on_with_the_loads_they_had(walk: str, source: int) -> None:
    keys = zipf(1.4, 6000)
    router = Consistent(4, walk=walk, source=source)
    router.route(keys[:3001])
    finer = router.split(3)

    assert finer.shard_loads.reshape(40, 3).sum(axis=1).tolist() == router.shard_loads.tolist()
    assert np.ptp(finer.shard_loads.reshape(40, 3), axis=1).max() <= 1
    assert finer.plan.tolist() == np.repeat(router.plan, 3).tolist()
    assert finer.loads.tolist() == router.loads.tolist()
    finer.route(keys[3001:])
    assert finer.loads.sum() == 6000
    assert imbalance(finer.shard_loads) <= finer.e + finer.shards / 6000


@given(key=st.integers(0, 2**64 - 1), times=st.integers(1, 7), seed=seeds)
def test_the_home_of_a_key_is_part_of_its_home_before(key: int, times: int, seed: int) -> None:
    first = np.array([key], dtype=np.uint64)
    router = Consistent(5, seed=seed)
    finer = router.split(times)

    assert finer.shards_of(first)[0] // times == router.shards_of(first)[0]


def test_shards_in_proportion_to_capacity_give_all_the_same_utilisation() -> None:
    # 1000 shards of 10 workers of which 3 are 5 times as fast: 227.3 and 45.5.
    capacities = np.array([5.0] * 3 + [1.0] * 7)
    counts = np.array([227, 227, 228] + [45] * 3 + [46] * 3 + [45])
    counts[-1] += 1000 - counts.sum()
    router = Consistent(10, shards=1000)
    router.plan = np.repeat(np.arange(10), counts)
    router.route(zipf(1.2, 200_000))
    used = utilisation(router.loads, capacities * 200_000 / (0.8 * capacities.sum()))
    assert used == pytest.approx(np.full(10, 0.8), rel=0.03)


def test_shuffle_at_80_percent_leaves_some_idle_and_others_with_too_much() -> None:
    capacities = np.array([5.0] * 3 + [1.0] * 7)
    router = Shuffle(10)
    router.route(zipf(1.2, 100_000))
    used = utilisation(router.loads, capacities * 100_000 / (0.8 * capacities.sum()))
    assert used[[0, -1]].round(3).tolist() == [0.352, 1.76]
