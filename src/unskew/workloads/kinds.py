"""Kinds of tuples: one of a few, each with its share, as a function of the tuple's number."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.kernel import kernel
from unskew.mixing import counter_bits, unit


@kernel
def draw_kinds(
    seed: np.uint64, start: int, limits: NDArray[np.float64], kinds: NDArray[np.int64]
) -> None:
    """Fill in the kinds of tuples from `start` on; `limits` are the sums of the shares so far."""
    for i in range(kinds.size):
        drawn = unit(counter_bits(seed, np.uint64(start + i)))
        kind = 0
        while kind < limits.size - 1 and drawn >= limits[kind]:
            kind += 1
        kinds[i] = kind
