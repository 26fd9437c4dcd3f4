"""When tuples arrive: steadily, at random, in bursts, or as a trace says."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unskew.errors import BadParameter
from unskew.kernel import compiled
from unskew.mixing import counter_bits, spread_seed, unit
from unskew.parameters import number, whole_number

_GAPS = np.uint64(0x67617073)
"""Parts what is drawn for gaps from what a workload of the same seed draws for keys."""

FAR = 1e8
"""Seconds after which no trace begins: three years, so that dates are not taken for durations."""


class Arrivals(ABC):
    """The arrival times of a stream, in seconds, in order.

    Tuple i of the stream arrives at a time that depends on i and the seed alone, so the times do
    not depend on how many are asked for at once.
    """

    rate: float
    """Tuples a second on average."""

    @abstractmethod
    def times(self, start: int, stop: int, clock: float) -> tuple[NDArray[np.float64], float]:
        """Return the times of tuples `start` up to `stop`, and the clock after them.

        The clock is 0 for the first tuple, and from then on what the call before returned.
        """

    @abstractmethod
    def faster(self, times: float) -> Arrivals:
        """Return the same arrivals at a rate so many times as high."""


class Steady(Arrivals):
    """One tuple every 1 / rate seconds.

    Parameters
    ----------
    rate : float
        Tuples a second, above 0.

    Examples
    --------
    >>> Steady(10.0).times(0, 3, 0.0)[0].tolist()
    [0.1, 0.2, 0.3]
    """

    def __init__(self, rate: float) -> None:
        self.rate = number("rate", rate, above=0)

    def times(self, start: int, stop: int, clock: float) -> tuple[NDArray[np.float64], float]:
        """Return the times of tuples `start` up to `stop`, and the clock after them."""
        return np.arange(start + 1, stop + 1, dtype=np.float64) / self.rate, 0.0

    def faster(self, times: float) -> Steady:
        """Return the same arrivals at a rate so many times as high."""
        return Steady(self.rate * times)


class Poisson(Arrivals):
    """Independent exponential gaps: the arrivals of queueing theory.

    Parameters
    ----------
    rate : float
        Tuples a second on average, above 0.
    seed : int, default 0
        Chooses the gaps.

    Examples
    --------
    >>> gaps = np.diff(Poisson(100.0).times(0, 10_000, 0.0)[0])
    >>> bool(abs(gaps.mean() * 100 - 1) < 0.05)
    True
    """

    def __init__(self, rate: float, *, seed: int = 0) -> None:
        self.rate = number("rate", rate, above=0)
        self.seed = whole_number("seed", seed, least=0, most=2**63 - 1)

    def times(self, start: int, stop: int, clock: float) -> tuple[NDArray[np.float64], float]:
        """Return the times of tuples `start` up to `stop`, and the clock after them."""
        sums = _running(clock, exponentials(spread_seed(self.seed) ^ _GAPS, start, stop))
        return sums / self.rate, float(sums[-1])

    def faster(self, times: float) -> Poisson:
        """Return the same arrivals at a rate so many times as high."""
        return Poisson(self.rate * times, seed=self.seed)


class Ramp(Arrivals):
    """A rate that grows to its full height, and stays there: as one looks for a bottleneck.

    Balancers learn before the limit is reached, so that what they had not yet balanced is no
    backlog for the rest of the run.

    Parameters
    ----------
    rate : float
        Tuples a second once the rate is at its height, above 0.
    tuples : int
        How many come before that.
    begin : float, default 0.25
        Part of the rate at the beginning, between 0 and 1.

    Examples
    --------
    >>> times, _ = Ramp(10.0, tuples=20).times(0, 40, 0.0)
    >>> (1 / np.diff(times)[[0, 10, 20, -1]]).round(1).tolist()
    [3.1, 6.8, 10.0, 10.0]
    """

    def __init__(self, rate: float, *, tuples: int, begin: float = 0.25) -> None:
        self.rate = number("rate", rate, above=0)
        self.tuples = whole_number("tuples", tuples, least=1, most=2**62)
        self.begin = number("begin", begin, above=0, below=1)

    def times(self, start: int, stop: int, clock: float) -> tuple[NDArray[np.float64], float]:
        """Return the times of tuples `start` up to `stop`, and the clock after them."""
        numbers = np.arange(start + 1, stop + 1, dtype=np.float64)
        # Rates grow with the number of the tuple, so the time is the integral of 1 / rate.
        growth = (1 - self.begin) / self.begin
        part = np.minimum(numbers / self.tuples, 1.0)
        slow = self.tuples * np.log1p(growth * part) / (1 - self.begin)
        return (slow + np.maximum(numbers - self.tuples, 0.0)) / self.rate, 0.0

    def faster(self, times: float) -> Ramp:
        """Return the same arrivals at a rate so many times as high."""
        return Ramp(self.rate * times, tuples=self.tuples, begin=self.begin)


class Bursty(Arrivals):
    """Poisson arrivals whose rate is `burst` times the quiet one for part of every period.

    Parameters
    ----------
    rate : float
        Tuples a second on average over a period, above 0.
    burst : float, default 5
        How many times the quiet rate a burst has, at least 1.
    period : float, default 1
        Seconds from one burst to the next.
    share : float, default 0.2
        Part of the period that is a burst, between 0 and 1.
    seed : int, default 0
        Chooses the gaps.

    Examples
    --------
    >>> times, _ = Bursty(1000.0, burst=9.0, share=0.1).times(0, 10_000, 0.0)
    >>> bool(abs(np.mean(times % 1.0 < 0.1) - 0.5) < 0.05)
    True
    """

    def __init__(
        self,
        rate: float,
        *,
        burst: float = 5.0,
        period: float = 1.0,
        share: float = 0.2,
        seed: int = 0,
    ) -> None:
        self.rate = number("rate", rate, above=0)
        self.burst = number("burst", burst, least=1)
        self.period = number("period", period, above=0)
        self.share = number("share", share, above=0, below=1)
        self.seed = whole_number("seed", seed, least=0, most=2**63 - 1)

    def times(self, start: int, stop: int, clock: float) -> tuple[NDArray[np.float64], float]:
        """Return the times of tuples `start` up to `stop`, and the clock after them."""
        # Gaps of rate 1 are laid onto the curve of expected tuples, and read off as times.
        expected = _running(clock, exponentials(spread_seed(self.seed) ^ _GAPS, start, stop))
        return self._time_of(expected), float(expected[-1])

    def _time_of(self, expected: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return when so many tuples are expected to have come."""
        quiet = self.rate / (1.0 - self.share + self.share * self.burst)
        periods, rest = np.divmod(expected, self.rate * self.period)
        hot = self.share * self.period * quiet * self.burst
        within = np.where(
            rest <= hot,
            rest / (quiet * self.burst),
            self.share * self.period + (rest - hot) / quiet,
        )
        times: NDArray[np.float64] = periods * self.period + within
        return times

    def faster(self, times: float) -> Bursty:
        """Return the same arrivals at a rate so many times as high."""
        return Bursty(
            self.rate * times,
            burst=self.burst,
            period=self.period,
            share=self.share,
            seed=self.seed,
        )


