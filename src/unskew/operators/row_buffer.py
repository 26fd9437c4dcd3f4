"""Rows that wait until their keys are done: as they came, on disk where they are too many."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from unskew.operators.spill_files import Spilling


class RowBuffer(Spilling):
    """Take batches and give them back in the same order, without a copy of what is held.

    Parameters
    ----------
    most_bytes : int
        Rows to hold in memory; when there are more, all that are held go to a temporary file.

    Examples
    --------
    >>> with RowBuffer(most_bytes=8) as buffer:
    ...     for value in (1, 2, 3):
    ...         buffer.add(pa.record_batch({"n": [value]}))
    ...     [batch.to_pydict() for batch in buffer.batches()]
    [{'n': [1]}, {'n': [2]}, {'n': [3]}]
    """

    def __init__(self, most_bytes: int) -> None:
        super().__init__()
        self._most = most_bytes
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows."""
        self._held.append(rows)
        self._bytes += rows.nbytes
        if self._bytes > self._most:
            self._spills.write(self._held)
            self._held, self._bytes = [], 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the rows, once."""
        for number in range(len(self._spills)):
            with self._spills.open(number) as reader:
                for place in range(reader.num_record_batches):
                    yield reader.get_batch(place)
        held, self._held = self._held, []
        yield from held
