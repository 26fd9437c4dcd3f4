"""Copy the state of a pipeline into a folder with another number of shards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa

from unskew.balance import Plan
from unskew.errors import BadParameter, CheckpointTaken, DamagedCheckpoint, WrongCheckpoint
from unskew.parameters import whole_number
from unskew.state.checkpoint import Checkpoint
from unskew.state.decision import Decision
from unskew.state.files import sync_folder
from unskew.state.inspecting import Chosen, choose
from unskew.state.manifest import Manifest, Run
from unskew.state.reading import newest_version
from unskew.state.runs import counting, hashes_of, merge
from unskew.state.segment import SegmentReader, SegmentWriter
from unskew.state.versions import INITIAL, batch_of, version_of

MOST_SHARDS = 2**20

MOST_BYTES = 64 << 20
"""Rows that are held before they are dealt to temporary runs."""

_WHO_AND_WHERE = ("stage", "instance", "node")
"""What is left of a task: what it did with rows of the old shards says nothing of the new. Readers
take the rest for that of a task without rows."""


@dataclass(frozen=True)
class Resharded:
    """What was copied.

    Attributes
    ----------
    folder : Path
        The new state.
    batch : int
        That it goes on from.
    before, after : int
        Number of shards.
    rows, bytes : int
        Of state, as the new folder has it.
    """

    folder: Path
    batch: int
    before: int
    after: int
    rows: int
    bytes: int


def reshard(checkpoint: Path, shards: int, to: Path, *, most_bytes: int = MOST_BYTES) -> Resharded:
    """Copy the newest state into a new folder, every row to the shard that its hash has there.

    The folder appears whole or not at all, and the original is only read. A pipeline with that
    number of shards goes on from it with ``start(..., state=to)`` and the checkpoint that it had.

    Holds a few times `most_bytes` of rows, or one shard if that is more, first of the old ones and
    then of the new; the rest is on the disk of the new folder, which for the time has to have room
    for twice the state.

    Parameters
    ----------
    checkpoint : path
        As of ``Pipeline.start``, or its ``state``; the pipeline must not be running.
    shards : int
        How many each stage is to have, from 1 to 1,048,576.
    to : path
        Must not exist, but the folder that it is in must.
    most_bytes : int
        Rows to gather before they are dealt to the new shards.

    Raises
    ------
    WrongCheckpoint
        If keys are split, so that parts of their state would meet in one shard.
    BadParameter
        If the number is out of range, or the new folder cannot be made.
    CheckpointTaken
        If the pipeline committed a batch meanwhile.
    """
    whole_number("shards", shards, least=1, most=MOST_SHARDS)
    chosen = choose(checkpoint)
    store, manifest = chosen.store, chosen.manifest
    _check_target(store.folder, to)
    old = store.decided(manifest.version).plans
    for stage, plan in enumerate(old):
        _check_whole_keys(chosen, stage, plan)

    target = to.absolute()
    part = target.with_name(f".{target.name}.{uuid4().hex}.part")
    made = Checkpoint(part)
    try:
        made.open([replace(spec, shards=shards) for spec in chosen.specs])
        plans = [Plan.even(shards, plan.instances) for plan in old]
        stages = [
            _dealt(_groups(chosen, number, most_bytes), made, plan, number)
            for number, plan in enumerate(plans)
        ]
        _commit(store, made, manifest, plans, stages)
        if newest_version(store) != manifest.version:
            raise CheckpointTaken(
                f"{store.folder} got a batch meanwhile; stop the pipeline, then do it again"
            )
        part.rename(target)
        sync_folder(target.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    runs = [run for stage in stages for each in stage.values() for run in each]
    return Resharded(
        folder=target,
        batch=batch_of(manifest.version),
        before=chosen.specs[0].shards,
        after=shards,
        rows=sum(run.rows for run in runs),
        bytes=sum(run.length for run in runs),
    )


def _check_target(state: Path, to: Path) -> None:
    """See that the new folder can be made, and not in the one that must stay as it is."""
    if os.path.lexists(to):
        raise BadParameter(f"{to} is there already; name a folder that is not")
    if not to.absolute().parent.is_dir():
        raise BadParameter(f"there is no directory {to.absolute().parent} for {to}; make it first")
    if to.resolve().is_relative_to(state.resolve()):
        raise BadParameter(f"{to} is inside of the state that is copied; name a folder beside it")


def _check_whole_keys(chosen: Chosen, stage: int, plan: Plan) -> None:
    """Refuse if parts of one key's state would meet in one shard: only its operator merges them."""
    parts = [
        shard
        for shard in chosen.manifest.stages[stage]
        if plan.is_hot_shard(shard) and _rows(chosen, stage, shard).num_rows
    ]
    if plan.hot or parts:
        hot = "hot keys in its plan" if plan.hot else "keys that were hot"
        raise WrongCheckpoint(
            f"stage {stage} has {hot}, whose state is in parts on several instances, and only the "
            f'pipeline can merge them; run it for one batch with balancer="static" and another '
            f"number of instances, then stop it and do this again"
        )


