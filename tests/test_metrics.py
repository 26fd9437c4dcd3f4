"""The formulas against the papers' own examples, and what must hold for any loads."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew import metrics
from unskew.errors import BadParameter

loads = st.lists(st.integers(0, 10**9), min_size=1, max_size=50).filter(any)


def test_pd_stream_figure_1() -> None:
    assert metrics.imbalance([4, 3, 2]) == pytest.approx(1 / 3)
    assert metrics.replication_factor([3, 2, 1], 3) == 2


def test_ls_stream_figure_4() -> None:
    load = metrics.shard_load([4, 4, 2, 1], [3, 4, 2, 3])
    assert load.tolist() == [9.5, 12, 4, 3.5]
    instances = load.reshape(2, 2).sum(axis=1)
    assert instances.tolist() == [21.5, 7.5]
    assert metrics.load_imbalance(instances) == pytest.approx(0.4828, abs=5e-5)


def test_ls_stream_figure_4_has_the_same_imbalance_without_the_weight() -> None:
    assert metrics.load_imbalance([43, 15]) == pytest.approx(0.4828, abs=5e-5)


@pytest.mark.parametrize(("g", "load"), [(1.0, 7.0), (0.0, 12.0), (0.25, 10.75)])
def test_the_weight_goes_from_computation_to_memory(g: float, load: float) -> None:
    assert metrics.shard_load([4], [3], g=g).tolist() == [load]


def test_consistent_grouping_shuffle_at_80_percent_on_three_machines_five_times_faster() -> None:
    capacities = np.array([5.0] * 3 + [1.0] * 7)
    even = np.full(10, 0.8 * capacities.sum() / 10)
    used = metrics.utilisation(even, capacities)
    assert used[0] == pytest.approx(0.352)
    assert used[-1] == pytest.approx(1.76)
    assert metrics.utilisation_imbalance(used) == pytest.approx(1.76 - (3 * 0.352 + 7 * 1.76) / 10)
    assert metrics.utilisation_spread(used) == pytest.approx(1.408)


def test_st_stream_figure_12_spread() -> None:
    assert metrics.utilisation_spread([11.25, 88.5]) == pytest.approx(77.25)
    assert metrics.utilisation_spread([35.6, 57]) == pytest.approx(21.4)


def test_offset_degree_is_the_share_of_data_over_the_share_of_keys() -> None:
    # Three quarters of the data on half of the keys.
    assert metrics.offset_degree([75, 25], [5, 5], [True, False]) == pytest.approx(1.5)


def test_offset_degree_of_even_data_and_of_no_high_instance_is_one() -> None:
    assert metrics.offset_degree([20, 10], [4, 2], [True, False]) == pytest.approx(1)
    assert metrics.offset_degree([20, 10], [4, 2], [False, False]) == 1


def test_hash_locality_on_six_nodes_is_one_in_six() -> None:
    origins, targets = np.divmod(np.arange(36), 6)
    assert metrics.locality(origins, targets) == pytest.approx(1 / 6)


def test_instances_are_mapped_to_nodes_by_the_caller() -> None:
    node_of = np.array([0, 0, 1, 1])
    origins, targets = np.array([0, 1, 2]), np.array([1, 3, 3])
    assert metrics.locality(origins, targets) == 0
    assert metrics.locality(node_of[origins], node_of[targets]) == pytest.approx(2 / 3)


@given(loads)
def test_imbalance_is_between_none_and_all_on_one(values: list[int]) -> None:
    assert -1e-12 <= metrics.imbalance(values) <= len(values) - 1 + 1e-12
    assert metrics.load_imbalance(values) >= metrics.imbalance(values) - 1e-12


@given(loads, st.integers(1, 1000), st.randoms(use_true_random=False))
def test_imbalance_does_not_depend_on_unit_or_order(
    values: list[int], unit: int, random: Random
) -> None:
    shuffled = [unit * value for value in values]
    random.shuffle(shuffled)
    assert metrics.imbalance(shuffled) == pytest.approx(metrics.imbalance(values), abs=1e-9)


@given(loads)
def test_utilisation_imbalance_under_equal_capacities_is_imbalance(values: list[int]) -> None:
    mean = sum(values) / len(values)
    used = metrics.utilisation(values, [mean] * len(values))
    assert metrics.utilisation_imbalance(used) == pytest.approx(
        metrics.imbalance(values), rel=1e-9, abs=1e-9
    )


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50).filter(any), st.integers(1, 300))
def test_lower_bound_is_the_formula_in_exact_fractions(counts: list[int], n: int) -> None:
    total, seen = sum(counts), [count for count in counts if count]
    expected = [-(-count * n // total) for count in seen]
    assert metrics.replication_lower_bound(counts, n) == pytest.approx(sum(expected) / len(seen))


def test_lower_bound_of_uniform_keys_is_one() -> None:
    assert metrics.replication_lower_bound([3] * 64, 64) == 1


def test_lower_bound_of_a_single_key_is_all_instances() -> None:
    assert metrics.replication_lower_bound([10], 16) == 16


def test_lower_bound_does_not_overflow() -> None:
    assert metrics.replication_lower_bound([2**62, 1], 2**31 - 1) == pytest.approx(2**30)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: metrics.imbalance([]), "loads must be a list of at least one"),
        (lambda: metrics.imbalance([[1, 2]]), r"shape \(1, 2\)"),
        (lambda: metrics.imbalance([0, 0]), "loads are all 0"),
        (lambda: metrics.imbalance([1, -2]), "not -2"),
        (lambda: metrics.imbalance([1, math.nan]), "not nan"),
        (lambda: metrics.imbalance(["a"]), "loads must be numbers"),
        (lambda: metrics.load_imbalance([0]), "loads are all 0"),
        (lambda: metrics.replication_factor([1, 1], 0), "distinct_keys must be from 1"),
        (
            lambda: metrics.replication_factor([1, 1], 3),
            "hold 2 keys, fewer than distinct_keys = 3",
        ),
        (lambda: metrics.memory([]), r"one whole number for each instance, not .* shape \(0,\)"),
        (lambda: metrics.memory([1.5]), r"keys_per_instance must be one whole .*, not float64"),
        (lambda: metrics.memory([-1]), "not -1; count them with KeyTally"),
        (lambda: metrics.utilisation([1, 2], [1]), "same length"),
        (lambda: metrics.utilisation([1, 2], [1, 0]), "above 0, not 0 as of instance 1; leave out"),
        (lambda: metrics.utilisation_spread([]), "utilisations must be"),
        (lambda: metrics.shard_load([1], [1, 2]), "same length"),
        (lambda: metrics.shard_load([1], [1], g=2), "g must be from 0 to 1, not 2"),
        (
            lambda: metrics.offset_degree([1], [1], [1]),
            r"True or False .*, not int64 of shape \(1,\)",
        ),
        (lambda: metrics.offset_degree([1], [1, 2], [True]), "same length"),
        (lambda: metrics.offset_degree([0], [1], [True]), "tuples are all 0"),
        (
            lambda: metrics.offset_degree([1, 1], [0, 1], [True, False]),
            "have 1 tuples of 0 keys; count",
        ),
        (lambda: metrics.locality([], []), r"one hop, not an array of shape \(0,\); give"),
        (lambda: metrics.locality([1], [1, 2]), "same length"),
        (lambda: metrics.locality([1], [1], counts=[0]), "counts are all 0"),
        (lambda: metrics.replication_lower_bound([], 4), r"key_counts must .* shape \(0,\)"),
        (
            lambda: metrics.replication_lower_bound([0], 4),
            "none of the 1 keys in key_counts has a tuple",
        ),
        (
            lambda: metrics.replication_lower_bound([-1], 4),
            "key_counts must be 0 or more, not -1; count them with KeyIndex",
        ),
        (lambda: metrics.replication_lower_bound([1], 0), "instances must be from 1"),
    ],
)
def test_what_has_no_answer_is_an_error_that_says_why(
    call: Callable[[], object], says: str
) -> None:
    with pytest.raises(BadParameter, match=says):
        call()


def test_the_load_of_a_node_is_its_parts_by_their_weights() -> None:
    parts = {"cpu": [0.6, 0.2], "memory": [0.2, 0.4], "network": [1.0, 0.0], "disk": [0.0, 0.5]}

    assert metrics.node_load(parts).tolist() == [0.6, 0.2]
    assert metrics.node_load(parts, q=0.75).tolist() == pytest.approx([0.5, 0.25])
    weighed = metrics.node_load(parts, q=0.75, weights={"network": 0.3, "disk": 0.2})
    assert weighed.tolist() == pytest.approx([0.55, 0.225])


def test_the_balance_degree_is_the_largest_load_in_means() -> None:
    assert metrics.balance_degree([1.0, 2.0, 3.0]) == 1.5
