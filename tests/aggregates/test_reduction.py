"""Mistakes in a Reduction are named, not computed with."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from unskew.aggregates import Reduction
from unskew.errors import BadAggregate


def total(
    first: float, of_rows: Any = lambda values: values, result: Any = lambda t: t
) -> Reduction:
    class Total(Reduction):
        numbers: ClassVar = {"t": (np.add, first)}

        def of_rows(self, *values: Any) -> Any:
            return of_rows(*values)

        def result(self, *numbers: Any) -> Any:
            return result(*numbers)

    return Total()


def run(reduction: Reduction, values: pa.Array) -> list[Any]:
    groups = np.zeros(len(values), dtype=np.int64)
    found: list[Any] = reduction.finish(
        reduction.update(reduction.zero(1), groups, values)
    ).to_pylist()
    return found


def test_fractions_are_added_where_the_first_value_is_one() -> None:
    assert run(total(0.0), pa.array([0.9, 0.9])) == [1.8]
    assert run(total(0), pa.array([2, 3])) == [5.0]
    assert run(total(0.0), pa.array([2, 3])) == [5.0]


@pytest.mark.parametrize(
    ("reduction", "message"),
    [
        (total(0), r"float64 for 't', whose first value 0 makes it int64; write 0\.0"),
        (total(0.0, lambda values: values[:1]), r"returned \(1,\) for 't'; return an array of 2"),
        (
            total(0.0, lambda values: (values, values)),
            "returned 2 arrays; return one for each of t",
        ),
        (total(0.0, lambda values: 5.0), "returned float for 't'"),
        (total(0.0, result=lambda t: t[:0]), "returned 0 elements for 1 groups"),
        (total(0.0, result=lambda t: pa.array(["x"])), "returned string, which is no double"),
    ],
)
def test_what_would_be_cut_or_does_not_fit_is_named(reduction: Reduction, message: str) -> None:
    with pytest.raises(BadAggregate, match=message):
        run(reduction, pa.array([0.9, 0.9]))
