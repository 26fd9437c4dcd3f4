"""Rides: orders of passengers and tracks of taxis over a city, joined on cells of its map."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.errors import BadParameter
from unskew.kernel import kernel
from unskew.keys import hash_keys
from unskew.mixing import counter_bits, mix, spread_seed, unit
from unskew.parameters import whole_number
from unskew.workloads.base import Generated
from unskew.workloads.hilbert import hilbert_cell

SIDE = 32.0
"""Kilometres of the map in each direction."""

ORDER_EVERY = 50
"""One tuple of so many is an order, the others are of tracks: taxis tell where they are all day."""

START = datetime(2024, 1, 1, 7, tzinfo=UTC)
"""Time of the first tuple: a Monday, as the morning's rush begins."""

REPORT_SECONDS = 60
"""A taxi tells so often where it is, on average of the day."""

_CENTRES = np.array(
    # x, y, part of those who are in a centre.
    [(16.2, 15.2, 0.42), (24.0, 20.8, 0.24), (9.5, 10.1, 0.18), (7.8, 22.1, 0.16)]
)
_SPOTS = np.array(
    # Hot spots: x and y of the middle that each goes around, how far from it, and its first stop.
    [(16.0, 16.0, 7.0, 1.0), (15.0, 17.0, 10.0, 6.5)]
)
_STOP_HOURS = 1.0
"""A hot spot stays so long, and then is somewhere else."""

_CENTRE_SPREAD, _SPOT_SPREAD, _SUBURBS_SPREAD = 1.28, 0.7, 6.4
_SUBURBS_SHARE, _SPOTS_SHARE = 0.348, 0.16
"""Fitted: with these the skew is that of the paper's figures."""

_TIDE = 0.4
"""By so much more, in parts, orders and taxis are in the suburbs in the morning's rush, and by so
much less in the evening's."""

_TRIP_MS = 900_000
_WAITING = 0.7
"""A taxi has a trip every quarter of an hour, and waits for so much of it where the last ended."""

_HELD = 0.02
"""Part of the reports that are sent later than they were made, while a taxi has no connection."""

_HOUR_MS = 3_600_000
_DAY = 24
_START_HOUR = START.hour


