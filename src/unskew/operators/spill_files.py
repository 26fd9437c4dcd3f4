"""Files for what does not fit into the memory of a task; they are gone with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

import pyarrow as pa


class SpillFiles:
    """Write batches to temporary files, and map them back.

    Examples
    --------
    >>> files = SpillFiles()
    >>> files.write([pa.record_batch({"n": [1]}), pa.record_batch({"n": [2]})])
    >>> with files.open(0) as reader:
    ...     reader.num_record_batches
    2
    >>> files.remove()
    """

    def __init__(self) -> None:
        self._folder: TemporaryDirectory[str] | None = None
        self._paths: list[Path] = []

    def remove(self) -> None:
        """Remove what was written."""
        if self._folder is not None:
            self._folder.cleanup()

    def __len__(self) -> int:
        """Return how many files there are."""
        return len(self._paths)

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write one more file: some batches of the same columns, at least one."""
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="unskew-spill-")
        path = Path(self._folder.name) / f"{len(self._paths)}.arrow"
        given = iter(batches)
        first = next(given)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, first.schema) as writer:
            writer.write_batch(first)
            for batch in given:
                writer.write_batch(batch)
        self._paths.append(path)

    @contextmanager
    def open(self, number: int) -> Iterator[pa.RecordBatchFileReader]:
        """Map a file, which is closed however a task ends."""
        with (
            pa.memory_map(str(self._paths[number])) as file,
            pa.ipc.open_file(file) as reader,
        ):
            yield reader


class Spilling:
    """What holds a part of something in memory, and has files for the rest until it is left."""

    def __init__(self) -> None:
        self._spills = SpillFiles()

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
        self._spills.remove()
