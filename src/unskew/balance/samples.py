"""The last few samples of some numbers, and what they say together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_TRIMMED = 3
"""Samples from which on the largest and the smallest do not count."""


class Samples:
    """Keep the last few samples; their mean does not see one that is out of the ordinary.

    Parameters
    ----------
    most : int
        How many to keep.

    Examples
    --------
    >>> samples = Samples(3)
    >>> for rate in (5.0, 900.0, 7.0):
    ...     samples.add(np.array([rate]))
    >>> samples.mean().tolist()
    [7.0]

    References
    ----------
    LS-Stream, eq. 4: the input rate without its largest and its smallest value.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept = np.empty((0, 0))

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._kept)

    def add(self, values: NDArray[np.float64]) -> None:
        """Add a sample; those of another size are of another time, and forgotten."""
        before = self._kept[max(0, len(self._kept) + 1 - self._most) :]
        if before.shape[1:] != values.shape:
            before = np.empty((0, values.size))
        self._kept = np.vstack((before, values))

    def forget(self) -> None:
        """Begin anew."""
        self._kept = np.empty((0, 0))

    def mean(self) -> NDArray[np.float64]:
        """Return the mean of each number, without its largest and its smallest sample."""
        ordered = np.sort(self._kept, axis=0)
        counted = ordered[1:-1] if len(ordered) >= _TRIMMED else ordered
        means: NDArray[np.float64] = counted.mean(axis=0)
        return means

    def snapshot(self) -> NDArray[np.float64]:
        """Return the samples, a row each."""
        return self._kept.copy()

    def restore(self, kept: NDArray[np.float64]) -> None:
        """Continue from a snapshot."""
        # JSON does not know the shape of what is empty.
        self._kept = np.array(kept, dtype=np.float64) if len(kept) else np.empty((0, 0))
