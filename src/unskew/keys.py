"""Hash keys once, at the edge, exactly as Spark's ``xxhash64`` does.

Every column is cut into slices of bounded size, brought to one of three forms that Spark hashes
(32-bit integers, 64-bit integers, bytes) and folded into the running hashes by a kernel. Each
element has an *owner*, the row whose hash it goes into, or -1 where it is null: that one array
serves nulls, slices and lists alike.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.errors import BadParameter, UnhashableKey
from unskew.xxhash64 import (
    fold_big_integers,
    fold_bytes,
    fold_ints,
    fold_longs,
    ranks_of_owners,
    without_nulls,
)

SEED = np.uint64(42)
"""The seed of Spark's ``xxhash64``, and so the hash of a row of nulls."""

SLICE_ROWS = 1 << 16
"""Rows converted at a time, so that no temporary grows with the column."""


def hash_keys(*columns: Any) -> NDArray[np.uint64]:
    """Hash the rows of one or several key columns as Spark's ``xxhash64`` would.

    The result is what ``SELECT xxhash64(a, b)`` returns, bit for bit, viewed as unsigned: a key
    has the same hash in the library and in Spark. Columns are folded from left to right, each
    row's hash being the seed of its next column; a null leaves it unchanged. No row is touched in
    Python and memory beyond the result does not grow with the columns, except that Python
    sequences are first converted to Arrow.

    Parameters
    ----------
    *columns : pyarrow array or chunked array, numpy array, or sequence
        Equally long columns, at least one. Python sequences take the types that Spark's
        ``createDataFrame`` gives them: ``int`` is a bigint, ``float`` a double, ``Decimal`` a
        ``decimal(38,18)``.

    Returns
    -------
    array of uint64
        One hash per row.

    Raises
    ------
    UnhashableKey
        For a type that Spark cannot hash, such as a map, alone or nested in another.
    BadParameter
        For no column, columns of different length, or timestamps beyond Spark's range.

    Notes
    -----
    A type that Spark does not have is hashed as the one its Parquet reader makes of it, or the
    next wider one: uint8, uint16 and uint32 as the next wider signed integer, uint64 as
    ``decimal(20,0)``, float16 as float, date64 as date. Nanoseconds of timestamps and durations
    are rounded down to Spark's microseconds. A timestamp without a zone is hashed as it stands:
    as ``timestamp_ntz``, or as ``timestamp`` where the session's zone is UTC.

    The type is part of the key: 1 as an int, as a bigint and as a ``decimal(20,0)`` has three
    hashes. But -0.0 equals 0.0, all NaN are one, and nulls and empty lists add nothing:
    ``[1, null]``, ``[1]`` and 1 have the same hash. Collations do not count.

    Examples
    --------
    >>> import unskew.keys
    >>> unskew.keys.hash_keys(["spark", None]).tolist()
    [16485812939041303506, 42]
    >>> unskew.keys.hash_keys([1, 2], ["a", "b"]).size
    2
    """
    if not columns:
        raise BadParameter("hash_keys takes at least one column of keys, none was given")
    converted = [_as_arrow(column) for column in columns]
    lengths = [len(column) for column in converted]
    if len(set(lengths)) > 1:
        raise BadParameter(
            f"the key columns have {', '.join(map(str, lengths))} rows; "
            f"give columns of equal length"
        )
    hashes = np.full(lengths[0], SEED, dtype=np.uint64)
    rows = np.arange(min(lengths[0], SLICE_ROWS), dtype=np.int64)
    for column in converted:
        _check(column.type)
        done = 0
        for chunk in column.chunks:
            for start in range(0, len(chunk), SLICE_ROWS):
                part = chunk.slice(start, SLICE_ROWS)
                _fold(part, rows[: len(part)], hashes[done : done + len(part)])
                done += len(part)
    return hashes


def _as_arrow(column: Any) -> pa.ChunkedArray:
    """Return any column as a chunked array, with the types that Spark would infer."""
    if isinstance(column, pa.ChunkedArray):
        return column
    if isinstance(column, str | bytes | bytearray | memoryview):
        raise BadParameter(
            f"a key column is a sequence of keys, not the single {type(column).__name__} "
            f"{column!r:.60}; wrap it in a list"
        )
    if isinstance(column, pa.Table | pa.RecordBatch):
        raise BadParameter(
            f"a key column is an array, not a {type(column).__name__}; "
            f"pass its columns: hash_keys(*table.columns)"
        )
    try:
        array = column if isinstance(column, pa.Array) else _infer(column)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise UnhashableKey(
            f"a key column of type {type(column).__name__} cannot be converted to Arrow "
            f"({error}); give it as a pyarrow array of one type"
        ) from error
    return pa.chunked_array([array])


