"""Laws that hold for every built-in aggregate."""

from __future__ import annotations

import io
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.aggregates import Aggregate, Count, Groups, Reduction, collect, distinct, quantiles, top


class Spread(Reduction):
    """The difference of the largest and the least value."""

    numbers: ClassVar = {"least": (np.minimum, np.inf), "largest": (np.maximum, -np.inf)}

    def of_rows(self, *values: Any) -> Any:
        return values[0], values[0]

    def result(self, *numbers: Any) -> Any:
        return numbers[1] - numbers[0]


GROUPS = 4
FLOATS = st.none() | st.floats() | st.sampled_from([0.0, -0.0, 1.0, 2.0, float("nan")])
NUMBERS = st.none() | st.floats(allow_nan=False)
WORDS = st.none() | st.text(max_size=3)
LISTS = st.none() | st.lists(st.none() | st.integers(0, 2), max_size=2)
WORD_LISTS = pa.list_(pa.int64())

Case = tuple[Aggregate, pa.DataType, st.SearchStrategy[Any]]
CASES: dict[str, Case] = {
    "quantiles": (quantiles(0, 0.3, 1), pa.float64(), FLOATS),
    "one quantile": (quantiles(0.5, error=0.3), pa.float64(), FLOATS),
    "quantiles, few bins": (quantiles(0.5, 0.9, bins=3), pa.float64(), FLOATS),
    "distinct": (distinct(), pa.string(), WORDS),
    "distinct, dense at five": (distinct(error=0.26), pa.float64(), FLOATS),
    "distinct lists": (distinct(), WORD_LISTS, LISTS),
    "top": (top(3), pa.string(), WORDS),
    "top floats": (top(3), pa.float64(), FLOATS),
    "top lists": (top(3), WORD_LISTS, LISTS),
    "collect": (collect(1000), pa.string(), WORDS),
    "collect, few": (collect(3), pa.float64(), FLOATS),
    "collect lists, few": (collect(3), WORD_LISTS, LISTS),
    "count": (Count(), pa.string(), WORDS),
    "reduction": (Spread(), pa.float64(), NUMBERS),
}

Rows = tuple[Groups, pa.Array]


class Fold:
    """An aggregate for the type of one column, and rows of it to draw."""

    def __init__(self, case: Case) -> None:
        aggregate, self.kind, self.values = case
        self.aggregate = aggregate.for_types(self.kind)

    def rows(self, draw: Any, most: int = 40) -> Rows:
        pairs = st.tuples(st.integers(0, GROUPS - 2), self.values)
        drawn: list[tuple[int, Any]] = draw(st.lists(pairs, max_size=most))
        groups = np.array([group for group, _ in drawn], dtype=np.int64)
        return groups, pa.array([value for _, value in drawn], self.kind)

    def states(self, rows: Rows, start: pa.Array | None = None) -> pa.Array:
        begun = self.aggregate.zero(GROUPS) if start is None else start
        return self.aggregate.update(begun, *rows)

    def merged(self, one: pa.Array, other: pa.Array) -> pa.Array:
        return self.aggregate.merge(one, np.arange(GROUPS), other)


every_aggregate = pytest.mark.parametrize(
    "fold", [pytest.param(Fold(case), id=name) for name, case in CASES.items()]
)
some = settings(max_examples=15)


def plain(array: pa.Array) -> str:
    """Return what an array holds, such that NaN equals NaN."""
    return repr(array.to_pylist())


def joined(*rows: Rows) -> Rows:
    return np.concatenate([r[0] for r in rows]), pa.concat_arrays([r[1] for r in rows])


@every_aggregate
@some
@given(data=st.data())
def test_merging_is_commutative_and_associative(fold: Fold, data: st.DataObject) -> None:
    a, b, c = (fold.states(fold.rows(data.draw)) for _ in range(3))
    assert plain(fold.merged(a, b)) == plain(fold.merged(b, a))
    one = fold.merged(fold.merged(a, b), c)
    assert plain(one) == plain(fold.merged(a, fold.merged(b, c)))


@every_aggregate
@some
@given(data=st.data())
def test_however_the_rows_are_cut_or_parted_the_states_are_the_same(
    fold: Fold, data: st.DataObject
) -> None:
    first, second = fold.rows(data.draw), fold.rows(data.draw)
    at_once = plain(fold.states(joined(first, second)))
    assert plain(fold.states(second, fold.states(first))) == at_once
    assert plain(fold.merged(fold.states(first), fold.states(second))) == at_once


@every_aggregate
@some
@given(data=st.data())
def test_the_order_of_rows_does_not_matter(fold: Fold, data: st.DataObject) -> None:
    groups, values = fold.rows(data.draw)
    order = np.array(data.draw(st.permutations(range(groups.size))), dtype=np.int64)
    turned = fold.states((groups[order], values.take(pa.array(order))))
    assert plain(turned) == plain(fold.states((groups, values)))


@every_aggregate
@some
@given(data=st.data())
def test_zero_is_neutral(fold: Fold, data: st.DataObject) -> None:
    states = fold.states(fold.rows(data.draw))
    zero = fold.aggregate.zero(GROUPS)
    assert plain(fold.merged(states, zero)) == plain(states)
    assert plain(fold.merged(zero, states)) == plain(states)


@every_aggregate
@some
@given(data=st.data())
def test_many_states_merge_into_one_at_once(fold: Fold, data: st.DataObject) -> None:
    a, b = (fold.states(fold.rows(data.draw)) for _ in range(2))
    both = pa.concat_arrays([a, b])
    groups = np.tile(np.arange(GROUPS), 2)
    merged = fold.aggregate.merge(fold.aggregate.zero(GROUPS), groups, both)
    assert plain(merged) == plain(fold.merged(a, b))


@every_aggregate
@some
@given(data=st.data())
def test_states_are_plain_arrow_data_and_may_be_slices(fold: Fold, data: st.DataObject) -> None:
    states = fold.states(fold.rows(data.draw))
    sink = io.BytesIO()
    batch = pa.record_batch([states], names=["state"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch.slice(0, 2))
        writer.write_batch(batch.slice(2))
    with pa.ipc.open_stream(sink.getvalue()) as reader:
        parts = [part["state"] for part in reader]
    read = pa.concat_arrays(parts)
    assert states.type == read.type == fold.aggregate.state_type
    assert plain(fold.aggregate.finish(read)) == plain(fold.aggregate.finish(states))
    again = fold.aggregate.merge(fold.aggregate.zero(2), np.arange(2), states.slice(2))
    assert plain(again) == plain(states.slice(2))
    assert plain(fold.aggregate.finish(states.slice(1))) == plain(
        fold.aggregate.finish(states).slice(1)
    )


@every_aggregate
def test_groups_without_values_have_an_empty_result(fold: Fold) -> None:
    nulls = (np.zeros(3, dtype=np.int64), pa.nulls(3, fold.kind))
    states = fold.states(nulls)
    assert plain(states) == plain(fold.aggregate.zero(GROUPS))
    results = fold.aggregate.finish(states)
    assert results.type == fold.aggregate.result_type
    assert len(results) == GROUPS
    assert set(map(str, results.to_pylist())) <= {"None", "0", "[]"}
    assert len(fold.aggregate.finish(fold.aggregate.zero(0))) == 0


def test_a_built_in_says_how_it_was_made() -> None:
    made = [repr(case[0]) for case in CASES.values()]
    assert made[0] == "quantiles(0, 0.3, 1, error=0.01)"
    assert {"distinct(error=0.02)", "top(3, counters=256)", "collect(3)"} < set(made)
