"""What one task of a stage did: all that the driver gets to know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.operators.base import ROWS
from unskew.state.manifest import Run
from unskew.state.runs import NO_WATERMARK, Hashes, hashes_of, slices

HOTTEST = 16
"""Keys of most rows that a task tells of."""


@dataclass
class TaskReport:
    """What a task did, in words that JSON knows.

    Attributes
    ----------
    stage, instance : int
        Which one.
    runs : mapping of int to sequence of Run
        The runs of each shard whose state was written.
    rows, keys : mapping of int to int
        Rows, and distinct keys, of each shard that had some.
    late : int
        Rows that came after the watermark had passed them.
    expired_up_to : int
        The latest time of the state that expired.
    busy : float
        Seconds in the operator and the state, not waiting for rows.
    written, read, checked : int
        Bytes of state: that were written; of the rows that were found and the runs that were read
        as a whole; and of runs that this machine had not seen before, which it compares with their
        checksums.
    taken_over : int
        Bytes of state of keys that were split, which came here from other instances.
    hot : list
        (hash, rows) of the keys that are split, and of those with most rows.
    output : list of str
        Names of the files with what came out.
    rows_out : int
        Rows in them.
    seconds : float
        From the first row to the last.
    node : mapping
        Where it ran: name, and parts of CPU and memory in use there.
    """

    stage: int
    instance: int
    runs: dict[int, tuple[Run, ...]] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    keys: dict[int, int] = field(default_factory=dict)
    late: int = 0
    expired_up_to: int = NO_WATERMARK
    busy: float = 0.0
    written: int = 0
    read: int = 0
    checked: int = 0
    taken_over: int = 0
    hot: list[tuple[int, int]] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    rows_out: int = 0
    seconds: float = 0.0
    node: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return what JSON knows."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TaskReport:
        """Return what `to_json` made, after its numbers had become texts and its tuples lists."""
        made = cls(**data)
        made.runs = {
            int(shard): tuple(Run(*run) for run in runs) for shard, runs in made.runs.items()
        }
        made.rows = {int(shard): rows for shard, rows in made.rows.items()}
        made.keys = {int(shard): keys for shard, keys in made.keys.items()}
        made.hot = [(key, rows) for key, rows in made.hot]
        return made

    def without_runs(self) -> dict[str, Any]:
        """Return it as JSON for a manifest, which has the runs itself."""
        return {**self.to_json(), "runs": {}}

    def count(self, shards: NDArray[np.int64], entries: pa.RecordBatch, split: Hashes) -> None:
        """Count rows and keys by shard, and the keys with most rows.

        Parameters
        ----------
        shards : array of int64
            Shard of each entry, in order.
        entries : pyarrow.RecordBatch
            In the order of shard and hash.
        split : array of uint64
            Keys that have several instances: of them every part is told, however small.
        """
        rows = entries.column(ROWS).to_numpy()
        hashes = hashes_of(entries)
        for shard, part in slices(shards):
            self.keys[shard] = self.keys.get(shard, 0) + part.stop - part.start
            self.rows[shard] = self.rows.get(shard, 0) + int(rows[part].sum())
        starts = np.flatnonzero(np.diff(hashes, prepend=~hashes[:1]) != 0)
        totals = np.add.reduceat(rows, starts)
        most = np.argpartition(-totals, min(HOTTEST, totals.size - 1))[:HOTTEST]
        chosen = np.union1d(most, np.flatnonzero(np.isin(hashes[starts], split)))
        found = zip(hashes[starts[chosen]].tolist(), totals[chosen].tolist(), strict=True)
        ranked = sorted([*self.hot, *found], key=lambda pair: (-pair[1], pair[0]))
        known = set(split.tolist())
        rest = [pair for pair in ranked if pair[0] not in known]
        self.hot = [*(pair for pair in ranked if pair[0] in known), *rest[:HOTTEST]]
