"""The interval join, against every pair looked at, whatever moves and whatever is split."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from operators.drawn import a_plan

from unskew.balance import Plan
from unskew.errors import BadParameter
from unskew.keys import hash_keys
from unskew.operators.interval_join import LEFT, RIGHT, WITHOUT_TIME, IntervalJoin
from unskew.state.runs import FLUSH, NEVER, NO_WATERMARK
from unskew.testing import run

KEYS = ["a", "b", "c" * 30, "d"]
HASHES = hash_keys(pa.array(KEYS)).tolist()


class Event(NamedTuple):
    side: int
    key: str | None
    time: int | None
    value: int


events = st.builds(
    Event,
    st.sampled_from([LEFT, RIGHT]),
    st.sampled_from([*KEYS, None]),
    st.sampled_from([*range(31), None, None, None]),
    st.integers(0, 2),
)

batches_of = st.lists(
    st.tuples(st.lists(events, max_size=12), st.integers(0, 10)), min_size=1, max_size=5
)


@st.composite
def some_bounds(draw: st.DrawFn) -> tuple[int, int]:
    """Return how much earlier and how much later a partner may be, of which one can be negative."""
    before = draw(st.integers(-8, 8))
    return before, draw(st.integers(-before, 12))


LEFT_ROW = pa.struct({"l_time": pa.int64(), "l_value": pa.int64()})
RIGHT_ROW = pa.struct({"r_time": pa.int64(), "r_value": pa.int64()})


def batch_of(rows: list[Event]) -> pa.RecordBatch:
    def struct(row: Event, side: int, letter: str) -> dict[str, int | None] | None:
        if row.side != side:
            return None
        return {f"{letter}_time": row.time, f"{letter}_value": row.value}

    sides = [row.side + (WITHOUT_TIME if row.time is None else 0) for row in rows]
    return pa.record_batch(
        {
            "key": pa.array([row.key for row in rows], pa.string()),
            "unskew_side": pa.array(sides, pa.int8()),
            "unskew_stored": pa.array([True] * len(rows), pa.bool_()),
            "unskew_row": pa.array([hash(row) for row in rows], pa.int64()),
            "unskew_left": pa.array([struct(row, LEFT, "l") for row in rows], LEFT_ROW),
            "unskew_right": pa.array([struct(row, RIGHT, "r") for row in rows], RIGHT_ROW),
            "time": pa.array([row.time for row in rows], pa.int64()),
        }
    )


def joined(
    batches: list[list[Event]], watermarks: list[int], before: int, after: int, how: str
) -> Counter[Any]:
    """Look at every pair of rows that are not late."""
    late = -1
    kept: list[Event] = []
    for rows, watermark in zip(batches, watermarks, strict=True):
        kept += [row for row in rows if row.time is None or row.time > late or late < 0]
        late = watermark
    left = [row for row in kept if row.side == LEFT]
    right = [row for row in kept if row.side == RIGHT]
    found: Counter[Any] = Counter()

    def meets(ours: Event, theirs: Event) -> bool:
        return (
            ours.key is not None
            and ours.key == theirs.key
            and ours.time is not None
            and theirs.time is not None
            and ours.time - before <= theirs.time <= ours.time + after
        )

    for ours in left:
        partners = [theirs for theirs in right if meets(ours, theirs)]
        for theirs in partners:
            found[ours.key, ours.time, ours.value, theirs.time, theirs.value] += 1
        if not partners and how in ("left", "full"):
            found[ours.key, ours.time, ours.value, None, None] += 1
    for theirs in right:
        if how in ("right", "full") and not any(meets(ours, theirs) for ours in left):
            found[theirs.key, None, None, theirs.time, theirs.value] += 1
    return found


def hot_on(home: int, *copies: int) -> Plan:
    """Return a plan that has the first key hot, and its home on an instance."""
    return Plan(np.array([home, home]), 4, hot={HASHES[0]: copies})


@settings(max_examples=150)
@example(
    # A key stays hot and loses the instance where its home is, which then moves.
    [([Event(LEFT, "a", 5, 0)], 0), ([Event(LEFT, "a", 5, 1)], 0), ([Event(RIGHT, "a", 5, 2)], 0)],
    [hot_on(0, 0, 1), hot_on(2, 0), hot_on(3, 0)],
    *((2, 2), "full", 1 << 27),
)
@example(
    # Without a watermark a row without a time is as old as can be, and its bound is negative.
    [([Event(LEFT, "a", None, 0)], 0), ([Event(RIGHT, "a", None, 0)], 0)],
    [],
    *((8, -5), "full", 1 << 27),
)
@given(
    batches_of,
    st.lists(a_plan(HASHES), max_size=6),
    some_bounds(),
    st.sampled_from(["inner", "left", "right", "full"]),
    st.sampled_from([1, 1 << 27]),
)
def test_each_pair_comes_once_and_each_row_without_one_alone(
    given_batches: list[tuple[list[Event], int]],
    plans: list[Plan],
    bounds: tuple[int, int],
    how: str,
    most_bytes: int,
) -> None:
    batches = [rows for rows, _ in given_batches]
    watermarks = np.cumsum([step for _, step in given_batches]).tolist()
    found = run(
        IntervalJoin(*bounds, how),
        [batch_of(rows) for rows in (*batches, [])],
        "key",
        time="time",
        watermarks=[*watermarks, FLUSH],
        plans=plans,
        most_bytes=most_bytes,
    )
    rows = [tuple(row.values()) for batch in found for row in batch.to_pylist()]
    assert Counter(rows) == joined(batches, watermarks, *bounds, how)


MEMBERS = 2
MEMBER_HASHES = hash_keys(
    pa.array(np.repeat(np.arange(MEMBERS), len(KEYS))), pa.array(KEYS * MEMBERS)
).tolist()


def sent_to_members(rows: list[Event]) -> pa.RecordBatch:
    """Return each row once for each member of a group, kept by the one that it itself says."""
    batch = batch_of([row for row in rows for _ in range(MEMBERS)])
    members = np.tile(np.arange(MEMBERS), len(rows))
    kept = members == np.repeat([row.value % MEMBERS for row in rows], MEMBERS)
    batch = batch.set_column(
        batch.schema.get_field_index("unskew_stored"), "unskew_stored", pa.array(kept)
    )
    return batch.add_column(0, "member", pa.array(members, pa.int64()))


@given(
    batches_of,
    st.lists(a_plan(MEMBER_HASHES), max_size=6),
    some_bounds(),
    st.sampled_from([1, 1 << 27]),
)
def test_rows_that_one_keeps_and_all_look_for_meet_once(
    given_batches: list[tuple[list[Event], int]],
    plans: list[Plan],
    bounds: tuple[int, int],
    most_bytes: int,
) -> None:
    batches = [rows for rows, _ in given_batches]
    watermarks = np.cumsum([step for _, step in given_batches]).tolist()
    found = run(
        IntervalJoin(*bounds),
        [sent_to_members(rows) for rows in batches],
        ["member", "key"],
        time="time",
        watermarks=watermarks,
        plans=plans,
        most_bytes=most_bytes,
    )
    rows = [tuple(row.values())[1:] for batch in found for row in batch.to_pylist()]
    assert Counter(rows) == joined(batches, watermarks, *bounds, "inner")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 1, "outer"), "how must be one of inner, left, right, full"),
        ((1, -2), "no time is at"),
        ((1, 2**62 + 1), "after must be from -4611686018427387904 to 4611686018427387904"),
    ],
)
def test_what_cannot_be_joined_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(BadParameter, match=message):
        IntervalJoin(*arguments)


def test_times_far_apart_are_in_order_too() -> None:
    far = 2**60
    rows = [Event(LEFT, "a", far, 0), Event(LEFT, "a", 5, 1), Event(RIGHT, "a", 6, 2)]
    rows += [Event(RIGHT, "b", -far, 0), Event(RIGHT, "a", far + 1, 1)]
    found = run(IntervalJoin(1, 1), [batch_of(rows)], "key", time="time")
    assert [tuple(row.values()) for row in found[0].to_pylist()] == [
        ("a", far, 0, far + 1, 1),
        ("a", 5, 1, 6, 2),
    ]


def test_rows_without_a_time_are_close_to_nothing() -> None:
    rows = [Event(LEFT, "a", 100, 0), Event(RIGHT, "a", 100, 1), Event(LEFT, "a", None, 5)]
    found = run(
        IntervalJoin(10, 10, "full"),
        [batch_of(rows), batch_of([])],
        "key",
        time="time",
        watermarks=[90, FLUSH],
    )
    told = Counter(tuple(row.values()) for each in found for row in each.to_pylist())
    assert told == Counter({("a", 100, 0, 100, 1): 1, ("a", None, 5, None, None): 1})


@pytest.mark.parametrize("bounds", [(60, 60), (60, -5), (-5, 60)])
def test_rows_without_a_time_come_out_with_the_first_watermark(bounds: tuple[int, int]) -> None:
    rows = [Event(side, "a", None, 0) for side in (LEFT, RIGHT)]
    found = run(
        IntervalJoin(*bounds, "full"),
        [batch_of(rows), batch_of([])],
        "key",
        time="time",
        watermarks=[NO_WATERMARK, 0],
    )
    assert [each.num_rows for each in found] == [0, 2]


def test_a_row_at_the_end_of_all_times_waits_for_a_flush() -> None:
    found = run(
        IntervalJoin(5, 5, "left"),
        [batch_of([Event(LEFT, "a", NEVER - 3, 0)]), batch_of([])],
        "key",
        time="time",
        watermarks=[100, FLUSH],
    )
    assert [each.num_rows for each in found] == [0, 1]


def test_after_a_flush_nothing_comes_out_again() -> None:
    alone = [
        [Event(LEFT, key, time, 0) for key in KEYS[:2] for time in range(1, 7)] for _ in range(2)
    ]
    batches = [batch_of(rows) for rows in (*alone, [], [], [], [])]
    both = {HASHES[0]: (0, 1), HASHES[1]: (0, 1)}
    plans = [Plan(np.array([0, 1]), 2, hot=hot) for hot in (both, both, {HASHES[1]: (0, 1)}, {})]
    found = run(
        *(IntervalJoin(9, 9, "left"), batches, "key"),
        time="time",
        watermarks=[0, 0, 0, FLUSH, 0, FLUSH],
        plans=plans,
    )
    assert [each.num_rows for each in found] == [0, 0, 0, 24, 0, 0]
