"""Naive Bayes: what class an example has, by counts of its values in each class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


@dataclass(frozen=True)
class NaiveBayes:
    """A model of classes, made of nothing but counters of (value, class).

    A class is as likely as the values that were seen in it are many, and a value in it as often as
    it was there, with one more for every value, so that none is impossible.

    Attributes
    ----------
    classes, values : list of str
        In order; what a model answers depends on no other order.
    scores : array of float64, (values + 1, classes)
        Logarithms of how likely each value is in each class; the last is that of a value that was
        never seen.
    priors : array of float64
        Logarithms of how likely each class is.

    Examples
    --------
    >>> model = NaiveBayes.of({("sun", "summer"): 9, ("sun", "winter"): 2, ("snow", "winter"): 5})
    >>> model.classify(pa.array([["sun", "sun"], ["sun", "snow", "snow"], []])).to_pylist()
    ['summer', 'winter', 'summer']
    """

    classes: list[str]
    values: list[str]
    scores: NDArray[np.float64]
    priors: NDArray[np.float64]

    @classmethod
    def of(cls, counts: Mapping[tuple[str, str], int]) -> NaiveBayes:
        """Return the model of counters: of each value and class, in how many rows they were."""
        values, classes = (sorted({pair[place] for pair in counts}) for place in (0, 1))
        rows = {value: row for row, value in enumerate(values)}
        columns = {name: column for column, name in enumerate(classes)}
        table = np.zeros((len(values) + 1, len(classes)))
        for (value, name), number in counts.items():
            table[rows[value], columns[name]] = number
        totals = table.sum(axis=0)
        scores = np.log(table + 1) - np.log(totals + len(values))
        return cls(classes, values, scores, np.log(totals / totals.sum()))

    def classify(self, examples: pa.ListArray) -> pa.Array:
        """Return the most likely class of each example, given as the list of its values."""
        flat = pc.list_flatten(examples)
        places = pc.index_in(flat, value_set=pa.array(self.values, pa.string()))
        rows = pc.fill_null(places, len(self.values)).to_numpy()
        sums = np.zeros((len(examples), len(self.classes)))
        np.add.at(sums, pc.list_parent_indices(examples).to_numpy(), self.scores[rows])
        best = (sums + self.priors).argmax(axis=1)
        return pa.array(self.classes, pa.string()).take(pa.array(best))
