"""Zipf draws against the law that they follow and the table of the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.errors import BadParameter
from unskew.tally import KeyIndex
from unskew.workloads import Zipf
from unskew.workloads.ranks import rank_keys

TABLE_IV = {
    1.0: (1_900_000, 0.059),
    1.2: (563_000, 0.185),
    1.4: (127_000, 0.322),
    1.6: (33_100, 0.437),
    1.8: (10_700, 0.532),
    2.0: (4_300, 0.607),
}


@pytest.mark.parametrize("exponent", TABLE_IV)
def test_pd_stream_table_4_drawn_from_ten_million_keys(exponent: float) -> None:
    keys_seen, p1 = TABLE_IV[exponent]
    workload = Zipf(exponent, keys=10_000_000, messages=10_000_000)
    index = KeyIndex()
    for batch in workload.batches():
        index.ids(batch)
    counts = index.counts
    assert counts.sum() == 10_000_000
    assert len(index) == pytest.approx(keys_seen, rel=0.05)
    assert counts.max() / counts.sum() == pytest.approx(p1, rel=0.05)
    # And the expectations, which hold for every seed.
    assert workload.expected_keys() == pytest.approx(keys_seen, rel=0.05)
    assert workload.p(1) == pytest.approx(p1, rel=0.05)


@pytest.mark.parametrize("exponent", [0.0, 0.3, 0.8, 1.0, 1.5, 3.0, 20.0])
@pytest.mark.parametrize(
    ("keys", "p1"), [(1, None), (2, None), (3, None), (50, None), (2, 0.3), (3, 0.3), (50, 0.3)]
)
def test_draws_follow_the_law(exponent: float, keys: int, p1: float | None) -> None:
    draws = 200_000
    workload = Zipf(exponent, keys, draws, p1=p1)
    counts = np.bincount(workload.ranks(0, draws), minlength=keys + 1)[1:]
    shares = workload.shares(keys)
    assert counts.size == keys
    assert shares.sum() == pytest.approx(1)
    # Five standard deviations in each of the ranks; the seed is fixed, so this never flickers.
    assert (np.abs(counts - draws * shares) <= 5 * np.sqrt(draws * shares) + 1).all()


def test_draws_from_a_trillion_keys_follow_the_law() -> None:
    draws, keys = 200_000, 2**40
    workload = Zipf(1.0, keys, draws)
    ranks = workload.ranks(0, draws)
    assert ranks.min() == 1
    assert ranks.max() <= keys
    for top in (1, 1000, 10_000):
        share = workload.shares(top).sum()
        assert (ranks <= top).mean() == pytest.approx(share, abs=5 * np.sqrt(share / draws))
    # Half of the logarithm holds, nearly, half of the weight.
    assert (ranks <= 2**20).mean() == pytest.approx(0.5, abs=0.02)


@settings(deadline=None)  # The first call compiles.
@given(
    st.floats(0, 3),
    st.integers(1, 10**12),
    st.integers(1, 300),
    st.integers(0, 2**63 - 1),
    st.integers(1, 400),
)
def test_the_stream_does_not_depend_on_the_batches(
    exponent: float, keys: int, messages: int, seed: int, size: int
) -> None:
    workload = Zipf(exponent, keys, messages, seed=seed)
    batches = list(workload.batches(size=size))
    assert all(batch.size == size for batch in batches[:-1])
    assert all(batch.dtype == np.uint64 for batch in batches)
    whole = np.concatenate(batches)
    assert whole.size == messages
    assert (whole == workload.draw(0, messages)).all()
    assert (whole == np.concatenate(list(workload.batches(size=7)))).all()


def test_seeds_choose_other_draws_from_the_same_keys() -> None:
    one, other = (Zipf(1.0, 1000, 50_000, seed=seed).draw(0, 50_000) for seed in (0, 1))
    assert (one != other).mean() > 0.9
    assert set(one) | set(other) <= set(rank_keys(np.arange(1, 1001)))


def test_neighbouring_draws_are_independent() -> None:
    ranks = Zipf(0.0, 10, 1_000_000).ranks(0, 1_000_000)
    pairs = np.bincount(ranks[:-1] * 11 + ranks[1:], minlength=121).reshape(11, 11)[1:, 1:]
    assert np.abs(pairs - 10_000).max() < 5 * 100


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.0 + 1e-9, 2.5])
def test_shares_and_expected_keys_are_the_plain_sums(exponent: float) -> None:
    keys, messages = 300_000, 500_000
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    shares = weights / weights.sum()
    workload = Zipf(exponent, keys, messages)
    np.testing.assert_allclose(workload.shares(keys), shares, rtol=1e-12)
    assert workload.p(keys) == pytest.approx(shares[-1], rel=1e-12)
    expected = (-np.expm1(messages * np.log1p(-shares))).sum()
    assert workload.expected_keys() == pytest.approx(expected, rel=1e-8)
    assert workload.expected_keys(1) == pytest.approx(1)


def test_a_single_key_is_all_there_is() -> None:
    workload = Zipf(1.3, keys=1, messages=10)
    assert workload.p(1) == 1
    assert workload.expected_keys() == 1
    assert set(workload.ranks(0, 10)) == {1}


def test_a_mean_of_billions_needs_no_memory() -> None:
    workload = Zipf(1.0, keys=10**9, messages=10**12)
    first = next(iter(workload.batches(size=10)))
    assert (first == workload.draw(0, 10)).all()
    assert workload.draw(10**12 - 5, 10**12).size == 5


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"exponent": -0.1}, "exponent must be at least 0, not -0.1"),
        ({"exponent": float("nan")}, "exponent"),
        ({"exponent": float("inf")}, "exponent"),
        ({"keys": 0}, "keys must be from 1"),
        ({"keys": 2.5}, "keys must be a whole number"),
        ({"messages": 0}, "messages must be from 1"),
        ({"seed": -1}, "seed must be from 0"),
        ({"p1": 1.0}, "p1 must be above 0 and below 1"),
        ({"p1": 0.5, "keys": 1}, "no second key"),
    ],
)
def test_bad_parameters_are_named(parameters: dict[str, Any], says: str) -> None:
    arguments: dict[str, Any] = {"exponent": 1.0, "keys": 10, "messages": 10, **parameters}
    with pytest.raises(BadParameter, match=says):
        Zipf(**arguments)


def test_a_batch_holds_at_least_one_tuple() -> None:
    with pytest.raises(BadParameter, match="size must be from 1"):
        Zipf(1.0, 10, 10).batches(size=0)
