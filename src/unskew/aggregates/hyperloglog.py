"""The number of distinct values, by HyperLogLog with an almost exact form for small groups."""

from __future__ import annotations

from math import ceil, log, log2

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.aggregates.base import Aggregate, Groups
from unskew.aggregates.entries import Integers, as_lists, owners, without_nulls
from unskew.errors import BadParameter
from unskew.kernel import compiled, kernel
from unskew.keys import hash_keys
from unskew.parameters import number as checked_number

_FINE = 25
"""Bits of the hash that choose an entry while a group is small."""

_RANK_BITS = 6
_ENTRY_BITS = _FINE + _RANK_BITS
_RANK = (1 << _RANK_BITS) - 1


class Distinct(Aggregate):
    """The number of distinct values, or of distinct rows of several columns.

    Guarantee: the standard error is `error` at most, so 68 % of results are within it and 99.7 %
    within three times of it, and there is no bias worth naming at any number. Up to a quarter as
    many values as registers the result is exact but for collisions of 25 bits: 1,000 values are off
    by one in one of 70 groups. The state depends on the set of values alone and merging is exact,
    so the result does not depend on how the rows were parted. Rows with a null do not count; NaN is
    one value, and so are 0.0 and -0.0. Nested values are told apart as `unskew.hash_keys` does,
    which passes over nulls within lists.

    Memory: 4 bytes for each value of a small group, later one byte for each register, whose number
    is the power of two that the error needs: 4,096 for 0.02.

    Cost: one hash a row and one sort of the rows of each call.

    Parameters
    ----------
    error : float, default 0.02
        The promised standard error, at least 0.0021 and below 0.27. Registers grow with the square
        of its inverse.

    References
    ----------
    Flajolet, Fusy, Gandouet, Meunier: HyperLogLog, AOFA 2007. Heule, Nunkesser, Hall: HyperLogLog
    in practice, EDBT 2013, for the sparse form. Ertl: New cardinality estimation algorithms for
    HyperLogLog sketches, arXiv 1702.01284, Algorithm 6, for the estimate.

    Examples
    --------
    >>> count = distinct()
    >>> values = pa.array(["a", "b", "a", None])
    >>> states = count.update(count.zero(1), np.zeros(4, dtype=np.int64), values)
    >>> count.finish(states).to_pylist()
    [2]
    """

    state_type = pa.struct([("sparse", pa.list_(pa.int32())), ("dense", pa.binary())])
    result_type = pa.int64()

    def __init__(self, error: float = 0.02) -> None:
        self.error = checked_number("error", error, least=0.0021, below=0.27)
        self._bits = max(4, ceil(2 * log2(1.04 / self.error)))
        self.registers = 1 << self._bits

    def for_types(self, *types: pa.DataType) -> Distinct:
        """Return itself for columns that can be hashed."""
        if not types:
            raise BadParameter(f"{self!r} takes one column or more, none was given")
        hash_keys(*(pa.array([], kind) for kind in types))
        return self

    def zero(self, number: int) -> pa.Array:
        """Return empty sets."""
        return self._states(np.empty(0, np.int64), self.zero_rows(), np.empty(0, np.int64), number)

    def update(self, states: pa.Array, groups: Groups, *values: pa.Array) -> pa.Array:
        """Add the hash of each row."""
        groups, columns = without_nulls(groups, *values)
        entries = np.empty(groups.size, dtype=np.int64)
        if groups.size:
            _entries_of(hash_keys(*columns), groups, entries)
        return self._added(states, entries, self.zero_rows(), np.empty(0, np.int64))

    def merge(self, states: pa.Array, groups: Groups, others: pa.Array) -> pa.Array:
        """Take the union of the sets: the largest rank of each register."""
        lists = others.field("sparse")
        entries = (owners(lists, groups) << _ENTRY_BITS) | lists.flatten().to_numpy()
        rows, where = self._rows(others)
        return self._added(states, entries, rows, groups[where])

    def finish(self, states: pa.Array) -> pa.Array:
        """Return the estimates, rounded."""
        lists = states.field("sparse")
        used = np.bincount(owners(lists), minlength=len(states))
        estimates = -(2.0**_FINE) * np.log1p(-used / 2.0**_FINE)
        rows, where = self._rows(states)
        estimates[where] = _estimates(rows, self._bits)
        return pa.array(np.rint(estimates).astype(np.int64))

    def zero_rows(self) -> NDArray[np.uint8]:
        """Return the registers of no group."""
        return np.empty((0, self.registers), dtype=np.uint8)

    def _added(
        self, states: pa.Array, entries: Integers, rows: NDArray[np.uint8], row_groups: Groups
    ) -> pa.Array:
        """Return the states with entries of small groups and registers of large ones added."""
        lists = states.field("sparse")
        held = (owners(lists) << _ENTRY_BITS) | lists.flatten().to_numpy()
        codes = np.sort(np.concatenate((held, entries)))
        # Of one register's entries the last has the largest rank.
        last = np.append(codes[1:] >> _RANK_BITS != codes[:-1] >> _RANK_BITS, codes.size > 0)
        codes = codes[last[: codes.size]]
        held_rows, held_groups = self._rows(states)
        large = np.bincount(codes >> _ENTRY_BITS, minlength=len(states)) > self.registers // 4
        large[held_groups] = True
        large[row_groups] = True
        where = np.flatnonzero(large)
        places = np.cumsum(large) - 1
        dense = np.zeros((where.size, self.registers), dtype=np.uint8)
        dense[places[held_groups]] = held_rows
        _raise_rows(dense, places[row_groups], rows)
        is_large = large[codes >> _ENTRY_BITS]
        _raise_registers(dense, places, codes[is_large], self._bits)
        return self._states(codes[~is_large], dense, where, len(states))

    def _rows(self, states: pa.Array) -> tuple[NDArray[np.uint8], Integers]:
        """Return the registers of the large groups, one row each, and which groups they are."""
        column = states.field("dense")
        _, offsets, data = column.buffers()
        ends = np.frombuffer(offsets, dtype=np.int32)[column.offset :][: len(column) + 1]
        where = np.flatnonzero(np.diff(ends))
        if where.size == 0:
            return self.zero_rows(), where
        held = np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]]
        return held.reshape(where.size, self.registers), where

    def _states(
        self, codes: Integers, rows: NDArray[np.uint8], where: Integers, number: int
    ) -> pa.Array:
        entries = (codes & ((1 << _ENTRY_BITS) - 1)).astype(np.int32)
        (sparse,) = as_lists(codes >> _ENTRY_BITS, number, entries)
        lengths = np.zeros(number + 1, dtype=np.int64)
        lengths[where + 1] = self.registers
        offsets = np.cumsum(lengths)
        if offsets[-1] >= 2**31:
            raise BadParameter(
                f"the states of {where.size} large groups of {self!r} are more than Arrow holds in "
                f"one array; update fewer groups at a time"
            )
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(rows)]
        dense = pa.Array.from_buffers(pa.binary(), number, buffers)
        return pa.StructArray.from_arrays([sparse, dense], fields=list(self.state_type))

    def __repr__(self) -> str:
        """Return the call that made it."""
        return f"distinct(error={self.error:g})"


