"""The manifest: which files hold the state after a batch, and what came out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from unskew.state.runs import NEVER, NO_WATERMARK


class Run(NamedTuple):
    """Where the rows of one run are.

    Attributes
    ----------
    file : str
        Name of the segment file.
    offset, length, checksum : int
        Its bytes there, and their CRC-32.
    rows : int
        How many rows it has.
    expires, latest : int
        When the first and the last of them expires, in microseconds; checkpoints of before there
        were joins do not know the last.
    """

    file: str
    offset: int
    length: int
    checksum: int
    rows: int
    expires: int
    latest: int = NEVER


Shards = Mapping[int, tuple[Run, ...]]
"""The runs of each shard, the newest first; a shard without state is not there."""


@dataclass(frozen=True)
class Manifest:
    """All that a batch, or what followed it, committed.

    Attributes
    ----------
    version : int
        Its number, see `version_of`; -1 before the first.
    stages : sequence of mapping
        The runs of each shard, for every stage.
    output : sequence of str
        Names of the files with what came out, in order.
    facts : mapping
        Whose batch it was, what was measured, and the watermark.
    ends : mapping of int to sequence of str, default none
        Of a pipeline that ends in several stages: which of the files came out of each.
    """

    version: int
    stages: Sequence[Shards]
    output: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    ends: Mapping[int, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def empty(cls, stages: int) -> Manifest:
        """Return the manifest of a pipeline that has seen nothing."""
        return cls(-1, [{} for _ in range(stages)])

    @property
    def is_committed(self) -> bool:
        """Whether it was written, or stands for nothing at all."""
        return bool(self.facts)

    def runs(self) -> list[Run]:
        """Return all runs of all stages."""
        return [run for shards in self.stages for runs in shards.values() for run in runs]

    def files(self) -> set[str]:
        """Return the names of all segment files that hold state."""
        return {run.file for run in self.runs()}

    def output_of(self, stage: int) -> Sequence[str]:
        """Return the names of the files that came out of one of the stages that are last."""
        return self.ends.get(stage, ()) if self.ends else self.output

    def late(self, stage: int) -> int:
        """Return the time up to which rows that came to a stage are late."""
        told = self.facts.get("late", ())
        return int(told[stage]) if stage < len(told) else NO_WATERMARK

    def state_bytes(self, stage: int) -> dict[int, int]:
        """Return the bytes of each shard that has state."""
        return {
            shard: sum(run.length for run in runs) for shard, runs in self.stages[stage].items()
        }

    def rows(self, stage: int) -> dict[int, int]:
        """Return the rows of each shard that has state."""
        return {shard: sum(run.rows for run in runs) for shard, runs in self.stages[stage].items()}

    def to_json(self) -> dict[str, Any]:
        """Return what JSON knows; names of files, which are long, are said once."""
        names = sorted(self.files())
        places = {name: place for place, name in enumerate(names)}
        return {
            "version": self.version,
            "files": names,
            "stages": [
                [
                    [shard, [[places[run.file], *run[1:]] for run in runs]]
                    for shard, runs in shards.items()
                ]
                for shards in self.stages
            ],
            "output": list(self.output),
            "facts": dict(self.facts),
            "ends": [[stage, list(names)] for stage, names in self.ends.items()],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Manifest:
        """Return what `to_json` wrote."""
        names = data["files"]
        stages = [
            {
                shard: tuple(Run(names[place], *rest) for place, *rest in runs)
                for shard, runs in shards
            }
            for shards in data["stages"]
        ]
        # Manifests of format 1 are of chains.
        ends = {stage: tuple(files) for stage, files in data.get("ends", ())}
        return cls(data["version"], stages, data["output"], data["facts"], ends)
