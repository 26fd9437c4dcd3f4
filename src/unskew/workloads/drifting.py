"""Zipf keys whose hottest keys are others every so often."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.errors import BadParameter
from unskew.mixing import counter_bits, spread_seed
from unskew.parameters import whole_number
from unskew.workloads.base import MOST, Generated
from unskew.workloads.ranks import rank_keys
from unskew.workloads.zipf import Zipf


class DriftingZipf(Generated):
    """A Zipf stream in which the hottest ranks belong to other keys after every period.

    At any moment the keys follow the same Zipf law. When a period ends, each of the `hot` first
    ranks goes to a key drawn at random from the tail, never one that was hot in the period before,
    and that key's rank goes to the key it replaces; all other keys keep their ranks. So a grouping
    sees keys that were rare become the hottest at once, and hot ones cool to nothing.

    Parameters
    ----------
    exponent, keys, messages, seed
        As of `Zipf`.
    period : int, default 100_000
        Tuples between two changes.
    hot : int, default 100
        Ranks that change their key. At most a third of the keys, so that each period finds others.

    Examples
    --------
    >>> workload = DriftingZipf(2.0, keys=1000, messages=40, period=20, hot=5)
    >>> before, after = workload.draw(0, 20), workload.draw(20, 40)
    >>> int(np.isin(rank_keys(np.array([1, 2])), before).sum())
    2
    >>> int(np.isin(rank_keys(np.array([1, 2])), after).sum())
    0

    References
    ----------
    Pd-Stream, Section VII, names changing skew as future work; the data are ours.
    """

    def __init__(
        self,
        exponent: float,
        keys: int,
        messages: int,
        *,
        period: int = 100_000,
        hot: int = 100,
        seed: int = 0,
    ) -> None:
        super().__init__(messages, seed=seed)
        self._zipf = Zipf(exponent, keys, messages, seed=seed)
        self.exponent, self.keys = self._zipf.exponent, self._zipf.keys
        self.period = whole_number("period", period, least=1, most=MOST)
        self.hot = whole_number("hot", hot, least=1, most=self.keys)
        if 3 * self.hot > self.keys:
            raise BadParameter(
                f"hot must be at most a third of the keys, {self.keys // 3} of {self.keys}, so "
                f"that every period finds other keys, not {hot}"
            )
        self._drift = spread_seed(self.seed) ^ np.uint64(0x6472696674)
        self.name = f"drifting zipf {self.exponent:g}"
        self.description = (
            f"Zipf {self.exponent:g} over {self.keys:,} keys, the {self.hot:,} hottest change "
            f"every {self.period:,} tuples"
        )

    def draw(self, start: int, stop: int) -> NDArray[np.uint64]:
        """Return the key hashes of tuples `start` up to, not including, `stop`."""
        owners = self._zipf.ranks(start, stop)
        for period in range(start // self.period, (stop - 1) // self.period + 1):
            begin = max(period * self.period - start, 0)
            end = min((period + 1) * self.period - start, stop - start)
            owners[begin:end] = self._owners(owners[begin:end], period)
        return rank_keys(owners)

    def hot_keys(self, period: int) -> NDArray[np.uint64]:
        """Return the keys that hold the first `hot` ranks in a period, hottest first.

        Examples
        --------
        >>> workload = DriftingZipf(1.0, keys=90, messages=10, hot=30)
        >>> len(set(workload.hot_keys(0)) | set(workload.hot_keys(1)))
        60
        """
        number = whole_number("period", period, least=0, most=MOST)
        return rank_keys(self._owners(np.arange(1, self.hot + 1), number))

    def _owners(self, ranks: NDArray[np.int64], period: int) -> NDArray[np.int64]:
        """Return, for each rank, the rank in period 0 of the key that holds it now."""
        if period == 0:
            return ranks
        promoted = self._promoted(period)
        order = np.argsort(promoted)
        place = np.minimum(np.searchsorted(promoted, ranks, sorter=order), self.hot - 1)
        holder = order[place]
        owners = np.where(promoted[holder] == ranks, holder + 1, ranks)
        is_hot = ranks <= self.hot
        owners[is_hot] = promoted[ranks[is_hot] - 1]
        return owners

    def _promoted(self, period: int) -> NDArray[np.int64]:
        """Return the tail ranks whose keys are hot in this period, for ranks 1 to `hot`.

        Odd and even periods draw from odd and even places of the tail: neighbours cannot meet, and
        each period is known without the ones before.
        """
        half = (self.keys - self.hot) // 2
        # numba hands scalars back as Python's, which it takes for signed.
        seed = np.uint64(counter_bits(self._drift, np.uint64(period)))
        chosen: dict[int, None] = {}
        counter = 0
        while len(chosen) < self.hot:
            chosen[int(counter_bits(seed, np.uint64(counter))) % half] = None
            counter += 1
        places = np.fromiter(chosen, dtype=np.int64, count=self.hot)
        return self.hot + 1 + 2 * places + period % 2
