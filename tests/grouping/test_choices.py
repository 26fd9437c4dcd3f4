"""What the hash of a key gives: in range, distinct, through all instances, evenly spread."""

from __future__ import annotations

from math import gcd

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from unskew.grouping.choices import (
    home_of,
    key_bits,
    place_of,
    scatter,
    second_of,
    stride_of,
    strides_of,
)
from unskew.mixing import spread_seed

bits = st.integers(0, 2**64 - 1)
SEED = spread_seed(7)


def drawn(keys: int) -> list[np.uint64]:
    """Return the bits of the keys 0, 1, 2, ...: numbers in sequence, not hashes."""
    return [np.uint64(key_bits(np.uint64(key), SEED)) for key in range(keys)]


def excess(counts: NDArray[np.int64]) -> float:
    """Return how many standard deviations chi-square is above its mean for even counts."""
    mean = counts.mean()
    freedom = counts.size - 1
    return float((((counts - mean) ** 2).sum() / mean - freedom) / (2 * freedom) ** 0.5)


@given(bits, st.one_of(st.integers(1, 300), st.integers(1, 2**31 - 1)))
def test_a_number_is_scattered_below_its_bound_by_its_upper_half(value: int, number: int) -> None:
    assert scatter(np.uint64(value), number) == (value >> 32) * number // 2**32 < number


@given(bits, st.one_of(st.integers(1, 5), st.integers(1, 2**31 - 1)))
def test_the_two_choices_are_in_range_and_differ(value: int, instances: int) -> None:
    home = home_of(np.uint64(value), instances)
    second = second_of(np.uint64(value), instances)
    assert 0 <= home < instances
    assert 0 <= second < instances
    assert (second == home) == (instances == 1)


@pytest.mark.parametrize("instances", [1, 2, 3, 4, 12, 30, 64, 97, 128, 210])
def test_every_stride_leads_through_all_instances(instances: int) -> None:
    strides = strides_of(instances).tolist()
    assert strides == [s for s in range(1, instances + 1) if gcd(s, instances) == 1]
    for stride in strides:
        assert {step * stride % instances for step in range(instances)} == set(range(instances))


def test_a_great_many_instances_have_as_many_strides_as_fit() -> None:
    assert strides_of(10_007).tolist() == list(range(1, 4097))
    assert strides_of(10_007, most=3).tolist() == [1, 2, 3]


@given(bits, st.integers(1, 200))
def test_the_stride_of_a_key_is_one_of_them(value: int, instances: int) -> None:
    strides = strides_of(instances)
    assert stride_of(np.uint64(value), strides) in strides.tolist()


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(*[st.integers(0, n - 1)] * 2, st.just(n))))
def test_places_count_from_the_first(numbers: tuple[int, int, int]) -> None:
    instance, first, instances = numbers
    place = place_of(instance, first, instances)
    assert 0 <= place < instances
    assert (first + place) % instances == instance


@pytest.mark.parametrize("instances", [2, 3, 16, 70])
def test_homes_are_uniform(instances: int) -> None:
    homes = [home_of(value, instances) for value in drawn(40_000)]
    assert abs(excess(np.bincount(homes, minlength=instances))) < 5


@pytest.mark.parametrize("instances", [3, 8, 16])
def test_every_pair_of_choices_is_as_likely_as_any_other(instances: int) -> None:
    pairs = np.zeros((instances, instances), dtype=np.int64)
    for value in drawn(40_000):
        pairs[home_of(value, instances), second_of(value, instances)] += 1
    assert not pairs.diagonal().any()
    assert abs(excess(pairs[~np.eye(instances, dtype=np.bool_)])) < 5


@pytest.mark.parametrize("instances", [5, 16, 30])
def test_strides_are_uniform_whatever_the_home(instances: int) -> None:
    strides = strides_of(instances)
    pairs = np.zeros((instances, instances), dtype=np.int64)
    for value in drawn(40_000):
        pairs[home_of(value, instances), stride_of(value, strides)] += 1
    assert abs(excess(pairs[:, strides].ravel())) < 5


def test_another_seed_gives_other_homes() -> None:
    other = spread_seed(8)
    homes = [home_of(value, 16) for value in drawn(4000)]
    others = [home_of(np.uint64(key_bits(np.uint64(key), other)), 16) for key in range(4000)]
    same = sum(a == b for a, b in zip(homes, others, strict=True))
    # One in 16 by chance, with a standard deviation of 15.
    assert abs(same - 250) < 5 * 16
