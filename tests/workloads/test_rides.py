"""Rides: as skewed as the paper's, with tracks that a taxi can drive and hot spots that move."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from unskew.balance import Plan
from unskew.errors import BadParameter
from unskew.grouping import grouping
from unskew.keys import hash_keys
from unskew.workloads import Rides
from unskew.workloads.hilbert import hilbert_cell
from unskew.workloads.rides import ORDER_EVERY, SIDE, START, Places

PER_HOUR = 50_000
HOUR = 3_600_000


@pytest.fixture(scope="module")
def day() -> Places:
    return Rides(24 * PER_HOUR, per_hour=PER_HOUR).places(np.arange(24 * PER_HOUR))


def shares(cells: NDArray[np.int64], instances: NDArray[np.int32]) -> tuple[float, float]:
    """Return the parts of the tuples on the ten largest and the ten smallest of 100 instances."""
    loads = np.sort(np.bincount(instances[cells], minlength=100)) / cells.size
    return float(loads[-10:].sum()), float(loads[:10].sum())


def test_under_hashing_a_day_is_as_skewed_as_in_the_paper(day: Places) -> None:
    keys = hash_keys(pa.array(np.arange(256)))
    homes = [grouping("key", 100, seed=seed).route(keys) for seed in range(50)]
    hashed = Plan.even(100, 100).route(keys, np.zeros(keys.size, dtype=np.int64))

    for chosen in (homes[0], hashed):
        top, bottom = shares(day.cell, chosen)
        assert top == pytest.approx(0.396, abs=0.01)
        assert bottom < 0.001
    # By whatever function the cells are hashed: on average.
    top, bottom = np.mean([shares(day.cell, chosen) for chosen in homes], axis=0)
    assert top == pytest.approx(0.396, abs=0.01)
    assert bottom < 0.001


def test_the_skew_is_that_of_the_city_and_not_of_the_seed() -> None:
    keys = Rides(24 * 10_000, per_hour=10_000, seed=7).draw(0, 24 * 10_000)
    router = grouping("key", 100)
    router.route(keys)
    loads = np.sort(router.loads) / keys.size
    assert loads[-10:].sum() == pytest.approx(0.396, abs=0.015)


def test_there_are_more_tuples_in_the_rush_hours(day: Places) -> None:
    hours = np.bincount(np.maximum(day.time // HOUR, 0), minlength=24)
    of_day = dict(zip((START.hour + np.arange(24)) % 24, hours, strict=True))
    assert min(of_day[8], of_day[18]) > 1.2 * of_day[13] > 1.2 * of_day[3]
    assert hours.sum() == 24 * PER_HOUR


def test_hot_spots_move(day: Places) -> None:
    hottest = []
    for hour in range(24):
        cells = np.bincount(day.cell[day.time // HOUR == hour], minlength=256)
        hottest.append(set(np.argsort(-cells)[:5].tolist()))
    always = set.intersection(*hottest)
    # The centres stay; beside them there are others almost every hour.
    assert always
    assert len(set.union(*hottest)) > 15
    changed = [one != other for one, other in pairwise(hottest)]
    assert sum(changed) > 15


def test_a_taxi_drives_and_does_not_jump() -> None:
    rides = Rides(1, per_hour=60 * 20)
    assert rides.taxis == 20
    numbers = np.arange(20_000)
    tracks = rides.tracks(numbers[numbers % ORDER_EVERY != 0])
    time = tracks.field("time").cast(pa.int64()).to_numpy() / 1e6
    order = np.argsort(time, kind="stable")
    mine = order[tracks.field("taxi").to_numpy()[order] == 3]
    x, y = (tracks.field(name).to_numpy()[mine] for name in ("x", "y"))
    far, long = np.hypot(np.diff(x), np.diff(y)), np.diff(time[mine])
    assert far.sum() > 100
    # The map from corner to corner in the moving part of a trip, and rounded times.
    assert (far <= (long + 0.01) * SIDE * 2**0.5 / 270).all()
    assert (far[long > 0] == 0).any()


def test_some_tracks_come_late_and_orders_do_not() -> None:
    rides = Rides(1)
    numbers = np.arange(300_000)
    when = rides.places(numbers).time
    behind = np.maximum.accumulate(when) - when
    assert not behind[numbers % ORDER_EVERY == 0].any()
    assert 0.015 < (behind >= 10_000).mean() < 0.025
    assert 0 < (behind > 720_000).mean() < 0.001


def test_the_columns_are_those_of_the_tuples() -> None:
    rides = Rides(1000, seed=3)
    numbers = np.arange(0, 1000, ORDER_EVERY)
    places, orders = rides.places(numbers), rides.orders(numbers)
    assert orders.field("order").to_pylist() == list(range(20))
    assert orders.field("time")[0].as_py() == START
    assert orders.field("cell").to_pylist() == places.cell.tolist()
    squares = (np.stack((places.x, places.y), axis=1) / SIDE * 16).astype(np.int64)
    assert places.cell.tolist() == [hilbert_cell(x, y, 4) for x, y in squares.tolist()]
    assert (hash_keys(orders.field("cell")) == rides.draw(0, 1000)[numbers]).all()
    assert len(rides.orders(numbers[:0])) == 0
    assert rides.orders(numbers[:0]).type == orders.type


@settings(deadline=None)  # The first call compiles.
@given(st.integers(1, 300), st.integers(1, 350), st.integers(0, 2**63 - 1), st.integers(1, 10**6))
def test_the_stream_does_not_depend_on_the_batches(
    messages: int, size: int, seed: int, per_hour: int
) -> None:
    rides = Rides(messages, per_hour=per_hour, seed=seed)
    whole = np.concatenate(list(rides.batches(size=size)))
    assert (whole == rides.draw(0, messages)).all()


def test_seeds_give_other_tuples() -> None:
    one, other = (Rides(1000, seed=seed).draw(0, 1000) for seed in (0, 1))
    assert (one != other).mean() > 0.9


def test_finer_cells_are_parts_of_coarse_ones() -> None:
    numbers = np.arange(1000)
    coarse, fine = (Rides(1, order=order).places(numbers).cell for order in (4, 6))
    assert (fine >> 4 == coarse).all()


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"messages": 0}, "messages must be from 1"),
        ({"per_hour": 0}, "per_hour must be from 1"),
        ({"order": 11}, "order must be from 1 to 10, not 11"),
    ],
)
def test_bad_parameters_are_named(parameters: dict[str, int], says: str) -> None:
    with pytest.raises(BadParameter, match=says):
        Rides(**{"messages": 10, **parameters})


def test_numbers_of_the_wrong_stream_are_refused() -> None:
    rides = Rides(10)
    with pytest.raises(BadParameter, match="tuple 7 is not an order"):
        rides.orders(np.array([50, 7]))
    with pytest.raises(BadParameter, match="tuple 50 is not of a track"):
        rides.tracks(np.array([50, 7]))
