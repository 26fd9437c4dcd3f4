"""What one task of a stage did: all that the driver gets to know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.operators.base import ROWS, Pairs
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
    probes, pairs : mapping of int to int
        Of a join: rows of each shard that are kept elsewhere and only looked for partners, and
        pairs that were looked at.
    late : int
        Rows that came after the watermark had passed them.
    expired_up_to : int
        The latest time of the state that expired.
    busy : float
        Seconds in the operator, the state and the output, not waiting for rows.
    written, read, checked : int
        Bytes of state: that were written; of the rows that were found and the runs that were read
        as a whole; and of runs that this machine had not seen before, which it compares with their
        checksums.
    taken_over : int
        Bytes of state of keys that were split, which came here from other instances.
    hot, hot_pairs : list
        (hash, rows) of the keys that are split, and of those with most rows, probes among them; and
        (hash, pairs) of those with most pairs.
    output : list of str
        Names of the files with what came out.
    rows_out : int
        Rows in them.
    came_out, bytes_out : int
        Rows that came out, wherever they went, and their bytes as Arrow has them.
    near : mapping of int to int
        By the number of a stage that follows, rows that were folded here for it; those that were
        for all of them are not in the files.
    near_late : int
        Of these, rows that were late there.
    entries : mapping of int to list of str
        Names of the files with what they were folded to, by the stage that follows.
    seconds : float
        From the first row to the last.
    node : mapping
        Where it ran: name, part of memory in use there, and what the machine had counted when it
        began and when it ended.
    """

    stage: int
    instance: int
    runs: dict[int, tuple[Run, ...]] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    keys: dict[int, int] = field(default_factory=dict)
    probes: dict[int, int] = field(default_factory=dict)
    pairs: dict[int, int] = field(default_factory=dict)
    late: int = 0
    expired_up_to: int = NO_WATERMARK
    busy: float = 0.0
    written: int = 0
    read: int = 0
    checked: int = 0
    taken_over: int = 0
    hot: list[tuple[int, int]] = field(default_factory=list)
    hot_pairs: list[tuple[int, int]] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    rows_out: int = 0
    came_out: int = 0
    bytes_out: int = 0
    near: dict[int, int] = field(default_factory=dict)
    near_late: int = 0
    entries: dict[int, list[str]] = field(default_factory=dict)
    seconds: float = 0.0
    node: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return what JSON knows, without a copy."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TaskReport:
        """Return what `to_json` made, after its numbers had become texts and its tuples lists."""
        made = cls(**_current(data))
        made.runs = {
            int(shard): tuple(Run(*run) for run in runs) for shard, runs in made.runs.items()
        }
        for name in ("rows", "keys", "probes", "pairs", "near", "entries"):
            setattr(made, name, {int(shard): each for shard, each in getattr(made, name).items()})
        made.hot = [(key, rows) for key, rows in made.hot]
        made.hot_pairs = [(key, pairs) for key, pairs in made.hot_pairs]
        return made

    def without_runs(self) -> dict[str, Any]:
        """Return it as JSON for a manifest, which has the runs itself."""
        return {**self.to_json(), "runs": {}}

    def count(
        self,
        shards: NDArray[np.int64],
        entries: pa.RecordBatch,
        probes: NDArray[np.bool_],
        split: Hashes,
    ) -> None:
        """Count rows and keys by shard, and the keys with most rows.

        Parameters
        ----------
        shards : array of int64
            Shard of each entry, in order.
        entries : pyarrow.RecordBatch
            In the order of shard and hash.
        probes : array of bool
            Whether each of them only looks for partners.
        split : array of uint64
            Keys that have several instances: of them every part is told, however small.
        """
        rows = entries.column(ROWS).to_numpy()
        hashes = hashes_of(entries)
        is_first = np.diff(hashes, prepend=~hashes[:1]) != 0
        for shard, part in slices(shards):
            _add(self.keys, shard, np.count_nonzero(is_first[part]))
            _add(self.rows, shard, rows[part].sum())
            if probes.any():
                _add(self.probes, shard, np.count_nonzero(probes[part]))
        starts = np.flatnonzero(is_first)
        self.hot = _hottest(self.hot, hashes[starts], np.add.reduceat(rows + probes, starts), split)

    def count_pairs(self, shards: NDArray[np.int64], pairs: Pairs, split: Hashes) -> None:
        """Count pairs by shard, and the keys with most of them.

        Parameters
        ----------
        shards : array of int64
            Shard of each hash.
        pairs : Pairs
            That were looked at.
        split : array of uint64
            As of `count`.
        """
        if not shards.size:
            return
        totals = np.bincount(shards, pairs.counts)
        for shard in np.flatnonzero(totals).tolist():
            _add(self.pairs, shard, int(totals[shard]))
        starts = np.flatnonzero(np.diff(pairs.hashes, prepend=~pairs.hashes[:1]) != 0)
        of_key = np.add.reduceat(pairs.counts, starts)
        self.hot_pairs = _hottest(self.hot_pairs, pairs.hashes[starts], of_key, split)


def _current(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what format 1 has, where a stage feeds one other at the most, as it is said now."""
    if not isinstance(data.get("near", {}), int):
        return data
    following, near = data["stage"] + 1, data["near"]
    return {
        **data,
        "near": {following: near},
        "entries": {following: data["entries"]},
        "came_out": near + data["rows_out"],
    }


def _add(counts: dict[int, int], shard: int, more: np.integer[Any] | int) -> None:
    counts[shard] = counts.get(shard, 0) + int(more)


def _hottest(
    known: list[tuple[int, int]], hashes: Hashes, totals: NDArray[np.int64], split: Hashes
) -> list[tuple[int, int]]:
    """Return all keys that are split, and the others with most, of those known and some more."""
    most = np.argpartition(-totals, min(HOTTEST, totals.size - 1))[:HOTTEST]
    chosen = np.union1d(most, np.flatnonzero(np.isin(hashes, split)))
    found = zip(hashes[chosen].tolist(), totals[chosen].tolist(), strict=True)
    ranked = sorted([*known, *found], key=lambda pair: (-pair[1], pair[0]))
    is_split = set(split.tolist())
    rest = [pair for pair in ranked if pair[0] not in is_split]
    return [*(pair for pair in ranked if pair[0] in is_split), *rest[:HOTTEST]]
