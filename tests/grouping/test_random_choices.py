"""The power of random choices against a walk over the hashes of a key."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from grouping.plain import Keys, answers, instance_counts, seeds, sources, streams, zipf
from hypothesis import given
from hypothesis import strategies as st

from unskew.grouping import RandomChoices
from unskew.grouping.choices import key_bits, scatter
from unskew.mixing import counter_bits, spread_seed

budgets = st.sampled_from([0.001, 0.01, 0.1, 1.0])
tries = st.sampled_from([1, 2, 5, 100])


def choice(key: int, number: int, instances: int, seed: np.uint64) -> int:
    """Return the choice of a key that has this number, from 0."""
    bits = np.uint64(key_bits(np.uint64(key), seed))
    return scatter(np.uint64(counter_bits(bits, np.uint64(number))), instances)


class Oracle:
    """Send a tuple to the first choice of its key that has room, after some tries to the least."""

    def __init__(self, router: RandomChoices) -> None:
        self.loads = [0] * router.instances
        self.e, self.tries, self.seed = router.e, router.tries, router._key_seed
        self.first = router._first
        self.messages = 0

    def send(self, key: int) -> int:
        n = len(self.loads)
        self.messages += 1
        capacity = (1 + self.e) / n * self.messages
        choices = (choice(key, number, n, self.seed) for number in range(self.tries))
        least = min(range(n), key=lambda i: (self.loads[i], (i - self.first) % n))
        instance = next((i for i in choices if self.loads[i] < capacity), least)
        self.loads[instance] += 1
        return instance


@given(streams, instance_counts, seeds, sources, budgets, tries)
def test_agrees_with_the_oracle(
    keys: Keys, instances: int, seed: int, source: int, e: float, tries: int
) -> None:
    router = RandomChoices(instances, seed=seed, source=source, e=e, tries=tries)
    assert router.route(keys).tolist() == answers(Oracle(router), keys)


@pytest.mark.parametrize("instances", [16, 70])
@pytest.mark.parametrize("exponent", [0.8, 2.0])
def test_agrees_with_the_oracle_on_zipf(exponent: float, instances: int) -> None:
    keys = zipf(exponent, 3000, seed=instances)
    router = RandomChoices(instances, seed=3)
    assert router.route(keys).tolist() == answers(Oracle(router), keys)


@given(streams, instance_counts, seeds, budgets, tries)
def test_the_imbalance_is_never_above_e_plus_n_over_m(
    keys: Keys, instances: int, seed: int, e: float, tries: int
) -> None:
    router = RandomChoices(instances, seed=seed, e=e, tries=tries)
    loads: Counter[int] = Counter()
    for m, instance in enumerate(router.route(keys).tolist(), start=1):
        loads[instance] += 1
        assert loads[instance] * instances / m - 1 <= e + instances / m + 1e-9


def test_one_key_whose_hashes_alternate() -> None:
    seed = spread_seed(0)
    alternating = [0, 1] * 4
    key = next(
        key for key in range(10_000) if [choice(key, i, 2, seed) for i in range(8)] == alternating
    )
    router = RandomChoices(2, e=0.01)
    assert router.route(np.full(7, key, dtype=np.uint64)).tolist() == [0, 0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize("tries", [1, 100])
def test_a_new_batch_has_new_room(tries: int) -> None:
    keys = zipf(1.6, 2000)
    router = RandomChoices(16, tries=tries)
    first = router.route(keys)
    router.begin_batch()
    assert router.route(keys).tolist() == first.tolist()
