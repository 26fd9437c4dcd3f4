"""FastJoin's balancer: its gain, and what it moves."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.balance import FastJoin, Plan, Report


def report_of(stored: list[int], probing: list[int]) -> Report:
    none, nobody = np.zeros(len(stored)), np.zeros(2, dtype=np.int64)
    return Report(1.0, np.array(probing), none, none, none, nobody, stored=np.array(stored))


@pytest.mark.parametrize(
    ("stored", "probing", "table", "moved"),
    [
        pytest.param([2, 2, 2, 2], [2, 2, 2, 2], [0, 0, 1, 1], {}, id="equal loads stay"),
        pytest.param(
            [3, 3, 2, 2], [3, 3, 2, 2], [0, 0, 1, 1], {}, id="36 is 2.25 times 16 but no shard fits"
        ),
        pytest.param(
            [2, 2, 2, 1], [2, 2, 2, 1], [0, 0, 0, 1], {0}, id="the first that makes up most"
        ),
        pytest.param(
            [9, 1, 1, 1], [1, 1, 4, 1], [0, 0, 0, 1], {2}, id="many probes for one stored tuple"
        ),
    ],
)
def test_what_moves(
    stored: list[int], probing: list[int], table: list[int], moved: set[int]
) -> None:
    plan = Plan(np.array(table), 2)
    got = FastJoin().next_plan(plan, report_of(stored, probing))
    assert {shard for shard, _, _ in got.moves(plan)} == set(moved)


def test_the_giver_stays_the_heavier_one() -> None:
    generator = np.random.default_rng(0)
    for _ in range(100):
        stored, probing = generator.integers(0, 50, (2, 40))
        plan = Plan(generator.integers(0, 4, 40, dtype=np.int32), 4)
        got = FastJoin(threshold=1.1).next_plan(plan, report_of(stored.tolist(), probing.tolist()))
        before, after = (
            np.bincount(each.assignment, stored, 4) * np.bincount(each.assignment, probing, 4)
            for each in (plan, got)
        )
        giver, taker = int(before.argmax()), int(before.argmin())
        assert after[giver] >= after[taker]
        assert (
            np.delete(after, [giver, taker]).tolist() == np.delete(before, [giver, taker]).tolist()
        )
