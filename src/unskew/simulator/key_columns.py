"""A stream whose tuples have several keys: one for each stage that routes by its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from unskew.errors import BadParameter
from unskew.parameters import whole_number
from unskew.workloads.base import BATCH, MOST, Workload


class KeyColumns(Workload):
    """Tuples whose keys are given, all in memory.

    Parameters
    ----------
    columns : array of uint64
        Hashes of the first key of each tuple, of the second, and so on; a stage says with `key=`
        which of them it routes by.

    Examples
    --------
    >>> keys = np.array([1, 2, 3], dtype=np.uint64)
    >>> [batch.tolist() for batch in KeyColumns(keys, keys + 6).batches(2)]
    [[[1, 7], [2, 8]], [[3, 9]]]
    """

    name = "key columns"
    description = "tuples with several keys"

    def __init__(self, *columns: NDArray[np.uint64]) -> None:
        if not columns or len({column.shape for column in columns}) > 1:
            raise BadParameter(
                f"every tuple has all its keys, but the columns have shapes "
                f"{[column.shape for column in columns]}; give at least one, all of one length"
            )
        self._keys = np.stack(columns, axis=1).astype(np.uint64, copy=False)
        self.messages = len(self._keys)

    def batches(self, size: int = BATCH) -> Iterator[NDArray[np.uint64]]:
        """Yield the keys in order, a row for each tuple."""
        step = whole_number("size", size, least=1, most=MOST)
        return (self._keys[start : start + step] for start in range(0, len(self._keys), step))
