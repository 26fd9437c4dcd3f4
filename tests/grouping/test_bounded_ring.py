"""Consistent hashing with bounded loads against a sorted list of points."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from math import ceil

import numpy as np
import pytest
from grouping.plain import Keys, answers, instance_counts, seeds, sources, streams, zipf
from hypothesis import given
from hypothesis import strategies as st

from unskew.grouping import BoundedRing
from unskew.grouping.choices import key_bits
from unskew.mixing import counter_bits

budgets = st.sampled_from([0.001, 0.01, 0.1, 1.0])
points = st.sampled_from([1, 2, 16])


class Oracle:
    """Send a tuple to the first instance with room, from the point of its key on round the ring."""

    def __init__(self, router: BoundedRing) -> None:
        self.loads = [0] * router.instances
        self.e, self.seed = router.e, router._key_seed
        self.messages = 0
        self.ring = sorted(
            (int(counter_bits(~self.seed, np.uint64(point))), point // router.points)
            for point in range(router.instances * router.points)
        )

    def send(self, key: int) -> int:
        self.messages += 1
        capacity = ceil((1 + self.e) / len(self.loads) * self.messages)
        start = bisect_left(self.ring, (int(key_bits(np.uint64(key), self.seed)), -1))
        clockwise = (owner for _, owner in self.ring[start:] + self.ring[:start])
        instance = next(owner for owner in clockwise if self.loads[owner] < capacity)
        self.loads[instance] += 1
        return instance


@given(streams, instance_counts, seeds, sources, budgets, points)
def test_agrees_with_the_oracle(
    keys: Keys, instances: int, seed: int, source: int, e: float, points: int
) -> None:
    router = BoundedRing(instances, seed=seed, source=source, e=e, points=points)
    assert router.route(keys).tolist() == answers(Oracle(router), keys)


@pytest.mark.parametrize("instances", [16, 70])
@pytest.mark.parametrize("exponent", [0.8, 2.0])
def test_agrees_with_the_oracle_on_zipf(exponent: float, instances: int) -> None:
    keys = zipf(exponent, 3000, seed=instances)
    router = BoundedRing(instances, seed=3)
    assert router.route(keys).tolist() == answers(Oracle(router), keys)


@given(streams, instance_counts, seeds, budgets, points)
def test_the_imbalance_is_never_above_e_plus_n_over_m(
    keys: Keys, instances: int, seed: int, e: float, points: int
) -> None:
    router = BoundedRing(instances, seed=seed, e=e, points=points)
    loads: Counter[int] = Counter()
    for m, instance in enumerate(router.route(keys).tolist(), start=1):
        loads[instance] += 1
        assert loads[instance] * instances / m - 1 <= e + instances / m + 1e-9


def test_with_room_for_all_a_key_stays_at_its_point() -> None:
    keys = zipf(1.0, 3000)
    chosen = BoundedRing(16, e=1000.0).route(keys)
    assert len(set(zip(keys.tolist(), chosen.tolist(), strict=True))) == np.unique(keys).size


def test_one_instance_more_moves_few_keys() -> None:
    keys = np.arange(5000, dtype=np.uint64)
    before, after = (BoundedRing(n, e=1000.0, points=64).route(keys) for n in (20, 21))
    moved = before != after
    # What moves goes to the new instance, about one key in 21.
    assert set(after[moved].tolist()) == {20}
    assert 0.02 < moved.mean() < 0.08


def test_a_new_batch_has_new_room() -> None:
    keys = zipf(1.6, 2000)
    router = BoundedRing(16)
    first = router.route(keys)
    router.begin_batch()
    assert router.route(keys).tolist() == first.tolist()
