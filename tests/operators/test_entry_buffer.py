"""The entries of a task: the same groups, whether they fit or not."""

from __future__ import annotations

from pathlib import Path

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
