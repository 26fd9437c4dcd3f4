"""Quantiles against exact ones, within the promised error."""

from __future__ import annotations

from math import ceil, inf, isnan, nan
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.aggregates import quantiles
from unskew.errors import BadParameter

ZEROS = st.floats(min_value=-1e-300, max_value=1e-300).map(lambda _: 0.0)
VALUES = st.floats(allow_nan=False, allow_subnormal=False) | ZEROS


def exact(values: list[float], probability: float) -> float:
    """Return the ceil(q n)-th smallest value."""
    return sorted(values)[max(ceil(probability * len(values)), 1) - 1]


def result(values: Any, *probabilities: float, **parameters: Any) -> Any:
    aggregate = quantiles(*probabilities, **parameters)
    column = values if isinstance(values, pa.Array) else pa.array(values, pa.float64())
    groups = np.zeros(len(column), dtype=np.int64)
    return aggregate.finish(aggregate.update(aggregate.zero(1), groups, column))[0].as_py()


@given(st.lists(VALUES, min_size=1), st.floats(0, 1), st.sampled_from([0.5, 0.1, 0.01, 1e-6]))
def test_within_the_error_of_the_exact_quantile(
    values: list[float], probability: float, error: float
) -> None:
    found, wanted = result(values, probability, error=error), exact(values, probability)
    # The borders of bins are rounded as all floats are.
    assert found == wanted or abs(found - wanted) <= (error + 1e-9) * abs(wanted)


def test_skewed_values_in_many_groups() -> None:
    rng = np.random.default_rng(7)
    values, groups = rng.lognormal(3, 4, 50_000), rng.integers(0, 50, 50_000)
    aggregate = quantiles(0.01, 0.5, 0.99)
    states = aggregate.update(aggregate.zero(50), groups, pa.array(values))
    for group, found in enumerate(aggregate.finish(states).to_pylist()):
        wanted = [exact(values[groups == group].tolist(), q) for q in aggregate.probabilities]
        assert found == pytest.approx(wanted, rel=0.0100001)


@pytest.mark.parametrize(
    ("values", "probability", "expected"),
    [
        pytest.param([nan, 1.0, nan], 1, nan, id="NaN is the largest"),
        pytest.param([nan, inf], 0, inf, id="infinity comes before NaN"),
        pytest.param([-inf, 0.0, inf], 0, -inf, id="the least can be infinite"),
        pytest.param([0.0, -0.0, 5e-324], 1, 0.0, id="almost nothing is nothing"),
        pytest.param([None, None], 0.5, None, id="nulls are no values"),
        pytest.param([1.7976931348623157e308], 1, 1.79e308, id="the largest float stays finite"),
    ],
)
def test_edges(values: list[float], probability: float, expected: float | None) -> None:
    found = result(values, probability)
    if expected is not None and isnan(expected):
        assert isnan(found)
    else:
        assert found == (expected if expected in (None, inf) else pytest.approx(expected, rel=0.01))


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float32(), pa.decimal128(38, 3)])
def test_numbers_of_any_type(kind: pa.DataType) -> None:
    column = pa.array([1, 2, None, 100]).cast(kind, safe=False)
    assert result(column, 0.5, 1) == pytest.approx([2, 100], rel=0.01)
    assert result(pa.array([2**63 - 1]), 1) == pytest.approx(2**63, rel=0.01)


def test_bins_are_bounded_and_the_largest_magnitudes_stay() -> None:
    values = [sign * 10.0**i for i in range(40) for sign in (-1, 1)]
    aggregate = quantiles(0, 0.5, 1, bins=10)
    groups = np.zeros(80, dtype=np.int64)
    states = aggregate.update(aggregate.zero(1), groups, pa.array(values))
    assert len(states.field("bins")[0]) == 11
    assert sum(states.field("counts")[0].as_py()) == 80
    assert aggregate.finish(states)[0].as_py() == pytest.approx([-1e39, 0, 1e39], rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "parameters", "message"),
    [
        ((), {}, "at least one probability"),
        ((1.5,), {}, "at most 1, not 1.5"),
        ((-0.1,), {}, "at least 0, not -0.1"),
        (("half",), {}, "'half'"),
        ((0.5,), {"error": 1}, "below 1, not 1"),
        ((0.5,), {"bins": 0}, "not 0"),
    ],
)
def test_bad_parameters_are_named(arguments: Any, parameters: Any, message: str) -> None:
    with pytest.raises(BadParameter, match=message):
        quantiles(*arguments, **parameters)


def test_columns_without_numbers_are_refused() -> None:
    with pytest.raises(BadParameter, match="a column of numbers, not string"):
        quantiles(0.5).for_types(pa.string())
    with pytest.raises(BadParameter, match="one column, not 2"):
        quantiles(0.5).for_types(pa.int64(), pa.int64())
