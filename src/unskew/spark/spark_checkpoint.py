"""Spark's own checkpoint of a query: its id, its batches and their watermarks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unskew.state.runs import NO_WATERMARK


@dataclass(frozen=True)
class SparkCheckpoint:
    """What Spark has written; nothing here is changed.

    Attributes
    ----------
    folder : Path
        The checkpoint location of the query.
    """

    folder: Path

    def query_id(self) -> str | None:
        """Return the id of the query, which stays over restarts, or None before the first."""
        try:
            found: str = json.loads((self.folder / "metadata").read_text())["id"]
        except FileNotFoundError:
            return None
        return found

    def has_begun(self) -> bool:
        """Return whether Spark has planned a batch."""
        return any((self.folder / "offsets").glob("[0-9]*"))

    def last_batch(self) -> int | None:
        """Return the last batch that Spark has committed, or None if there is none."""
        numbers = (int(path.name) for path in (self.folder / "commits").glob("[0-9]*"))
        return max(numbers, default=None)

    def watermark(self, batch: int) -> int:
        """Return the watermark that Spark has for a batch, in microseconds."""
        return _micros(self._second_line("offsets", batch).get("batchWatermarkMs"))

    def watermark_after(self, batch: int) -> int:
        """Return the watermark that the batch after one has, or would have."""
        return _micros(self._second_line("commits", batch).get("nextBatchWatermarkMs"))

    def _second_line(self, folder: str, batch: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            (self.folder / folder / str(batch)).read_text().splitlines()[1]
        )
        return found


def _micros(millis: int | None) -> int:
    return int(millis) * 1000 if millis else NO_WATERMARK
