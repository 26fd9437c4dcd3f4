"""Number the distinct rows of Arrow columns, exactly, nested types included.

Arrow's own group-by knows flat types only. Here every type is brought down to codes: equal elements
have equal codes. A flat element's code is its place in a dictionary, a struct's is made of the
codes of its fields, and a list is the bytes of its elements' codes, which is flat again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.errors import BadParameter

Codes = NDArray[np.int64]


def number_rows(columns: Sequence[pa.Array], length: int) -> tuple[Codes, Codes]:
    """Return the number of each row's combination of values, and the first row of each number.

    Numbers are dense and follow the order of first appearance. As in Spark, nulls equal each other,
    so do NaN, and -0.0 equals 0.0.

    Parameters
    ----------
    columns : sequence of pyarrow.Array
        Of equal length; none at all is one combination.
    length : int
        Number of rows.

    Examples
    --------
    >>> columns = [pa.array([[1], [], [1], None]), pa.array(["a", "b", "a", "b"])]
    >>> numbers, first = number_rows(columns, 4)
    >>> numbers.tolist(), first.tolist()
    ([0, 1, 0, 2], [0, 1, 3])
    """
    codes = _joined([_codes(column, ordered=False) for column in columns], length)
    encoded = pa.array(codes).dictionary_encode()
    numbers = encoded.indices.to_numpy().astype(np.int64)
    first = np.empty(len(encoded.dictionary), dtype=np.int64)
    # The last write wins, so that of a number's rows the first remains.
    first[numbers[::-1]] = np.arange(length - 1, -1, -1)
    return numbers, first


def ranks(column: pa.Array) -> Codes:
    """Return a number for each element, equal for equals and in the order of the values.

    Numbers may leave out some between. Nulls come first and NaN last; a list that begins another
    one comes before it.

    Examples
    --------
    >>> ranks(pa.array([[2], [1, 9], [1], None, [2]])).tolist()
    [4, 3, 2, 0, 4]
    """
    return _codes(column, ordered=True)


def _codes(column: pa.Array, *, ordered: bool) -> Codes:
    """Return codes of one column, 0 where it is null."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _codes(column.storage, ordered=ordered)
    if pa.types.is_dictionary(kind):
        return _codes(column.dictionary_decode(), ordered=ordered)
    if pa.types.is_map(kind):
        raise BadParameter(
            f"values of type {kind} cannot be compared: equal maps may hold their entries in "
            f"different order; use a sorted array of the entries"
        )
    if pa.types.is_struct(kind):
        fields = [_codes(column.field(i), ordered=ordered) for i in range(kind.num_fields)]
        return _without_nulls(column, _dense(_joined(fields, len(column)), ordered=ordered) + 1)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _list_codes(column, ordered=ordered)
    return _flat_codes(one_zero(column), ordered=ordered)


def _flat_codes(column: pa.Array, *, ordered: bool) -> Codes:
    if pa.types.is_null(column.type):
        return np.zeros(len(column), dtype=np.int64)
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    elif pa.types.is_binary_view(column.type):
        column = column.cast(pa.large_binary())
    encoded = column.dictionary_encode()
    indices: Codes = pc.fill_null(encoded.indices, -1).to_numpy().astype(np.int64)
    if ordered:
        order = pc.sort_indices(encoded.dictionary).to_numpy().astype(np.int64)
        places = np.empty(order.size + 1, dtype=np.int64)
        places[order] = np.arange(order.size)
        places[-1] = -1
        indices = places[indices]
    return indices + 1


def _list_codes(column: pa.Array, *, ordered: bool) -> Codes:
    """Return codes of lists: those of the bytes that their elements' codes make."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    elements = _codes(column.flatten(), ordered=ordered)
    # Most significant byte first, so that the order of the bytes is that of the elements.
    data = elements.astype(">i8").tobytes()
    offsets = np.concatenate(([0], np.cumsum(lengths * 8)))
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data)]
    bytes_of = pa.Array.from_buffers(pa.large_binary(), len(column), buffers)
    return _without_nulls(column, _flat_codes(bytes_of, ordered=ordered))


def _joined(parts: Sequence[Codes], length: int) -> Codes:
    """Return one code for each row out of several, in the order of the first, the second, ..."""
    joined = np.zeros(length, dtype=np.int64)
    for part in parts:
        # Dense codes are below the number of rows, so that the product has room.
        most = int(part.max(initial=0)) + 1
        if int(joined.max(initial=0)) >= 2**62 // most:
            joined = _dense(joined, ordered=True)
        joined = joined * most + part
    return joined


def _dense(codes: Codes, *, ordered: bool) -> Codes:
    return _flat_codes(pa.array(codes), ordered=ordered) - 1


def _without_nulls(column: pa.Array, codes: Codes) -> Codes:
    if column.null_count:
        codes[~column.is_valid().to_numpy(zero_copy_only=False)] = 0
    return codes


def one_zero(column: pa.Array) -> pa.Array:
    """Return floats with one zero and one NaN, and other columns as they are.

    Examples
    --------
    >>> one_zero(pa.array([-0.0, None])).to_pylist()
    [0.0, None]
    """
    if not pa.types.is_floating(column.type):
        return column
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    values = column.to_numpy(zero_copy_only=False)
    canonical = np.where(np.isnan(values), values.dtype.type(np.nan), values + 0)
    missing = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(canonical, column.type, mask=missing, from_pandas=False)
