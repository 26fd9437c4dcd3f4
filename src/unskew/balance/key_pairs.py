"""Pairs of keys, and how often each was seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class KeyPairs(NamedTuple):
    """Keys of a stage, those of the next that the same tuples had, and how many tuples.

    Attributes
    ----------
    first, second : array of uint64
        Hashes of the two keys of each pair.
    counts : array of int64
        Tuples that had them.

    Examples
    --------
    >>> keys = np.array([1, 2, 1], dtype=np.uint64)
    >>> pairs = KeyPairs(keys, keys, np.array([3, 4, 5])).added_up()
    >>> pairs.first.tolist(), pairs.counts.tolist(), pairs.most(1).first.tolist()
    ([1, 2], [8, 4], [1])
    """

    first: NDArray[np.uint64]
    second: NDArray[np.uint64]
    counts: NDArray[np.int64]

    @classmethod
    def none(cls) -> KeyPairs:
        """Return no pairs."""
        keys = np.empty(0, dtype=np.uint64)
        return cls(keys, keys, np.empty(0, dtype=np.int64))

    @classmethod
    def together(cls, pairs: Sequence[KeyPairs]) -> KeyPairs:
        """Return the pairs of several, added up."""
        if not pairs:
            return cls.none()
        return cls(*(np.concatenate(column) for column in zip(*pairs, strict=True))).added_up()

    def to_bytes(self) -> bytes:
        """Return the bytes of the three columns, one after the other."""
        kinds = ("<u8", "<u8", "<i8")
        return b"".join(c.astype(kind).tobytes() for c, kind in zip(self, kinds, strict=True))

    @classmethod
    def from_bytes(cls, data: bytes) -> KeyPairs:
        """Return what `to_bytes` made."""
        size = len(data) // 24
        keys = np.frombuffer(data, "<u8", 2 * size).astype(np.uint64)
        counts = np.frombuffer(data, "<i8", size, 16 * size).astype(np.int64)
        return cls(keys[:size], keys[size:], counts)

    def added_up(self) -> KeyPairs:
        """Return each pair once, in order."""
        order = np.lexsort((self.second, self.first))
        first, second = self.first[order], self.second[order]
        is_new = np.ones(order.size, dtype=np.bool_)
        is_new[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
        starts = np.flatnonzero(is_new)
        counts = np.add.reduceat(self.counts[order], starts) if starts.size else self.counts
        return KeyPairs(first[starts], second[starts], counts)

    def faded(self, part: float) -> KeyPairs | None:
        """Return a part of each count, rounded down, without those of nothing; None if none is."""
        counts = (self.counts * part).astype(np.int64)
        left = counts > 0
        if not left.any():
            return None
        return KeyPairs(self.first[left], self.second[left], counts[left])

    def most(self, count: int) -> KeyPairs:
        """Return the pairs that were seen most often, in the order that they had."""
        if self.counts.size <= count:
            return self
        # Of those that are alike the first: an answer must not depend on how numpy sorts.
        chosen = np.sort(np.argsort(-self.counts, kind="stable")[:count])
        return KeyPairs(self.first[chosen], self.second[chosen], self.counts[chosen])
