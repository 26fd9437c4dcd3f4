"""Partial states and their merge, without Spark: the same results in any memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from unskew.aggregates import Aggregate, Groups, collect, distinct, top
from unskew.aggregates.checked import Checked
from unskew.aggregates.partial import Use, merge_lists, partial_states
from unskew.errors import BadAggregate

AGGREGATES = [
    top(2).for_types(pa.int64()),
    distinct().for_types(pa.int64()),
    collect(4).for_types(pa.int64()),
]
USES = [Use(aggregate, (0,)) for aggregate in AGGREGATES]


def rows(number: int) -> pa.RecordBatch:
    rng = np.random.default_rng(number)
    keys = pa.array([[k % 7, None] if k % 5 else None for k in rng.zipf(1.3, number) % 100])
    return pa.record_batch({"key": keys, "value": rng.integers(0, 20, number)})


def results(states: list[pa.RecordBatch]) -> dict[str, Any]:
    """Return what merging the states of each key gives."""
    lists = defaultdict(list)
    for batch in states:
        for row in batch.to_pylist():
            lists[str(row.pop("key"))].append(row)
    fields = [(str(i), aggregate.state_type) for i, aggregate in enumerate(AGGREGATES)]
    column = pa.array(list(lists.values()), pa.list_(pa.struct(fields)))
    return dict(zip(lists, merge_lists(column, AGGREGATES).to_pylist(), strict=True))


def test_results_are_exact_and_do_not_depend_on_memory_or_batches() -> None:
    batch = rows(3000)
    whole = list(partial_states([batch], 1, USES))
    pieces = [batch.slice(start, 100) for start in range(0, 3000, 100)]
    small = list(partial_states(pieces, 1, USES, most_bytes=1))
    assert [part.num_rows for part in whole] == [len(set(map(str, batch["key"].to_pylist())))]
    assert results(whole) == results(small)
    exact: dict[str, Counter[int]] = defaultdict(Counter)
    for row in batch.to_pylist():
        exact[str(row["key"])][row["value"]] += 1
    for key, found in results(whole).items():
        ranked = sorted(exact[key].items(), key=lambda item: (-item[1], item[0]))
        assert [(e["value"], e["count"]) for e in found["0"]] == ranked[:2]
        assert found["1"] == len(exact[key])


def test_memory_is_bounded_by_handing_states_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.aggregates.partial._CHUNK_ROWS", 1000)
    values = np.arange(20_000)
    batches = [
        pa.record_batch({"key": part, "value": part}) for part in np.array_split(values, 100)
    ]
    states = list(partial_states(batches, 1, USES, most_bytes=200_000))
    assert len(states) > 5
    assert max(part.nbytes for part in states) < 2 * 200_000
    assert sorted(key for part in states for key in part["key"].to_pylist()) == values.tolist()


def test_one_large_batch_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.aggregates.partial._CHUNK_ROWS", 1000)
    values = np.arange(20_000)
    batch = pa.record_batch({"key": values, "value": values})
    states = list(partial_states([batch], 1, USES, most_bytes=200_000))
    assert max(part.nbytes for part in states) < 2 * 200_000


def test_no_rows_give_no_states() -> None:
    assert list(partial_states([rows(0)], 1, USES)) == []
    kind = pa.list_(pa.struct([(str(i), a.state_type) for i, a in enumerate(AGGREGATES)]))
    assert len(merge_lists(pa.array([], kind), AGGREGATES)) == 0


class Careless(Aggregate):
    """An aggregate that returns what it is told to."""

    state_type = result_type = pa.int64()

    def __init__(self, **returned: Any) -> None:
        self.returned = returned

    def give(self, method: str, number: int) -> Any:
        returned = self.returned.get(method, pa.array(np.zeros(number, dtype=np.int64)))
        if isinstance(returned, Exception):
            raise returned
        return returned

    def zero(self, number: int) -> Any:
        return self.give("zero", number)

    def update(self, states: pa.Array, groups: Groups, *values: pa.Array) -> Any:
        return self.give("update", len(states))

    def merge(self, states: pa.Array, groups: Groups, others: pa.Array) -> Any:
        return self.give("merge", len(states))

    def finish(self, states: pa.Array) -> Any:
        return self.give("finish", len(states))


@pytest.mark.parametrize("method", ["zero", "update", "merge", "finish"])
@pytest.mark.parametrize(
    ("returned", "message"),
    [
        pytest.param(
            ZeroDivisionError("oh"), r"ZeroDivisionError: oh \(.*line .*; it was given", id="error"
        ),
        pytest.param(None, "must return a pyarrow.Array of int64, not NoneType", id="nothing"),
        pytest.param(np.zeros(2), "not ndarray of float64, 2 long; convert", id="numpy"),
        pytest.param(pa.array([1.0, 2.0]), "int64, its .*_type, not double; cast", id="type"),
        pytest.param(pa.array([1]), "each of 2 groups, not 1", id="length"),
    ],
)
def test_what_an_aggregate_did_wrong_is_named(method: str, returned: Any, message: str) -> None:
    checked = Checked("out", Careless(**{method: returned}))
    two, groups = pa.array([0, 0]), np.arange(2)
    arguments = {"zero": (2,), "update": (two, groups, two), "merge": (two, groups, two)}
    with pytest.raises(BadAggregate, match=message) as error:
        getattr(checked, method)(*arguments.get(method, (two,)))
    assert str(error.value).startswith(f"{method} of the aggregate Careless() of 'out'")


def test_types_have_to_be_known() -> None:
    with pytest.raises(BadAggregate, match="state_type of the aggregate top"):
        Checked("out", top(1))
