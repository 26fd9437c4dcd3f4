"""Rows that wait until their keys are done: as they came, on disk where they are too many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

import pyarrow as pa


class RowBuffer:
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
        self._most = most_bytes
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self._folder: TemporaryDirectory[str] | None = None
        self._spills: list[Path] = []

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove what was written."""
        if self._folder is not None:
            self._folder.cleanup()

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows."""
        self._held.append(rows)
        self._bytes += rows.nbytes
        if self._bytes > self._most:
            self._spill()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the rows, once."""
        for path in self._spills:
            # Closed however this ends: a task may fail, or be cancelled, between two batches.
            with ExitStack() as opened:
                file = opened.enter_context(pa.memory_map(str(path)))
                reader = opened.enter_context(pa.ipc.open_file(file))
                for number in range(reader.num_record_batches):
                    yield reader.get_batch(number)
        held, self._held = self._held, []
        yield from held

    def _spill(self) -> None:
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="unskew-spill-")
        path = Path(self._folder.name) / f"{len(self._spills)}.arrow"
        with (
            pa.OSFile(str(path), "wb") as file,
            pa.ipc.new_file(file, self._held[0].schema) as writer,
        ):
            for batch in self._held:
                writer.write_batch(batch)
        self._spills.append(path)
        self._held, self._bytes = [], 0
