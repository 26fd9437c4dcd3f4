"""Who meets whom: rows of two streams with a key in common whose times are close."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.kernel import kernel

_PAIRS = 1 << 18
"""Pairs that come out at a time."""


@dataclass(frozen=True)
class Meeting:
    """Rows of the left stream, and for each the range of those of the right one that it meets."""

    left: NDArray[np.int64]
    right: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        key: NDArray[np.int64],
        time: NDArray[np.int64],
        left: NDArray[np.int64],
        right: NDArray[np.int64],
        before: int,
        after: int,
    ) -> Meeting:
        """Return who meets whom.

        Parameters
        ----------
        key, time : array of int64
            Of all rows.
        left, right : array of int64
            Places of the rows of each stream, in the order of key and time.
        before, after : int
            How much earlier, or later, than the left one the right one may be.

        Examples
        --------
        >>> key, time = np.array([0, 0, 0, 1]), np.array([5, 4, 9, 5])
        >>> meeting = Meeting.of(key, time, np.array([0]), np.array([1, 2, 3]), 1, 1)
        >>> [(left.tolist(), right.tolist()) for left, right in meeting.pairs()]
        [([0], [1])]
        """
        first, last = np.empty((2, left.size), dtype=np.int64)
        _ranges(key[left], time[left], key[right], time[right], before, after, first, last)
        return cls(left, right, first, last)

    def mark(self, found: NDArray[np.bool_]) -> None:
        """Note which rows have found a partner."""
        found[self.left[self.last > self.first]] = True
        steps = np.zeros(self.right.size + 1, dtype=np.int64)
        np.add.at(steps, self.first, 1)
        np.add.at(steps, self.last, -1)
        found[self.right[np.cumsum(steps[:-1]) > 0]] = True

    def pairs(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Return the places of the two rows of each pair, so many at a time."""
        total = int((self.last - self.first).sum())
        at, offset = 0, 0
        for start in range(0, total, _PAIRS):
            left, right = np.empty((2, min(_PAIRS, total - start)), dtype=np.int64)
            at, offset = _expand(self.first, self.last, at, offset, left, right)
            yield self.left[left], self.right[right]


def in_order(key: NDArray[np.int64], time: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places in the order of key and time."""
    if not key.size:
        return np.empty(0, dtype=np.int64)
    first = int(time.min())
    span = int(time.max()) - first + 1
    if (int(key.max()) + 1) * span >= 2**63:
        return np.lexsort((time, key))
    # One number for both sorts four times as fast.
    return np.argsort(key * span + (time - first))


@kernel
def _ranges(
    left_key: NDArray[np.int64],
    left_time: NDArray[np.int64],
    right_key: NDArray[np.int64],
    right_time: NDArray[np.int64],
    before: int,
    after: int,
    first: NDArray[np.int64],
    last: NDArray[np.int64],
) -> None:
    """Fill in the range of the right rows that each left row meets; both are in order."""
    low = high = 0
    size = right_key.size
    for row in range(left_key.size):
        key, begin, end = left_key[row], left_time[row] - before, left_time[row] + after
        while low < size and (
            right_key[low] < key or (right_key[low] == key and right_time[low] < begin)
        ):
            low += 1
        high = max(high, low)
        while high < size and (
            right_key[high] < key or (right_key[high] == key and right_time[high] <= end)
        ):
            high += 1
        first[row] = low
        last[row] = high


@kernel
def _expand(
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    at: int,
    offset: int,
    left: NDArray[np.int64],
    right: NDArray[np.int64],
) -> tuple[int, int]:
    """Fill in as many pairs as fit, from a row and an offset in its range; return the next ones."""
    filled = 0
    while filled < left.size:
        here = first[at] + offset
        if here < last[at]:
            left[filled] = at
            right[filled] = here
            filled += 1
            offset += 1
        else:
            at += 1
            offset = 0
    return at, offset
