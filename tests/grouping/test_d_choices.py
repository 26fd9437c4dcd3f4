"""D-Choices against its formula and min() over the d choices of a key."""

from __future__ import annotations

from math import ceil
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

from unskew.grouping import DChoices
from unskew.grouping.choices import key_bits, place_of, scatter
from unskew.grouping.d_choices import choices_needed
from unskew.mixing import counter_bits

parameters = st.fixed_dictionaries(
    {},
    optional={
        "theta": st.floats(0.001, 1.5, allow_nan=False),
        "counters": st.integers(1, 20),
        "e": st.sampled_from([1e-4, 1e-3, 0.01, 0.1]),
    },
)


def plain_choices_needed(shares: list[float], n: int, e: float) -> int:
    """Return d by the formula of the paper."""
    if not shares:
        return min(2, n)
    tail = 1 - sum(shares)
    d = max(2, ceil(shares[0] * n))
    while d < n:
        reached = [n - n * ((n - 1) / n) ** (h * d) for h in range(1, len(shares) + 1)]
        if all(
            sum(shares[:h]) + (b / n) ** d * sum(shares[h:]) + (b / n) ** 2 * tail
            <= b * (1 / n + e)
            for h, b in enumerate(reached, start=1)
        ):
            return d
        d += 1
    return n


class Oracle:
    """Send head keys to the least loaded of d choices, tail keys to the less loaded of two."""

    def __init__(self, router: DChoices) -> None:
        self.places = Places(router)
        self.n, self.first, self.seed = router.instances, router._first, router._key_seed
        self.loads = [0] * self.n
        self.theta, self.e = router.theta, router.e
        self.sketch = PlainSpaceSaving(router.counters)
        self.d = 2

    def in_head(self, slot: int) -> bool:
        return self.sketch.certain(slot) > self.theta * self.sketch.total

    def head_shares(self) -> list[float]:
        slots = filter(self.in_head, range(len(self.sketch.keys)))
        shares = (self.sketch.certain(slot) / self.sketch.total for slot in slots)
        return sorted(shares, reverse=True)

    def choices(self, key: int) -> list[int]:
        """Return the d places of a head key, all of them where d is their number."""
        if self.d == self.n:
            return list(range(self.n))
        bits = np.uint64(key_bits(np.uint64(key), self.seed))
        others = (
            scatter(np.uint64(counter_bits(bits, np.uint64(j))), self.n) for j in range(1, self.d)
        )
        return [self.places.home(key), *(place_of(i, self.first, self.n) for i in others)]

    def begin_batch(self) -> None:
        self.loads = [0] * len(self.loads)

    def send(self, key: int) -> int:
        slot = self.sketch.observe(key)
        if (self.sketch.total - 1) % (16 * self.n) == 0:
            self.d = plain_choices_needed(self.head_shares(), self.n, self.e)
        if self.in_head(slot):
            choices = self.choices(key)
        else:
            choices = [self.places.home(key), self.places.second(key)]
        place = min(choices, key=self.loads.__getitem__)
        self.loads[place] += 1
        return self.places.instance(place)


@given(streams, instance_counts, seeds, sources, parameters)
def test_agrees_with_the_oracle(
    keys: Keys, instances: int, seed: int, source: int, parameters: dict[str, Any]
) -> None:
    router = DChoices(instances, seed=seed, source=source, **parameters)
    oracle = Oracle(router)
    assert router.route(keys).tolist() == answers(oracle, keys)
    router.begin_batch()
    oracle.begin_batch()
    assert router.route(keys[::-1]).tolist() == answers(oracle, keys[::-1])
    assert router.hot_keys == len(oracle.head_shares())
    if keys.size:
        assert router.choices == oracle.d


@pytest.mark.parametrize("instances", [3, 16, 40])
@pytest.mark.parametrize("exponent", [0.8, 1.1, 1.4, 2.0])
def test_agrees_with_the_oracle_on_zipf(exponent: float, instances: int) -> None:
    keys = zipf(exponent, 4000, seed=instances)
    router = DChoices(instances, seed=3, source=2, e=0.01)
    oracle = Oracle(router)
    assert router.route(keys).tolist() == answers(oracle, keys)
    assert router.choices == oracle.d


@given(
    st.lists(st.integers(1, 1000), max_size=30),
    st.integers(0, 20_000),
    st.integers(1, 70),
    st.sampled_from([1e-4, 1e-3, 0.01, 0.1]),
)
def test_d_is_what_the_formula_asks_for(
    counts: list[int], tail: int, instances: int, e: float
) -> None:
    total = sum(counts) + tail
    shares = [count / total for count in sorted(counts, reverse=True)]
    needed = choices_needed(np.array(shares, dtype=np.float64), instances, e)
    assert needed == plain_choices_needed(shares, instances, e)


@pytest.mark.parametrize(
    ("shares", "instances", "d"),
    [
        pytest.param([], 20, 2, id="no head, two choices"),
        pytest.param([], 1, 1, id="one instance has one choice"),
        pytest.param([0.01], 20, 2, id="a small head needs no more than the tail"),
        pytest.param([0.3, 0.1], 20, 11, id="a head of two keys"),
        pytest.param([0.9], 20, 20, id="a key too hot for less takes all instances"),
    ],
)
def test_d_by_hand(shares: list[float], instances: int, d: int) -> None:
    assert choices_needed(np.array(shares, dtype=np.float64), instances, 1e-4) == d
    assert plain_choices_needed(shares, instances, 1e-4) == d


def test_a_head_key_that_needs_few_choices_stays_on_them() -> None:
    router = DChoices(40, e=0.01)
    keys = zipf(1.0, 60_000, keys=200)
    chosen = router.route(keys)
    values, counts = np.unique(keys, return_counts=True)
    hottest = chosen[keys == values[counts.argmax()]]
    assert 2 < router.choices < 40
    assert len(set(hottest[-2000:].tolist())) <= router.choices
