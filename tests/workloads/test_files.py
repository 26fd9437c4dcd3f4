"""Files as workloads: every format, every cut, and everything that may be wrong with them."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from unskew.errors import BadInput, BadParameter, MissingInput, UnhashableKey, UnknownColumn
from unskew.keys import hash_keys
from unskew.workloads import files, open_keys, readers

WORDS = ["spark", "flink", "spark", "Zürich", "storm"]


def read(*arguments: Any, size: int = 1000, **parameters: Any) -> NDArray[np.uint64]:
    return np.concatenate(list(open_keys(*arguments, **parameters).batches(size=size)))


def parquet(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pa.parquet.write_table(pa.table(columns), path, **options)
    return path


def text(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "BLOCK", 64)
    monkeypatch.setattr(readers, "ROWS", 3)


@pytest.mark.parametrize("name", ["w.txt", "w.log", "W.TXT", "w.txt.gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_a_key_per_line(tmp_path: Path, name: str, end: str, last: bool) -> None:
    content = (end.join(WORDS) + (end if last else "")).encode()
    path = text(tmp_path / name, gzip.compress(content) if name.endswith("gz") else content)
    assert (read(path) == hash_keys(WORDS)).all()


def test_gzip_files_may_be_joined(tmp_path: Path) -> None:
    path = text(tmp_path / "w.txt.gz", b"".join(gzip.compress(f"{w}\n".encode()) for w in WORDS))
    assert (read(path) == hash_keys(WORDS)).all()


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    path = text(tmp_path / "w.txt", b"\xef\xbb\xbf" + "\n".join(WORDS).encode())
    assert (read(path) == hash_keys(WORDS)).all()


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(
        st.text(
            st.characters(codec="utf-8", exclude_characters="\n\r\ufeff"), min_size=1, max_size=90
        ),
        min_size=1,
        max_size=30,
    ),
    size=st.integers(1, 40),
)
def test_text_is_the_same_however_it_is_cut(
    tmp_path: Path, small_blocks: None, lines: list[str], size: int
) -> None:
    path = text(tmp_path / "w.txt", "\n".join(lines))
    batches = list(open_keys(path).batches(size=size))
    assert all(batch.size == size for batch in batches[:-1])
    assert (np.concatenate(batches) == hash_keys(lines)).all()


@pytest.mark.parametrize(("name", "comma"), [("w.csv", ","), ("w.tsv", "\t"), ("w.csv.gz", ",")])
def test_a_column_of_a_csv_file(tmp_path: Path, name: str, comma: str) -> None:
    rows = [comma.join(["id", "word"])] + [comma.join([str(i), w]) for i, w in enumerate(WORDS)]
    content = "\n".join(rows).encode()
    path = text(tmp_path / name, gzip.compress(content) if name.endswith("gz") else content)
    assert (read(path, "word") == hash_keys(WORDS)).all()


def test_csv_values_are_text_as_for_spark(tmp_path: Path) -> None:
    path = text(tmp_path / "n.csv", "n\n1\n007\n2024-01-01\nNA\nnull\n")
    assert (read(path) == hash_keys(["1", "007", "2024-01-01", "NA", "null"])).all()


def test_quoted_fields_hold_commas_line_feeds_and_nothing(tmp_path: Path) -> None:
    path = text(tmp_path / "q.csv", 'a,b\n"x,y",1\n"x\ny",2\n"",3\n')
    assert (read(path, "a") == hash_keys(["x,y", "x\ny", ""])).all()


def test_several_columns_hash_in_the_order_asked_for(tmp_path: Path) -> None:
    path = text(tmp_path / "w.csv", "a,b,c\nx,1,u\ny,2,v\n")
    expected = hash_keys(["u", "v"], ["x", "y"])
    assert (read(path, "c,a") == expected).all()
    assert (read(path, "c, a") == expected).all()
    assert (read(path, ["c", "a"]) == expected).all()


def test_several_parquet_columns_hash_in_the_order_asked_for(tmp_path: Path) -> None:
    path = parquet(tmp_path / "w.parquet", {"a": ["x", "y"], "b": [1, 2]})
    assert (read(path, "b,a") == hash_keys([1, 2], ["x", "y"])).all()


def test_a_name_with_a_comma_is_a_name(tmp_path: Path) -> None:
    path = parquet(tmp_path / "w.parquet", {"a,b": [1], "a": [2], "b": [3]})
    assert (read(path, "a,b") == hash_keys([1])).all()


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(pa.array([1, 2, 3, 2], pa.int32()), id="int32"),
        pytest.param(pa.array([1, 2, 3, 2], pa.int64()), id="int64"),
        pytest.param(pa.array(["a", "b", "ä", ""]), id="string"),
        pytest.param(pa.array([1.5, -0.0, 0.0, 2.0]), id="double"),
        pytest.param(pa.array([1, 2, 3, 4], pa.timestamp("us")), id="timestamp"),
        pytest.param(pa.array(["a", "b", "a", "a"]).dictionary_encode(), id="dictionary"),
        pytest.param(pa.array([{"x": 1}, {"x": 2}, {"x": 1}, {"x": 3}]), id="struct"),
    ],
)
def test_parquet_columns_keep_their_type(
    tmp_path: Path, small_blocks: None, column: pa.Array
) -> None:
    path = parquet(tmp_path / "w.parquet", {"k": column, "other": [1, 2, 3, 4]}, row_group_size=3)
    assert (read(path, "k", size=2) == hash_keys(column)).all()


def test_a_file_can_be_read_again(tmp_path: Path) -> None:
    workload = open_keys(text(tmp_path / "w.txt", "\n".join(WORDS)))
    first, second = (np.concatenate(list(workload.batches(size=2))) for _ in range(2))
    assert (first == second).all()


def test_what_a_workload_says_of_itself(tmp_path: Path) -> None:
    path = parquet(tmp_path / "w.parquet", {"a": [1, None, 3], "b": [1, 2, 3]})
    workload = open_keys(path, "a", nulls="keep")
    assert (workload.name, workload.messages) == ("w.parquet", 3)
    assert workload.description == f"a of {path}"
    assert open_keys(path, "a", nulls="drop").messages is None
    assert open_keys(text(tmp_path / "w.txt", "a")).messages is None


def test_reading_does_not_hold_the_file(tmp_path: Path) -> None:
    line = b"x" * 99 + b"\n"
    path = text(tmp_path / "big.txt.gz", gzip.compress(line * 2_000_000, compresslevel=1))
    arrow = pa.total_allocated_bytes()
    most = 0
    tracemalloc.start()
    try:
        for batch in open_keys(path).batches(size=10_000):
            assert batch.size == 10_000
            most = max(most, pa.total_allocated_bytes() - arrow)
        most += tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 80_000_000  # Of 200.


# Null keys


@pytest.mark.parametrize(
    ("name", "content", "column"),
    [
        ("w.txt", "a\nb\n\nc\n\n", "line"),
        ("w.csv", "k,v\na,1\nb,2\n,3\nc,4\n,5\n", "k"),
    ],
)
def test_null_keys_are_refused_by_column_and_row(
    tmp_path: Path, name: str, content: str, column: str
) -> None:
    path = text(tmp_path / name, content)
    with pytest.raises(BadInput) as caught:
        read(path, column)
    said = str(caught.value)
    assert f"column '{column}' of {path} has no key in row 3, and in 2 of the rows 1 to 5" in said
    assert 'nulls="drop"' in said
    assert 'nulls="keep"' in said
    assert (read(path, column, nulls="drop") == hash_keys(["a", "b", "c"])).all()
    kept = read(path, column, nulls="keep")
    assert (kept == hash_keys(["a", "b", None, "c", None])).all()


def test_rows_are_counted_across_blocks(tmp_path: Path, small_blocks: None) -> None:
    path = parquet(tmp_path / "w.parquet", {"k": [1, 2, 3, 4, None, 6, 7]})
    with pytest.raises(BadInput, match="no key in row 5, and in 1 of the rows 4 to 6"):
        read(path)


def test_a_row_is_dropped_if_any_of_its_columns_is_null(tmp_path: Path) -> None:
    path = parquet(tmp_path / "w.parquet", {"a": [1, None, 3, None], "b": [1, 2, None, None]})
    assert (read(path, "a,b", nulls="drop") == hash_keys([1], [1])).all()
    kept = read(path, "a,b", nulls="keep")
    assert (kept == hash_keys([1, None, 3, None], [1, 2, None, None])).all()


def test_the_rows_left_out_are_counted_anew_by_every_pass(tmp_path: Path) -> None:
    path = parquet(tmp_path / "w.parquet", {"a": [1, None, 3, None, 5]})
    workload = open_keys(path, nulls="drop")
    for _ in range(2):
        assert sum(batch.size for batch in workload.batches(size=2)) == 3
        assert workload.left_out == 2


def test_dropping_every_row_leaves_an_empty_input(tmp_path: Path) -> None:
    path = parquet(tmp_path / "w.parquet", {"a": pa.array([None, None], pa.int64())})
    with pytest.raises(BadInput, match=r'no key in any row of 2, and nulls="drop".*nulls="keep"'):
        read(path, nulls="drop")


def test_nulls_has_three_values(tmp_path: Path) -> None:
    choice: Any = "ignore"
    with pytest.raises(BadParameter, match="one of error, drop, keep, not 'ignore'"):
        open_keys(text(tmp_path / "w.txt", "a"), nulls=choice)


# Files that cannot be read


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match=r"there is no file .*nowhere\.csv"):
        open_keys(tmp_path / "nowhere.csv", "a")


def test_a_file_that_goes_away(tmp_path: Path) -> None:
    path = text(tmp_path / "w.csv", "a\nx\n")
    workload = open_keys(path)
    path.unlink()
    with pytest.raises(MissingInput, match="is gone"):
        next(workload.batches())


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is a directory; name a single file"):
        open_keys(tmp_path)


def test_a_pipe_is_refused_and_not_called_empty(tmp_path: Path) -> None:
    pipe = tmp_path / "keys.txt"
    os.mkfifo(pipe)
    with pytest.raises(BadInput, match=r"keys\.txt is a pipe or a device.* a regular file first"):
        open_keys(pipe)


@pytest.mark.parametrize("name", ["w.json", "w", "w.gz", "w.parquet.gz", "w.csv.bz2"])
def test_an_unknown_suffix(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match=r"cannot tell the format .*\.txt, \.log, \.csv"):
        open_keys(text(tmp_path / name, "a\n"))


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("c", "has no column 'c'; choose among a, b"),
        ("a,c", "has no column 'c'; choose among a, b"),
        ("A", "has no column 'A'; choose among a, b"),
    ],
)
@pytest.mark.parametrize("name", ["w.csv", "w.parquet"])
def test_an_unknown_column(tmp_path: Path, name: str, key: str, says: str) -> None:
    path = tmp_path / name
    if name.endswith("csv"):
        text(path, "a,b\n1,2\n")
    else:
        parquet(path, {"a": [1], "b": [2]})
    with pytest.raises(UnknownColumn, match=says):
        open_keys(path, key)


def test_text_has_one_column(tmp_path: Path) -> None:
    with pytest.raises(UnknownColumn, match="no column 'user'; choose among line"):
        open_keys(text(tmp_path / "w.txt", "a"), "user")


def test_the_key_must_be_chosen_among_several_columns(tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="2 columns; choose the key among a, b"):
        open_keys(text(tmp_path / "w.csv", "a,b\n1,2\n"))


def test_columns_that_are_named_twice(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="more than one column 'a'"):
        open_keys(text(tmp_path / "w.csv", "a,a\n1,2\n"), "a")
    with pytest.raises(BadParameter, match="names column 'a' twice"):
        open_keys(text(tmp_path / "v.csv", "a,b\n1,2\n"), "a,a")
    with pytest.raises(BadParameter, match="key names no column"):
        open_keys(text(tmp_path / "v.csv", "a,b\n1,2\n"), [])


def test_a_type_that_cannot_be_hashed_is_refused_before_reading(tmp_path: Path) -> None:
    maps = pa.array([[("x", 1)]], pa.map_(pa.string(), pa.int64()))
    path = parquet(tmp_path / "w.parquet", {"m": maps})
    with pytest.raises(UnhashableKey, match=r"column 'm' of .*map<string, int64"):
        open_keys(path)


def test_a_value_that_cannot_be_hashed_is_bad_input(tmp_path: Path) -> None:
    path = parquet(tmp_path / "w.parquet", {"t": pa.array([2**62], pa.timestamp("ms"))})
    with pytest.raises(BadInput, match="cannot be hashed: 4611686018427387904 ms"):
        read(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("w.txt", b""),
        ("w.txt.gz", gzip.compress(b"")),
        ("w.csv", b""),
        ("w.csv", b"a\n"),
        ("w.csv.gz", gzip.compress(b"")),
        ("w.csv.gz", gzip.compress(b"a\n")),
        ("w.parquet", b""),
    ],
)
def test_an_empty_input(tmp_path: Path, name: str, content: bytes) -> None:
    with pytest.raises(BadInput, match=r"is empty|has no rows|Empty CSV"):
        read(text(tmp_path / name, content))


def test_parquet_without_rows(tmp_path: Path) -> None:
    path = parquet(tmp_path / "w.parquet", {"a": pa.array([], pa.int64())})
    with pytest.raises(BadInput, match="has no rows"):
        read(path)


def test_truncated_parquet(tmp_path: Path) -> None:
    whole = parquet(tmp_path / "w.parquet", {"a": list(range(1000))}).read_bytes()
    for length in (2, 100, len(whole) // 2, len(whole) - 1):
        path = text(tmp_path / "cut.parquet", whole[:length])
        with pytest.raises(
            BadInput, match=r"^cannot read .*cut\.parquet; it is damaged, cut short"
        ):
            read(path)


def test_parquet_damaged_in_the_middle(tmp_path: Path) -> None:
    whole = parquet(tmp_path / "w.parquet", {"a": list(range(1000))}).read_bytes()
    path = text(tmp_path / "bad.parquet", whole[:4] + b"\xff" * 200 + whole[204:])
    with pytest.raises(BadInput, match=r"^cannot read .*bad\.parquet"):
        read(path)


@pytest.mark.parametrize("name", ["w.txt.gz", "w.csv.gz"])
def test_truncated_and_false_gzip(tmp_path: Path, name: str) -> None:
    lines = "\n".join(["a", *map(str, range(100_000))]).encode()
    whole = gzip.compress(lines)
    for content in (whole[:-20], whole[: len(whole) // 2], lines):
        with pytest.raises(BadInput, match=r"^cannot read .*gz; it is damaged"):
            read(text(tmp_path / name, content))


@pytest.mark.parametrize(
    "rows", ["1,2\n3\n", "1,2\n3,4,5\n", '1,2\n"open,3\n'], ids=["short", "long", "open quote"]
)
def test_malformed_csv(tmp_path: Path, rows: str) -> None:
    with pytest.raises(BadInput, match=r"^cannot read .*w\.csv; .*Expected 2 columns, got"):
        read(text(tmp_path / "w.csv", "a,b\n" + rows), "a")


def test_csv_that_is_malformed_late(tmp_path: Path, small_blocks: None) -> None:
    path = text(tmp_path / "w.csv", "a,b\n" + "1,2\n" * 500 + "3\n")
    batches = open_keys(path, "a").batches(size=100)
    assert next(batches).size == 100
    with pytest.raises(BadInput, match="Expected 2 columns, got 1"):
        list(batches)


def test_text_that_is_not_utf_8(tmp_path: Path, small_blocks: None) -> None:
    path = text(tmp_path / "w.txt", b"fine\n" * 40 + b"Z\xfcrich\n")
    with pytest.raises(BadInput, match=r"line 41 of .*w\.txt is not UTF-8"):
        read(path)


@pytest.mark.parametrize("content", [b"a,b\n\xfc,2\n", b"\xfc,a\n1,2\n"], ids=["value", "header"])
def test_csv_that_is_not_utf_8(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(BadInput, match=r"(?i)^cannot read .*utf"):
        read(text(tmp_path / "w.csv", content), "a")


def test_a_batch_holds_at_least_one_tuple(tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="size must be from 1"):
        open_keys(text(tmp_path / "w.txt", "a")).batches(size=0)


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), max_size=20), st.integers(1, 12))
def test_cutting_keeps_the_stream(lengths: list[int], size: int) -> None:
    stream = np.arange(sum(lengths), dtype=np.uint64)
    pieces = np.split(stream, np.cumsum(lengths))
    cut = list(files._cut(pieces, size))
    assert [piece.size for piece in cut[:-1]] == [size] * (len(cut) - 1)
    assert np.concatenate([*cut, stream[:0]]).tolist() == stream.tolist()