def _infer(column: Any) -> pa.Array:
    """Convert a numpy array by its dtype, and anything else as Spark's ``createDataFrame``."""
    if isinstance(column, np.ndarray):
        if column.ndim != 1:
            raise ValueError(f"it has {column.ndim} dimensions")
        if column.dtype != object:
            return pa.array(column.astype(column.dtype.newbyteorder("="), copy=False))
    inferred = pa.array(column)
    # A decimal's precision would otherwise follow from the data, and its hash from the precision.
    settled = _settle_decimals(inferred.type)
    return inferred if settled == inferred.type else pa.array(column, type=settled)


def _settle_decimals(kind: pa.DataType) -> pa.DataType:
    """Replace each decimal within a type by the one that Spark gives to Python's ``Decimal``."""
    if pa.types.is_decimal(kind):
        return pa.decimal128(38, 18)
    if pa.types.is_list(kind):
        return pa.list_(_settle_decimals(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _settle_decimals(field.type)) for field in kind.fields])
    return kind


def _check(kind: pa.DataType) -> None:
    """Raise `UnhashableKey` unless `_fold` knows the type and all that is nested in it."""
    is_ = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        _check(kind.storage_type)
    elif is_.is_struct(kind):
        for field in kind.fields:
            _check(field.type)
    elif _is_any_list(kind) or is_.is_dictionary(kind) or is_.is_run_end_encoded(kind):
        _check(kind.value_type)
    elif is_.is_map(kind):
        raise UnhashableKey(
            f"a key of type {kind} cannot be hashed, in Spark neither: equal maps may hold their "
            f"entries in different order; use a sorted list of its entries"
        )
    elif is_.is_decimal(kind) and kind.precision > 38:
        raise UnhashableKey(
            f"a key of type {kind} cannot be hashed: Spark's decimals have at most 38 digits; "
            f"cast it to a decimal of at most 38, or to a string"
        )
    elif not (
        is_.is_null(kind)
        or is_.is_boolean(kind)
        or is_.is_integer(kind)
        or is_.is_floating(kind)
        or is_.is_decimal(kind)
        or is_.is_date(kind)
        or is_.is_time(kind)
        or is_.is_timestamp(kind)
        or is_.is_duration(kind)
        or _is_bytes(kind)
    ):
        raise UnhashableKey(
            f"a key of type {kind} cannot be hashed: Spark has no such type; "
            f"cast it to a string, a number or a struct of them"
        )


def _is_any_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _fold(array: pa.Array, owners: NDArray[np.int64], hashes: NDArray[np.uint64]) -> None:
    """Fold each element, in order, into the hash of its owner."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        _fold(array.storage, owners, hashes)
        return
    if pa.types.is_dictionary(kind):
        _fold(array.dictionary_decode(), owners, hashes)
        return
    if pa.types.is_run_end_encoded(kind):
        _fold(pc.run_end_decode(array), owners, hashes)
        return
    if array.null_count == len(array):
        return
    if array.null_count:
        bitmap = np.frombuffer(array.buffers()[0], dtype=np.uint8)
        owners = without_nulls(bitmap, array.offset, owners)
    if pa.types.is_struct(kind):
        _fold_struct(array, owners, hashes)
    elif _is_any_list(kind):
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
        # flatten() leaves out what lies under null lists, and heeds slices and list views.
        _fold(array.flatten(), np.repeat(owners, lengths), hashes)
    elif _is_bytes(kind):
        offsets, data = _bytes_of(array)
        fold_bytes(offsets, data, owners, hashes)
    elif pa.types.is_decimal(kind) or pa.types.is_uint64(kind):
        _fold_decimal(array, owners, hashes)
    else:
        numbers = _numbers_of(array)
        if numbers.dtype.itemsize == 4:
            fold_ints(numbers.view(np.uint32), owners, hashes)
        else:
            fold_longs(numbers.view(np.uint64), owners, hashes)


def _fold_struct(
    array: pa.StructArray, owners: NDArray[np.int64], hashes: NDArray[np.uint64]
) -> None:
    """Fold all fields of a struct before the next struct of the same owner."""
    fields = [array.field(i) for i in range(array.type.num_fields)]
    ranks = ranks_of_owners(owners, hashes.size)
    most = int(ranks.max())
    if most <= 0 or len(fields) == 1:
        for field in fields:
            _fold(field, owners, hashes)
        return
    # In a list, one pass for the first struct of every owner, one for the second, and so on.
    order = np.argsort(ranks, kind="stable")
    bounds = np.searchsorted(ranks[order], np.arange(most + 2))
    for start, stop in pairwise(bounds):
        picked = order[start:stop]
        for field in fields:
            _fold(field.take(pa.array(picked)), owners[picked], hashes)


def _numbers_of(array: pa.Array) -> NDArray[np.generic]:
    """Return what Spark hashes of a flat type as 4 or 8 byte numbers; nulls hold anything."""
    kind = array.type
    if pa.types.is_floating(kind):
        return _canonical_floats(array)
    if pa.types.is_date(kind):
        array = array.cast(pa.date32()).view(pa.int32())
    elif pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return _ticks(array, per="us")
    elif pa.types.is_time(kind):
        return _ticks(array, per="ns")
    elif pa.types.is_uint32(kind):
        array = array.cast(pa.int64())
    elif kind.bit_width < 32:
        array = array.cast(pa.int32())
    dtype = np.int32 if array.type.bit_width == 32 else np.int64
    values: NDArray[np.generic] = np.frombuffer(array.buffers()[1], dtype=dtype)
    return values[array.offset : array.offset + len(array)]


def _canonical_floats(array: pa.Array) -> NDArray[np.generic]:
    """Return floats with one zero and one NaN, as Java's ``doubleToLongBits`` sees them."""
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    dtype = np.float32 if array.type.bit_width == 32 else np.float64
    values: NDArray[np.floating[Any]] = np.frombuffer(array.buffers()[1], dtype=dtype)
    with np.errstate(invalid="ignore"):
        canonical = values[array.offset : array.offset + len(array)] + dtype(0)
    canonical[np.isnan(canonical)] = np.nan
    return canonical


