"""Rows are numbered exactly, whatever their types."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.aggregates.numbering import number_rows, ranks
from unskew.errors import BadParameter

INNER = pa.struct([("x", pa.float64()), ("y", pa.list_(pa.string()))])
NESTED = pa.list_(INNER)
FLOATS = st.sampled_from([0.0, -0.0, float("nan"), 1.0]) | st.none()
TEXTS = st.lists(st.sampled_from(["", "a", "b"]) | st.none(), max_size=2) | st.none()
STRUCTS = st.fixed_dictionaries({"x": FLOATS, "y": TEXTS}) | st.none()
VALUES = st.lists(STRUCTS, max_size=2) | st.none()


def canonical(value: Any) -> str:
    """Return a text that is the same for equal values, whatever order their fields are in."""
    return json.dumps(value, sort_keys=True).replace("-0.0", "0.0")


@given(st.lists(st.tuples(VALUES, st.sampled_from(["a", "", None])), max_size=30), st.data())
def test_equal_rows_have_equal_numbers_and_others_not(
    rows: list[tuple[Any, str | None]], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(rows)))
    nested = pa.array([row[0] for row in rows], NESTED).slice(cut)
    texts = pa.array([row[1] for row in rows], pa.string()).slice(cut)
    numbers, first = number_rows([nested, texts], len(nested))
    seen: dict[str, int] = {}
    expected = [seen.setdefault(canonical(row), len(seen)) for row in rows[cut:]]
    assert numbers.tolist() == expected
    assert first.tolist() == [expected.index(number) for number in range(len(seen))]


def test_many_columns_of_many_values_do_not_overflow() -> None:
    rng = np.random.default_rng(1)
    columns = [rng.integers(0, 20_000, 20_000) for _ in range(6)]
    columns = [np.concatenate((column, column)) for column in columns]
    numbers, first = number_rows([pa.array(column) for column in columns], 40_000)
    assert first.tolist() == list(range(20_000))
    assert numbers.tolist() == list(range(20_000)) * 2


@given(st.lists(st.lists(st.integers(0, 3), max_size=3)))
def test_ranks_follow_the_order_of_lists(values: list[list[int]]) -> None:
    found = ranks(pa.array(values, pa.list_(pa.int64()))).tolist()
    places = {rank: i for i, rank in enumerate(sorted(set(found)))}
    ordered = sorted({tuple(value) for value in values})
    assert [places[rank] for rank in found] == [ordered.index(tuple(value)) for value in values]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["b", "a", None, "b"], pa.string_view()),
        pa.array([b"b", b"a", None, b"b"]).cast(pa.binary_view()),
        pa.array(["b", "a", None, "b"]).dictionary_encode(),
        pa.array([1.5, 0.5, None, 1.5], pa.float16()),
        pa.array([[2], [1], None, [2]], pa.list_(pa.int8(), 1)),
        pa.array([[2], [1], None, [2]], pa.large_list(pa.int8())),
        pa.array([b"b" * 16, b"a" * 16, None, b"b" * 16], pa.uuid()),
    ],
    ids=lambda column: str(column.type),
)
def test_other_representations(column: pa.Array) -> None:
    assert number_rows([column], 4)[0].tolist() == [0, 1, 2, 0]
    found = ranks(column)
    assert found[2] < found[1] < found[0] == found[3]


def test_columns_of_nothing_but_nulls() -> None:
    assert number_rows([pa.nulls(3)], 3)[0].tolist() == [0, 0, 0]
    assert number_rows([], 2)[0].tolist() == [0, 0]


def test_maps_are_refused() -> None:
    with pytest.raises(BadParameter, match="equal maps"):
        number_rows([pa.array([], pa.map_(pa.string(), pa.int64()))], 0)