def distinct(error: float = 0.02) -> Distinct:
    """Return the aggregate that counts distinct values.

    Parameters
    ----------
    error : float
        As of `Distinct`, which says what is guaranteed.
    """
    return Distinct(error)


@kernel
def _leading_zeros(bits: np.uint64, width: int) -> int:
    """Return how many of the upper `width` bits, of which `bits` is made, are zeros."""
    zeros = 0
    while zeros < width and (bits >> np.uint64(63 - zeros)) & np.uint64(1) == 0:
        zeros += 1
    return zeros


@kernel
def _entries_of(hashes: NDArray[np.uint64], groups: Groups, entries: Integers) -> None:
    """Write group, upper bits of the hash, and the rank of the rest, side by side."""
    for i in range(hashes.size):
        upper = np.int64(hashes[i] >> np.uint64(64 - _FINE))
        rank = _leading_zeros(hashes[i] << np.uint64(_FINE), 64 - _FINE) + 1
        entries[i] = (groups[i] << _ENTRY_BITS) | (upper << _RANK_BITS) | rank


@kernel
def _raise_registers(rows: NDArray[np.uint8], places: Integers, codes: Integers, bits: int) -> None:
    """Add entries to the registers of their groups: as if `bits` had chosen from the first."""
    spare = _FINE - bits
    for i in range(codes.size):
        row = places[codes[i] >> _ENTRY_BITS]
        upper = (codes[i] >> _RANK_BITS) & ((1 << _FINE) - 1)
        rest = upper & ((1 << spare) - 1)
        if rest == 0:
            rank = spare + (codes[i] & _RANK)
        else:
            rank = _leading_zeros(np.uint64(rest) << np.uint64(64 - spare), spare) + 1
        register = upper >> spare
        rows[row, register] = max(rows[row, register], np.uint8(rank))


@kernel
def _raise_rows(rows: NDArray[np.uint8], places: Integers, others: NDArray[np.uint8]) -> None:
    """Take the larger of two ranks, register by register."""
    for i in range(places.size):
        row = places[i]
        for j in range(others.shape[1]):
            rows[row, j] = max(rows[row, j], others[i, j])


@compiled
def _estimates(rows: NDArray[np.uint8], bits: int) -> NDArray[np.float64]:
    """Return how many values each row of registers has seen."""
    registers, most = rows.shape[1], 64 - bits
    estimates = np.empty(rows.shape[0])
    counts = np.empty(most + 2, dtype=np.int64)
    for i in range(rows.shape[0]):
        counts[:] = 0
        for j in range(registers):
            counts[rows[i, j]] += 1
        z = registers * _tau(1 - counts[most + 1] / registers)
        for rank in range(most, 0, -1):
            z = 0.5 * (z + counts[rank])
        z += registers * _sigma(counts[0] / registers)
        estimates[i] = registers * registers / (2 * log(2.0)) / z
    return estimates


@kernel
def _sigma(x: float) -> float:
    if x == 1.0:
        return np.inf
    y, z, before = 1.0, x, -1.0
    while z != before:
        x *= x
        before = z
        z += x * y
        y += y
    return z


@kernel
def _tau(x: float) -> float:
    if x in (0.0, 1.0):
        return 0.0
    y, z, before = 1.0, 1.0 - x, -1.0
    while z != before:
        x = np.sqrt(x)
        before = z
        y *= 0.5
        z -= (1.0 - x) ** 2 * y
    return z / 3
