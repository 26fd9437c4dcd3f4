"""Zipf keys: the k-th most frequent key has a share proportional to k ** -exponent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.errors import BadParameter
from unskew.mixing import spread_seed
from unskew.parameters import number, whole_number
from unskew.workloads.base import Generated
from unskew.workloads.ranks import rank_keys
from unskew.workloads.rejection_inversion import area, zipf_ranks

MOST_KEYS = 2**40
"""Ranks stay exact, and their powers precise, up to here."""

_EXACT = 10_000
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


class Zipf(Generated):
    """Independent draws from a bounded Zipf law, exact for every exponent from 0 up.

    Memory does not grow with the keys, and a draw costs about 50 ns whatever their number. With 10
    million keys and 10 million messages it gives Table IV of Pd-Stream.

    Parameters
    ----------
    exponent : float
        Skew: 0 gives every key the same share, 1 is typical of words, at 2 the first key alone
        has 61 %.
    keys : int
        Number of keys to draw from; a stream need not contain all of them.
    messages : int
        Length of the stream.
    seed : int, default 0
        Chooses the draws. The key of a rank is the same for every seed.
    p1 : float, optional
        Share of the first key, where it should not follow from the law: the other keys then share
        the rest in proportion to k ** -exponent.

    Examples
    --------
    >>> workload = Zipf(1.4, keys=1000, messages=5)
    >>> [batch.size for batch in workload.batches(size=2)]
    [2, 2, 1]
    >>> round(workload.p(1), 3)
    0.339

    References
    ----------
    Pd-Stream, Table IV; Consistent Grouping, Table I.
    """

    def __init__(
        self,
        exponent: float,
        keys: int,
        messages: int,
        *,
        seed: int = 0,
        p1: float | None = None,
    ) -> None:
        super().__init__(messages, seed=seed)
        self.exponent = number("exponent", exponent, least=0)
        self.keys = whole_number("keys", keys, least=1, most=MOST_KEYS)
        if p1 is not None:
            number("p1", p1, above=0, below=1)
            if self.keys == 1:
                raise BadParameter(f"p1 = {p1} leaves a rest, and no second key to take it")
        self._p1 = p1
        self._first = 1 if p1 is None else 2
        self._scale = (1.0 - (p1 or 0.0)) / self._weight()
        self._seed = spread_seed(self.seed)
        self.name = f"zipf {self.exponent:g}"
        self.description = f"Zipf {self.exponent:g} over {self.keys:,} keys"

    def draw(self, start: int, stop: int) -> NDArray[np.uint64]:
        """Return the key hashes of tuples `start` up to, not including, `stop`."""
        return rank_keys(self.ranks(start, stop))

    def ranks(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the ranks, 1 for the most frequent key, of tuples `start` up to `stop`.

        Examples
        --------
        >>> workload = Zipf(2.0, keys=10, messages=100)
        >>> bool((rank_keys(workload.ranks(0, 100)) == workload.draw(0, 100)).all())
        True
        """
        return zipf_ranks(
            self._seed,
            start,
            stop - start,
            self.exponent,
            self._first,
            self.keys,
            self._p1 or 0.0,
        )

    def shares(self, top: int) -> NDArray[np.float64]:
        """Return the exact shares of the `top` most frequent keys.

        Examples
        --------
        >>> Zipf(1.0, keys=3, messages=1).shares(3).round(4).tolist()
        [0.5455, 0.2727, 0.1818]
        """
        count = whole_number("top", top, least=1, most=self.keys)
        return self._share(np.arange(1, count + 1, dtype=np.float64))

    def p(self, rank: int) -> float:
        """Return the exact share of the key of this rank, from 1 up.

        Examples
        --------
        >>> Zipf(0.0, keys=4, messages=1).p(3)
        0.25
        """
        number = whole_number("rank", rank, least=1, most=self.keys)
        return float(self._share(np.array([number], dtype=np.float64))[0])

    def expected_keys(self, messages: int | None = None) -> float:
        """Return how many keys a stream contains on average: the sum of 1 - (1 - p) ** messages.

        The first 10,000 ranks are added one by one and the rest integrated, to about eight digits
        and in the same time for any number of keys.

        Parameters
        ----------
        messages : int, optional
            Length of the stream, if not that of this workload.

        Examples
        --------
        >>> Zipf(0.0, keys=2, messages=2).expected_keys()
        1.5
        """
        count = self.length if messages is None else messages
        exact = min(self.keys, _EXACT)
        seen = float(self._chance(np.arange(1, exact + 1, dtype=np.float64), count).sum())
        if exact == self.keys:
            return seen
        # By the midpoint rule a sum over whole numbers is an integral from half to half. Panels
        # that double suit a function that changes by powers of its argument.
        low, high = exact + 0.5, self.keys + 0.5
        panels = int(np.ceil(np.log2(high / low)))
        edges = np.geomspace(low, high, panels + 1)
        half = np.diff(edges)[:, None] / 2
        ranks = (edges[:-1, None] + half) + half * _NODES
        return seen + float((self._chance(ranks, count) * _WEIGHTS * half).sum())

    def _chance(self, ranks: NDArray[np.float64], messages: int) -> NDArray[np.float64]:
        """Return the probability that a stream contains the key of each rank."""
        # A law of one key has share 1, whose logarithm is -inf: it is certain, as it should be.
        with np.errstate(divide="ignore"):
            chance: NDArray[np.float64] = -np.expm1(messages * np.log1p(-self._share(ranks)))
        return chance

    def _share(self, ranks: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the share of each rank, which may lie between whole numbers."""
        share: NDArray[np.float64] = self._scale * ranks**-self.exponent
        if self._p1 is not None:
            share = np.where(ranks == 1, self._p1, share)
        return share

    def _weight(self) -> float:
        """Return the sum of k ** -exponent over the ranks that follow the law."""
        s = self.exponent
        exact = min(self.keys, _EXACT)
        total = float(np.sum(np.arange(self._first, exact + 1, dtype=np.float64) ** -s))
        if exact == self.keys:
            return total
        # Euler-Maclaurin at midpoints; the next term is below 1e-17.
        low, high = exact + 0.5, self.keys + 0.5
        slope = s * (low ** (-s - 1) - high ** (-s - 1)) / 24
        return float(total + area(high, s) - area(low, s) - slope)
