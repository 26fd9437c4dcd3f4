"""Keys hash as in Spark: against golden vectors of real Spark and an oracle in plain Python."""

from __future__ import annotations

import datetime as dt
import json
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import xxhash
from golden.make_spark_hashes import GOLDEN, arrow_table, parquet_table, python_columns
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.errors import BadParameter, UnhashableKey
from unskew.keys import SLICE_ROWS, hash_keys

SPARK_HASHES: dict[str, list[str]] = json.loads(GOLDEN.read_text())["hashes"]


def golden_columns() -> dict[str, Any]:
    """Return every column of the golden file by name."""
    tables = [arrow_table(), parquet_table()]
    typed = {name: table[name] for table in tables for name in table.column_names}
    return {**typed, **python_columns()}


@pytest.mark.parametrize("names", SPARK_HASHES)
def test_equals_what_spark_returned(names: str) -> None:
    columns = golden_columns()
    hashes = hash_keys(*(columns[name] for name in names.split(", ")))
    assert [str(h) for h in hashes] == SPARK_HASHES[names]


def test_golden_file_covers_every_column() -> None:
    assert golden_columns().keys() <= SPARK_HASHES.keys()


def test_type_and_order_of_columns_are_part_of_the_key() -> None:
    assert hash_keys(pa.array([1], pa.int32())) != hash_keys(pa.array([1], pa.int64()))
    assert hash_keys(["a"], ["b"]) != hash_keys(["b"], ["a"])


def oracle(value: Any, kind: pa.DataType, seed: int) -> int:
    """Hash one value as Spark's sources describe it."""
    if value is None:
        return seed
    if pa.types.is_struct(kind):
        for field in kind.fields:
            seed = oracle(value[field.name], field.type, seed)
        return seed
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        for item in value:
            seed = oracle(item, kind.value_type, seed)
        return seed
    return xxhash.xxh64_intdigest(encoded(value, kind), seed)


def encoded(value: Any, kind: pa.DataType) -> bytes:
    """Return the bytes that Spark hashes of a flat value."""
    if pa.types.is_string(kind):
        return bytes(value.encode())
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return bytes(value)
    if pa.types.is_float64(kind):
        return struct.pack("<d", value + 0.0) if value == value else b"\0" * 6 + b"\xf8\x7f"
    if pa.types.is_float32(kind):
        return struct.pack("<f", value + 0.0) if value == value else b"\0\0\xc0\x7f"
    if pa.types.is_timestamp(kind):
        return struct.pack("<q", (value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1))
    if pa.types.is_decimal(kind):
        unscaled = int(value.scaleb(kind.scale))
        if kind.precision <= 18:
            return struct.pack("<q", unscaled)
        magnitude = unscaled if unscaled >= 0 else ~unscaled
        return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)
    if pa.types.is_int64(kind):
        return struct.pack("<q", value)
    return struct.pack("<i", value)


FLAT: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): st.text(max_size=100),
    pa.binary(): st.binary(max_size=100),
    pa.binary(7): st.binary(min_size=7, max_size=7),
    pa.timestamp("us"): st.datetimes(),
    pa.decimal128(18, 3): st.integers(1 - 10**18, 10**18 - 1).map(lambda i: Decimal(i).scaleb(-3)),
    pa.decimal128(21, 0): st.integers(1 - 10**21, 10**21 - 1).map(Decimal),
}


def nested(kinds: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        kinds.map(pa.list_),
        kinds.map(lambda kind: pa.list_(kind, 2)),
        st.lists(kinds, min_size=1, max_size=3).map(
            lambda kinds: pa.struct([(f"f{i}", kind) for i, kind in enumerate(kinds)])
        ),
    )


FLAT_KINDS = st.sampled_from(list(FLAT))
KINDS = st.recursive(FLAT_KINDS, nested, max_leaves=4)


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if kind in FLAT:
        return st.none() | FLAT[kind]
    if pa.types.is_struct(kind):
        fields = {field.name: values_of(field.type) for field in kind.fields}
        return st.none() | st.fixed_dictionaries(fields)
    size = kind.list_size if pa.types.is_fixed_size_list(kind) else None
    items = st.lists(values_of(kind.value_type), min_size=size or 0, max_size=size or 4)
    return st.none() | items


