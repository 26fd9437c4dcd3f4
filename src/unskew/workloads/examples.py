"""Examples of classes, to learn from: values of which one is in most examples of every class."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.mixing import spread_seed
from unskew.parameters import whole_number
from unskew.workloads.base import MOST
from unskew.workloads.kinds import draw_kinds
from unskew.workloads.zipf import Zipf

CLASSES = ("letter", "offer", "notice")
"""What an example may be."""

SHARES = (0.53, 0.27, 0.20)
"""Part of the examples that each class has."""

COMMON = 0.6
"""Part of the values that are the same one, whatever the class."""

LENGTH = 8
"""Values of an example."""


class Drawn(NamedTuple):
    """Examples as numbers.

    Attributes
    ----------
    classes : array of int64
        Class of each example.
    values : array of int64, two-dimensional
        Values of each: 0 is the common one, others are from 1 up.
    """

    classes: NDArray[np.int64]
    values: NDArray[np.int64]


class Examples:
    """Examples of three classes with eight values each, as of words of a text.

    One value says nothing and is 60 % of all, so that with the largest class it has 32 % of all
    pairs of a value and a class. The others are by a Zipf law of 1.0, and which of them are
    frequent is different for each class. Any examples can be made without those before them.

    Parameters
    ----------
    values : int, default 600
        How many others there are.
    seed : int, default 0
        Chooses the examples; what is frequent in a class is the same for every seed.

    Examples
    --------
    >>> Examples(seed=1).rows(np.array([7])).to_pylist()[0]["class"]
    'offer'

    References
    ----------
    Consistent Grouping, Section II, has naive Bayes as its example; the data are ours.
    """

    def __init__(self, values: int = 600, *, seed: int = 0) -> None:
        self.values = whole_number("values", values, least=len(CLASSES), most=2**31)
        self.seed = whole_number("seed", seed, least=0, most=2**62)
        self._ranks = Zipf(1.0, self.values, MOST, seed=seed)
        self._class_seed, self._common_seed = spread_seed(seed + 1), spread_seed(seed + 2)

    def draw(self, start: int, stop: int) -> Drawn:
        """Return examples `start` up to, not including, `stop`."""
        classes = np.empty(stop - start, dtype=np.int64)
        draw_kinds(self._class_seed, start, np.cumsum(SHARES), classes)
        is_other = np.empty((stop - start) * LENGTH, dtype=np.int64)
        draw_kinds(self._common_seed, start * LENGTH, np.array([COMMON, 1.0]), is_other)
        ranks = self._ranks.ranks(start * LENGTH, stop * LENGTH)
        first = np.repeat(classes * (self.values // len(CLASSES)), LENGTH)
        others = 1 + (ranks - 1 + first) % self.values
        return Drawn(classes, np.where(is_other, others, 0).reshape(-1, LENGTH))

    def rows(self, numbers: NDArray[np.int64]) -> pa.StructArray:
        """Return the class and the values of the examples of these numbers, from 0 up."""
        start, stop = (int(numbers.min()), int(numbers.max()) + 1) if numbers.size else (0, 0)
        classes, values = (each[numbers - start] for each in self.draw(start, stop))
        names = pa.array(CLASSES).take(pa.array(classes))
        words = pa.array(np.char.add("v", values.ravel().astype(str)), pa.string())
        ends = pa.array(np.arange(0, len(words) + 1, LENGTH), pa.int32())
        columns = [names, pa.ListArray.from_arrays(ends, words)]
        return pa.StructArray.from_arrays(columns, ["class", "values"])
