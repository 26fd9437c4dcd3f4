"""ContRand against groups that are written down."""

from __future__ import annotations

import numpy as np
import pytest
from grouping.plain import Keys, Places, answers, instance_counts, seeds, sources, streams, zipf
from hypothesis import given
from hypothesis import strategies as st

from unskew.grouping import ContRand
from unskew.mixing import counter_bits

sizes = st.integers(1, 5)


class Oracle:
    """Keep a tuple at a random member of its key's group."""

    def __init__(self, router: ContRand) -> None:
        self.places, self.chance = Places(router), router._chance_seed
        count = -(-router.instances // router.members)
        self.groups = [list(range(router.instances))[group::count] for group in range(count)]
        self.drawn = 0

    def group(self, key: int) -> list[int]:
        return self.groups[self.places.home(key) % len(self.groups)]

    def send(self, key: int) -> int:
        self.drawn += 1
        members = self.group(key)
        draw = int(counter_bits(self.chance, np.uint64(self.drawn))) >> 32
        return members[draw * len(members) >> 32]


@given(streams, instance_counts, seeds, sources, sizes)
def test_agrees_with_the_oracle(
    keys: Keys, instances: int, seed: int, source: int, members: int
) -> None:
    router = ContRand(instances, seed=seed, source=source, members=members)
    oracle = Oracle(router)
    assert router.route(keys).tolist() == answers(oracle, keys)
    found = [[i for i in row if i >= 0] for row in router.members_of(keys).tolist()]
    assert found == [oracle.group(key) for key in keys.tolist()]


@pytest.mark.parametrize(
    ("instances", "members", "groups"),
    [
        pytest.param(4, 2, [[0, 2], [1, 3]], id="pairs"),
        pytest.param(5, 2, [[0, 3], [1, 4], [2]], id="one is alone"),
        pytest.param(7, 3, [[0, 3, 6], [1, 4], [2, 5]], id="sizes differ by at most one"),
        pytest.param(3, 1, [[0], [1], [2]], id="as key grouping"),
        pytest.param(3, 9, [[0, 1, 2]], id="all in one"),
    ],
)
def test_every_instance_is_in_one_group(
    instances: int, members: int, groups: list[list[int]]
) -> None:
    router = ContRand(instances, members=members)
    assert Oracle(router).groups == groups
    found = np.unique(router.members_of(zipf(0.0, 2000)), axis=0).tolist()
    assert sorted([i for i in row if i >= 0] for row in found) == groups
    assert router.fan_out == max(map(len, groups))


@pytest.mark.parametrize("instances", [20, 21])
def test_instances_of_small_groups_get_as_much_as_others(instances: int) -> None:
    loads = np.bincount(ContRand(instances).route(zipf(0.0, 200_000, keys=100_000)))
    assert np.ptp(loads) < 0.1 * loads.mean()


def test_a_hot_key_is_shared_by_its_group() -> None:
    router = ContRand(8)
    router.route(np.zeros(8000, dtype=np.uint64))
    *none, low, high = sorted(router.loads.tolist())
    assert none == [0] * 6
    assert high - low < 400
