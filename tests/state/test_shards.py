"""The state of shards against a model: whatever is written, in whatever order, is what is found."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from unskew.state.manifest import Run
from unskew.state.runs import (
    EXPIRES,
    GONE,
    HASH,
    NEVER,
    NO_WATERMARK,
    hashes_of,
    removals,
    run_schema,
)
from unskew.state.segment import SegmentReader, SegmentWriter
from unskew.state.shards import AppendingStore, ReplacingStore

SCHEMA = run_schema([pa.field("key", pa.string()), pa.field("value", pa.int64())])

# Few hashes and several keys of each: collisions are what the rules are for.
CHANGES = st.lists(
    st.dictionaries(
        st.integers(0, 12), st.dictionaries(st.sampled_from("ab"), st.integers()), max_size=8
    ),
    max_size=12,
)


def a_run(rows: dict[int, dict[str, int]]) -> pa.RecordBatch:
    """Return a run that leaves of each hash the given keys and values, or nothing."""
    flat = [
        (number, key, value)
        for number in sorted(rows)
        for key, value in sorted(rows[number].items())
    ]
    kept = pa.RecordBatch.from_pylist(
        [
            {HASH: number, GONE: False, EXPIRES: NEVER, "key": key, "value": value % 2**40}
            for number, key, value in flat
        ],
        SCHEMA,
    )
    gone = removals(np.array([n for n in rows if not rows[n]], dtype=np.uint64), SCHEMA)
    both = pa.concat_batches([kept, gone])
    return both.take(pa.array(np.argsort(hashes_of(both), kind="stable")))


@given(CHANGES)
def test_what_was_written_last_is_what_is_found(batches: list[dict[int, dict[str, int]]]) -> None:
    model: dict[int, dict[str, int]] = {}
    shards: dict[int, tuple[Run, ...]] = {}
    with TemporaryDirectory() as folder:
        reader = SegmentReader(Path(folder))
        for number, rows in enumerate(batches):
            store = ReplacingStore(shards, SCHEMA, reader)
            with SegmentWriter(Path(folder) / str(number)) as writer:
                written = store.write(7, a_run(rows), writer)
            shards = {7: written.runs}
            model |= rows
            store = ReplacingStore(shards, SCHEMA, reader)

            assert as_dict([store.all(7)]) == living(model)
            asked = np.arange(0, 13, 2, dtype=np.uint64)
            assert as_dict(store.find(7, asked)) == {
                hashed: kept for hashed, kept in living(model).items() if hashed % 2 == 0
            }
            sizes = [run.rows for run in written.runs]
            assert all(old > 2 * new for new, old in pairwise(sizes))


def living(model: dict[int, dict[str, int]]) -> dict[int, dict[str, int]]:
    return {
        hashed: {key: value % 2**40 for key, value in rows.items()}
        for hashed, rows in model.items()
        if rows
    }


def as_dict(runs: list[pa.RecordBatch]) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    for run in runs:
        for row in run.to_pylist():
            assert row["key"] not in found.setdefault(row[HASH], {})
            found[row[HASH]][row["key"]] = row["value"]
    return found


def test_what_is_written_grows_with_what_is_touched(tmp_path: Path) -> None:
    reader = SegmentReader(tmp_path)

    def written_by_touching_the_same(rows: int) -> int:
        base = a_run({number: {"a": 1} for number in range(rows)})
        total = 0
        with SegmentWriter(tmp_path / f"{rows}-base") as writer:
            runs = ReplacingStore({}, SCHEMA, reader).write(0, base, writer).runs
        for number in range(20):
            with SegmentWriter(tmp_path / f"{rows}-{number}") as writer:
                store = ReplacingStore({0: runs}, SCHEMA, reader)
                done = store.write(0, a_run({each: {"a": number} for each in range(50)}), writer)
            runs, total = done.runs, total + done.written
        assert len(runs) == 2
        return total

    assert written_by_touching_the_same(20_000) == written_by_touching_the_same(2_000)


class Appended(NamedTuple):
    """A batch of state that grows: how far time goes on, hashes that are handed over, new rows."""

    seconds: int
    gone: set[int]
    rows: list[tuple[int, int]]


# Rows are a hash and how much later than the watermark they expire.
APPENDED = st.lists(
    st.builds(
        Appended,
        st.integers(0, 4),
        st.sets(st.integers(0, 5), max_size=1),
        st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), max_size=8),
    ),
    max_size=12,
)


@given(APPENDED)
def test_what_was_added_is_found_until_it_expires(batches: list[Appended]) -> None:
    model: list[tuple[int, int, int]] = []
    shards: dict[int, tuple[Run, ...]] = {}
    late = watermark = NO_WATERMARK
    everything = np.arange(6, dtype=np.uint64)
    with TemporaryDirectory() as folder:
        reader = SegmentReader(Path(folder))
        for number, batch in enumerate(batches):
            late, watermark = watermark, max(watermark, 0) + batch.seconds
            store = AppendingStore(shards, SCHEMA, reader, late, watermark)
            counting = [row for row in model if row[1] > late]
            assert as_rows(store.find(7, everything)) == Counter(counting)

            gone = np.array(sorted(batch.gone), dtype=np.uint64)
            counting = [row for row in counting if row[0] not in batch.gone]
            new = [(hashed, watermark + after, number) for hashed, after in batch.rows]
            with SegmentWriter(Path(folder) / str(number)) as writer:
                store.write(7, appended(new, gone), writer)
            over = [row for row in counting if row[1] <= watermark]
            assert as_rows([store.expiring(7, gone)]) == Counter(over)
            store.drop_expired(7)
            assert all(run.latest > watermark for run in store.shards[7])
            model = [row for row in counting if row[1] > watermark] + new
            shards = {7: store.shards[7]}


def appended(rows: list[tuple[int, int, int]], gone: NDArray[np.uint64]) -> pa.RecordBatch:
    """Return a run that adds rows, and says of some hashes that older ones do not count."""
    names = (HASH, EXPIRES, "value")
    added = pa.RecordBatch.from_pylist(
        [dict(zip(names, row, strict=True)) | {GONE: False, "key": "a"} for row in rows], SCHEMA
    )
    both = pa.concat_batches([removals(gone, SCHEMA), added])
    return both.take(pa.array(np.argsort(hashes_of(both), kind="stable")))


def as_rows(runs: list[pa.RecordBatch]) -> Counter[tuple[int, int, int]]:
    return Counter(
        (row[HASH], row[EXPIRES], row["value"]) for run in runs for row in run.to_pylist()
    )


def test_a_run_of_which_all_has_expired_is_dropped_without_a_look(tmp_path: Path) -> None:
    with SegmentWriter(tmp_path / "first") as writer:
        store = AppendingStore({}, SCHEMA, SegmentReader(tmp_path), NO_WATERMARK, 0)
        runs = store.write(7, appended([(1, 5, 0), (2, 9, 0)], np.empty(0, np.uint64)), writer).runs

    def refuse(run: Run) -> pa.RecordBatch:
        raise AssertionError(f"{run} was opened")

    store = AppendingStore({7: runs}, SCHEMA, refuse, 0, 8)
    assert store.drop_expired(7) is None
    store = AppendingStore({7: runs}, SCHEMA, refuse, 8, 9)
    left = store.drop_expired(7)
    assert left is not None
    assert left.runs == ()
