"""Tuples on their way through stages."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Tuples(NamedTuple):
    """Tuples on their way: when and from which source they come, their key, when they were born.

    Where stages have different keys, `every` has them all, a column each, and `keys` those of the
    stage that the tuples come to. It has no columns where one key serves all stages.
    """

    times: NDArray[np.float64]
    sources: NDArray[np.int32]
    keys: NDArray[np.uint64]
    born: NDArray[np.float64]
    every: NDArray[np.uint64]

    @classmethod
    def arriving(
        cls, times: NDArray[np.float64], sources: NDArray[np.int32], keys: NDArray[np.uint64]
    ) -> Tuples:
        """Return tuples that are born now; keys are one for each, or a row for each.

        Examples
        --------
        >>> keys = np.array([[1, 7], [2, 8]], dtype=np.uint64)
        >>> tuples = Tuples.arriving(np.zeros(2), np.zeros(2, dtype=np.int32), keys)
        >>> tuples.keys.tolist(), tuples.by_key(1).keys.tolist()
        ([1, 2], [7, 8])
        """
        if keys.ndim == 1:
            return cls(times, sources, keys, times, np.empty((keys.size, 0), dtype=np.uint64))
        return cls(times, sources, np.ascontiguousarray(keys[:, 0]), times, keys)

    def by_key(self, number: int) -> Tuples:
        """Return them with the key of this number as theirs."""
        if not self.every.shape[1]:
            return self
        return self._replace(keys=np.ascontiguousarray(self.every[:, number]))

    def pick(self, which: Any) -> Tuples:
        """Return some of them, by slice or order."""
        return Tuples(*(column[which] for column in self))

    def join(self, others: Tuples) -> Tuples:
        """Return these and others."""
        if not self.times.size or not others.times.size:
            return self if self.times.size else others
        return Tuples(
            np.concatenate((self.times, others.times)),
            np.concatenate((self.sources, others.sources)),
            np.concatenate((self.keys, others.keys)),
            np.concatenate((self.born, others.born)),
            np.concatenate((self.every, others.every)),
        )


NO_TUPLES = Tuples.arriving(np.empty(0), np.empty(0, dtype=np.int32), np.empty(0, dtype=np.uint64))
