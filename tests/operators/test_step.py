"""Steps: what a function makes of rows, and what it must not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from unskew.errors import BadOperator
from unskew.operators.step import Step, stepped

ROWS = pa.record_batch({"tag": ["a", "b"], "n": [1, 2]})
OUTPUT = pa.schema([("n", pa.int32()), ("tag", pa.string())])


def given(answer: Any) -> Any:
    def function(rows: pa.RecordBatch) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return function


def test_columns_come_in_order_and_of_their_types() -> None:
    made = Step(given(ROWS), OUTPUT)(ROWS)
    assert made.schema == OUTPUT
    assert made.to_pydict() == {"n": [1, 2], "tag": ["a", "b"]}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        pytest.param(None, r"must return a pyarrow.RecordBatch .*not None", id="nothing"),
        pytest.param(ROWS.select(["n"]), r"returned the columns n, and", id="a column is missing"),
        pytest.param(
            ROWS.append_column("more", ROWS["n"]), r"tag, n, more", id="a column too many"
        ),
        pytest.param(
            pa.record_batch({"tag": ["a"], "n": [2**40]}), r"not n: int32.*cast", id="too large"
        ),
        pytest.param(
            pa.record_batch({"tag": ["a"], "n": ["x"]}), r"n: string.*cast", id="another type"
        ),
        pytest.param(KeyError("tags"), r"raised KeyError: 'tags'", id="an error of its own"),
    ],
)
def test_what_a_function_must_not_return_is_told(answer: Any, told: str) -> None:
    with pytest.raises(BadOperator, match=rf"step\(function\).*{told}"):
        Step(given(answer), OUTPUT)(ROWS)


def test_steps_follow_each_other_and_are_not_asked_about_nothing() -> None:
    def fewer(rows: pa.RecordBatch) -> pa.RecordBatch:
        assert rows.num_rows
        return rows.slice(0, rows.num_rows - 1)

    steps = [Step(fewer, OUTPUT), Step(fewer, OUTPUT), Step(fewer, OUTPUT)]
    assert stepped(ROWS, steps[:1]).num_rows == 1
    last = stepped(ROWS, steps)
    assert (last.num_rows, last.schema) == (0, OUTPUT)
