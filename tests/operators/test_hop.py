"""The hop in memory: what is folded here and what goes elsewhere is together all there is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operators.drawn import a_plan

from unskew import hash_keys
from unskew.aggregates import collect, count
from unskew.balance import Placed, Plan
from unskew.operators import Aggregation
from unskew.operators.base import TIME
from unskew.operators.hop import Hop, Hopping
from unskew.operators.task import Work, task_of
from unskew.state.runs import HASH, NEVER
from unskew.state.segment import SegmentReader

TAGS = ["a", "b", "c", None]
HASHES = hash_keys(pa.array(TAGS)).tolist()

HERE = np.zeros(2, dtype=np.int32)
"""Both shards on the first instance."""

operator = Aggregation({"n": count(), "all": collect(1000).of("value")}).bind(
    [pa.field("tag", pa.string())], [pa.field("value", pa.int64())]
)


def rows_of(rows: list[tuple[str | None, int]]) -> pa.RecordBatch:
    tags, values = [tag for tag, _ in rows], [value for _, value in rows]
    regions = [f"region of {tag}" for tag in tags]
    return pa.record_batch(
        {
            "region": pa.array(regions, pa.string()),
            "tag": pa.array(tags, pa.string()),
            "value": pa.array(values, pa.int64()),
        }
    )


def hop_to(plan: Plan, pairs: int = 0) -> Hop:
    return Hop(operator, plan, keys=("tag",), values=("value",), own=("region",), pairs=pairs)


def as_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    head = {
        HASH: hash_keys(rows.column("tag")),
        TIME: np.full(rows.num_rows, NEVER),
    }
    return pa.record_batch({**head, "tag": rows.column("tag"), "value": rows.column("value")})


ROWS = st.lists(st.tuples(st.sampled_from(TAGS), st.integers(0, 9)), max_size=30)


@settings(max_examples=60)
@given(st.lists(ROWS, min_size=1, max_size=4), a_plan(HASHES), st.sampled_from([1, 1 << 20]))
def test_near_and_far_rows_are_all_rows_once(
    outputs: list[list[tuple[str | None, int]]], plan: Plan, most_bytes: int
) -> None:
    with TemporaryDirectory() as folder:
        entries: dict[int, list[Path]] = {}
        far: list[pa.RecordBatch] = []
        near = 0
        for instance, rows in enumerate(outputs):
            hopping = Hopping(hop_to(plan), instance, most_bytes)
            far += [hopping.part(part) for part in (rows_of(rows[:7]), rows_of(rows[7:]))]
            near += hopping.near
            path = Path(folder) / f"{instance}.entries"
            if hopping.write(path):
                entries[instance] = [path]
        sent = as_rows(pa.concat_batches(far))
        assert near + sent.num_rows == sum(map(len, outputs))
        targets = plan.route(sent.column(HASH).to_numpy(), np.arange(sent.num_rows))
        out: list[pa.RecordBatch] = []
        parts: list[pa.RecordBatch] = []
        for instance in range(plan.instances):
            work = Work(
                operator,
                plan,
                instance,
                {},
                Path(folder) / f"{instance}.arrow",
                entries=entries.get(instance, []),
            )
            task = task_of(work, SegmentReader(Path(folder)))
            out += task.run([sent.filter(pa.array(targets == instance))])
            parts += task.parts
        if parts:
            out.append(operator.merge(pa.concat_batches(parts)))
        found = [row for batch in out for row in batch.to_pylist()]
    wanted = Counter((tag, value) for rows in outputs for tag, value in rows)
    assert Counter((row["tag"], value) for row in found for value in row["all"]) == wanted
    assert sum(row["n"] for row in found) == wanted.total()


@pytest.mark.parametrize(
    ("plan", "near"),
    [
        pytest.param(Plan(HERE, 2), 4, id="all keys live here"),
        pytest.param(Plan(HERE + 1, 2), 0, id="all keys live elsewhere"),
        pytest.param(Plan(HERE, 2, hot={HASHES[0]: (0,)}), 1, id="hot keys are dealt"),
        pytest.param(
            Plan(
                np.array([1, 0]),
                2,
                placed=Placed(np.array(HASHES[:2], dtype=np.uint64), np.array([1, 1])),
            ),
            4,
            id="keys that are placed here",
        ),
    ],
)
def test_only_rows_of_keys_that_live_here_stay(plan: Plan, near: int) -> None:
    hopping = Hopping(hop_to(plan), 0, 1 << 20)
    left = hopping.part(rows_of([("a", 1), ("a", 2), ("a", 3), ("b", 4)]))
    assert (hopping.near, hopping.far, left.num_rows) == (near, 4 - near, 4 - near)


def test_pairs_are_counted_whether_near_or_far() -> None:
    hopping = Hopping(hop_to(Plan(np.array([0, 1]), 2), pairs=100), 0, 1 << 20)
    hopping.part(rows_of([("a", 1), ("b", 2), ("a", 3)]))
    pairs = hopping.pairs
    found = set(zip(*(each.tolist() for each in pairs), strict=True))
    keys = [(int(hash_keys([f"region of {tag}"])[0]), int(hash_keys([tag])[0])) for tag in "ab"]
    assert found == {(*keys[0], 2), (*keys[1], 1)}


def test_late_rows_are_counted_where_they_would_have_gone() -> None:
    times = pa.array([10, 20, 30], pa.timestamp("us"))
    rows = rows_of([("a", 1), ("a", 2), ("a", 3)]).append_column("time", times)
    hop = Hop(operator, Plan(HERE, 1), ("tag",), ("value",), time="time", late=20)
    hopping = Hopping(hop, 0, 1 << 20)
    hopping.part(rows)
    assert (hopping.near, hopping.late) == (3, 2)
