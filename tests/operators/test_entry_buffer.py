"""The entries of a task: the same groups, whether they fit or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from unskew.aggregates import count
from unskew.operators import Aggregation
from unskew.operators.base import TIME
from unskew.operators.entry_buffer import EntryBuffer
from unskew.state.runs import HASH, Hashes

OPERATOR = Aggregation({"n": count()}).bind([pa.field("key", pa.uint64())], [])


def rows(*keys: int) -> pa.RecordBatch:
    hashes = pa.array(keys, pa.uint64())
    times = pa.array(np.zeros(len(keys), dtype=np.int64))
    return pa.RecordBatch.from_arrays([hashes, times, hashes], names=[HASH, TIME, "key"])


def shard_of(hashes: Hashes) -> np.ndarray:
    return (hashes % 3).astype(np.int64)


def groups(buffer: EntryBuffer) -> list[tuple[list[int], list[int], list[int]]]:
    return [
        (shards.tolist(), entries.column("key").to_pylist(), entries.column("state_n").to_pylist())
        for shards, entries in buffer.groups()
    ]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_what_fits_is_one_group_and_no_file(scratch: Path) -> None:
    with EntryBuffer(OPERATOR, shard_of, 1 << 27) as buffer:
        for batch in (rows(5, 3, 5), rows(4, 3)):
            buffer.add(batch)
        assert groups(buffer) == [([0, 1, 2], [3, 4, 5], [2, 1, 2])]
        assert list(scratch.iterdir()) == []


def test_what_does_not_fit_comes_back_from_a_file_shard_by_shard(scratch: Path) -> None:
    with EntryBuffer(OPERATOR, shard_of, 1) as buffer:
        for batch in (rows(5, 3, 5), rows(4, 3)):
            buffer.add(batch)
        assert groups(buffer) == [([0], [3], [2]), ([1], [4], [1]), ([2], [5], [2])]
        assert [path.name[:13] for path in scratch.iterdir()] == ["unskew-spill-"]
    assert list(scratch.iterdir()) == []


def test_nothing_after_a_spill_is_nothing(scratch: Path) -> None:
    with EntryBuffer(OPERATOR, shard_of, 1) as buffer:
        buffer.add(rows(5))
        # All of its rows were late.
        buffer.add(rows())
        assert groups(buffer) == [([2], [5], [1])]


def test_entries_that_are_folded_already_are_held_no_longer_than_others(scratch: Path) -> None:
    with EntryBuffer(OPERATOR, shard_of, 1) as buffer:
        for taken_over in (rows(5, 3), rows(4, 5)):
            buffer.add_entries(OPERATOR.fold(taken_over))
        assert len(list(scratch.glob("unskew-spill-*/*"))) == 2
        assert groups(buffer) == [([0], [3], [1]), ([1], [4], [1]), ([2], [5], [2])]
    assert list(scratch.iterdir()) == []


def test_files_are_closed_when_nobody_asks_for_the_rest(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    original = pa.memory_map

    def memory_map(path: str) -> Any:
        opened.append(original(path))
        return opened[-1]

    monkeypatch.setattr(pa, "memory_map", memory_map)
    with EntryBuffer(OPERATOR, shard_of, 1) as buffer:
        for batch in (rows(5, 3), rows(4)):
            buffer.add(batch)
        some = buffer.groups()
        next(some)
        assert [file.closed for file in opened] == [False, False]
        some.close()
        assert [file.closed for file in opened] == [True, True]