class Hourly(Arrivals):
    """A rate for each hour of a day, steady within it; after the last the first comes again.

    Parameters
    ----------
    rates : list of float
        Tuples a second in each part of the period, above 0.
    hour : float, default 3600
        Seconds of each part.

    Examples
    --------
    >>> times, _ = Hourly([1.0, 2.0], hour=10.0).times(0, 40, 0.0)
    >>> times[[0, 9, 10, 29, 30]].tolist()
    [1.0, 10.0, 10.5, 20.0, 21.0]

    References
    ----------
    Consistent Grouping, Fig. 5: messages per hour.
    """

    def __init__(self, rates: Sequence[float], *, hour: float = 3600.0) -> None:
        self.rates = tuple(number("rates", float(each), above=0) for each in rates)
        if not self.rates:
            raise BadParameter("rates are empty; give the tuples a second of one hour at least")
        self.hour = number("hour", hour, above=0)
        self.rate = sum(self.rates) / len(self.rates)

    def times(self, start: int, stop: int, clock: float) -> tuple[NDArray[np.float64], float]:
        """Return the times of tuples `start` up to `stop`, and the clock after them."""
        ends = np.concatenate(([0.0], np.cumsum(self.rates))) * self.hour
        days, rest = np.divmod(np.arange(start + 1, stop + 1, dtype=np.float64), ends[-1])
        hours = np.arange(ends.size) * self.hour
        return days * hours[-1] + np.interp(rest, ends, hours), 0.0

    def faster(self, times: float) -> Hourly:
        """Return the same arrivals at a rate so many times as high."""
        return Hourly([each * times for each in self.rates], hour=self.hour)


class Trace(Arrivals):
    """Arrival times that were recorded.

    Parameters
    ----------
    times : list of float
        Seconds, in order, none below 0.

    Examples
    --------
    >>> Trace([0.5, 0.7, 2.0]).times(1, 3, 0.0)[0].tolist()
    [0.7, 2.0]
    """

    def __init__(self, times: Sequence[float] | NDArray[np.float64]) -> None:
        self._times = np.asarray(times, dtype=np.float64)
        if (
            self._times.size == 0
            or not np.isfinite(self._times).all()
            or self._times[0] < 0
            or np.any(np.diff(self._times) < 0)
        ):
            raise BadParameter(
                "a trace needs at least one time, all finite, none below 0, in order"
            )
        if self._times[0] > FAR:
            raise BadParameter(
                f"a trace counts seconds from the start of the simulation, but its first time is "
                f"{self._times[0]:.0f}; subtract that from all"
            )
        # All at time 0 have no rate; any is as good as another.
        self.rate = self._times.size / (float(self._times[-1]) or 1.0)

    def times(self, start: int, stop: int, clock: float) -> tuple[NDArray[np.float64], float]:
        """Return the times of tuples `start` up to `stop`, and the clock after them."""
        if stop > self._times.size:
            raise BadParameter(
                f"the trace has {self._times.size} times, tuple {stop} is asked for; simulate "
                f"fewer messages"
            )
        return self._times[start:stop].copy(), 0.0

    def faster(self, times: float) -> Trace:
        """Return the same arrivals at a rate so many times as high."""
        return Trace(self._times / times)


def _running(clock: float, gaps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the running sums, added in one order whatever was asked for before."""
    return np.cumsum(np.concatenate(([clock], gaps)))[1:]


def exponentials(seed: np.uint64, start: int, stop: int) -> NDArray[np.float64]:
    """Return exponential numbers of mean 1, number i the same whatever the range."""
    numbers = np.empty(stop - start, dtype=np.float64)
    _fill(numbers, seed, start)
    return numbers


@compiled
def _fill(numbers: NDArray[np.float64], seed: np.uint64, start: int) -> None:
    for i in range(numbers.size):
        numbers[i] = -np.log1p(-unit(counter_bits(seed, np.uint64(start + i))))
