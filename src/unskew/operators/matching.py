"""Which rows have the same key: by the hash where that is enough, by the key itself where not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.aggregates.numbering import number_rows
from unskew.kernel import kernel
from unskew.state.runs import Hashes

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def match(
    hashes: Hashes, times: NDArray[np.int64] | None, keys: Sequence[pa.Array]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of each row's key, and the first row of each number, in order of first use.

    Exact: hashes only guess which keys are equal, and every guess is checked.

    Parameters
    ----------
    hashes : array of uint64
        Of the keys, windows not among them.
    times : array of int64, optional
        The ends of windows, where there are any.
    keys : sequence of pyarrow.Array
        The keys, windows included.
    """
    guess = hashes if times is None else hashes + times.view(np.uint64) * _GOLDEN
    numbers = np.empty(guess.size, dtype=np.int64)
    table = np.full(1 << (2 * guess.size).bit_length(), -1, dtype=np.int64)
    first = np.empty(guess.size, dtype=np.int64)
    first = first[: _number(np.require(guess, requirements="W"), table, numbers, first)]
    if first.size == hashes.size:
        return numbers, first
    firsts = pa.array(first[numbers])
    if all(_equal(key, key.take(firsts)) for key in keys):
        return numbers, first
    return number_rows(keys, hashes.size)


@kernel
def _number(
    hashes: NDArray[np.uint64],
    table: NDArray[np.int64],
    numbers: NDArray[np.int64],
    first: NDArray[np.int64],
) -> int:
    """Give hashes numbers by first appearance, in an open table; return how many there are."""
    mask = np.uint64(table.size - 1)
    used = 0
    for row in range(hashes.size):
        # A product in place of the low bits: keys of one shard have those in common.
        slot = (hashes[row] * _GOLDEN >> np.uint64(20)) & mask
        while table[slot] >= 0 and hashes[first[table[slot]]] != hashes[row]:
            slot = (slot + np.uint64(1)) & mask
        if table[slot] < 0:
            table[slot] = used
            first[used] = row
            used += 1
        numbers[row] = table[slot]
    return used


def _equal(left: pa.Array, right: pa.Array) -> bool:
    """Return whether all pairs are surely equal; no where that is hard to tell."""
    if pa.types.is_struct(left.type):
        fields = range(left.type.num_fields)
        same = left.is_valid().equals(right.is_valid())
        return same and all(_equal(left.field(i), right.field(i)) for i in fields)
    # NaN and the two zeros are left to the slow way.
    return bool(left.equals(right))


def alone(columns: pa.RecordBatch, of: pa.RecordBatch) -> pa.RecordBatch:
    """Return columns of a batch that do not keep all the others of it in memory.

    What came through a stream is one buffer, of which columns are slices. Where they are most of
    it they are left as they are.
    """
    if 2 * columns.nbytes >= of.nbytes:
        return columns
    return select(columns, np.arange(columns.num_rows))


def select(batch: pa.RecordBatch, rows: NDArray[np.int64]) -> pa.RecordBatch:
    """Return some rows of a batch."""
    return batch.take(pa.array(rows))
