"""PooledWork: as many intervals as it takes, and none of before where the work has changed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.balance import Plan
from unskew.balance.pooled_work import PooledWork

PLAN = Plan.even(40, 10)


def add(pooled: PooledWork, rows: list[int], plan: Plan = PLAN) -> list[float]:
    """Return what is made of an interval, in which every row is a second of work."""
    found: list[float] = pooled.add(plan, np.array(rows, dtype=np.float64), sum(rows)).tolist()
    return found


def test_few_tuples_are_taken_together() -> None:
    chance, pooled = np.random.default_rng(0), PooledWork(enough=100_000)
    errors = []
    for _ in range(40):
        found = np.array(add(pooled, chance.poisson(100, PLAN.shards).tolist()))
        errors.append(np.std(found / found.mean()))

    assert errors[0] == pytest.approx(0.1, rel=0.2)
    # A mean in which each counts 0.9 of the next has the noise of one by the root of 0.1 / 1.9.
    assert np.mean(errors[20:]) == pytest.approx(0.023, rel=0.2)


@pytest.mark.parametrize(("enough", "part"), [(800, 0.5), (1600, 0.75), (4000, 0.9)])
def test_of_before_as_much_counts_as_is_enough_for_each_instance(enough: int, part: float) -> None:
    pooled = PooledWork(enough=enough)
    for _ in range(100):
        # 400 tuples for each of ten instances.
        add(pooled, [100] * 40)
    found = add(pooled, [110, 90] * 20)
    assert found == pytest.approx([100 + (1 - part) * 10, 100 - (1 - part) * 10] * 20, rel=1e-3)


@pytest.mark.parametrize("enough", [0, 400])
def test_where_an_interval_has_enough_it_counts_alone(enough: int) -> None:
    pooled = PooledWork(enough=enough)
    add(pooled, [100] * 40)
    now = [90, 110] * 20
    assert add(pooled, now) == pytest.approx(now)


# Instances have every tenth shard.
SILENT = [100 * (shard % 10 > 0) for shard in range(40)]
MORE = [100 + 40 * (shard % 10 == 3) for shard in range(40)]


@pytest.mark.parametrize(
    "now",
    [
        pytest.param([500, *[100] * 39], id="one shard has much more"),
        pytest.param(MORE, id="each of an instance has more"),
        pytest.param(SILENT, id="an instance has none"),
    ],
)
def test_work_that_has_changed_counts_at_once(now: list[int]) -> None:
    pooled = PooledWork(enough=100_000)
    for _ in range(20):
        add(pooled, [100] * 40)
    assert PLAN.assignment[:11].tolist() == [*range(10), 0]
    assert add(pooled, now) == pytest.approx(now)
    # And what was before is forgotten.
    assert add(pooled, now) == pytest.approx(now)


def test_less_than_chance_explains_is_followed_within_some_twenty_intervals() -> None:
    pooled = PooledWork(enough=100_000)
    for _ in range(100):
        add(pooled, [10] * 40)
    now = [10 + 2 * (shard % 10 == 3) for shard in range(40)]
    found = [np.array(add(pooled, now)) for _ in range(30)]
    assert 10 < found[0][3] < 10.5
    assert found[-1][3] == pytest.approx(12, abs=0.1)


def test_one_tuple_more_is_always_chance() -> None:
    pooled = PooledWork(enough=100_000)
    for _ in range(100):
        add(pooled, SILENT)
    found = add(pooled, [1, *SILENT[1:]])
    assert found[0] == pytest.approx(0.1, rel=0.05)


def test_where_nobody_counts_tuples_an_interval_counts_alone() -> None:
    pooled, work = PooledWork(enough=100_000), np.arange(1.0, 41.0)
    add(pooled, [10] * 40)
    assert pooled.add(PLAN, work, 0).tolist() == pytest.approx(work.tolist())
    assert pooled.add(PLAN, work[::-1], 0).tolist() == pytest.approx(work[::-1].tolist())


def test_what_is_forgotten_does_not_count() -> None:
    pooled = PooledWork(enough=100_000)
    add(pooled, [100] * 40)
    pooled.forget()
    now = [90, 110] * 20
    assert add(pooled, now) == pytest.approx(now)


def test_other_shards_are_of_another_time() -> None:
    pooled = PooledWork(enough=100_000)
    add(pooled, [1, 2, 3], Plan.even(3, 1))
    assert add(pooled, [3] * 40) == pytest.approx([3] * 40)


@given(st.lists(st.lists(st.integers(1, 50), min_size=40, max_size=40), min_size=2, max_size=6))
def test_no_work_is_lost_and_one_that_was_restored_goes_on(intervals: list[list[int]]) -> None:
    pooled = PooledWork(enough=200)
    for rows in intervals:
        other = PooledWork(enough=200)
        other.restore(pooled.snapshot())
        found = add(pooled, rows)
        assert sum(found) == pytest.approx(sum(rows))
        assert add(other, rows) == found
