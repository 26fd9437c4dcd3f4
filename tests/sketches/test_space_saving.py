"""SpaceSaving against a plain list of counters, and what its paper promises."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from grouping.plain import Keys, PlainSpaceSaving, seeds, streams, zipf
from hypothesis import given
from hypothesis import strategies as st

from unskew.errors import BadParameter
from unskew.mixing import spread_seed
from unskew.sketches import SpaceSaving
from unskew.sketches.space_saving import (
    admit_by_chance,
    count,
    halve,
    new_counters,
    observe,
    restart,
)

sizes = st.integers(1, 12)
steps = st.lists(
    st.one_of(
        st.integers(0, 15),
        st.integers(0, 15),
        st.integers(0, 2**64 - 1),
        st.sampled_from(["halve", "restart"]),
    ),
    max_size=200,
)


def told(sketch: SpaceSaving) -> tuple[int, list[tuple[int, int, int]]]:
    """Return what a sketch says of the stream."""
    return sketch.messages, sketch.top()


def kept(oracle: PlainSpaceSaving) -> tuple[int, list[tuple[int, int, int]]]:
    """Return the counters of the oracle, the largest count first, equal ones by slot."""
    counters = zip(oracle.keys, oracle.counts, oracle.errors, strict=True)
    return oracle.total, sorted(counters, key=lambda counter: -counter[1])


@given(steps, sizes)
def test_every_step_is_what_a_list_of_counters_does(steps: list[int | str], size: int) -> None:
    sketch = SpaceSaving(size)
    oracle = PlainSpaceSaving(size)
    for step in steps:
        if step == "halve":
            sketch.halve()
            oracle.halve()
        elif step == "restart":
            restart(sketch.state)
            oracle.restart()
        else:
            assert observe(sketch.state, np.uint64(step)) == oracle.observe(int(step))
        assert told(sketch) == kept(oracle)


@given(steps, sizes, seeds)
def test_every_step_by_chance_is_what_a_list_of_counters_does(
    steps: list[int | str], size: int, seed: int
) -> None:
    sketch = SpaceSaving(size)
    oracle = PlainSpaceSaving(size)
    for step in steps:
        if step == "halve":
            halve(sketch.state)
            oracle.halve()
        elif step == "restart":
            restart(sketch.state)
            oracle.restart()
        else:
            slot = count(sketch.state, np.uint64(step))
            if slot < 0:
                slot = admit_by_chance(sketch.state, np.uint64(step), np.uint64(seed))
            expected = oracle.observe_by_chance(int(step), np.uint64(seed))
            assert slot == (-1 if expected is None else expected)
        assert told(sketch) == kept(oracle)


@given(streams, sizes)
def test_counts_are_too_high_by_their_error_at_most_and_frequent_keys_are_kept(
    keys: Keys, size: int
) -> None:
    sketch = SpaceSaving(size)
    sketch.add(keys)
    true = Counter(keys.tolist())
    kept = sketch.top()
    assert len(kept) == min(size, len(true))
    assert sum(counted for _, counted, _ in kept) == sketch.messages == keys.size
    for key, counted, error in kept:
        assert counted - error <= true[key] <= counted
        assert error <= keys.size / size
    frequent = {key for key, times in true.items() if times > keys.size / size}
    assert frequent <= {key for key, _, _ in kept}


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_a_long_stream_agrees_with_a_list_of_counters(exponent: float) -> None:
    keys = zipf(exponent, messages=4000)
    sketch = SpaceSaving(50)
    oracle = PlainSpaceSaving(50)
    sketch.add(keys)
    for key in keys.tolist():
        oracle.observe(key)
    assert told(sketch) == kept(oracle)


def test_of_equal_counters_the_first_slot_is_taken_over() -> None:
    sketch = SpaceSaving(3)
    sketch.add(np.array([5, 6, 7, 8], dtype=np.uint64))
    assert sketch.top() == [(8, 2, 1), (6, 1, 0), (7, 1, 0)]
    sketch.add(np.array([9], dtype=np.uint64))
    assert sketch.top() == [(8, 2, 1), (9, 2, 1), (7, 1, 0)]


def test_a_restart_keeps_the_keys_in_their_slots_and_replaces_them_first() -> None:
    sketch = SpaceSaving(3)
    sketch.add(np.array([5, 6, 6, 7, 7, 7], dtype=np.uint64))
    restart(sketch.state)
    assert sketch.top() == [(5, 0, 0), (6, 0, 0), (7, 0, 0)]
    sketch.add(np.array([7, 9], dtype=np.uint64))
    assert sketch.top() == [(9, 1, 0), (7, 1, 0), (6, 0, 0)]


@pytest.mark.parametrize("least", [1, 4, 20])
def test_a_newcomer_is_let_in_with_the_chance_that_its_counter_asks(least: int) -> None:
    trials = 2000
    admitted = 0
    for trial in range(trials):
        counters = new_counters(1)
        for _ in range(least):
            observe(counters, np.uint64(5))
        assert count(counters, np.uint64(7)) == -1
        admitted += admit_by_chance(counters, np.uint64(7), spread_seed(trial)) == 0
    chance = 1 / (least + 1)
    # Five standard deviations; the seeds are fixed, so this never flickers.
    assert abs(admitted - trials * chance) <= 5 * (trials * chance * (1 - chance)) ** 0.5


def test_memory_does_not_grow_with_the_keys() -> None:
    sketch = SpaceSaving(100)
    before = sum(array.nbytes for array in sketch.state)
    sketch.add(np.arange(100_000, dtype=np.uint64))
    assert sum(array.nbytes for array in sketch.state) == before <= 100 * 60
    assert len(sketch.top()) == 100


@pytest.mark.parametrize("counters", [0, -1, 1.5, True, "4"])
def test_a_bad_number_of_counters_is_named(counters: int) -> None:
    with pytest.raises(BadParameter, match=f"counters must be .*{counters}"):
        SpaceSaving(counters)