def _rush(hour: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how busy the city is at an hour of the day."""
    morning = 0.9 * np.exp(-(((hour - 8.5) / 1.3) ** 2))
    evening = 1.1 * np.exp(-(((hour - 18.0) / 1.8) ** 2))
    night = -0.6 * np.exp(-((((hour + 8) % _DAY - 11.0) / 3.0) ** 2))
    busy: NDArray[np.float64] = 1.0 + morning + evening + night
    return busy


_MINUTES = np.arange(60 * _DAY + 1) / 60
_WORK = np.concatenate(([0.0], np.cumsum(_rush((_MINUTES[:-1] + START.hour + 1 / 120) % _DAY))))
_WORK *= _DAY / _WORK[-1]
"""What has come of the tuples of a day after each minute of it, in hours of the mean rate."""


class Places(NamedTuple):
    """Where and when tuples are.

    Attributes
    ----------
    time : array of int64
        Event time, in milliseconds after `START`; a few are earlier.
    x, y : array of float64
        Kilometres from a corner of the map.
    cell : array of int64
        Place on the Hilbert curve of the square that this is in.
    """

    time: NDArray[np.int64]
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    cell: NDArray[np.int64]


class Rides(Generated):
    """Orders and taxi tracks over a city, as skewed on 100 instances as those of LS-Stream.

    The city has a few centres, suburbs around them, and hot spots that move through it within
    hours; in the morning more passengers are in the suburbs, in the evening more in the centres,
    and at both times there are more of them. Taxis drive from place to place, and some of their
    reports come late. The key is the cell of the map, by the Hilbert curve.

    Under hashing onto 100 instances the ten largest have 39.6 % of a day's tuples, the ten
    smallest almost none, as in Fig. 1 and 2. The city is the same for every seed.

    Parameters
    ----------
    messages : int
        Length of the stream.
    per_hour : int, default 300_000
        Tuples an hour, on average of the day; a taxi for every 60 of them.
    order : int, default 4
        Of the Hilbert curve: the map has 4 ** order cells, by default squares of two kilometres.
    seed : int, default 0
        Chooses the orders and the tracks.

    Examples
    --------
    >>> rides = Rides(messages=1000, seed=1)
    >>> rides.orders(np.array([0, 50])).field("cell").to_pylist()
    [134, 140]
    >>> rides.tracks(np.array([1, 2])).field("taxi").to_pylist()
    [0, 1]

    References
    ----------
    LS-Stream, Section I, Fig. 1 and 2, and Section VI-A; its data, of DiDi, are not ours to ship.
    """

    def __init__(
        self, messages: int, *, per_hour: int = 300_000, order: int = 4, seed: int = 0
    ) -> None:
        super().__init__(messages, seed=seed)
        self.per_hour = whole_number("per_hour", per_hour, least=1, most=2**40)
        self.order = whole_number("order", order, least=1, most=10)
        self.taxis = max(1, self.per_hour * REPORT_SECONDS // 3600)
        self._seed = spread_seed(self.seed)
        self.name = "rides"
        self.description = (
            f"orders and tracks of {self.taxis:,} taxis in {4**self.order:,} cells of a city, "
            f"{self.per_hour:,} tuples an hour"
        )

    def draw(self, start: int, stop: int) -> NDArray[np.uint64]:
        """Return the key hashes of tuples `start` up to, not including, `stop`."""
        table = hash_keys(pa.array(np.arange(4**self.order)))
        hashes: NDArray[np.uint64] = table[self.places(np.arange(start, stop)).cell]
        return hashes

    def places(self, numbers: NDArray[np.int64]) -> Places:
        """Return where and when the tuples of these numbers are, orders and tracks.

        Examples
        --------
        >>> places = Rides(messages=100).places(np.arange(100))
        >>> bool(((places.x >= 0) & (places.x < SIDE)).all())
        True
        """
        time = self._clock(numbers)
        x, y = np.empty((2, numbers.size))
        cell = np.empty(numbers.size, dtype=np.int64)
        _fill(self._seed, numbers, self.taxis, self.order, time, x, y, cell)
        return Places(time, x, y, cell)

    def orders(self, numbers: NDArray[np.int64]) -> pa.StructArray:
        """Return the orders of these numbers, which are multiples of 50: order, time, x, y, cell.

        Orders count from 0 up.
        """
        self._check(numbers, "an order", numbers % ORDER_EVERY == 0)
        return self._columns("order", numbers // ORDER_EVERY, numbers)

    def tracks(self, numbers: NDArray[np.int64]) -> pa.StructArray:
        """Return the tracks of these numbers, which are no multiples of 50: taxi and the same."""
        self._check(numbers, "of a track", numbers % ORDER_EVERY != 0)
        return self._columns("taxi", (numbers - numbers // ORDER_EVERY - 1) % self.taxis, numbers)

    def _columns(
        self, name: str, who: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> pa.StructArray:
        places = self.places(numbers)
        time = 1000 * (places.time + 1000 * int(START.timestamp()))
        columns = {
            name: pa.array(who),
            "time": pa.array(time).cast(pa.timestamp("us", "UTC")),
            "x": pa.array(places.x),
            "y": pa.array(places.y),
            "cell": pa.array(places.cell),
        }
        return pa.StructArray.from_arrays(list(columns.values()), list(columns))

    def _check(self, numbers: NDArray[np.int64], what: str, fits: NDArray[np.bool_]) -> None:
        if not fits.all():
            raise BadParameter(
                f"tuple {numbers[~fits][0]} is not {what}: each multiple of {ORDER_EVERY} is an "
                f"order, all others are of tracks"
            )

    def _clock(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return when tuples come: more of them in an hour when the city is busy."""
        days, rest = np.divmod(numbers, _DAY * self.per_hour)
        hours = np.interp(rest / self.per_hour, _WORK, _MINUTES)
        time: NDArray[np.int64] = _DAY * _HOUR_MS * days + (_HOUR_MS * hours).astype(np.int64)
        return time


@kernel
def _fill(
    seed: np.uint64,
    numbers: NDArray[np.int64],
    taxis: int,
    order: int,
    time: NDArray[np.int64],
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    cell: NDArray[np.int64],
) -> None:
    """Fill in the place of each tuple; `time` is when it comes, and becomes its event time."""
    size = 1 << order
    for i in range(numbers.size):
        number = numbers[i]
        bits = counter_bits(seed, np.uint64(number))
        if number % ORDER_EVERY == 0:
            x[i], y[i] = _place(bits, time[i])
        else:
            time[i] -= _held(bits)
            taxi = (number - number // ORDER_EVERY - 1) % taxis
            x[i], y[i] = _taxi_place(seed, taxi, time[i])
        column = min(max(int(x[i] / SIDE * size), 0), size - 1)
        row = min(max(int(y[i] / SIDE * size), 0), size - 1)
        cell[i] = hilbert_cell(column, row, order)


@kernel
def _held(bits: np.uint64) -> int:
    """Return by how many milliseconds a report comes late: mostly 0, seldom up to an hour."""
    chance = unit(bits)
    if chance >= _HELD:
        return 0
    return int(min(10_000.0 * _HELD / max(chance, 1e-9), _HOUR_MS))


@kernel
def _taxi_place(seed: np.uint64, taxi: int, time: int) -> tuple[float, float]:
    """Return where a taxi is: at the end of its last trip, or on the way to that of the next."""
    own = mix(seed ^ np.uint64(taxi + 1))
    # Not all start at the same moment; a day ahead, as the first reports may be of before START.
    since = time + int(np.int64(own % np.uint64(_TRIP_MS))) + _DAY * _HOUR_MS
    trip, within = since // _TRIP_MS, (since % _TRIP_MS) / _TRIP_MS
    x, y = _place(counter_bits(own, np.uint64(trip)), time - since % _TRIP_MS)
    if within > _WAITING:
        to_x, to_y = _place(
            counter_bits(own, np.uint64(trip + 1)), time - since % _TRIP_MS + _TRIP_MS
        )
        way = (within - _WAITING) / (1.0 - _WAITING)
        x, y = x + way * (to_x - x), y + way * (to_y - y)
    return x, y


@kernel
def _place(bits: np.uint64, time: int) -> tuple[float, float]:
    """Return a place where somebody wants to be at a time."""
    hours = time / _HOUR_MS
    hour = (hours + _START_HOUR) % _DAY
    tide = np.exp(-(((hour - 8.5) / 1.3) ** 2)) - np.exp(-(((hour - 18.0) / 1.8) ** 2))
    suburbs = _SUBURBS_SHARE * (1.0 + _TIDE * tide)
    chance = unit(counter_bits(bits, np.uint64(1)))
    if chance < _SPOTS_SHARE:
        middle_x, middle_y, radius, first = _SPOTS[int(chance / _SPOTS_SHARE * len(_SPOTS))]
        # By the golden section of a round, so that no stop is near those before.
        angle = 2.0 * np.pi * 0.618034 * np.floor(first + hours / _STOP_HOURS)
        x, y = middle_x + radius * np.cos(angle), middle_y + radius * np.sin(angle)
        spread = _SPOT_SPREAD
    elif chance < _SPOTS_SHARE + suburbs:
        x, y, spread = SIDE / 2, SIDE / 2, _SUBURBS_SPREAD
    else:
        rest = (chance - _SPOTS_SHARE - suburbs) / (1.0 - _SPOTS_SHARE - suburbs)
        centre = 0
        while centre < len(_CENTRES) - 1 and rest >= _CENTRES[centre, 2]:
            rest -= _CENTRES[centre, 2]
            centre += 1
        x, y, spread = _CENTRES[centre, 0], _CENTRES[centre, 1], _CENTRE_SPREAD
    # Two numbers of the normal law out of two of the uniform one (Box and Muller, 1958).
    far = spread * np.sqrt(-2.0 * np.log(1.0 - unit(counter_bits(bits, np.uint64(2)))))
    angle = 2.0 * np.pi * unit(counter_bits(bits, np.uint64(3)))
    x, y = x + far * np.cos(angle), y + far * np.sin(angle)
    return min(max(x, 0.0), SIDE - 1e-6), min(max(y, 0.0), SIDE - 1e-6)
