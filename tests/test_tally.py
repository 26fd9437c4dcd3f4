"""The counting kernels against sets and dictionaries."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from unskew.errors import BadParameter
from unskew.tally import KeyIndex, KeyTally

keys = st.lists(st.one_of(st.integers(0, 20), st.integers(0, 2**64 - 1)), max_size=200)
routed = st.integers(1, 40).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(st.tuples(st.integers(0, 30), st.integers(0, n - 1)), min_size=1, max_size=200),
    )
)


def hashes(values: list[int]) -> NDArray[np.uint64]:
    return np.array(values, dtype=np.uint64)


@settings(deadline=None)  # The first call compiles.
@given(keys, st.integers(0, 200))
def test_numbers_follow_first_sight_however_the_stream_is_cut(values: list[int], cut: int) -> None:
    index = KeyIndex()
    ids = [*index.ids(hashes(values[:cut])), *index.ids(hashes(values[cut:]))]
    order = {key: number for number, key in enumerate(dict.fromkeys(values))}
    assert ids == [order[key] for key in values]
    assert len(index) == len(order)
    assert index.counts.tolist() == [Counter(values)[key] for key in order]


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(np.arange(100_000, dtype=np.uint64), id="numbers in sequence"),
        pytest.param(np.arange(100_000, dtype=np.uint64) << np.uint64(40), id="upper bits only"),
        pytest.param(np.arange(100_000, dtype=np.uint64) * np.uint64(1024), id="multiples of 1024"),
    ],
)
def test_keys_that_are_no_hashes_survive_growth(values: NDArray[np.uint64]) -> None:
    index = KeyIndex()
    assert (index.ids(values) == np.arange(values.size)).all()
    assert (index.ids(values[::-1]) == np.arange(values.size)[::-1]).all()
    assert set(index.counts.tolist()) == {2}


@settings(deadline=None)  # The first call compiles.
@given(routed, st.integers(0, 200), st.sampled_from([np.uint32, np.int64]))
def test_tally_is_what_sets_would_count(
    stream: tuple[int, list[tuple[int, int]]], cut: int, dtype: Any
) -> None:
    n, pairs = stream
    tally = KeyTally(n)
    for part in (pairs[:cut], pairs[cut:]):
        tally.add(
            np.array([key for key, _ in part], dtype=dtype),
            np.array([instance for _, instance in part], dtype=np.int32),
        )
    held = [{key for key, at in pairs if at == instance} for instance in range(n)]
    assert tally.loads.tolist() == [Counter(at for _, at in pairs)[i] for i in range(n)]
    assert tally.keys_per_instance.tolist() == [len(each) for each in held]
    assert tally.distinct_keys == len(set.union(*held))
    assert tally.memory_keys == len(set(pairs))
    assert tally.replication_factor == pytest.approx(len(set(pairs)) / tally.distinct_keys)
    assert tally.imbalance == pytest.approx(max(tally.loads) * n / len(pairs) - 1)


def test_a_key_counts_once_per_instance_whatever_the_number_of_sources() -> None:
    tally = KeyTally(4)
    for _source in range(3):
        tally.add(np.array([0, 1]), np.array([2, 3], dtype=np.int32))
    assert tally.replication_factor == 1
    assert tally.loads.tolist() == [0, 0, 3, 3]


def test_what_a_tally_returns_is_a_copy() -> None:
    tally = KeyTally(2)
    tally.add(np.array([0]), np.array([1], dtype=np.int32))
    tally.loads[:] = 9
    assert tally.loads.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("ids", "chosen", "says"),
    [
        (
            np.array([0]),
            np.array([4], dtype=np.int32),
            "instance 4, outside 0 to 3; give the tally",
        ),
        (np.array([0]), np.array([-1], dtype=np.int32), "instance -1, outside 0 to 3"),
        (
            np.array([-1]),
            np.array([0], dtype=np.int32),
            "from 0 to 4294967295, dense, not -1; make them",
        ),
        (np.array([0.0]), np.array([0], dtype=np.int32), "make them with KeyIndex"),
        (np.array([0]), np.array([0, 1], dtype=np.int32), "for each of the 1 tuples"),
        (np.array([0]), np.array([0]), "not int64"),
    ],
)
def test_a_bad_batch_is_refused_and_counts_nothing(
    ids: NDArray[np.int64], chosen: NDArray[np.int32], says: str
) -> None:
    tally = KeyTally(4)
    tally.add(np.array([0]), np.array([0], dtype=np.int32))
    with pytest.raises(BadParameter, match=says):
        tally.add(ids, chosen)
    assert tally.loads.tolist() == [1, 0, 0, 0]
    assert tally.memory_keys == 1


def test_an_empty_tally_has_no_imbalance_to_tell() -> None:
    tally = KeyTally(4)
    tally.add(np.array([], dtype=np.int64), np.array([], dtype=np.int32))
    with pytest.raises(BadParameter, match="all 0"):
        _ = tally.imbalance
    with pytest.raises(BadParameter, match="distinct_keys"):
        _ = tally.replication_factor


def test_keys_must_be_hashes() -> None:
    not_hashes: NDArray[Any] = np.array([1, 2])
    with pytest.raises(BadParameter, match=r"unskew\.hash_keys"):
        KeyIndex().ids(not_hashes)
