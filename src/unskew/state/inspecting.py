"""What a checkpoint holds, for people: stages, batches, plan, largest shards, hottest keys.

Reads files alone: no Spark, and no harm to a query that is running.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from unskew.balance import Plan
from unskew.errors import BadParameter, DamagedCheckpoint, UnskewError, WrongCheckpoint
from unskew.keys import hash_keys
from unskew.metrics import imbalance
from unskew.state.checkpoint import Checkpoint, Spec
from unskew.state.manifest import Manifest
from unskew.state.reading import folder_of, newest_version
from unskew.state.runs import NO_WATERMARK, RUN_HEAD, Hashes, find, hashes_of
from unskew.state.segment import SegmentReader
from unskew.state.versions import INITIAL, batch_of, kind_of, version_of


@dataclass(frozen=True)
class StageState:
    """A stage of the pipeline.

    Attributes
    ----------
    number : int
        From 0.
    name, operator : str
        What it is called, and what it does.
    shards : int
        How many it has.
    columns : tuple of str
        Of its state, keys first, each with its type.
    """

    number: int
    name: str
    operator: str
    shards: int
    columns: tuple[str, ...]


@dataclass(frozen=True)
class BatchState:
    """What one version that is kept did to a stage.

    Attributes
    ----------
    batch : int
        Number of the batch.
    kind : {"batch", "settled", "flushed", "initial", "re-sharded"}
        What made the version: the batch itself, the end of a run after it, a flush after that.
    rows, late, rows_out : int
        That came to the stage, that came too late, that left it.
    seconds : float
        Of the whole batch.
    moves, hot_moves, key_moves : int
        What was on other instances than in the version before: shards; keys that are split, or
        were; keys that are placed, or were.
    imbalance : float or None
        Of the rows over the instances; None if there were no rows.
    state_bytes : int
        Of the stage after it.
    damage : str or None
        Why nothing else is known of it.
    """

    batch: int
    kind: str
    rows: int = 0
    late: int = 0
    rows_out: int = 0
    seconds: float = 0.0
    moves: int = 0
    hot_moves: int = 0
    key_moves: int = 0
    imbalance: float | None = None
    state_bytes: int = 0
    damage: str | None = None


@dataclass(frozen=True)
class KeyState:
    """A key.

    Attributes
    ----------
    hash : str
        Of the key, as an unsigned number; text, as readers of JSON round numbers.
    key : str or None
        The key as the state has it, windows left out; None if the state does not have it.
    rows : int
        That it had in the batch, as far as tasks told.
    instances : tuple of int
        That have its rows.
    """

    hash: str
    key: str | None
    rows: int
    instances: tuple[int, ...]


@dataclass(frozen=True)
class PlanState:
    """The plan of a stage.

    Attributes
    ----------
    instances, epoch : int
        Number of instances, and of the version of the plan.
    shards : tuple of int
        How many shards each instance has.
    hot : tuple of KeyState
        Keys that several instances share.
    placed : int
        How many keys are in another shard than that of their hash, to live with others.
    """

    instances: int
    epoch: int
    shards: tuple[int, ...]
    hot: tuple[KeyState, ...]
    placed: int = 0


@dataclass(frozen=True)
class ShardState:
    """A shard that has state.

    Attributes
    ----------
    shard : int
        Its number; those after the last are of hot keys, one for each instance.
    instance : int or None
        That has it, if there is a plan.
    bytes, rows, runs : int
        In files. Rows that a newer run replaces are among them.
    of_hot_keys : bool
        Whether it holds the parts of hot keys that its instance has.
    """

    shard: int
    instance: int | None
    bytes: int
    rows: int
    runs: int
    of_hot_keys: bool


@dataclass(frozen=True)
class Inspection:
    """What a checkpoint holds of one stage, as of one batch.

    Attributes
    ----------
    folder : str
        Of the state.
    batch, kind
        Which version this is, see `BatchState`.
    watermark : int or None
        In microseconds.
    stage : int
        Which stage all but `stages` is about.
    stages : tuple of StageState
        All of the pipeline.
    batches : tuple of BatchState
        All that are kept, the oldest first.
    plan : PlanState or None
        In force in this version.
    shards : tuple of ShardState
        The largest.
    shards_with_state, state_bytes : int
        Of all shards.
    hottest : tuple of KeyState
        Keys with most rows in the batch.
    """

    folder: str
    batch: int
    kind: str
    watermark: int | None
    stage: int
    stages: tuple[StageState, ...]
    batches: tuple[BatchState, ...]
    plan: PlanState | None
    shards: tuple[ShardState, ...]
    shards_with_state: int
    state_bytes: int
    hottest: tuple[KeyState, ...]


@dataclass(frozen=True)
class Chosen:
    """One stage of one version of a checkpoint.

    Attributes
    ----------
    store : Checkpoint
        That has it.
    specs : list of Spec
        Of all stages.
    stage : int
        Which stage.
    manifest : Manifest
        Of the version.
    """

    store: Checkpoint
    specs: list[Spec]
    stage: int
    manifest: Manifest


def choose(checkpoint: Path, *, stage: int = 0, batch: int | None = None) -> Chosen:
    """Return a stage as of a batch that is kept, or say which there are.

    Parameters
    ----------
    checkpoint : path
        As of ``Pipeline.start``, or its ``state``.
    stage : int, default 0
        Which stage.
    batch : int, optional
        Which batch, with what followed it; the newest by default.

    Raises
    ------
    WrongCheckpoint
        If it is no checkpoint, or has no batch yet.
    BadParameter
        If there is no such stage, or the batch is not kept.
    DamagedCheckpoint
        If the files of the batch are.
    """
    store = Checkpoint(folder_of(checkpoint))
    specs = store.specs()
    if not 0 <= stage < len(specs):
        raise BadParameter(f"stage must be from 0 to {len(specs) - 1}, not {stage}")
    version = newest_version(store)
    if batch is not None:
        batches = sorted({batch_of(each) for each in store.versions()})
        if batch not in batches:
            raise BadParameter(f"batch must be one that is kept, {_spans(batches)}, not {batch}")
        version = max(each for each in store.versions() if batch_of(each) == batch)
    manifest = store.manifest(version)
    if manifest is None:
        raise WrongCheckpoint(
            f"{store.folder} does not keep batch {batch_of(version)} any more; look again"
        )
    return Chosen(store, specs, stage, manifest)


def inspect_state(chosen: Chosen, *, top: int = 10) -> Inspection:
    """Return what there is to know of a stage as of a batch.

    Reads the documents of all batches that are kept, and of the state the shards of the keys that
    it names.

    Parameters
    ----------
    chosen : Chosen
        What to look at.
    top : int, default 10
        How many shards and keys to name.
    """
    store, stage, manifest = chosen.store, chosen.stage, chosen.manifest
    batch = batch_of(manifest.version)
    # What followed a batch had no rows: the hottest keys are those of the batch itself.
    own = _readable(store, version_of(batch)) or manifest
    plan, plan_of_rows = (_plan(store, each.version, stage) for each in (manifest, own))
    totals = _hottest(own, stage)
    hottest = sorted(totals, key=lambda key: (-totals[key], key))[:top]
    hot = [] if plan is None else sorted(plan.hot, key=lambda key: (-totals[key], key))
    names = _texts(chosen, [manifest, own], {*hottest, *hot})

    def key_state(key: int, where: Plan | None) -> KeyState:
        instances = () if where is None else tuple(sorted(where.instances_of(key)))
        return KeyState(str(key), names.get(key), totals[key], instances)

    sizes = manifest.state_bytes(stage)
    largest = sorted(sizes, key=lambda shard: (-sizes[shard], shard))[:top]
    watermark = manifest.facts.get("watermark", NO_WATERMARK)
    return Inspection(
        folder=str(store.folder),
        batch=batch,
        kind=_kind(manifest),
        watermark=None if watermark == NO_WATERMARK else watermark,
        stage=stage,
        stages=tuple(
            StageState(number, spec.name, spec.operator, spec.shards, spec.state)
            for number, spec in enumerate(chosen.specs)
        ),
        batches=tuple(_batches(chosen)),
        plan=None
        if plan is None
        else PlanState(
            instances=plan.instances,
            epoch=plan.epoch,
            shards=tuple(np.bincount(plan.assignment, minlength=plan.instances).tolist()),
            hot=tuple(key_state(key, plan) for key in hot),
            placed=len(plan.placed),
        ),
        shards=tuple(_shard(chosen, shard, plan) for shard in largest),
        shards_with_state=len(sizes),
        state_bytes=sum(sizes.values()),
        hottest=tuple(key_state(key, plan_of_rows) for key in hottest),
    )


def _spans(numbers: Sequence[int]) -> str:
    """Return whole numbers in order, those without a gap as one span.

    Examples
    --------
    >>> _spans([1, 2, 3, 7])
    '1 to 3, 7'
    """
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1] = [spans[-1][0], number]
        else:
            spans.append([number])
    return ", ".join(" to ".join(map(str, span)) for span in spans)


def _kind(manifest: Manifest) -> str:
    return "re-sharded" if "resharded" in manifest.facts else _kind_of(manifest.version)


def _kind_of(version: int) -> str:
    return "initial" if version == INITIAL else kind_of(version).name.lower()


def _plan(store: Checkpoint, version: int, stage: int) -> Plan | None:
    decision = store.decision(version)
    return None if decision is None else decision.plans[stage]


def _readable(store: Checkpoint, version: int) -> Manifest | None:
    try:
        return store.manifest(version)
    except DamagedCheckpoint:
        return None


def _batches(chosen: Chosen) -> Iterable[BatchState]:
    """Return what is known of each version; a damaged one must not hide the others."""
    for version in chosen.store.versions():
        try:
            manifest = chosen.store.manifest(version)
        except DamagedCheckpoint as error:
            yield BatchState(batch_of(version), _kind_of(version), damage=str(error))
        else:
            # A running query may have removed it since it was listed.
            if manifest is not None:
                yield _batch(manifest, chosen.stage)


def _batch(manifest: Manifest, stage: int) -> BatchState:
    facts = manifest.facts
    tasks = _of_stage(manifest, "tasks", stage)
    merges = _of_stage(manifest, "merges", stage)
    loads = [sum(each.get("rows", {}).values()) for each in tasks]
    late = sum(each.get("late", 0) for each in tasks)
    return BatchState(
        batch=batch_of(manifest.version),
        kind=_kind(manifest),
        rows=sum(loads) + late,
        late=late,
        rows_out=sum(each.get("rows_out", 0) for each in (*tasks, *merges)),
        seconds=float(facts.get("seconds", 0.0)),
        moves=_moved(facts, "moves", stage),
        hot_moves=_moved(facts, "hot_moves", stage),
        key_moves=_moved(facts, "key_moves", stage),
        imbalance=imbalance(loads) if sum(loads) else None,
        state_bytes=sum(manifest.state_bytes(stage).values()),
    )


def _moved(facts: Mapping[str, Any], name: str, stage: int) -> int:
    """Return how much moved; re-sharded, and by earlier versions, not all of it is told."""
    return int(facts[name][stage]) if name in facts else 0


def _of_stage(manifest: Manifest, name: str, stage: int) -> list[dict[str, Any]]:
    """Return what the tasks or merges of a stage tell; re-sharded, they tell of no rows."""
    return [each for each in manifest.facts.get(name, ()) if each["stage"] == stage]


def _hottest(manifest: Manifest, stage: int) -> Counter[int]:
    """Return the rows of each key that a task told of."""
    totals: Counter[int] = Counter()
    for task in _of_stage(manifest, "tasks", stage):
        totals.update(dict(task.get("hot", ())))
    return totals


def _shard(chosen: Chosen, shard: int, plan: Plan | None) -> ShardState:
    runs = chosen.manifest.stages[chosen.stage][shard]
    return ShardState(
        shard=shard,
        instance=None if plan is None else plan.keeper(shard),
        bytes=sum(run.length for run in runs),
        rows=sum(run.rows for run in runs),
        runs=len(runs),
        of_hot_keys=shard >= chosen.specs[chosen.stage].shards,
    )


def _texts(chosen: Chosen, manifests: Iterable[Manifest], keys: Iterable[int]) -> dict[int, str]:
    """Return the text of keys by their hash, from the first manifest whose state has them."""
    texts: dict[int, str] = {}
    for manifest in manifests:
        left = np.array(sorted(set(keys) - texts.keys()), dtype=np.uint64)
        if left.size:
            rows = _rows(chosen, manifest, left)
            texts.update({} if rows is None else _texts_of(rows))
    return texts


def _rows(chosen: Chosen, manifest: Manifest, hashes: Hashes) -> pa.RecordBatch | None:
    """Return the state of some keys: at home, placed or not, and where parts of hot keys are."""
    reader = SegmentReader(chosen.store.segments)
    state = manifest.stages[chosen.stage]
    shards = chosen.specs[chosen.stage].shards
    # Without a plan none of them is placed.
    plan = _plan(chosen.store, manifest.version, chosen.stage) or Plan.even(shards, 1)
    homes = plan.shard_of(hashes)
    places = {int(shard): hashes[homes == shard] for shard in np.unique(homes)}
    places |= {shard: hashes for shard in state if shard >= shards}
    found: list[pa.RecordBatch] = []
    for shard, asked in places.items():
        runs = [reader(run) for run in state.get(shard, ())]
        found += find(runs, asked, appends=chosen.specs[chosen.stage].appends)
    return pa.concat_batches(found) if found else None


def _texts_of(rows: pa.RecordBatch) -> dict[int, str]:
    """Return the text of the key of each hash; of several keys that share one, all."""
    try:
        columns = [rows.column(place).to_pylist() for place in _key_columns(rows)]
    except (ValueError, OverflowError):
        # A time that Spark knows and Python does not.
        return {}
    texts: dict[int, dict[str, None]] = {}
    if columns:
        for key, values in zip(hashes_of(rows).tolist(), zip(*columns, strict=True), strict=True):
            texts.setdefault(key, {})[", ".join(map(_text, values))] = None
    return {key: " or ".join(found) for key, found in texts.items()}


def _key_columns(rows: pa.RecordBatch) -> range:
    """Return which columns of a run are the key, but for its window: those that have its hash.

    The state does not say where keys end. A window comes before them and has no part in the hash.
    """
    hashes = hashes_of(rows)
    has_struct = pa.types.is_struct(rows.schema.field(3).type)
    for first in (RUN_HEAD, RUN_HEAD + 1) if has_struct else (RUN_HEAD,):
        for last in range(first + 1, rows.num_columns + 1):
            try:
                made = hash_keys(*rows.columns[first:last])
            except UnskewError:
                # A column that no key can have, so that none after it is of the key either.
                break
            if np.array_equal(made, hashes):
                return range(first, last)
    return range(0)


def _text(value: Any) -> str:
    if value is None:
        return "null"
    return value.hex() if isinstance(value, bytes) else str(value)
