"""Frequent values against exact counts, within the promised error."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.aggregates import top
from unskew.errors import BadParameter


def result(aggregate: Any, *parts: list[Any]) -> list[tuple[Any, int, int]]:
    """Return the entries of one group whose rows came in several parts."""
    merged = aggregate.zero(1)
    for part in parts:
        groups = np.zeros(len(part), dtype=np.int64)
        states = aggregate.update(aggregate.zero(1), groups, pa.array(part, pa.int64()))
        merged = aggregate.merge(merged, np.zeros(1, dtype=np.int64), states)
    entries = aggregate.finish(merged)[0].as_py()
    return [(entry["value"], entry["count"], entry["error"]) for entry in entries]


@given(
    st.lists(st.lists(st.integers(0, 30), max_size=60), min_size=1, max_size=4),
    st.integers(1, 8),
)
def test_counts_are_within_the_bound_and_frequent_values_are_kept(
    parts: list[list[int]], counters: int
) -> None:
    found = result(top(counters, counters).for_types(pa.int64()), *parts)
    exact = Counter(value for part in parts for value in part)
    bound = sum(exact.values()) / (counters + 1)
    for value, count, error in found:
        assert count <= exact[value] <= count + error
        assert error <= bound
    kept = {value for value, _, _ in found}
    assert all(value in kept for value, count in exact.items() if count > bound)


@given(st.lists(st.integers(0, 30), max_size=100))
def test_with_enough_counters_counts_are_exact_and_ties_go_by_value(values: list[int]) -> None:
    ranked = sorted(Counter(values).items(), key=lambda item: (-item[1], item[0]))
    expected = [(value, count, 0) for value, count in ranked[:5]]
    assert result(top(5).for_types(pa.int64()), values[::2], values[1::2]) == expected


def test_a_skewed_stream_keeps_its_head() -> None:
    values = (np.random.default_rng(3).zipf(1.5, 50_000) % 10_000).tolist()
    parts = [values[i::7] for i in range(7)]
    found = result(top(5, counters=100).for_types(pa.int64()), *parts)
    assert [value for value, _, _ in found] == [v for v, _ in Counter(values).most_common(5)]


@pytest.mark.parametrize(
    ("k", "counters", "message"), [(0, None, "k must"), (5, 4, "counters must be from 5")]
)
def test_bad_parameters_are_named(k: int, counters: int | None, message: str) -> None:
    with pytest.raises(BadParameter, match=message):
        top(k, counters)


def test_columns_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(BadParameter, match="sorted array of the entries"):
        top(1).for_types(pa.map_(pa.string(), pa.int64()))
    with pytest.raises(BadParameter, match="put several into a struct"):
        top(1).for_types(pa.int64(), pa.int64())
