"""How much work a tuple is: seconds on a node of speed 1."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from unskew.kernel import compiled
from unskew.mixing import counter_bits, mix, spread_seed, unit
from unskew.parameters import number, whole_number
from unskew.simulator.arrivals import exponentials


class Service(ABC):
    """The work of each tuple at a stage."""

    mean: float
    """Seconds of work that a tuple is on average."""

    @abstractmethod
    def work(self, keys: NDArray[np.uint64], start: int, place: int = 0) -> NDArray[np.float64]:
        """Return the work of these tuples.

        Parameters
        ----------
        keys : array of uint64
            Their keys.
        start : int
            Number of the first of them at this stage.
        place : int, default 0
            Number of the stage, so that stages with equal services differ in what is random.
        """


class Constant(Service):
    """The same work for every tuple.

    Parameters
    ----------
    seconds : float
        Work of a tuple, above 0.

    Examples
    --------
    >>> Constant(0.002).work(np.zeros(2, dtype=np.uint64), 0).tolist()
    [0.002, 0.002]
    """

    def __init__(self, seconds: float) -> None:
        self.mean = number("seconds", seconds, above=0)

    def work(self, keys: NDArray[np.uint64], start: int, place: int = 0) -> NDArray[np.float64]:
        """Return the work of these tuples."""
        return np.full(keys.size, self.mean)


class Exponential(Service):
    """Work that is exponentially distributed, as in queueing theory.

    Parameters
    ----------
    mean : float
        Work of a tuple on average, above 0.
    seed : int, default 0
        Chooses the work.
    """

    def __init__(self, mean: float, *, seed: int = 0) -> None:
        self.mean = number("mean", mean, above=0)
        self.seed = whole_number("seed", seed, least=0, most=2**63 - 1)

    def work(self, keys: NDArray[np.uint64], start: int, place: int = 0) -> NDArray[np.float64]:
        """Return the work of these tuples, the first of which is tuple `start` of the stage."""
        # Every stage has numbers of its own, and none of those that arrivals of this seed draw.
        own = np.uint64(counter_bits(~spread_seed(self.seed), np.uint64(place)))
        return exponentials(own, start, start + keys.size) * self.mean


class PerKey(Service):
    """Work that differs by key: from `least` to `most`, uniformly over the keys.

    Parameters
    ----------
    least, most : float
        Range of the work, above 0.
    seed : int, default 0
        Chooses which keys are expensive.

    Examples
    --------
    >>> work = PerKey(0.001, 0.003).work(np.array([7, 8, 7], dtype=np.uint64), 0)
    >>> work[0] == work[2], bool(work[0] != work[1])
    (np.True_, True)
    """

    def __init__(self, least: float, most: float, *, seed: int = 0) -> None:
        self.least = number("least", least, above=0)
        self.most = number("most", most, above=self.least)
        self.mean = (self.least + self.most) / 2
        self.seed = whole_number("seed", seed, least=0, most=2**63 - 1)

    def work(self, keys: NDArray[np.uint64], start: int, place: int = 0) -> NDArray[np.float64]:
        """Return the work of these tuples."""
        work = np.empty(keys.size, dtype=np.float64)
        _by_key(keys, work, spread_seed(self.seed), self.least, self.most - self.least)
        return work


@compiled
def _by_key(
    keys: NDArray[np.uint64], work: NDArray[np.float64], seed: np.uint64, least: float, span: float
) -> None:
    for i in range(keys.size):
        work[i] = least + span * unit(mix(keys[i] ^ seed))
