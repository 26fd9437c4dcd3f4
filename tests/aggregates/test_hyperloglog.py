"""Distinct counts against exact ones, and registers against an oracle in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from unskew.aggregates import distinct
from unskew.errors import BadParameter, UnhashableKey
from unskew.keys import hash_keys


def estimate(number: int, error: float, start: int) -> int:
    aggregate = distinct(error)
    values = pa.array(np.arange(start, start + number).repeat(2))
    groups = np.zeros(len(values), dtype=np.int64)
    states = aggregate.update(aggregate.zero(1), groups, values)
    return int(aggregate.finish(states)[0].as_py())


@pytest.mark.parametrize("number", [0, 1, 2, 10, 100, 900])
def test_small_numbers_are_almost_exact(number: int) -> None:
    assert abs(estimate(number, 0.02, 0) - number) <= 1


@pytest.mark.parametrize("number", [30, 100, 300, 1_000, 10_000, 100_000])
def test_the_standard_error_is_kept_and_there_is_no_bias(number: int) -> None:
    errors = [estimate(number, 0.1, 10**7 * i) / number - 1 for i in range(100)]
    assert np.sqrt(np.mean(np.square(errors))) <= 0.1
    # Four standard errors of the mean.
    assert abs(np.mean(errors)) <= 0.04


def registers(hashes: list[int], bits: int) -> list[int]:
    """Return the largest rank of each register, as the paper has it."""
    ranks = [0] * (1 << bits)
    for value in hashes:
        rest = f"{value:064b}"[bits:]
        place = value >> (64 - bits)
        ranks[place] = max(ranks[place], (rest + "1").index("1") + 1)
    return ranks


def test_registers_are_those_of_the_paper_however_they_came_about() -> None:
    values = pa.array(np.arange(3000))
    aggregate = distinct(0.1)
    groups = np.zeros(3000, dtype=np.int64)
    parts = [
        aggregate.update(aggregate.zero(1), groups[start:stop], values[start:stop])
        for start, stop in [(0, 20), (20, 30), (30, 3000)]
    ]
    assert [len(part.field("sparse")[0]) for part in parts] == [20, 10, 0]
    merged = aggregate.merge(aggregate.zero(1), groups[:3], pa.concat_arrays(parts))
    wanted = registers(hash_keys(values).tolist(), 7)
    assert list(merged.field("dense")[0].as_py()) == wanted


def test_rows_of_several_columns_count_once_and_with_nulls_not() -> None:
    aggregate = distinct()
    columns = [pa.array([1, 1, 1, None]), pa.array(["a", "b", "a", "c"])]
    states = aggregate.update(aggregate.zero(1), np.zeros(4, dtype=np.int64), *columns)
    assert aggregate.finish(states).to_pylist() == [2]


@pytest.mark.parametrize("error", [0, 0.27, 0.001, "small"])
def test_errors_out_of_range_are_named(error: Any) -> None:
    with pytest.raises(BadParameter, match=f"error must be .*{error!r}"):
        distinct(error)


def test_columns_that_cannot_be_hashed_are_refused() -> None:
    with pytest.raises(BadParameter, match="none was given"):
        distinct().for_types()
    with pytest.raises(UnhashableKey, match="map"):
        distinct().for_types(pa.map_(pa.string(), pa.int64()))