def _dealt(
    groups: Iterable[pa.RecordBatch], made: Checkpoint, plan: Plan, stage: int
) -> dict[int, tuple[Run, ...]]:
    """Write the state of a stage by its new shards, in one segment for each instance."""
    spills = made.folder / "spills"
    spills.mkdir()
    temporary: dict[int, list[Run]] = {}
    for number, rows in enumerate(groups):
        hashes = hashes_of(rows)
        shards = plan.shard_of(hashes)
        order = np.lexsort((hashes, shards))
        ordered = rows.take(pa.array(order))
        starts = np.flatnonzero(np.diff(shards[order], prepend=-1))
        ends = [*starts[1:].tolist(), rows.num_rows]
        with SegmentWriter(spills / f"{number}.arrow") as writer:
            for start, end in zip(starts.tolist(), ends, strict=True):
                run = writer.add(ordered.slice(start, end - start))
                temporary.setdefault(int(shards[order[start]]), []).append(run)
    reader = SegmentReader(spills)
    name = f"{uuid4().hex[:12]}-{stage}"
    state: dict[int, tuple[Run, ...]] = {}
    for instance in range(plan.instances):
        own = [
            shard for shard in range(instance, plan.shards, plan.instances) if shard in temporary
        ]
        if own:
            with SegmentWriter(made.segments / f"{name}-{instance}.arrow") as writer:
                for shard in own:
                    # A hash is in one run alone, as it was in one shard.
                    rows = merge([reader(run) for run in temporary[shard]], oldest=True)
                    state[shard] = (writer.add(rows),)
    shutil.rmtree(spills)
    return state


def _rows(chosen: Chosen, stage: int, shard: int) -> pa.RecordBatch:
    """Return all rows of a shard that count."""
    reader = SegmentReader(chosen.store.segments)
    runs = [reader(run) for run in chosen.manifest.stages[stage][shard]]
    late = chosen.manifest.late(stage)
    return counting(runs, appends=chosen.specs[stage].appends, late=late)


def _groups(chosen: Chosen, stage: int, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Return all rows that count, some shards at a time."""
    held: list[pa.RecordBatch] = []
    size = 0
    for shard in sorted(chosen.manifest.stages[stage]):
        rows = _rows(chosen, stage, shard)
        if rows.num_rows:
            held.append(rows)
            size += rows.nbytes
        if size > most_bytes:
            joined, held, size = pa.concat_batches(held), [], 0
            yield joined
    if held:
        yield pa.concat_batches(held)


def _commit(
    store: Checkpoint,
    made: Checkpoint,
    manifest: Manifest,
    plans: list[Plan],
    stages: list[dict[int, tuple[Run, ...]]],
) -> None:
    """Write the documents of the version, and what the sink has not got yet."""
    version = manifest.version
    facts = {
        **manifest.facts,
        "tasks": [
            {name: each[name] for name in _WHO_AND_WHERE} for each in manifest.facts["tasks"]
        ],
        "merges": [],
        **{name: [0] * len(stages) for name in ("moves", "hot_moves", "bytes_moved")},
        "resharded": True,
    }
    # What a sink that has not got the version was given last is not for the copy to say.
    base = store.decided(version).base
    decision = Decision(plans, facts["watermark"], base, [{}] * len(plans))
    own = version if version == INITIAL else version_of(batch_of(version))
    if own != version:
        # After a flush the batch itself is looked for, too.
        made.decide(own, decision)
        made.commit(Manifest(own, stages, (), facts))
        made.mark_done(own)
    made.decide(version, decision)
    is_done = store.is_done(version)
    output = () if is_done else tuple(manifest.output)
    for name in output:
        _copy(store.output / name, made.output / name)
    made.commit(Manifest(version, stages, output, facts, {} if is_done else manifest.ends))
    if is_done:
        made.mark_done(version)


def _copy(source: Path, target: Path) -> None:
    try:
        shutil.copyfile(source, target)
    except FileNotFoundError as error:
        raise DamagedCheckpoint(f"{source} is missing; restore the file from a copy") from error
    with target.open("rb") as file:
        os.fsync(file.fileno())
