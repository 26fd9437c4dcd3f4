from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.balance import Greedy, Plan, Report


def report(*busy: float, instances: int) -> Report:
    shards = len(busy)
    return Report(
        seconds=1.0,
        rows=np.ones(shards, dtype=np.int64),
        busy=np.array(busy),
        state_bytes=np.zeros(shards),
        utilisation=np.zeros(instances),
        queues=np.zeros(instances, dtype=np.int64),
    )


@pytest.mark.parametrize(
    ("busy", "before", "after"),
    [
        ((5.0, 4.0, 1.0, 0.0), [0, 0, 1, 1], [0, 1, 1, 1]),
        ((1.0, 1.0, 1.0, 1.0), [0, 0, 1, 1], [0, 0, 1, 1]),
        # One shard that is almost all: nothing that moves would help.
        ((9.9, 0.02, 0.05), [0, 0, 1], [0, 0, 1]),
        ((0.0, 0.0), [0, 0], [0, 0]),
        # The mean is rounded to nothing, and what moved would come back for ever.
        ((5e-324, 0.0), [0, 0], [0, 0]),
    ],
)
def test_it_moves_what_brings_two_instances_nearest(
    busy: tuple[float, ...], before: list[int], after: list[int]
) -> None:
    plan = Plan(np.array(before), 2)
    got = Greedy().next_plan(plan, report(*busy, instances=2))

    assert got.assignment.tolist() == after
    assert (got is plan) == (before == after)


@given(
    st.lists(st.floats(0, 100), min_size=4, max_size=40),
    st.integers(2, 8),
    st.floats(0.01, 1.0),
)
def test_the_largest_load_never_grows_and_every_shard_has_an_instance(
    busy: list[float], instances: int, threshold: float
) -> None:
    plan = Plan.even(len(busy), min(instances, len(busy)))
    got = Greedy(threshold=threshold).next_plan(plan, report(*busy, instances=plan.instances))

    def largest(each: Plan) -> float:
        return float(np.bincount(each.assignment, weights=busy).max())

    assert got.assignment.size == len(busy)
    assert got.assignment.min() >= 0
    assert got.assignment.max() < plan.instances
    assert largest(got) <= largest(plan) * (1 + 1e-12)
