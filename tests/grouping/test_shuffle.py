"""Shuffle grouping against a turn that goes round."""

from __future__ import annotations

import numpy as np
import pytest
from grouping.plain import Keys, answers, instance_counts, seeds, sources, streams, zipf
from hypothesis import given

from unskew.grouping import Shuffle


class Oracle:
    """Send tuples to all instances in turn."""

    def __init__(self, router: Shuffle) -> None:
        self.instances, self.turn = router.instances, router._first

    def send(self, key: int) -> int:
        instance = self.turn
        self.turn = (self.turn + 1) % self.instances
        return instance


@given(streams, instance_counts, seeds, sources)
def test_agrees_with_the_oracle(keys: Keys, instances: int, seed: int, source: int) -> None:
    router = Shuffle(instances, seed=seed, source=source)
    oracle = Oracle(router)
    assert router.route(keys).tolist() == answers(oracle, keys)
    assert router.route(keys).tolist() == answers(oracle, keys)


@given(streams, instance_counts, sources)
def test_no_two_instances_differ_by_more_than_one_tuple(
    keys: Keys, instances: int, source: int
) -> None:
    router = Shuffle(instances, source=source)
    for piece in np.array_split(keys, 3):
        router.route(piece)
        assert np.ptp(router.loads) <= 1


def test_a_new_batch_begins_where_the_source_begins() -> None:
    router = Shuffle(5, source=2)
    first = router.route(zipf(1.0, 7))
    router.begin_batch()
    assert router.route(zipf(1.0, 7)).tolist() == first.tolist()


@pytest.mark.parametrize("number", [2, 5, 8, 50, 400])
def test_sources_begin_far_apart(number: int) -> None:
    one = np.zeros(1, dtype=np.uint64)
    begins = sorted(int(Shuffle(1000, source=source).route(one)[0]) for source in range(number))
    gaps = np.diff([*begins, begins[0] + 1000])
    assert gaps.min() >= 0.35 * 1000 / number - 1
