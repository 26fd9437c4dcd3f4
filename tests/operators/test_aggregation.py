"""Aggregation as an operator, against plain Python, with the state in files between batches."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operators.drawn import a_plan

from unskew.aggregates import collect, count, quantiles
from unskew.balance import Plan
from unskew.errors import BadParameter, UnknownColumn
from unskew.keys import hash_keys
from unskew.operators import Aggregation
from unskew.operators import matching as matching_module
from unskew.testing import run

KEYS = st.sampled_from(["a", "b", None, "c" * 40, ""])
BATCHES = st.lists(st.lists(st.tuples(KEYS, st.integers(0, 5)), max_size=20), max_size=5)


HASHES = hash_keys(pa.array(["a", "b", None, "c" * 40, ""])).tolist()


def batch_of(rows: list[tuple[str | None, int]]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "key": pa.array([key for key, _ in rows], pa.string()),
            "value": pa.array([value for _, value in rows], pa.int64()),
        }
    )


@settings(max_examples=40)
@given(BATCHES, st.lists(a_plan(HASHES), max_size=5), st.sampled_from([1, 10_000, 1 << 27]))
def test_changes_of_every_batch_are_those_of_plain_python_whatever_moves(
    batches: list[list[tuple[str | None, int]]], plans: list[Plan], most_bytes: int
) -> None:
    operator = Aggregation({"n": count(), "all": collect(1000).of("value")})
    found = run(operator, map(batch_of, batches), ["key"], plans=plans, most_bytes=most_bytes)
    seen: dict[str | None, list[int]] = defaultdict(list)
    for rows, output in zip(batches, found, strict=True):
        for key, value in rows:
            seen[key].append(value)
        touched = {key for key, _ in rows}
        told = {row["key"]: row for row in output.to_pylist()}
        assert len(told) == output.num_rows
        assert told.keys() == touched
        for key in touched:
            assert told[key]["n"] == len(seen[key])
            assert Counter(told[key]["all"]) == Counter(seen[key])


def test_keys_with_equal_hashes_are_not_mixed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "unskew.testing.hash_keys", lambda column: np.full(len(column), 5, dtype=np.uint64)
    )
    rows: list[tuple[str | None, int]] = [("a", 1), ("b", 2), ("a", 3)]
    found = run(
        Aggregation({"n": count()}), [batch_of(rows), batch_of(rows[:1]), batch_of(rows)], ["key"]
    )
    assert [batch.to_pydict() for batch in found] == [
        {"key": ["a", "b"], "n": [2, 1]},
        {"key": ["a"], "n": [3]},
        {"key": ["a", "b"], "n": [5, 2]},
    ]


def windows(rows: list[tuple[str, int]]) -> pa.RecordBatch:
    """Return rows of keys and window ends."""
    return pa.record_batch(
        {
            "end": pa.array([end for _, end in rows], pa.int64()),
            "key": pa.array([key for key, _ in rows], pa.string()),
        }
    )


@pytest.mark.parametrize("most_bytes", [1, 1 << 27])
def test_a_window_comes_out_once_when_it_is_final_and_late_rows_do_not(most_bytes: int) -> None:
    operator = Aggregation({"n": count()}, mode="append", windowed=True)
    found = run(
        operator,
        [
            windows([("a", 10), ("a", 20), ("b", 10)]),
            windows([("a", 10), ("a", 20)]),
            windows([("b", 30), ("a", 10)]),
            windows([("a", 10)]),
        ],
        ["end", "key"],
        time="end",
        watermarks=[0, 9, 10, 25],
        most_bytes=most_bytes,
    )
    assert [batch.to_pylist() for batch in found] == [
        [],
        [],
        # As with Spark, a row counts in the batch whose watermark closes its window, not after it.
        [{"end": 10, "key": "a", "n": 3}, {"end": 10, "key": "b", "n": 1}],
        [{"end": 20, "key": "a", "n": 2}],
    ]


@settings(max_examples=60)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([10, 20, 30])), max_size=12),
        max_size=5,
    ),
    st.lists(a_plan(HASHES), max_size=5),
    st.sampled_from(["update", "append"]),
)
def test_windows_are_right_whatever_moves(
    batches: list[list[tuple[str, int]]], plans: list[Plan], mode: str
) -> None:
    watermarks = [7 * number for number in range(len(batches))]
    found = run(
        Aggregation({"n": count()}, mode=mode, windowed=True),
        map(windows, batches),
        ["end", "key"],
        time="end",
        watermarks=watermarks,
        plans=plans,
    )
    kept: Counter[tuple[int, str]] = Counter()
    late = 0
    for rows, watermark, output in zip(batches, watermarks, found, strict=True):
        punctual = [(end, key) for key, end in rows if end > late]
        late = watermark
        kept.update(punctual)
        over = {window: n for window, n in kept.items() if window[0] <= watermark}
        touched = {window: kept[window] for window in punctual}
        wanted = touched if mode == "update" else over
        told = {(row["end"], row["key"]): row["n"] for row in output.to_pylist()}
        assert told == wanted
        assert output.num_rows == len(wanted)
        for window in over:
            del kept[window]


def test_update_tells_of_windows_as_they_change_and_forgets_them() -> None:
    operator = Aggregation({"n": count()}, windowed=True)
    batches = [windows([("a", 10)]), windows([("a", 20)]), windows([("a", 20)])]
    found = run(operator, batches, ["end", "key"], time="end", watermarks=[0, 0, 15])
    assert [batch.to_pylist() for batch in found] == [
        [{"end": 10, "key": "a", "n": 1}],
        [{"end": 20, "key": "a", "n": 1}],
        [{"end": 20, "key": "a", "n": 2}],
    ]


def test_what_does_not_fit_is_told_when_it_is_bound() -> None:
    with pytest.raises(
        UnknownColumn, match="'p' aggregates column 'ms', but there are only 'value'"
    ):
        run(Aggregation({"p": quantiles(0.5).of("ms")}), [batch_of([("a", 1)])], ["key"])
    with pytest.raises(BadParameter, match="mode must be one of update, append, not 'complete'"):
        Aggregation({"n": count()}, mode="complete")
    with pytest.raises(BadParameter, match="without a window nothing ever is"):
        Aggregation({"n": count()}, mode="append")


def test_floats_that_spark_calls_equal_are_one_key() -> None:
    rows = pa.record_batch({"key": [0.0, -0.0, float("nan"), float("nan"), 1.0]})
    (found,) = run(Aggregation({"n": count()}), [rows], ["key"])
    assert sorted(found.column("n").to_pylist()) == [1, 2, 2]


def test_matching_is_by_hash_only_where_the_keys_agree() -> None:
    hashes = np.array([1, 1, 2, 1], dtype=np.uint64)
    numbers, first = matching_module.match(hashes, None, [pa.array(["a", "b", "c", "a"])])
    assert (numbers.tolist(), first.tolist()) == ([0, 1, 2, 0], [0, 1, 2])
    numbers, first = matching_module.match(hashes, None, [pa.array(["a", "a", "c", "a"])])
    assert (numbers.tolist(), first.tolist()) == ([0, 0, 1, 0], [0, 2])


def test_keys_without_a_time_are_never_late() -> None:
    batches = [batch_of([("a", 1)])] * 3
    found = run(Aggregation({"n": count()}), batches, "key", watermarks=[5, 10**15, 10**16])
    assert [batch.column("n").to_pylist() for batch in found] == [[1], [2], [3]]
