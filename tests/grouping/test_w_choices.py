"""W-Choices against a plain head and min() over all instances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from grouping.plain import (
    Keys,
    Places,
    PlainSpaceSaving,
    answers,
    instance_counts,
    seeds,
    sources,
    streams,
    zipf,
)
from hypothesis import given
from hypothesis import strategies as st

from unskew.grouping import WChoices

heads = st.fixed_dictionaries(
    {},
    optional={
        "theta": st.floats(0.001, 1.5, allow_nan=False),
        "counters": st.integers(1, 20),
    },
)


class Oracle:
    """Send head keys to the least loaded of all, tail keys to the less loaded of their two."""

    def __init__(self, router: WChoices) -> None:
        self.places = Places(router)
        self.loads = [0] * router.instances
        self.theta = router.theta
        self.sketch = PlainSpaceSaving(router.counters)

    def in_head(self, slot: int) -> bool:
        return self.sketch.certain(slot) > self.theta * self.sketch.total

    def begin_batch(self) -> None:
        self.loads = [0] * len(self.loads)

    def send(self, key: int) -> int:
        if self.in_head(self.sketch.observe(key)):
            place = self.loads.index(min(self.loads))
        else:
            choices = (self.places.home(key), self.places.second(key))
            place = min(choices, key=self.loads.__getitem__)
        self.loads[place] += 1
        return self.places.instance(place)


@given(streams, instance_counts, seeds, sources, heads)
def test_agrees_with_the_oracle(
    keys: Keys, instances: int, seed: int, source: int, parameters: dict[str, Any]
) -> None:
    router = WChoices(instances, seed=seed, source=source, **parameters)
    oracle = Oracle(router)
    assert router.route(keys).tolist() == answers(oracle, keys)
    router.begin_batch()
    oracle.begin_batch()
    assert router.route(keys[::-1]).tolist() == answers(oracle, keys[::-1])
    head = [slot for slot in range(len(oracle.sketch.keys)) if oracle.in_head(slot)]
    assert router.hot_keys == len(head)


@pytest.mark.parametrize("instances", [16, 70])
@pytest.mark.parametrize("exponent", [0.8, 1.4, 2.0])
def test_agrees_with_the_oracle_on_zipf(exponent: float, instances: int) -> None:
    keys = zipf(exponent, 4000, seed=instances)
    router = WChoices(instances, seed=3, source=2, counters=5 * instances)
    assert router.route(keys).tolist() == answers(Oracle(router), keys)


def test_a_newcomer_to_a_full_sketch_is_no_head_key() -> None:
    router = WChoices(4, theta=0.3, counters=2)
    router.route(np.array([1, 1, 2, 3], dtype=np.uint64))
    # 3 took over the counter of 2: its count is 2 of 4, but one of them is certain.
    assert router.hot_keys == 1


@pytest.mark.parametrize("source", [0, 1, 2])
def test_a_head_key_goes_round_from_the_place_of_its_source(source: int) -> None:
    router = WChoices(7, source=source)
    chosen = router.route(np.zeros(21, dtype=np.uint64)).tolist()
    assert chosen == [(router._first + i) % 7 for i in range(21)]


def test_balances_what_two_choices_cannot() -> None:
    router = WChoices(64)
    router.route(zipf(1.8, 64_000))
    assert router.loads.max() <= 1000 + 2
