from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operators.drawn import a_plan

from unskew import hash_keys
from unskew.balance import Plan
from unskew.errors import BadOperator, BadParameter
from unskew.operators import PerKey
from unskew.testing import run

STATE = pa.schema({"total": pa.int64(), "seen": pa.list_(pa.int64())})
OUTPUT = pa.schema({"key": pa.string(), "total": pa.int64()})


HASHES = hash_keys(pa.array(["a", "b", "c"])).tolist()


def adding(key: dict[str, Any], rows: pa.RecordBatch, state: dict[str, Any] | None) -> Any:
    """Add up the values; a key whose total is a multiple of 10 is forgotten."""
    values = rows.column("value").to_pylist()
    total = sum(values) + (state["total"] if state else 0)
    seen = sorted([*(state["seen"] if state else []), *values])
    kept = None if total % 10 == 0 else {"total": total, "seen": seen}
    return kept, [{"key": key["key"], "total": total}]


def batch_of(rows: list[tuple[str, int]], **times: list[int]) -> pa.RecordBatch:
    columns = {
        "key": pa.array([key for key, _ in rows], pa.string()),
        "value": pa.array([value for _, value in rows], pa.int64()),
    }
    return pa.record_batch({**columns, **{k: pa.array(v, pa.int64()) for k, v in times.items()}})


@settings(max_examples=40)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=12), max_size=5
    ),
    st.lists(a_plan(HASHES, can_split=False), max_size=5),
    st.sampled_from([1, 1 << 27]),
)
def test_the_function_sees_all_rows_of_a_key_and_its_state_whatever_moves(
    batches: list[list[tuple[str, int]]], plans: list[Plan], most_bytes: int
) -> None:
    operator = PerKey(adding, state=STATE, output=OUTPUT)
    found = run(operator, map(batch_of, batches), ["key"], plans=plans, most_bytes=most_bytes)
    totals: dict[str, int] = defaultdict(int)
    for rows, output in zip(batches, found, strict=True):
        for key, value in rows:
            totals[key] += value
        wanted = {key: totals[key] for key, _ in rows}
        assert {row["key"]: row["total"] for row in output.to_pylist()} == wanted
        assert output.num_rows == len(wanted)
        totals = defaultdict(int, {key: each for key, each in totals.items() if each % 10})


def test_state_expires_after_the_last_row_and_something_may_come_out() -> None:
    def expired(key: dict[str, Any], state: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"key": key["key"], "total": -state["total"]}]

    operator = PerKey(adding, state=STATE, output=OUTPUT, ttl=10e-6, expired=expired)
    batches = [
        batch_of([("a", 1), ("b", 2)], time=[5, 8]),
        batch_of([("a", 2)], time=[14]),
        batch_of([], time=[]),
        batch_of([("b", 1)], time=[40]),
    ]
    found = run(operator, batches, ["key"], time="time", watermarks=[0, 12, 20, 30])
    assert [[(row["key"], row["total"]) for row in batch.to_pylist()] for batch in found] == [
        [("a", 1), ("b", 2)],
        [("a", 3)],
        [("b", -2)],
        [("a", -3), ("b", 1)],
    ]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda key, rows, state: 1 / 0, r"division by zero, at .*test_per_key.py:\d+ in"),
        (lambda key, rows, state: None, r"must return \(state, output\), not None"),
        (lambda key, rows, state: (5, None), "must return a dict or None as state, not 5"),
        (lambda key, rows, state: ({"total": "x"}, None), "returned a state that is not total"),
        (lambda key, rows, state: (None, [{"total": "x"}]), "which is no list of dicts with key"),
        (lambda key, rows, state: (None, {"total": 1}), "its rows are no dicts"),
        (lambda key, rows, state: (None, [{"totl": 1}]), "there is no column 'totl'"),
        (
            lambda key, rows, state: ({"totl": 1}, None),
            r"a state with \['totl'\], which is not among",
        ),
    ],
)
def test_what_a_function_does_wrong_is_named(function: Any, message: str) -> None:
    with pytest.raises(BadOperator, match=message):
        run(PerKey(function, state=STATE, output=OUTPUT), [batch_of([("a", 1)])], ["key"])


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(BadParameter, match="needs a function of key, rows and state, not 5"):
        PerKey(5, state=STATE, output=OUTPUT)  # type: ignore[arg-type]
    with pytest.raises(BadParameter, match="ttl must be above 0, not 0"):
        PerKey(adding, state=STATE, output=OUTPUT, ttl=0)
    with pytest.raises(BadParameter, match="only does with ttl="):
        PerKey(adding, state=STATE, output=OUTPUT, expired=lambda key, state: None)


def test_a_row_without_a_time_counts_and_a_changed_key_is_found_again() -> None:
    def careless(key: dict[str, Any], rows: pa.RecordBatch, state: dict[str, Any] | None) -> Any:
        name = key.pop("key")
        total = rows.num_rows + (state["total"] if state else 0)
        return {"total": total, "seen": []}, [{"key": name, "total": total}]

    operator = PerKey(careless, state=STATE, output=OUTPUT, ttl=1.0)
    rows = pa.record_batch(
        {
            "key": ["a", "a"],
            "value": pa.array([1, 2]),
            "time": pa.array([None, 9_000_000], pa.int64()),
        }
    )
    watermarks = [8_000_000, 8_500_000]
    found = run(operator, [rows, rows], "key", time="time", watermarks=watermarks)
    assert [batch.column("total").to_pylist() for batch in found] == [[2], [4]]
