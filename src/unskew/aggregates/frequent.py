"""The most frequent values of each group, by counters that can be merged."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from unskew.aggregates.base import Aggregate, Groups
from unskew.aggregates.entries import (
    Integers,
    as_lists,
    owners,
    places_in_runs,
    sums,
    without_nulls,
)
from unskew.aggregates.numbering import one_zero, ranks
from unskew.errors import BadParameter
from unskew.parameters import whole_number


class Top(Aggregate):
    """The k most frequent values with their counts, the most frequent first, ties by value.

    Guarantee: of a group with n values, every one that came more than n / (counters + 1) times has
    a counter; `count` is never too high and at most `error` too low, where `error`, returned beside
    it, is at most n / (counters + 1). While a group has no more distinct values than counters all
    counts are exact and `error` is 0: then the result depends on the values alone. Beyond that it
    may depend, within the error, on how the rows were parted. Nulls do not count.

    Memory: a value and 8 bytes for each of at most `counters` values of a group.

    Cost: one sort of the distinct values and one of the rows of each call.

    Parameters
    ----------
    k : int
        Values to return for each group, at least 1.
    counters : int, optional
        Values to count for each group, at least k; by default 16 k and no less than 256.

    References
    ----------
    Misra, Gries: Finding repeated elements, 1982. Agarwal, Cormode, Huang, Phillips, Wei, Yi:
    Mergeable summaries, PODS 2012, Section 2, for the merge and its bound.

    Examples
    --------
    >>> favourites = top(1).for_types(pa.string())
    >>> values = pa.array(["a", "b", "b"])
    >>> states = favourites.update(favourites.zero(1), np.zeros(3, dtype=np.int64), values)
    >>> favourites.finish(states).to_pylist()
    [[{'value': 'b', 'count': 2, 'error': 0}]]
    """

    def __init__(
        self, k: int, counters: int | None = None, value_type: pa.DataType | None = None
    ) -> None:
        self.k = whole_number("k", k, least=1, most=2**20)
        own = max(256, 16 * self.k) if counters is None else counters
        self.counters = whole_number("counters", own, least=self.k, most=2**28)
        self._value_type = value_type
        if value_type is not None:
            lists = [("values", pa.list_(value_type)), ("counts", pa.list_(pa.int64()))]
            self.state_type = pa.struct([*lists, ("missed", pa.int64())])
            entry = [("value", value_type), ("count", pa.int64()), ("error", pa.int64())]
            self.result_type = pa.list_(pa.struct(entry))

    def for_types(self, *types: pa.DataType) -> Top:
        """Return the aggregate for a column of one type, which may be nested."""
        if len(types) != 1:
            raise BadParameter(
                f"{self!r} takes one column, not {len(types)}; put several into a struct"
            )
        ranks(pa.array([], types[0]))
        return Top(self.k, self.counters, types[0])

    def zero(self, number: int) -> pa.Array:
        """Return counters without values."""
        none = np.empty(0, np.int64)
        values = pa.array([], self._value_type)
        return self._states(none, values, none, np.zeros(number, dtype=np.int64))

    def update(self, states: pa.Array, groups: Groups, *values: pa.Array) -> pa.Array:
        """Count the values of the rows exactly, then add the counts."""
        groups, (column,) = without_nulls(groups, *values)
        return self._added(states, groups, column, np.ones(groups.size, dtype=np.int64))

    def merge(self, states: pa.Array, groups: Groups, others: pa.Array) -> pa.Array:
        """Add up the counts of equal values, then give up those beyond the counters."""
        lists = others.field("values")
        missed = np.zeros(len(states), dtype=np.int64)
        np.add.at(missed, groups, others.field("missed").to_numpy())
        counts = others.field("counts").flatten().to_numpy()
        return self._added(states, owners(lists, groups), lists.flatten(), counts, missed)

    def finish(self, states: pa.Array) -> pa.Array:
        """Return the k largest counters of each group."""
        lists = states.field("values")
        groups, values = owners(lists), lists.flatten()
        counts = states.field("counts").flatten().to_numpy()
        missed = states.field("missed").to_numpy()
        order = np.lexsort((ranks(values), -counts, groups))
        order = order[places_in_runs(groups[order]) < self.k]
        groups = groups[order]
        columns = [values.take(pa.array(order)), pa.array(counts[order]), pa.array(missed[groups])]
        fields = list(self.result_type.value_type)
        entries = pa.StructArray.from_arrays(columns, fields=fields)
        return as_lists(groups, len(states), entries)[0]

    def _added(
        self,
        states: pa.Array,
        groups: Groups,
        values: pa.Array,
        counts: Integers,
        missed: Integers | None = None,
    ) -> pa.Array:
        """Return the states with counts of values added to them."""
        lists = states.field("values")
        total = states.field("missed").to_numpy() + (0 if missed is None else missed)
        groups = np.concatenate((owners(lists), groups))
        values = pa.concat_arrays([lists.flatten(), one_zero(values).cast(self._value_type)])
        counts = np.concatenate((states.field("counts").flatten().to_numpy(), counts))
        places = ranks(values)
        codes, counts = sums((groups << 32) | places, counts)
        # Any row of a value stands for it.
        example = np.empty(int(places.max(initial=0)) + 1, dtype=np.int64)
        example[places] = np.arange(places.size)
        groups, chosen = codes >> 32, example[codes & 0xFFFFFFFF]
        order = np.lexsort((-counts, groups))
        beyond = order[places_in_runs(groups[order]) == self.counters]
        if beyond.size:
            # The first count that has no counter is taken off all: at least counters + 1 lose it.
            loss = np.zeros(len(states), dtype=np.int64)
            loss[groups[beyond]] = counts[beyond]
            total = total + loss
            counts = counts - loss[groups]
            kept = counts > 0
            groups, chosen, counts = groups[kept], chosen[kept], counts[kept]
        return self._states(groups, values.take(pa.array(chosen)), counts, total)

    def _states(
        self, groups: Groups, values: pa.Array, counts: Integers, missed: Integers
    ) -> pa.Array:
        lists = as_lists(groups, missed.size, values, counts)
        return pa.StructArray.from_arrays([*lists, pa.array(missed)], fields=list(self.state_type))

    def __repr__(self) -> str:
        """Return the call that made it."""
        return f"top({self.k}, counters={self.counters})"


def top(k: int, counters: int | None = None) -> Top:
    """Return the aggregate of the most frequent values: a list of value, count and error.

    Parameters
    ----------
    k, counters : int
        As of `Top`, which says what is guaranteed.
    """
    return Top(k, counters)
