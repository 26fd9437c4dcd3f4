"""Quantiles within a relative error of the value, by a histogram of logarithmic bins."""

from __future__ import annotations

from math import ceil, log, log1p

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.aggregates.base import Aggregate, Groups
from unskew.aggregates.entries import (
    Integers,
    as_lists,
    owners,
    places_in_runs,
    sums,
    without_nulls,
)
from unskew.errors import BadParameter
from unskew.parameters import number as checked_number
from unskew.parameters import whole_number

_TINY = float(np.finfo(np.float64).tiny)
_HUGE = float(np.finfo(np.float64).max)
_DECADES = 18
_LOW = np.int64(2**31)


class Quantiles(Aggregate):
    """Quantiles of numbers, each within a relative error of the exact one.

    Guarantee: the exact q-quantile, the ceil(q n)-th smallest of n values, and the result r for it
    satisfy abs(r - x) <= error abs(x), whatever the values and however their rows were parted: the
    state depends on the values alone and merging is exact. Nulls do not count, NaN counts as larger
    than all else, as in Spark's order, and a group without values has null as its result.

    Memory: 12 bytes for each of at most `bins` + 1 occupied bins of a group; 230 bins cover a
    factor of 100 at an error of 0.01. Beyond `bins` the smallest magnitudes fall together at 0:
    then a result of 0 stands for a value no larger than all magnitudes still told apart. Numbers
    below 2.3e-308 in magnitude count as 0.

    Cost: one logarithm a row and one sort of the rows of each call.

    Parameters
    ----------
    probabilities : sequence of float
        Which quantiles, from 0 (the least value) to 1 (the largest).
    error : float, default 0.01
        The promised relative error, at least 1e-6 and below 1. Bins grow as its inverse.
    bins : int, optional
        Bins kept for each group; by default as many as 18 decades of magnitude need.

    References
    ----------
    Masson, Rim, Lee: DDSketch, VLDB 2019. There the smallest bins collapse into their neighbour,
    for each sign apart; here into the zero, so that both signs are treated alike.

    Examples
    --------
    >>> median = quantiles(0.5)
    >>> values = pa.array([1.0, 2.0, 3.0, None])
    >>> states = median.update(median.zero(1), np.zeros(4, dtype=np.int64), values)
    >>> abs(median.finish(states)[0].as_py() - 2) <= 0.01 * 2
    True
    """

    state_type = pa.struct([("bins", pa.list_(pa.int32())), ("counts", pa.list_(pa.int64()))])

    def __init__(
        self, probabilities: tuple[float, ...], error: float = 0.01, bins: int | None = None
    ) -> None:
        if not probabilities:
            raise BadParameter("quantiles needs at least one probability, such as 0.5")
        for probability in probabilities:
            if checked_number("a probability", probability, least=0) > 1:
                raise BadParameter(f"a probability must be at most 1, not {probability}")
        self.probabilities = tuple(float(probability) for probability in probabilities)
        self.error = checked_number("error", error, least=1e-6, below=1)
        # The logarithm of gamma = (1 + error) / (1 - error), the ratio of neighbouring bins.
        self._width = log1p(self.error) - log1p(-self.error)
        own = ceil(_DECADES * log(10) / self._width)
        self.bins = whole_number("bins", own if bins is None else bins, least=1, most=2**28)
        # A positive number has a positive bin, a negative one the same with a minus, 0 has bin 0.
        self._shift = 1 - ceil(log(_TINY) / self._width)
        self._infinite = self._shift + ceil(log(_HUGE) / self._width) + 2
        single = len(self.probabilities) == 1
        self.result_type = pa.float64() if single else pa.list_(pa.float64())

    def for_types(self, *types: pa.DataType) -> Quantiles:
        """Return itself for one column of numbers."""
        if len(types) != 1:
            raise BadParameter(f"{self!r} takes one column, not {len(types)}")
        kind = types[0]
        if not (
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        ):
            raise BadParameter(
                f"{self!r} takes a column of numbers, not {kind}; cast it, for times to a count of "
                f"seconds since a beginning near them"
            )
        return self

    def zero(self, number: int) -> pa.Array:
        """Return empty histograms."""
        return self._states(np.empty(0, np.int64), np.empty(0, np.int64), number)

    def update(self, states: pa.Array, groups: Groups, *values: pa.Array) -> pa.Array:
        """Count each value in its bin."""
        groups, (column,) = without_nulls(groups, *values)
        numbers = column.cast(pa.float64(), safe=False).to_numpy()
        codes, counts = sums((groups << 32) | (self._bins_of(numbers) + _LOW))
        held = self._cells(states)
        if held[0].size:
            both = zip(held, (codes, counts), strict=True)
            codes, counts = sums(*(np.concatenate(pair) for pair in both))
        return self._states(codes, counts, len(states))

    def merge(self, states: pa.Array, groups: Groups, others: pa.Array) -> pa.Array:
        """Add up the counts of equal bins."""
        both = zip(self._cells(states), self._cells(others, groups), strict=True)
        return self._states(*sums(*(np.concatenate(pair) for pair in both)), len(states))

    def finish(self, states: pa.Array) -> pa.Array:
        """Return the middle of the bin that each quantile is in."""
        codes, counts = self._cells(states)
        upto = np.cumsum(counts)
        ends = np.searchsorted(codes >> 32, np.arange(len(states)), side="right")
        after = np.append(upto, 0)[ends - 1]
        after[ends == 0] = 0
        before = np.append(0, after[:-1])
        total = after - before
        columns = []
        for probability in self.probabilities:
            rank = np.maximum(np.ceil(probability * total).astype(np.int64), 1)
            found = np.searchsorted(upto, before + np.minimum(rank, total))
            bins = np.append(codes, 0)[np.minimum(found, codes.size)] & 0xFFFFFFFF
            columns.append(self._middles(bins - _LOW))
        if len(columns) == 1:
            return pa.array(columns[0], mask=total == 0, from_pandas=False)
        offsets = np.arange(len(states) + 1, dtype=np.int32) * np.int32(len(columns))
        flat = pa.array(np.stack(columns, axis=1).ravel(), from_pandas=False)
        return pa.ListArray.from_arrays(pa.array(offsets), flat, mask=pa.array(total == 0))

    def _bins_of(self, numbers: NDArray[np.float64]) -> Integers:
        """Return the signed bin of each number; their order is that of the numbers."""
        sizes = np.abs(numbers)
        usual = (sizes >= _TINY) & (sizes <= _HUGE)
        logs = np.log(sizes, out=np.zeros_like(sizes), where=usual)
        bins = np.ceil(logs / self._width).astype(np.int64) + self._shift
        bins[sizes < _TINY] = 0
        bins[sizes > _HUGE] = self._infinite
        bins = np.where(numbers < 0, -bins, bins)
        bins[np.isnan(numbers)] = self._infinite + 1
        return bins

    def _middles(self, bins: Integers) -> NDArray[np.float64]:
        """Return the value of each bin that is within the error of all numbers in it."""
        with np.errstate(over="ignore"):
            sizes = np.exp((np.abs(bins) - self._shift) * self._width) * (1 - self.error)
        middles = np.copysign(np.minimum(sizes, _HUGE), bins)
        middles[bins == 0] = 0
        middles[bins == self._infinite] = np.inf
        middles[bins == -self._infinite] = -np.inf
        middles[bins > self._infinite] = np.nan
        return middles

    def _cells(self, states: pa.Array, groups: Groups | None = None) -> tuple[Integers, Integers]:
        """Return a code of group and bin for each entry, and its count."""
        lists = states.field("bins")
        bins = lists.flatten().to_numpy().astype(np.int64)
        counts = states.field("counts").flatten().to_numpy()
        return (owners(lists, groups) << 32) | (bins + _LOW), counts

    def _states(self, codes: Integers, counts: Integers, number: int) -> pa.Array:
        codes, counts = self._bounded(codes, counts)
        bins = ((codes & 0xFFFFFFFF) - _LOW).astype(np.int32)
        lists = as_lists(codes >> 32, number, bins, counts)
        return pa.StructArray.from_arrays(lists, fields=list(self.state_type))

    def _bounded(self, codes: Integers, counts: Integers) -> tuple[Integers, Integers]:
        """Move the smallest magnitudes to the zero where a group has too many bins.

        What is among the largest of all is so in every part, hence the same bins remain however
        the rows were parted.
        """
        sizes = np.bincount(codes >> 32)
        if sizes.max(initial=0) <= self.bins:
            return codes, counts
        bins = (codes & 0xFFFFFFFF) - _LOW
        # Largest magnitude first, of equal ones the positive; the zero is last and not counted.
        order = np.lexsort((-bins, -np.abs(bins), codes >> 32))
        place = np.empty(codes.size, dtype=np.int64)
        place[order] = places_in_runs(codes[order] >> 32)
        moved = np.where(place >= self.bins, codes >> 32 << 32 | _LOW, codes)
        return sums(moved, counts)

    def __repr__(self) -> str:
        """Return the call that made it."""
        given = ", ".join(f"{probability:g}" for probability in self.probabilities)
        return f"quantiles({given}, error={self.error:g})"


def quantiles(*probabilities: float, error: float = 0.01, bins: int | None = None) -> Quantiles:
    """Return the aggregate of approximate quantiles: one number, or a list if several are asked.

    Parameters
    ----------
    *probabilities : float
        From 0 to 1: ``quantiles(0.5, 0.99)`` for the median and the 99th percentile.
    error, bins
        As of `Quantiles`, which says what is guaranteed.
    """
    return Quantiles(probabilities, error, bins)
