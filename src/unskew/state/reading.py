"""Read the state of a pipeline, shard by shard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from unskew.errors import WrongCheckpoint
from unskew.state.checkpoint import Checkpoint
from unskew.state.manifest import Manifest
from unskew.state.runs import RUN_HEAD, counting
from unskew.state.segment import SegmentReader


def folder_of(checkpoint: Path) -> Path:
    """Return the folder of the state, given that or the checkpoint that it is in."""
    for folder in (checkpoint, checkpoint / "unskew"):
        if (folder / "pipeline.json").is_file():
            return folder.absolute()
    raise WrongCheckpoint(
        f"{checkpoint} is not the checkpoint of a pipeline: neither it nor {checkpoint / 'unskew'} "
        f"has a pipeline.json"
    )


def newest_version(checkpoint: Checkpoint) -> int:
    """Return the newest version, or raise an error if there is none yet."""
    versions = checkpoint.versions()
    if not versions:
        raise WrongCheckpoint(f"{checkpoint.folder} has no batch yet; wait for the first one")
    return versions[-1]


def rows_of(
    checkpoint: Checkpoint, manifest: Manifest, stage: int, shards: Iterable[int]
) -> Iterator[pa.RecordBatch]:
    """Return the keys and the state of some shards, without what is ours alone."""
    reader = SegmentReader(checkpoint.segments)
    appends, late = checkpoint.specs()[stage].appends, manifest.late(stage)
    for shard in shards:
        runs = [reader(run) for run in manifest.stages[stage].get(shard, ())]
        if runs:
            rows = counting(runs, appends=appends, late=late)
            # By place: a key may be called like a column of the state.
            yield rows.select(range(RUN_HEAD, rows.num_columns))
