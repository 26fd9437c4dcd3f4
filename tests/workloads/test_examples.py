from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.errors import BadParameter
from unskew.workloads import Examples
from unskew.workloads.examples import CLASSES, COMMON, LENGTH, SHARES


@given(start=st.integers(0, 100_000), sizes=st.lists(st.integers(0, 100), max_size=5))
def test_examples_do_not_depend_on_those_before_them(start: int, sizes: list[int]) -> None:
    ends = np.cumsum([start, *sizes]).tolist()
    whole = Examples(seed=3).draw(start, ends[-1])
    parts = [Examples(seed=3).draw(*each) for each in pairwise(ends)]
    for place, drawn in enumerate(whole):
        found = np.concatenate([part[place] for part in parts] or [drawn[:0]])
        assert np.array_equal(found, drawn)


def test_one_value_of_one_class_is_a_third_of_all() -> None:
    classes, values = Examples().draw(0, 50_000)
    assert np.bincount(classes) / classes.size == pytest.approx(SHARES, abs=0.01)
    assert (values == 0).mean() == pytest.approx(COMMON, abs=0.01)
    hot = (values[classes == 0] == 0).sum() / values.size
    assert hot == pytest.approx(0.32, abs=0.01)


def test_every_class_has_other_frequent_values() -> None:
    classes, values = Examples(values=90).draw(0, 20_000)
    most = []
    for number in range(len(CLASSES)):
        own = np.bincount(values[classes == number].ravel(), minlength=91)
        most.append(int(own[1:].argmax()) + 1)
    assert most == [1, 31, 61]
    assert values.max() <= 90


def test_rows_are_the_numbers_in_words() -> None:
    numbers = np.array([70, 3, 70])
    rows = Examples().rows(numbers).to_pylist()
    classes, values = Examples().draw(0, 71)
    assert rows[0] == rows[2] != rows[1]
    for row, number in zip(rows, numbers.tolist(), strict=True):
        assert row["class"] == CLASSES[classes[number]]
        assert row["values"] == [f"v{value}" for value in values[number]]
        assert len(row["values"]) == LENGTH
    assert len(Examples().rows(np.empty(0, dtype=np.int64))) == 0


def test_fewer_values_than_classes_are_refused() -> None:
    with pytest.raises(BadParameter, match="values must be from 3"):
        Examples(2)
