"""Cardinality-aware grouping against a plain memory of keys."""

from __future__ import annotations

from collections import OrderedDict, defaultdict

import numpy as np
import pytest
from grouping.plain import Keys, Places, answers, instance_counts, seeds, sources, streams, zipf
from hypothesis import given
from hypothesis import strategies as st

from unskew.errors import BadParameter
from unskew.grouping import CardinalityAware
from unskew.grouping.choices import key_bits

WAYS = 4


class Oracle:
    """Send a key where it is known, else to the less loaded of its two choices.

    Memory is in sets of four keys; in each set the key used least lately is forgotten.
    """

    def __init__(self, router: CardinalityAware) -> None:
        self.places = Places(router)
        self.loads = [0] * router.instances
        self.sets = router.remembered // WAYS
        self.seed = router._key_seed
        self.memory: defaultdict[int, OrderedDict[int, int]] = defaultdict(OrderedDict)

    def begin_batch(self) -> None:
        self.loads = [0] * len(self.loads)

    def send(self, key: int) -> int:
        known = self.memory[int(key_bits(np.uint64(key), self.seed)) % 2**32 % self.sets]
        if key in known:
            place = known.pop(key)
        else:
            choices = (self.places.home(key), self.places.second(key))
            place = min(choices, key=self.loads.__getitem__)
            if len(known) == WAYS:
                known.popitem(last=False)
        known[key] = place
        self.loads[place] += 1
        return self.places.instance(place)


@given(streams, instance_counts, seeds, sources, st.sampled_from([4, 8, 12, 64, 4096]))
def test_agrees_with_the_oracle(
    keys: Keys, instances: int, seed: int, source: int, remembered: int
) -> None:
    router = CardinalityAware(instances, seed=seed, source=source, remembered=remembered)
    oracle = Oracle(router)
    assert router.route(keys).tolist() == answers(oracle, keys)
    router.begin_batch()
    oracle.begin_batch()
    assert router.route(keys[::-1]).tolist() == answers(oracle, keys[::-1])


@pytest.mark.parametrize("remembered", [4, 100, 4096])
@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_agrees_with_the_oracle_on_zipf(exponent: float, remembered: int) -> None:
    keys = zipf(exponent, 4000)
    router = CardinalityAware(40, seed=3, remembered=remembered)
    assert router.route(keys).tolist() == answers(Oracle(router), keys)


@given(streams, instance_counts, seeds, st.sampled_from([4, 4096]))
def test_a_key_is_on_its_two_choices_at_most(
    keys: Keys, instances: int, seed: int, remembered: int
) -> None:
    router = CardinalityAware(instances, seed=seed, remembered=remembered)
    places = Places(router)
    for key, instance in zip(keys.tolist(), router.route(keys).tolist(), strict=True):
        assert instance in (places.home(key), places.second(key))


def test_a_remembered_key_stays_where_its_first_tuple_went() -> None:
    keys = zipf(1.0, 20_000, keys=300)
    chosen = CardinalityAware(16).route(keys)
    assert len(set(zip(keys.tolist(), chosen.tolist(), strict=True))) == np.unique(keys).size


def test_a_forgotten_key_chooses_anew() -> None:
    router = CardinalityAware(16, remembered=4)
    hot, others = np.full(50, 9, dtype=np.uint64), np.arange(100, 104, dtype=np.uint64)
    first = set(router.route(hot).tolist())
    router.route(others)
    assert len(first) == 1
    assert first.isdisjoint(router.route(hot).tolist())


@pytest.mark.parametrize("remembered", [0, 3, -4, 8.0, True])
def test_a_bad_memory_is_named(remembered: int) -> None:
    with pytest.raises(BadParameter, match=f"remembered must be .*{remembered}"):
        CardinalityAware(4, remembered=remembered)
