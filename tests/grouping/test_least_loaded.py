"""The least loaded instance, and the least loaded of a set, against min() over plain lists."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.grouping.least_loaded import (
    clear,
    include,
    least_loaded,
    least_of,
    look_anew,
    new_levels,
    new_sets,
    send,
)

instances = st.one_of(
    st.integers(1, 5), st.sampled_from([63, 64, 65, 128, 129]), st.integers(1, 200)
)


@st.composite
def sends(draw: st.DrawFn) -> tuple[int, list[int]]:
    """Draw a number of instances and tuples for them: some far above the rest, in any order."""
    n = draw(instances)
    heavy = draw(st.sets(st.integers(0, n - 1), max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    loads = rng.integers(draw(st.integers(0, 2)), 4, size=n)
    loads[list(heavy)] += 30
    order = rng.permutation(np.repeat(np.arange(n), loads))
    return n, order.tolist()


@given(sends())
def test_after_every_tuple_the_first_of_the_least_loaded_is_known(
    sent: tuple[int, list[int]],
) -> None:
    n, order = sent
    loads, levels = np.zeros(n, dtype=np.int64), new_levels(n)
    oracle = [0] * n
    assert least_loaded(levels) == 0
    for instance in order:
        send(loads, levels, instance)
        oracle[instance] += 1
        assert least_loaded(levels) == oracle.index(min(oracle))
    assert loads.tolist() == oracle


@given(sends(), st.integers(0, 1000))
def test_loads_that_are_there_already_go_on_as_if_they_had_been_sent(
    sent: tuple[int, list[int]], part: int
) -> None:
    n, order = sent
    first, rest = order[:part], order[part:]
    loads, levels = np.bincount(first, minlength=n).astype(np.int64), new_levels(n)
    look_anew(loads, levels)
    oracle = loads.tolist()
    for instance in rest:
        assert least_loaded(levels) == oracle.index(min(oracle))
        send(loads, levels, instance)
        oracle[instance] += 1
    assert least_loaded(levels) == oracle.index(min(oracle))


@given(sends(), st.lists(st.integers(0, 2**200 - 1), min_size=1, max_size=4))
def test_the_least_loaded_member_of_any_set_is_known(
    sent: tuple[int, list[int]], masks: list[int]
) -> None:
    n, order = sent
    members = [[i for i in range(n) if mask >> i & 1] or [mask % n] for mask in masks]
    sets = new_sets(len(members), n)
    for row, instances in enumerate(members):
        for instance in instances:
            include(sets, row, instance)
    loads, levels = np.zeros(n, dtype=np.int64), new_levels(n)
    for step, instance in enumerate(order):
        send(loads, levels, instance)
        row = step % len(members)
        expected = min((int(loads[i]), i) for i in members[row])[1]
        assert least_of(sets, row, loads, levels) == expected


@pytest.mark.parametrize("n", [4, 64, 70, 200])
def test_sets_far_above_the_least_load_are_compared_by_their_loads(n: int) -> None:
    loads, levels = np.zeros(n, dtype=np.int64), new_levels(n)
    sets = new_sets(1, n)
    members = [n - 1, n // 2, 1]
    for extra, member in enumerate(members):
        include(sets, 0, member)
        for _ in range(10 + extra):
            send(loads, levels, member)
    assert least_of(sets, 0, loads, levels) == n - 1
    send(loads, levels, n - 1)
    assert least_of(sets, 0, loads, levels) == n // 2
    for _ in range(2):
        send(loads, levels, n - 1)
        send(loads, levels, n // 2)
    assert least_of(sets, 0, loads, levels) == 1
    assert least_loaded(levels) == 0


@pytest.mark.parametrize("n", [1, 2, 64, 65, 200])
def test_sending_to_the_least_loaded_is_round_robin(n: int) -> None:
    loads, levels = np.zeros(n, dtype=np.int64), new_levels(n)
    order = []
    for _ in range(3 * n):
        order.append(least_loaded(levels))
        send(loads, levels, order[-1])
    assert order == 3 * list(range(n))


@given(instances, st.lists(st.tuples(st.integers(0, 2), st.integers(0, 199)), max_size=60))
def test_sets_hold_what_was_included_until_they_are_cleared(
    n: int, steps: list[tuple[int, int]]
) -> None:
    sets = new_sets(3, n)
    oracle: list[set[int]] = [set(), set(), set()]
    for row, number in steps:
        instance = number % n
        if number == 199:
            clear(sets, row)
            oracle[row].clear()
        elif instance not in oracle[row]:
            include(sets, row, instance)
            oracle[row].add(instance)
        held = [
            {i for i in range(n) if int(sets.bits[row, i // 64]) >> i % 64 & 1} for row in range(3)
        ]
        assert held == oracle
        assert sets.sizes.tolist() == [len(members) for members in oracle]