_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def _ticks(array: pa.Array, *, per: str) -> NDArray[np.generic]:
    """Return times as counts of one unit, rounded down."""
    kind = array.type
    width = np.int32 if kind.bit_width == 32 else np.int64
    raw = np.frombuffer(array.buffers()[1], dtype=width)[array.offset : array.offset + len(array)]
    unit, wanted = _NANOSECONDS[kind.unit], _NANOSECONDS[per]
    if unit < wanted:
        return raw // (wanted // unit)
    factor = unit // wanted
    if factor == 1:
        return raw
    ticks = raw.astype(np.int64)
    limit = (2**63 - 1) // factor
    outside = (ticks > limit) | (ticks < -limit)
    if array.null_count:
        outside &= array.is_valid().to_numpy(zero_copy_only=False)
    if outside.any():
        raise BadParameter(
            f"{ticks[outside][0]} {kind.unit} of a key column of type {kind} is beyond the 64-bit "
            f"microseconds that Spark counts time in; filter it or correct its unit"
        )
    with np.errstate(over="ignore"):
        return ticks * factor


def _bytes_of(array: pa.Array) -> tuple[NDArray[np.signedinteger[Any]], NDArray[np.uint8]]:
    """Return the offsets and the data of strings or bytes."""
    kind = array.type
    if pa.types.is_fixed_size_binary(kind):
        width = kind.byte_width
        positions = np.arange(array.offset, array.offset + len(array) + 1, dtype=np.int64)
        return positions * width, _buffer(array.buffers()[1])
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
        kind = array.type
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    _, offsets, data = array.buffers()
    positions = np.frombuffer(offsets, dtype=np.int64 if large else np.int32)
    return positions[array.offset : array.offset + len(array) + 1], _buffer(data)


def _buffer(buffer: pa.Buffer | None) -> NDArray[np.uint8]:
    return np.frombuffer(b"" if buffer is None else buffer, dtype=np.uint8)


def _fold_decimal(array: pa.Array, owners: NDArray[np.int64], hashes: NDArray[np.uint64]) -> None:
    """Fold the unscaled value: a long up to 18 digits, above them Java's ``BigInteger`` bytes."""
    if pa.types.is_uint64(array.type):
        array = array.cast(pa.decimal128(20, 0))
    elif not pa.types.is_decimal128(array.type):
        array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    words = np.frombuffer(array.buffers()[1], dtype=np.uint64).reshape(-1, 2)
    words = words[array.offset : array.offset + len(array)]
    if array.type.precision <= 18:
        fold_longs(np.ascontiguousarray(words[:, 0]), owners, hashes)
    else:
        fold_big_integers(words, owners, hashes)
