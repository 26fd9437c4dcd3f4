"""The shards that a key would fill one after the other, as the power of random choices does."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.grouping.choices import key_bits, scatter
from unskew.kernel import kernel
from unskew.mixing import counter_bits, spread_seed

_TRIES = 8
"""Choices of a key to look at, for each shard, before the rest is taken in order."""


def first_shards(key: int, count: int, shards: int, seed: int = 0) -> NDArray[np.int64]:
    """Return the first so many different shards of a key's own sequence.

    The sequence is that of `unskew.grouping.RandomChoices` with the same seed. Fewer are the
    beginning of more, so that a key that grows keeps the shards it has.

    Parameters
    ----------
    key : int
        Hash of the key.
    count : int
        How many, at most all.
    shards : int
        How many there are.
    seed : int, default 0
        Chooses the hash functions.

    Examples
    --------
    >>> more = first_shards(7, 4, shards=8)
    >>> len(set(more.tolist())), bool((first_shards(7, 2, shards=8) == more[:2]).all())
    (4, True)
    """
    found = np.zeros(min(count, shards), dtype=np.int64)
    seen = np.zeros(shards, dtype=np.bool_)
    _walk(np.uint64(key), spread_seed(seed), found, seen)
    return found


@kernel
def _walk(
    key: np.uint64, seed: np.uint64, found: NDArray[np.int64], seen: NDArray[np.bool_]
) -> None:
    bits, number = key_bits(key, seed), 0
    for j in range(_TRIES * seen.size):
        if number == found.size:
            return
        shard = scatter(counter_bits(bits, np.uint64(j)), seen.size)
        if not seen[shard]:
            seen[shard] = True
            found[number] = shard
            number += 1
    for shard in range(seen.size):
        if number < found.size and not seen[shard]:
            found[number] = shard
            number += 1
