"""What the last few samples say, against the rule written out."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.balance.samples import Samples


@given(st.lists(st.tuples(*[st.floats(0, 1e6)] * 2), min_size=1, max_size=8), st.integers(1, 5))
def test_the_mean_is_of_the_last_samples_but_for_the_extremes(
    rows: list[tuple[float, float]], most: int
) -> None:
    samples = Samples(most)
    for row in rows:
        samples.add(np.array(row))
    last = rows[-most:]
    wanted = []
    for values in zip(*last, strict=True):
        ordered = sorted(values)
        counted = ordered[1:-1] if len(ordered) >= 3 else ordered
        wanted.append(sum(counted) / len(counted))
    assert len(samples) == len(last)
    assert samples.mean().tolist() == pytest.approx(wanted)


def test_samples_of_another_size_are_forgotten() -> None:
    samples = Samples(3)
    for values in ([1.0], [2.0], [3.0, 4.0]):
        samples.add(np.array(values))
    assert samples.mean().tolist() == [3.0, 4.0]


@pytest.mark.parametrize("rows", [[], [[1.0, 2.0]], [[1.0, 2.0], [3.0, 4.0]]])
def test_they_go_on_from_a_snapshot_that_went_through_json(rows: list[list[float]]) -> None:
    samples, again = Samples(2), Samples(2)
    for row in rows:
        samples.add(np.array(row))
    again.restore(np.array(json.loads(json.dumps(samples.snapshot().tolist()))))
    assert len(again) == len(rows)
    for each in (samples, again):
        each.add(np.array([5.0, 6.0]))
    assert samples.mean().tolist() == again.mean().tolist()
