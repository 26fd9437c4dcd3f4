"""Posts with hashtags: the stream that `unskew run` shows, row by row a function of its number."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.kernel import kernel
from unskew.mixing import counter_bits, spread_seed, unit
from unskew.workloads.base import MOST
from unskew.workloads.drifting import DriftingZipf

_CONSONANTS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "z", "sh")
_VOWELS = ("a", "e", "i", "o")
_SYLLABLES = np.array([c + v for c in _CONSONANTS for v in _VOWELS], dtype=object)
_LENGTH = 4


class Posts:
    """Posts, each with a hashtag and how many readers it reached.

    Hashtags follow a Zipf law whose hottest change every period; the reach of a post follows a
    Pareto law, so that its mean says little and its quantiles much. Any posts can be made
    without those before them, so that a task that runs again makes the same rows.

    Parameters
    ----------
    exponent : float, default 1.4
        Skew of the hashtags.
    keys : int, default 100_000
        Hashtags to draw from.
    period : int, default 400_000
        Posts between two changes of what is hot.
    hot : int, default 20
        Hashtags that change.
    seed : int, default 0
        Chooses the posts.

    Examples
    --------
    >>> posts = Posts(seed=1)
    >>> posts.rows(np.array([7, 8])).field("hashtag").to_pylist()
    ['#tatatava', '#rikagemo']
    """

    def __init__(
        self,
        exponent: float = 1.4,
        keys: int = 100_000,
        *,
        period: int = 400_000,
        hot: int = 20,
        seed: int = 0,
    ) -> None:
        self._tags = DriftingZipf(exponent, keys, MOST, period=period, hot=hot, seed=seed)
        self._seed = spread_seed(seed + 1)

    def rows(self, numbers: NDArray[np.int64]) -> pa.StructArray:
        """Return the hashtag and the reach of the posts of these numbers, from 0 up."""
        if not numbers.size:
            empty = [pa.array([], pa.string()), pa.array([], pa.int64())]
            return pa.StructArray.from_arrays(empty, ["hashtag", "reach"])
        start, stop = int(numbers.min()), int(numbers.max()) + 1
        keys = self._tags.draw(start, stop)[numbers - start]
        reach = np.empty(numbers.size, dtype=np.int64)
        _reaches(self._seed, numbers, reach)
        return pa.StructArray.from_arrays([tag_names(keys), pa.array(reach)], ["hashtag", "reach"])


def tag_names(keys: NDArray[np.uint64]) -> pa.Array:
    """Return a word that can be spoken for each key, behind a #.

    Examples
    --------
    >>> tag_names(np.array([1, 2**40], dtype=np.uint64)).to_pylist()
    ['#bebababa', '#babababa']
    """
    distinct, places = np.unique(keys, return_inverse=True)
    parts = [
        pa.array(_SYLLABLES[(distinct >> np.uint64(6 * i)) & np.uint64(63)], pa.string())
        for i in range(_LENGTH)
    ]
    words = pc.binary_join_element_wise("#", *parts, "")
    return words.take(pa.array(places))


@kernel
def _reaches(seed: np.uint64, numbers: NDArray[np.int64], reach: NDArray[np.int64]) -> None:
    for i in range(numbers.size):
        chance = 1.0 - unit(counter_bits(seed, np.uint64(numbers[i])))
        reach[i] = np.int64(min(10.0 * chance**-0.8, 1e12))
