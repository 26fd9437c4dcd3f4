"""The power of two choices against two draws a tuple."""

from __future__ import annotations

import numpy as np
import pytest
from grouping.plain import Keys, answers, instance_counts, seeds, sources, streams, zipf
from hypothesis import given

from unskew.grouping import TwoChoices
from unskew.grouping.choices import home_of, second_of
from unskew.mixing import counter_bits


class Oracle:
    """Draw two instances for each tuple and take the less loaded, the first if they are even."""

    def __init__(self, router: TwoChoices) -> None:
        self.seed = router._chance_seed
        self.loads = [0] * router.instances
        self.drawn = 0

    def begin_batch(self) -> None:
        self.loads = [0] * len(self.loads)

    def send(self, key: int) -> int:
        self.drawn += 1
        bits = np.uint64(counter_bits(self.seed, np.uint64(self.drawn)))
        pair = (home_of(bits, len(self.loads)), second_of(bits, len(self.loads)))
        instance = min(pair, key=self.loads.__getitem__)
        self.loads[instance] += 1
        return instance


@given(streams, instance_counts, seeds, sources)
def test_agrees_with_the_oracle(keys: Keys, instances: int, seed: int, source: int) -> None:
    router = TwoChoices(instances, seed=seed, source=source)
    oracle = Oracle(router)
    assert router.route(keys).tolist() == answers(oracle, keys)
    router.begin_batch()
    oracle.begin_batch()
    assert router.route(keys).tolist() == answers(oracle, keys)


@pytest.mark.parametrize("instances", [2, 16, 64, 256])
def test_no_instance_is_far_above_the_mean(instances: int) -> None:
    router = TwoChoices(instances)
    router.route(zipf(1.6, 1000 * instances))
    # O(log log n) above: log2(log2(256)) is 3, and one random choice would be 100 above.
    assert router.loads.max() <= 1000 + 6


def test_what_a_key_gets_does_not_depend_on_the_key() -> None:
    one = TwoChoices(16).route(np.zeros(1000, dtype=np.uint64))
    assert one.tolist() == TwoChoices(16).route(zipf(1.0, 1000)).tolist()
    assert set(one.tolist()) == set(range(16))


def test_sources_draw_differently() -> None:
    keys = np.zeros(1000, dtype=np.uint64)
    chosen = [TwoChoices(16, source=source).route(keys) for source in range(3)]
    for other in chosen[1:]:
        assert np.count_nonzero(chosen[0] == other) < 200
