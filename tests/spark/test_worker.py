"""The bodies of tasks, run without Spark: a second attempt sends every row where the first did."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import unskew
from unskew.balance import Plan
from unskew.grouping import Frugal
from unskew.spark.worker import ByGrouping, ByPlan, Router, in_content_order, in_row_order

ROUTERS: dict[str, Router] = {
    **{name: ByGrouping(cls, 5, {"seed": 1}) for name, cls in unskew.groupings().items()},
    "plan": ByPlan(Plan(np.array([0, 1, 2, 3, 4, 0, 1, 2]), 5, hot={3: (0, 1, 1), 11: (4, 2)})),
}

# Few keys and contents, so that hot keys and equal rows are common.
ROWS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), max_size=300)


def cut(values: NDArray[np.int64], sizes: list[int]) -> Iterator[pa.Array]:
    edges = np.minimum(np.cumsum(sizes), values.size)
    yield from (pa.array(part) for part in np.split(values, edges))


def columns(rows: list[tuple[int, int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    keys = np.array([key for key, _ in rows], dtype=np.int64)
    # The hash of a row follows from all of it, the key included.
    contents = np.array([hash((key, more, "row")) for key, more in rows], dtype=np.int64)
    return keys, contents


@pytest.mark.parametrize("name", ROUTERS)
@given(rows=ROWS, sizes=st.lists(st.integers(0, 100), max_size=4))
def test_in_row_order_batches_may_be_cut_anywhere(
    name: str, rows: list[tuple[int, int]], sizes: list[int]
) -> None:
    keys, _ = columns(rows)
    (whole,) = in_row_order(ROUTERS[name], iter([pa.array(keys)]))
    parts = list(in_row_order(ROUTERS[name], cut(keys, sizes)))
    assert [len(part) for part in parts] == [len(part) for part in cut(keys, sizes)]
    assert pa.concat_arrays(parts).equals(whole)


@pytest.mark.parametrize("name", ROUTERS)
@given(rows=ROWS, sizes=st.lists(st.integers(0, 100), max_size=4), chance=st.randoms())
def test_in_content_order_each_instance_gets_the_same_rows_in_any_order(
    name: str, rows: list[tuple[int, int]], sizes: list[int], chance: object
) -> None:
    def attempt(given: list[tuple[int, int]]) -> Counter[tuple[tuple[int, int], int]]:
        keys, contents = columns(given)
        batches = zip(cut(keys, sizes), cut(contents, sizes), strict=True)
        sent = list(in_content_order(ROUTERS[name], batches))
        assert [len(part) for part in sent] == [len(part) for part in cut(keys, sizes)]
        return Counter(zip(given, pa.concat_arrays(sent).to_pylist(), strict=True))

    again = list(rows)
    chance.shuffle(again)  # type: ignore[attr-defined]
    assert attempt(rows) == attempt(again)


def test_equal_rows_in_runs_do_not_make_frugal_split_cold_keys() -> None:
    keys = np.repeat(np.arange(1000, dtype=np.int64), 20)
    contents = keys * 1_000_003
    (sent,) = in_content_order(ByGrouping(Frugal, 16), iter([(pa.array(keys), pa.array(contents))]))
    copies = Counter(key for key, _ in set(zip(keys.tolist(), sent.to_pylist(), strict=True)))
    # In runs it would be 5.2, in random order 2.2.
    assert sum(copies.values()) / 1000 < 2


def test_a_task_without_rows_sends_nothing() -> None:
    assert list(in_row_order(ByGrouping(Frugal, 4), iter([]))) == []
    assert list(in_content_order(ByGrouping(Frugal, 4), iter([]))) == []


@pytest.mark.parametrize("name", ROUTERS)
def test_a_router_travels_as_a_few_bytes(name: str) -> None:
    sent = pickle.dumps(ROUTERS[name])
    assert len(sent) < 500
    keys = pa.array(np.arange(50))
    assert [part.to_pylist() for part in in_row_order(pickle.loads(sent), iter([keys]))] == [
        part.to_pylist() for part in in_row_order(ROUTERS[name], iter([keys]))
    ]