@st.composite
def columns(
    draw: st.DrawFn, kinds: st.SearchStrategy[pa.DataType]
) -> tuple[list[Any], pa.ChunkedArray]:
    """Draw a column as plain values and as slices of larger chunks."""
    kind = draw(kinds)
    values = draw(st.lists(values_of(kind), max_size=20))
    array = pa.array(values, kind)
    chunks, kept = [], []
    cuts = sorted(draw(st.lists(st.integers(0, len(values)), max_size=4)))
    for start, stop in zip([0, *cuts], [*cuts, len(values)], strict=True):
        skip = draw(st.integers(0, 1)) if stop > start else 0
        chunks.append(array.slice(start + skip, stop - start - skip))
        kept += values[start + skip : stop]
    return kept, pa.chunked_array(chunks, kind)


@settings(deadline=None, max_examples=200)
@given(columns(FLAT_KINDS))
def test_flat_columns_agree_with_the_oracle(column: tuple[list[Any], pa.ChunkedArray]) -> None:
    values, array = column
    assert hash_keys(array).tolist() == [oracle(value, array.type, 42) for value in values]


@settings(deadline=None, max_examples=150)
@given(columns(KINDS))
def test_nested_columns_agree_with_the_oracle(column: tuple[list[Any], pa.ChunkedArray]) -> None:
    values, array = column
    assert hash_keys(array).tolist() == [oracle(value, array.type, 42) for value in values]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(-9, 9) | st.none(), st.text() | st.none()), min_size=1))
def test_columns_fold_from_left_to_right(rows: list[tuple[int | None, str | None]]) -> None:
    numbers, texts = zip(*rows, strict=True)
    hashes = hash_keys(pa.array(numbers, pa.int64()), pa.array(texts, pa.string()))
    expected = [oracle(t, pa.string(), oracle(n, pa.int64(), 42)) for n, t in rows]
    assert hashes.tolist() == expected


@pytest.mark.parametrize("letter", ["x", "é", "東", "🙂"])
def test_every_length_of_text(letter: str) -> None:
    texts = [letter * n for n in range(101)]
    expected = [xxhash.xxh64_intdigest(text.encode(), 42) for text in texts]
    assert hash_keys(texts).tolist() == expected


def test_columns_longer_than_one_slice() -> None:
    values = np.arange(2 * SLICE_ROWS + 3)
    texts = pa.array(values).cast(pa.string())
    expected = [xxhash.xxh64_intdigest(struct.pack("<q", v), 42) for v in values]
    assert hash_keys(values).tolist() == expected
    both = hash_keys(values, pa.chunked_array([texts.slice(0, 100_000), texts.slice(100_000)]))
    for i in [0, SLICE_ROWS - 1, SLICE_ROWS, 99_999, 100_000, values.size - 1]:
        assert both[i] == xxhash.xxh64_intdigest(str(i).encode(), expected[i])


WORDS = ["", "short", None, "a string that is longer than thirty-two bytes", "short"]
LISTS = [[1, 2], None, [], [None, 3], [4]]


