"""The sampling window against a deque that is counted anew each time."""

from __future__ import annotations

from collections import Counter, deque

import numpy as np
import pytest
from grouping.plain import Keys, streams, zipf
from hypothesis import given
from hypothesis import strategies as st

from unskew.errors import BadParameter
from unskew.sketches import SamplingWindow
from unskew.sketches.sampling_window import FILLED, enter, make_room, new_window


@given(streams, st.integers(1, 30))
def test_every_count_is_that_of_a_deque(keys: Keys, length: int) -> None:
    window = SamplingWindow(length)
    oracle: deque[int] = deque(maxlen=length)
    for key in keys.tolist():
        oracle.append(key)
        assert window.slide(key) == oracle.count(key)
        assert list(window.counts().items()) == list(Counter(oracle).items())


@pytest.mark.parametrize("length", [1, 32, 256, 2**15])
def test_a_long_stream_counts_as_a_deque_does(length: int) -> None:
    window = SamplingWindow(length)
    held: deque[int] = deque()
    oracle: Counter[int] = Counter()
    for key in zipf(1.0, messages=length + 3000, keys=500).tolist():
        if len(held) == length:
            oracle.subtract([held.popleft()])
        held.append(key)
        oracle.update([key])
        assert window.slide(key) == oracle[key]
    assert window.counts() == +oracle


@given(
    st.lists(
        st.tuples(st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1)), st.integers(1, 12)),
        max_size=150,
    ),
)
def test_a_window_that_changes_its_length_lets_the_oldest_go(steps: list[tuple[int, int]]) -> None:
    window = new_window(12)
    oracle: deque[int] = deque()
    slots: dict[int, int] = {}
    for key, length in steps:
        left = make_room(window, length)
        gone = oracle.popleft() if len(oracle) >= length else None
        if gone is None or gone in oracle:
            assert left == -1
        else:
            assert left == slots.pop(gone)
        oracle.append(key)
        slot = enter(window, np.uint64(key))
        assert slots.setdefault(key, slot) == slot
        assert len(set(slots.values())) == len(slots)
        assert window.counts[slot] == oracle.count(key)
        assert window.scalars[FILLED] == len(oracle)


def test_memory_does_not_grow_with_the_keys() -> None:
    window = SamplingWindow(100)
    before = sum(array.nbytes for array in window.state)
    for key in range(2000):
        window.slide(key)
    assert sum(array.nbytes for array in window.state) == before <= 100 * 50
    assert window.counts() == dict.fromkeys(range(1900, 2000), 1)


@pytest.mark.parametrize("length", [0, -1, 1.5, True, "4"])
def test_a_bad_length_is_named(length: int) -> None:
    with pytest.raises(BadParameter, match=f"length must be .*{length}"):
        SamplingWindow(length)
