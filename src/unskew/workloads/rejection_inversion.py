"""Bounded Zipf numbers in constant memory, however many keys there are."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from unskew.kernel import compiled
from unskew.mixing import counter_bits, unit

_NEXT = np.uint64(1)


@compiled
def area(x: float, exponent: float) -> float:
    """Return the integral of t ** -exponent for t from 1 to `x`, without a gap at exponent 1.

    Examples
    --------
    >>> area(3.0, 0.0), round(area(math.e, 1.0), 12), area(4.0, 2.0)
    (2.0, 1.0, 0.75)
    """
    log_x = math.log(x)
    y = (1.0 - exponent) * log_x
    if abs(y) < 1e-8:
        return log_x * (1.0 + 0.5 * y)
    return log_x * math.expm1(y) / y


@compiled
def area_inverse(value: float, exponent: float) -> float:
    """Return the x whose `area` is `value`.

    Examples
    --------
    >>> area_inverse(0.75, 2.0)
    4.0
    """
    y = (1.0 - exponent) * value
    if abs(y) < 1e-8:
        return math.exp(value * (1.0 - 0.5 * y))
    # Rounding may carry the value a little past the pole, where the logarithm has no value.
    return math.exp(math.log1p(max(y, -1.0 + 1e-16)) / (1.0 - exponent))


@compiled
def zipf_ranks(
    seed: np.uint64,
    start: int,
    count: int,
    exponent: float,
    first: int,
    last: int,
    head: float,
) -> NDArray[np.int64]:
    """Return the ranks of tuples `start` to `start + count`.

    With probability `head` the rank is 1. Otherwise it is k from `first` to `last` with probability
    proportional to k ** -exponent, by rejection-inversion: exact for every exponent from 0 up,
    at most 1.02 tries a draw, no tables. Tuple i takes its random numbers from counter i alone.

    References
    ----------
    W. Hörmann, G. Derflinger, "Rejection-inversion to generate variates from monotone discrete
    distributions", ACM TOMACS 6(3), 1996.

    Examples
    --------
    >>> zipf_ranks(np.uint64(1), 0, 6, 1.0, 1, 1000, 0.0).size
    6
    """
    ranks = np.empty(count, dtype=np.int64)
    # The area under the hat starts so that the first rank has exactly its own weight.
    low = area(first + 0.5, exponent) - float(first) ** -exponent
    high = area(last + 0.5, exponent)
    # Within this distance left of k the hat lies under the bar of k, for every k.
    sure = 1.0
    if last > first:
        second = first + 1.0
        sure = second - area_inverse(area(second + 0.5, exponent) - second**-exponent, exponent)
    tail = 1.0 / (1.0 - head)
    for i in range(count):
        bits = counter_bits(seed, np.uint64(start + i))
        u = unit(bits)
        if u < head:
            ranks[i] = 1
            continue
        u = (u - head) * tail
        while True:
            value = high + u * (low - high)
            x = area_inverse(value, exponent)
            k = min(max(int(x + 0.5), first), last)
            if k - x <= sure or value >= area(k + 0.5, exponent) - float(k) ** -exponent:
                ranks[i] = k
                break
            bits = counter_bits(bits, _NEXT)
            u = unit(bits)
    return ranks
