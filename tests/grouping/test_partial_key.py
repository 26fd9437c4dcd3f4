"""Partial key grouping against the less loaded of two choices."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from grouping.plain import Keys, Places, answers, instance_counts, seeds, sources, streams, zipf
from hypothesis import given

from unskew.grouping import PartialKey


class Oracle:
    """Send a tuple to the less loaded of the two choices of its key, the home if they are even."""

    def __init__(self, router: PartialKey) -> None:
        self.places = Places(router)
        self.loads = [0] * router.instances

    def send(self, key: int) -> int:
        choices = (self.places.home(key), self.places.second(key))
        place = min(choices, key=self.loads.__getitem__)
        self.loads[place] += 1
        return self.places.instance(place)


@given(streams, instance_counts, seeds, sources)
def test_agrees_with_the_oracle(keys: Keys, instances: int, seed: int, source: int) -> None:
    router = PartialKey(instances, seed=seed, source=source)
    assert router.route(keys).tolist() == answers(Oracle(router), keys)


@pytest.mark.parametrize("instances", [16, 70])
@pytest.mark.parametrize("exponent", [0.8, 1.4, 2.0])
def test_agrees_with_the_oracle_on_zipf(exponent: float, instances: int) -> None:
    keys = zipf(exponent, 4000, seed=instances)
    router = PartialKey(instances, seed=3, source=2)
    assert router.route(keys).tolist() == answers(Oracle(router), keys)


@given(streams, instance_counts, seeds)
def test_a_key_is_on_its_two_choices_at_most_whatever_the_source(
    keys: Keys, instances: int, seed: int
) -> None:
    reached = defaultdict(set)
    for source in range(3):
        chosen = PartialKey(instances, seed=seed, source=source).route(keys)
        for key, instance in zip(keys.tolist(), chosen.tolist(), strict=True):
            reached[key].add(instance)
    places = Places(PartialKey(instances, seed=seed))
    for key, instances_of_key in reached.items():
        assert instances_of_key <= {places.home(key), places.second(key)}


def test_one_key_alone_fills_two_instances_evenly() -> None:
    router = PartialKey(8)
    router.route(np.zeros(800, dtype=np.uint64))
    assert sorted(router.loads.tolist()) == [0] * 6 + [400, 400]
