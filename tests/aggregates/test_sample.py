"""Collected values: all of a small group, a fixed sample of a large one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.aggregates import collect
from unskew.errors import BadParameter, UnhashableKey
from unskew.keys import hash_keys


def result(values: list[Any], limit: int, kind: pa.DataType) -> list[Any]:
    aggregate = collect(limit).for_types(kind)
    groups = np.zeros(len(values), dtype=np.int64)
    states = aggregate.update(aggregate.zero(1), groups, pa.array(values, kind))
    kept: list[Any] = aggregate.finish(states)[0].as_py()
    return kept


@given(st.lists(st.none() | st.integers(-9, 9)), st.integers(1, 20))
def test_the_least_hashes_are_kept_with_duplicates(values: list[int | None], limit: int) -> None:
    wanted = sorted(
        (value for value in values if value is not None),
        key=lambda value: (int(hash_keys(np.array([value]))[0]), value),
    )
    assert result(values, limit, pa.int64()) == wanted[:limit]


def test_a_small_group_has_all_its_values() -> None:
    values = [{"a": 1, "b": None}, {"a": None, "b": "x"}, {"a": 1, "b": None}]
    kind = pa.struct([("a", pa.int64()), ("b", pa.string())])
    assert Counter(map(str, result(values, 3, kind))) == Counter(map(str, values))


def test_values_of_equal_hash_keep_an_order_of_their_own() -> None:
    values: list[Any] = [[1, None], [1], [None, 1]]
    kind = pa.list_(pa.int64())
    assert len(set(hash_keys(pa.array(values, kind)).tolist())) == 1
    assert result(values, 2, kind) == result(values[::-1], 2, kind) == [[None, 1], [1]]


def test_bad_parameters_are_named() -> None:
    with pytest.raises(BadParameter, match="limit must be from 1"):
        collect(0)
    with pytest.raises(BadParameter, match="one column, not 2"):
        collect(1).for_types(pa.int64(), pa.int64())
    with pytest.raises(UnhashableKey, match="map"):
        collect(1).for_types(pa.map_(pa.string(), pa.int64()))
