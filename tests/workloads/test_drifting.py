"""Hot keys that change: what moves, what stays, and that the law holds throughout."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.errors import BadParameter
from unskew.workloads import DriftingZipf, Zipf
from unskew.workloads.ranks import rank_keys


def test_every_period_has_a_permutation_of_the_same_keys() -> None:
    workload = DriftingZipf(1.0, keys=100, messages=10, hot=30, seed=3)
    ranks = np.arange(1, 101)
    for period in range(50):
        owners = workload._owners(ranks, period)
        assert sorted(owners) == ranks.tolist()
        moved = owners != ranks
        assert moved[:30].all() == (period > 0)
        assert moved.sum() == (60 if period else 0)


def test_no_key_is_hot_in_two_neighbouring_periods() -> None:
    workload = DriftingZipf(1.0, keys=92, messages=10, hot=30)
    for period in range(100):
        here, next_ = workload.hot_keys(period), workload.hot_keys(period + 1)
        assert len(set(here) | set(next_)) == 60


def test_within_a_period_the_keys_follow_the_zipf_law() -> None:
    workload = DriftingZipf(1.2, keys=1000, messages=600_000, period=200_000, hot=10)
    for period in range(3):
        keys = workload.draw(period * 200_000, (period + 1) * 200_000)
        found, counts = np.unique(keys, return_counts=True)
        count = dict(zip(found.tolist(), counts.tolist(), strict=True))
        shares = Zipf(1.2, 1000, 1).shares(10)
        for key, share in zip(workload.hot_keys(period).tolist(), shares, strict=True):
            assert count[key] == pytest.approx(200_000 * share, rel=0.05)


def test_the_first_period_is_the_plain_zipf_stream() -> None:
    drifting = DriftingZipf(1.0, keys=1000, messages=300, period=100, seed=5)
    plain = Zipf(1.0, keys=1000, messages=300, seed=5)
    assert (drifting.draw(0, 100) == plain.draw(0, 100)).all()
    assert (drifting.draw(100, 300) != plain.draw(100, 300)).mean() > 0.3


def test_the_tail_keeps_its_keys() -> None:
    drifting = DriftingZipf(1.0, keys=100_000, messages=30_000, period=10_000, hot=20)
    plain = Zipf(1.0, keys=100_000, messages=30_000)
    tail = plain.ranks(0, 30_000) > 20
    same = drifting.draw(0, 30_000) == plain.draw(0, 30_000)
    assert same[tail].mean() > 0.99
    assert not same[10_000:][~tail[10_000:]].any()


@settings(deadline=None)  # The first call compiles.
@given(st.integers(1, 50), st.integers(1, 200), st.integers(1, 250), st.integers(0, 2**63 - 1))
def test_the_stream_does_not_depend_on_the_batches(
    period: int, messages: int, size: int, seed: int
) -> None:
    workload = DriftingZipf(1.5, keys=30, messages=messages, period=period, hot=10, seed=seed)
    whole = np.concatenate(list(workload.batches(size=size)))
    assert (whole == workload.draw(0, messages)).all()
    assert set(whole) <= set(rank_keys(np.arange(1, 31)))


def test_seeds_promote_other_keys() -> None:
    one, other = (DriftingZipf(1.0, 10_000, 10, seed=seed).hot_keys(1) for seed in (0, 1))
    assert len(set(one) & set(other)) < 10


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"hot": 4}, "at most a third of the keys, 3 of 10"),
        ({"hot": 0}, "hot must be from 1"),
        ({"period": 0}, "period must be from 1"),
        ({"exponent": -1}, "exponent must be at least 0"),
    ],
)
def test_bad_parameters_are_named(parameters: dict[str, int], says: str) -> None:
    arguments = {"exponent": 1, "keys": 10, "messages": 10, "hot": 3, **parameters}
    with pytest.raises(BadParameter, match=says):
        DriftingZipf(**arguments)
