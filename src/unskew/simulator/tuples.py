"""Tuples on their way through stages."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Tuples(NamedTuple):
    """Tuples on their way: when and from which source they come, their key, when they were born."""

    times: NDArray[np.float64]
    sources: NDArray[np.int32]
    keys: NDArray[np.uint64]
    born: NDArray[np.float64]

    def pick(self, which: Any) -> Tuples:
        """Return some of them, by slice or order."""
        return Tuples(*(column[which] for column in self))

    def join(self, others: Tuples) -> Tuples:
        """Return these and others."""
        return Tuples(
            np.concatenate((self.times, others.times)),
            np.concatenate((self.sources, others.sources)),
            np.concatenate((self.keys, others.keys)),
            np.concatenate((self.born, others.born)),
        )


NO_TUPLES = Tuples(
    np.empty(0), np.empty(0, dtype=np.int32), np.empty(0, dtype=np.uint64), np.empty(0)
)
