from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.balance.fitting import fit_plan, loads_under
from unskew.errors import BadParameter
from unskew.workloads import Zipf


def drawn(skew: float, keys: int, tuples: int) -> tuple[np.ndarray, np.ndarray]:
    stream = np.concatenate(list(Zipf(skew, keys, tuples, seed=3).batches()))
    found, counts = np.unique(stream, return_counts=True)
    return found, counts


@pytest.mark.parametrize("instances", [2, 16, 100])
@pytest.mark.parametrize("skew", [0.5, 1.0, 1.4, 2.0])
def test_zipf_streams_are_balanced_with_few_copies(skew: float, instances: int) -> None:
    keys, tuples = drawn(skew, 100_000, 1_000_000)
    plan = fit_plan(keys, tuples, instances)
    loads = loads_under(plan, keys, tuples)
    assert loads.sum() == pytest.approx(tuples.sum())
    assert loads.max() / loads.mean() - 1 < 0.02
    mean = tuples.sum() / instances
    for key, copies in plan.hot.items():
        share = int(tuples[keys == key][0]) / mean
        # One more than it fills, and one more if the rest of another key is in the way.
        assert len(set(copies)) <= np.ceil(share) + 1


@given(
    st.lists(st.integers(1, 10_000), min_size=1, max_size=60),
    st.integers(1, 20),
    st.integers(0, 2**32),
)
def test_every_key_has_live_instances_and_no_load_is_lost(
    sizes: list[int], instances: int, seed: int
) -> None:
    keys = np.random.default_rng(seed).integers(0, 2**63, len(sizes), dtype=np.uint64)
    keys, first = np.unique(keys, return_index=True)
    tuples = np.array(sizes)[first]
    plan = fit_plan(keys, tuples, instances)
    loads = loads_under(plan, keys, tuples)
    assert loads.sum() == pytest.approx(tuples.sum())
    # Whole keys are at most the mean each, so the greedy bound holds: twice the mean.
    assert loads.max() <= 2.01 * tuples.sum() / instances + 16 * tuples.size


def test_the_order_of_the_sample_does_not_matter() -> None:
    keys, tuples = drawn(1.4, 1000, 100_000)
    shuffled = np.random.default_rng(0).permutation(keys.size)
    one, other = (
        fit_plan(keys, tuples, 16),
        fit_plan(keys[shuffled], tuples[shuffled], 16),
    )
    assert one.assignment.tolist() == other.assignment.tolist()
    assert {key: sorted(copies) for key, copies in one.hot.items()} == {
        key: sorted(copies) for key, copies in other.hot.items()
    }


def test_no_key_is_hot_on_one_instance_or_without_evidence() -> None:
    keys = np.arange(3, dtype=np.uint64)
    assert not fit_plan(keys, np.array([100, 1, 1]), 1).hot
    assert not fit_plan(keys, np.array([7, 1, 1]), 8).hot


def test_an_empty_sample_gives_the_even_plan() -> None:
    plan = fit_plan(np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64), 4)
    assert np.bincount(plan.assignment).tolist() == [64, 64, 64, 64]


def test_each_key_needs_a_count() -> None:
    with pytest.raises(BadParameter, match="2 keys have 1 counts"):
        fit_plan(np.arange(2, dtype=np.uint64), np.array([1]), 4)
