"""The keys of generated workloads: rank 1 is the hottest, and every rank has a hash of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.kernel import compiled
from unskew.mixing import mix


@compiled
def rank_keys(ranks: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the key hash of each rank: the same key in every workload and for every seed.

    Examples
    --------
    >>> [f"{key:x}" for key in rank_keys(np.array([1, 2]))]
    ['b456bcfc34c2cb2c', '3abf2a20650683e7']
    """
    keys = np.empty(ranks.size, dtype=np.uint64)
    for i in range(ranks.size):
        keys[i] = mix(np.uint64(ranks[i]))
    return keys
