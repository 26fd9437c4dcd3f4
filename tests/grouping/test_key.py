"""Key grouping against the home of each key."""

from __future__ import annotations

import numpy as np
import pytest
from grouping.plain import Keys, Places, answers, instance_counts, seeds, sources, streams, zipf
from hypothesis import given

from unskew.grouping import Key


class Oracle:
    """Send every tuple of a key home."""

    def __init__(self, router: Key) -> None:
        self.places = Places(router)

    def send(self, key: int) -> int:
        return self.places.instance(self.places.home(key))


@given(streams, instance_counts, seeds, sources)
def test_agrees_with_the_oracle(keys: Keys, instances: int, seed: int, source: int) -> None:
    router = Key(instances, seed=seed, source=source)
    assert router.route(keys).tolist() == answers(Oracle(router), keys)


@pytest.mark.parametrize("instances", [2, 16, 70])
def test_never_splits_a_key_at_any_source(instances: int) -> None:
    keys = zipf(1.0, 5000)
    held = {
        (key, instance)
        for source in range(3)
        for key, instance in zip(
            keys.tolist(), Key(instances, source=source).route(keys).tolist(), strict=True
        )
    }
    assert len(held) == np.unique(keys).size


def test_a_hot_key_overloads_its_home() -> None:
    router = Key(8)
    router.route(np.zeros(800, dtype=np.uint64))
    assert sorted(router.loads.tolist()) == [0] * 7 + [800]