@pytest.mark.parametrize(
    ("same", "plain"),
    [
        pytest.param(pa.array(WORDS, pa.string_view()), pa.array(WORDS), id="string view"),
        pytest.param(pa.array(WORDS, pa.large_string()), pa.array(WORDS), id="large string"),
        pytest.param(pa.array(WORDS).cast(pa.binary()), pa.array(WORDS), id="binary"),
        pytest.param(
            pa.array(WORDS).cast(pa.binary()).cast(pa.binary_view()), pa.array(WORDS), id="view"
        ),
        pytest.param(pa.array(WORDS).dictionary_encode(), pa.array(WORDS), id="dictionary"),
        pytest.param(pc.run_end_encode(pa.array(WORDS)), pa.array(WORDS), id="run ends"),
        pytest.param(pa.array(LISTS, pa.list_view(pa.int64())), pa.array(LISTS), id="list view"),
        pytest.param(
            pa.array(LISTS, pa.large_list_view(pa.int64())), pa.array(LISTS), id="large list view"
        ),
        pytest.param(
            pa.array([0.5, None, -0.0], pa.float16()),
            pa.array([0.5, None, 0.0], pa.float32()),
            id="half float",
        ),
        pytest.param(
            pa.array([b"0123456789abcdef", None], pa.uuid()),
            pa.array([b"0123456789abcdef", None]),
            id="extension type",
        ),
        pytest.param(
            pa.array([1, None, 86_399], pa.time32("s")),
            pa.array([10**9, None, 86_399 * 10**9]),
            id="time in seconds",
        ),
        pytest.param(np.array(["a", "bc"]), ["a", "bc"], id="numpy text"),
        pytest.param(np.array(["a", None], dtype=object), ["a", None], id="numpy objects"),
        pytest.param(np.array([1, 2], dtype=">i8"), [1, 2], id="numpy byte order"),
        pytest.param(np.arange(6)[::2], [0, 2, 4], id="numpy stride"),
        pytest.param(
            np.array(["1970-01-02"], dtype="datetime64[D]"), [dt.date(1970, 1, 2)], id="numpy day"
        ),
        pytest.param((1, 2), [1, 2], id="tuple"),
        pytest.param(pa.array([], pa.string()), [], id="empty"),
    ],
)
def test_other_representations_hash_alike(same: Any, plain: Any) -> None:
    assert hash_keys(same).tolist() == hash_keys(plain).tolist()
    assert hash_keys(same[1:]).tolist() == hash_keys(plain[1:]).tolist()


def test_what_lies_under_nulls_does_not_count() -> None:
    hidden = pa.Array.from_buffers(
        pa.timestamp("s"), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(struct.pack("<qq", 5, 2**62))]
    )
    assert hash_keys(hidden).tolist() == hash_keys([5_000_000, None]).tolist()
    lists = pa.ListArray.from_arrays([0, 1, 3], [1, 2, 3], mask=pa.array([False, True]))
    assert hash_keys(lists).tolist() == hash_keys([[1], None]).tolist()
    fields = pa.StructArray.from_arrays(
        [pa.array([1, 2]), pa.array(["a", "b"])], ["a", "b"], mask=pa.array([False, True])
    )
    assert hash_keys(fields).tolist() == [hash_keys([1], ["a"])[0], 42]


def test_the_hash_of_a_decimal_does_not_depend_on_its_neighbours() -> None:
    alone = hash_keys([Decimal("1.5")])
    assert hash_keys([Decimal("1.5"), Decimal("123456789012.123456")])[0] == alone[0]


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(pa.string(), pa.int32()),
        pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.int32()))])),
        pa.dense_union([pa.field("a", pa.int32())]),
        pa.month_day_nano_interval(),
        pa.decimal256(50, 2),
    ],
    ids=str,
)
def test_a_type_that_spark_cannot_hash_is_named(kind: pa.DataType) -> None:
    with pytest.raises(UnhashableKey, match="cannot be hashed") as error:
        hash_keys(pa.chunked_array([], kind))
    assert "cast it" in str(error.value) or "sorted list" in str(error.value)


@pytest.mark.parametrize(
    "column",
    [[1, "a"], [object()], [2**70], 5, np.zeros((2, 2)), np.array([1j])],
    ids=["mixed", "objects", "too large", "no sequence", "two dimensions", "complex"],
)
def test_a_column_that_arrow_cannot_hold_is_refused(column: Any) -> None:
    with pytest.raises(UnhashableKey, match="give it as a pyarrow array"):
        hash_keys(column)


@pytest.mark.parametrize(
    ("given_columns", "message"),
    [
        ((), "at least one column"),
        (([1], [1, 2]), "have 1, 2 rows"),
        (("spark",), "wrap it in a list"),
        ((b"spark",), "wrap it in a list"),
        ((pa.table({"a": [1]}),), r"\*table.columns"),
        ((pa.array([2**62], pa.timestamp("s")),), "4611686018427387904 s"),
    ],
)
def test_bad_columns_are_explained(given_columns: tuple[Any, ...], message: str) -> None:
    with pytest.raises(BadParameter, match=message):
        hash_keys(*given_columns)
