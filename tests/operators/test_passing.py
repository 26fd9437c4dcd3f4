"""Rows that are let through come out once, with what is known of their keys."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.aggregates import count, distinct
from unskew.balance import Placed, Plan
from unskew.errors import BadParameter
from unskew.keys import hash_keys
from unskew.operators.aggregation import Aggregation
from unskew.operators.passing import Passing
from unskew.operators.row_buffer import RowBuffer
from unskew.testing import run

NAMES = ["a", "b", "c", None, ""]

rows_of = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 5)), max_size=30)


def batch(rows: list[tuple[str | None, int]]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "user": pa.array([user for user, _ in rows], pa.string()),
            "ms": pa.array([ms for _, ms in rows], pa.int64()),
            "text": pa.array([f"{user} {ms}" * 20 for user, ms in rows], pa.string()),
        }
    )


def plans(shards: int, instances: int) -> list[Plan]:
    """Return plans between which shards move, and keys are placed elsewhere."""
    even = Plan.even(shards, instances)
    keys = hash_keys(pa.array(["a", "b"]))
    placed = Placed(keys, np.array([0, shards - 1]))
    turned = Plan(np.roll(even.assignment, 1), instances, 1, placed=placed)
    return [even, turned, Plan(even.assignment, instances, 2)]


@given(st.lists(rows_of, min_size=1, max_size=4), st.sampled_from([100, 2000, 1 << 20]))
def test_every_row_comes_out_once_with_its_key_after_the_batch(
    batches: list[list[tuple[str | None, int]]], most_bytes: int
) -> None:
    operator = Passing({"n": count(), "kinds": distinct().of("ms")})
    out = run(operator, map(batch, batches), "user", plans=plans(4, 3), most_bytes=most_bytes)
    seen: Counter[str | None] = Counter()
    kinds: dict[str | None, set[int]] = {}
    for rows, came in zip(batches, out, strict=True):
        for user, ms in rows:
            seen[user] += 1
            kinds.setdefault(user, set()).add(ms)
        wanted = [
            (user, ms, f"{user} {ms}" * 20, seen[user], len(kinds[user])) for user, ms in rows
        ]
        found = [tuple(row.values()) for row in came.to_pylist()]
        assert Counter(found) == Counter(wanted)


def test_keys_with_one_hash_are_told_apart() -> None:
    operator = Passing({"n": count()}).bind(
        [pa.field("key", pa.string())], [pa.field("ms", pa.int64())]
    )
    same = np.array([7, 7, 7], dtype=np.uint64)
    rows = pa.record_batch(
        [pa.array(same), pa.array([0, 0, 0]), pa.array(["x", "y", "x"]), pa.array([1, 2, 3])],
        names=["unskew_hash", "unskew_time", "key", "ms"],
    )
    results = pa.record_batch({"key": ["y", "x"], "n": [10, 20]})
    (out,) = operator.let_out([rows], same[:2], results)
    assert out.to_pydict() == {"key": ["x", "y", "x"], "ms": [1, 2, 3], "n": [20, 10, 20]}


def test_a_column_that_rows_have_already_is_refused() -> None:
    with pytest.raises(BadParameter, match="'ms' already"):
        Passing({"ms": count()}).bind([pa.field("key", pa.string())], [pa.field("ms", pa.int64())])


def test_other_operators_let_no_rows_through() -> None:
    made = Aggregation({"n": count()}).bind([pa.field("key", pa.string())], [])
    with pytest.raises(BadParameter, match="lets no rows through"):
        made.let_out([], np.empty(0, dtype=np.uint64), pa.record_batch({"n": [1]}))


@given(st.lists(st.lists(st.integers()), min_size=1), st.integers(1, 500))
def test_rows_come_back_in_order_from_memory_and_from_disk(
    given_rows: list[list[int]], most_bytes: int
) -> None:
    numbers = [[number % 2**62 for number in rows] for rows in given_rows]
    with RowBuffer(most_bytes) as buffer:
        for rows in numbers:
            buffer.add(pa.record_batch({"n": pa.array(rows, pa.int64())}))
        found = [batch.column("n").to_pylist() for batch in buffer.batches()]
    assert found == numbers
