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


def test_a_split_key_that_has_enough_instances_does_not_follow_its_shard_about() -> None:
    # Shard 1 has key 1, and as much again and more of others.
    plan = Plan(np.array([0, 0]), 5)
    plans = []
    for _ in range(4):
        rest = np.array([0.0, 2.0 if 1 in plan.hot else 3.0])
        report = Report(
            *(1.0, np.ones(2, dtype=np.int64), rest, np.zeros(2), np.zeros(5)),
            np.zeros(5, dtype=np.int64),
            hot={1: 1.0},
            can_split=True,
            stored=np.ones(2, dtype=np.int64),
            watermark=0,
            latest=10,
        )
        plan = Greedy().next_plan(plan, report)
        plans.append(plan)
    assert plans[0].hot == {1: (0, 1, 2)}
    assert all(each is plans[0] for each in plans)
