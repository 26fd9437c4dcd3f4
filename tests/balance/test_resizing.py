"""Plans for another number of instances: what can stay stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.balance import Plan
from unskew.balance.resizing import resized


@pytest.mark.parametrize(
    ("before", "instances", "work", "after"),
    [
        pytest.param([0, 1, 2], 5, [1, 1, 1], [0, 1, 2], id="new instances begin empty"),
        pytest.param([0, 1, 2, 2], 2, [1, 1, 1, 1], [0, 1, 0, 1], id="shards are dealt out"),
        pytest.param([0, 1, 2, 2], 2, [5, 1, 2, 1], [0, 1, 1, 1], id="where there is least to do"),
        pytest.param([2, 2, 2], 2, [1, 5, 3], [1, 0, 1], id="the largest first"),
    ],
)
def test_shards_of_instances_that_are_no_more(
    before: Sequence[int], instances: int, work: Sequence[float], after: Sequence[int]
) -> None:
    plan = resized(Plan(np.array(before), 3, epoch=4), instances, np.array(work, float))
    assert plan.assignment.tolist() == after
    assert (plan.instances, plan.epoch) == (instances, 5)


@pytest.mark.parametrize(
    ("hot", "after"),
    [
        pytest.param({7: (0, 1, 3)}, {7: (0, 1)}, id="a key loses the instances that are gone"),
        pytest.param({7: (0, 3)}, {}, id="one instance alone makes a key whole"),
        pytest.param({7: (1, 1, 2)}, {}, id="also where it is named twice"),
        pytest.param({7: (0, 0, 1)}, {7: (0, 0, 1)}, id="a key that has all of them stays"),
    ],
)
def test_hot_keys_of_fewer_instances(
    hot: Mapping[int, tuple[int, ...]], after: Mapping[int, tuple[int, ...]]
) -> None:
    assert dict(resized(Plan(np.zeros(8, dtype=np.int32), 4, hot=hot), 2).hot) == after


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(1, 9))
def test_nothing_moves_that_can_stay(before: list[int], instances: int) -> None:
    plan = Plan(np.array(before), 7)
    new = resized(plan, instances)
    for shard, old, now in new.moves(plan):
        assert old >= instances > now, shard
    if instances == 7:
        assert new is plan
