from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from unskew.errors import DamagedCheckpoint, NewerCheckpoint
from unskew.state.manifest import Run
from unskew.state.runs import EXPIRES, GONE, HASH, run_schema
from unskew.state.segment import SegmentReader, SegmentWriter

SCHEMA = run_schema([pa.field("key", pa.string())])


def a_run(number: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{HASH: i, GONE: False, EXPIRES: 100 + i, "key": f"key {i}"} for i in range(number)], SCHEMA
    )


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    with SegmentWriter(tmp_path / "one.arrow") as writer:
        return [writer.add(a_run(number)) for number in (3, 1, 1000)]


@pytest.mark.parametrize("cached", [False, True])
def test_runs_come_back(tmp_path: Path, runs: list[Run], cached: bool) -> None:
    reader = SegmentReader(tmp_path, tmp_path / "cache" if cached else None)
    assert [reader(run) for run in runs] == [a_run(3), a_run(1), a_run(1000)]
    assert [run.rows for run in runs] == [3, 1, 1000]
    assert {run.expires for run in runs} == {100}
    read = reader.read_bytes
    assert read == sum(run.length for run in runs)
    assert reader(runs[0]) == a_run(3)
    assert reader.read_bytes == read


def test_hashes_are_read_where_they_are_mapped(tmp_path: Path, runs: list[Run]) -> None:
    run = SegmentReader(tmp_path)(runs[2])
    hashes = run.column(HASH).to_numpy(zero_copy_only=True)
    assert hashes.ctypes.data % 8 == 0
    assert np.array_equal(hashes, np.arange(1000))


def test_a_cached_run_does_not_need_its_segment(tmp_path: Path, runs: list[Run]) -> None:
    reader = SegmentReader(tmp_path, tmp_path / "cache")
    reader(runs[2])
    (tmp_path / "one.arrow").unlink()
    assert SegmentReader(tmp_path, tmp_path / "cache")(runs[2]) == a_run(1000)


def test_what_one_reader_has_checked_others_of_the_machine_need_not(
    tmp_path: Path, runs: list[Run]
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    SegmentReader(tmp_path, marks=marks)(runs[2])
    other = SegmentReader(tmp_path, marks=marks)
    assert other(runs[2]) == a_run(1000)
    assert other.read_bytes == 0
    # A file that was changed since is another file.
    damage_bytes(tmp_path / "one.arrow", runs[2])
    with pytest.raises(DamagedCheckpoint, match="was altered"):
        SegmentReader(tmp_path, marks=marks)(runs[2])


def test_what_no_manifest_names_is_forgotten(tmp_path: Path, runs: list[Run]) -> None:
    cache, marks = tmp_path / "cache", tmp_path / "marks"
    marks.mkdir()
    reader = SegmentReader(tmp_path, cache, marks)
    for run in runs:
        reader(run)
    reader.forget(runs[:1], grace=60.0)
    assert [len(list(folder.iterdir())) for folder in (cache, marks)] == [3, 3]
    reader.forget(runs[:1], grace=-60.0)
    assert [path.name for path in cache.iterdir()] == ["one.arrow@64"]
    assert [path.name.partition("=")[0] for path in marks.iterdir()] == ["one.arrow@64"]
    # What is needed after all comes from the segment again.
    assert reader(runs[2]) == a_run(1000)


def test_a_copy_that_was_damaged_is_made_anew(tmp_path: Path, runs: list[Run]) -> None:
    cache = tmp_path / "cache"
    SegmentReader(tmp_path, cache)(runs[2])
    (copy,) = cache.iterdir()
    data = bytearray(copy.read_bytes())
    data[len(data) // 2] ^= 1
    copy.write_bytes(data)
    assert SegmentReader(tmp_path, cache)(runs[2]) == a_run(1000)


def test_a_cache_that_cannot_be_written_is_no_harm(tmp_path: Path, runs: list[Run]) -> None:
    (tmp_path / "cache").write_text("not a folder")
    assert SegmentReader(tmp_path, tmp_path / "cache")(runs[2]) == a_run(1000)


def damage_bytes(path: Path, run: Run) -> None:
    data = bytearray(path.read_bytes())
    data[run.offset + run.length // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path, run: Run) -> None:
    path.write_bytes(path.read_bytes()[: run.offset + 10])


def newer(path: Path, run: Run) -> None:
    path.write_bytes(b"unskew state\x09" + path.read_bytes()[13:])


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize(
    ("harm", "error", "message"),
    [
        (damage_bytes, DamagedCheckpoint, "was altered: bytes"),
        (cut, DamagedCheckpoint, "was cut: it has"),
        (lambda path, run: path.unlink(), DamagedCheckpoint, "is missing"),
        (lambda path, run: path.write_bytes(b"x" * 20_000_000), DamagedCheckpoint, "no segment"),
        (newer, NewerCheckpoint, "has format 9"),
    ],
)
def test_damage_is_named(
    tmp_path: Path,
    runs: list[Run],
    harm: object,
    error: type[Exception],
    message: str,
    cached: bool,
) -> None:
    harm(tmp_path / "one.arrow", runs[2])  # type: ignore[operator]
    reader = SegmentReader(tmp_path, tmp_path / "cache" if cached else None)
    with pytest.raises(error, match=message) as raised:
        reader(runs[2])
    assert "one.arrow" in str(raised.value)


def test_a_segment_that_was_not_finished_is_not_there(tmp_path: Path) -> None:
    def fail() -> None:
        with SegmentWriter(tmp_path / "half.arrow") as writer:
            writer.add(a_run(1))
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        fail()
    assert not list(tmp_path.iterdir())


def test_a_name_is_never_used_twice(tmp_path: Path, runs: list[Run]) -> None:
    del runs
    with pytest.raises(FileExistsError):
        SegmentWriter(tmp_path / "one.arrow")
