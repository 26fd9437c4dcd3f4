"""State with another number of shards: the same rows, each where its hash says, and all goes on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from state.playing import Player, a_player, counting, play_initial, rows_by_shard, users

from unskew.balance import Plan
from unskew.errors import BadParameter, CheckpointTaken, DamagedCheckpoint, WrongCheckpoint
from unskew.keys import hash_keys
from unskew.operators import PerKey
from unskew.operators.task_report import TaskReport
from unskew.state import Checkpoint, Manifest, resharding
from unskew.state.decision import Decision
from unskew.state.inspecting import choose, inspect_state
from unskew.state.resharding import reshard
from unskew.state.runs import HASH
from unskew.state.segment import SegmentWriter
from unskew.state.versions import INITIAL, Kind, version_of

NAMES = [*["hot"] * 20, *(f"user {number}" for number in range(60)), None]


def all_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def sorted_rows(checkpoint: Checkpoint, manifest: Manifest, stage: int = 0) -> list[str]:
    shards = rows_by_shard(checkpoint, manifest, stage)
    return sorted(str(row) for rows in shards.values() for row in rows)


@pytest.mark.parametrize("most_bytes", [1, 2000, resharding.MOST_BYTES])
@pytest.mark.parametrize("shards", [1, 5, 8, 16, 1000])
def test_every_row_is_in_the_shard_of_its_hash_and_the_original_as_it_was(
    shards: int, most_bytes: int, tmp_path: Path
) -> None:
    fields = [pa.field("user", pa.string()), pa.field("other", pa.string())]
    player = Player(tmp_path / "old", [counting(*fields)] * 2, Plan.even(8, 3))
    # A null adds nothing to a hash: each name comes as two keys that share one.
    rows = pa.record_batch(
        {"user": [*NAMES, *[None] * len(NAMES)], "other": [*[None] * 81, *NAMES]}
    )
    player.play(0, rows)
    newest = player.play(1, rows.slice(0, 30), plan=player.plan.move({2: 0}), watermark=77)
    before = all_of(tmp_path / "old")

    done = reshard(tmp_path / "old", shards, tmp_path / "new", most_bytes=most_bytes)

    assert all_of(tmp_path / "old") == before
    assert {path.name for path in tmp_path.iterdir()} == {"old", "new"}
    made = Checkpoint(tmp_path / "new")
    assert [spec.shards for spec in made.specs()] == [shards, shards]
    assert made.versions() == [version_of(1)]
    manifest = made.manifest(version_of(1))
    assert manifest is not None
    assert manifest.facts["watermark"] == 77
    plan = Plan.even(shards, 3)
    for stage in (0, 1):
        assert sorted_rows(made, manifest, stage) == sorted_rows(player.checkpoint, newest, stage)
        for shard, found in rows_by_shard(made, manifest, stage).items():
            hashes = np.array([row[HASH] for row in found], dtype=np.uint64)
            assert set(plan.shard_of(hashes).tolist()) == {shard}
            assert np.array_equal(hashes, np.sort(hashes))
        assert all(len(runs) == 1 for runs in manifest.stages[stage].values())
    assert (done.batch, done.before, done.after) == (1, 8, shards)
    assert done.rows == sum(
        run.rows for s in manifest.stages for runs in s.values() for run in runs
    )
    assert done.bytes == sum(sum(manifest.state_bytes(stage).values()) for stage in (0, 1))
    decision = made.decision(version_of(1))
    assert decision is not None
    assert decision.plans == [plan] * 2
    assert decision.balancers == [{}, {}]
    assert made.is_done(version_of(1))
    assert {path.name for path in made.segments.iterdir()} == manifest.files()
    assert inspect_state(choose(tmp_path / "new")).kind == "re-sharded"


def test_a_pipeline_goes_on_from_the_copy_as_from_the_original(tmp_path: Path) -> None:
    player = a_player(tmp_path / "old")
    player.play(0, users(*NAMES))
    reshard(tmp_path / "old", 11, tmp_path / "new")
    other = a_player(tmp_path / "new", shards=11, instances=3)
    rows = users(*NAMES[:40], "late comer")
    made = {player: player.play(1, rows), other: other.play(1, rows)}
    [one, two] = [sorted_rows(each.checkpoint, manifest) for each, manifest in made.items()]
    assert one == two
    counts = Counter([*NAMES, *NAMES[:40], "late comer"])
    kept = rows_by_shard(other.checkpoint, made[other]).values()
    assert {row["user"]: row["state_n"] for rows in kept for row in rows} == counts


def test_what_was_measured_on_the_old_shards_is_not_told_of_the_new(tmp_path: Path) -> None:
    player = a_player(tmp_path / "old")
    played = player.play(0, users(*NAMES))
    # As a join with a key that was split and moved.
    of_join = {"probes": {0: 3}, "pairs": {0: 7}, "hot_pairs": [[1, 7]], "taken_over": 100}
    facts = {
        **played.facts,
        "tasks": [{**task, **of_join} for task in played.facts["tasks"]],
        "moves": [2],
        "hot_moves": [1],
        "bytes_moved": [100],
    }
    player.checkpoint.decide(version_of(1), Decision([player.plan], 0, version_of(0), [{}]))
    player.checkpoint.commit(Manifest(version_of(1), played.stages, (), facts))
    reshard(tmp_path / "old", 11, tmp_path / "new")
    made = Checkpoint(tmp_path / "new").manifest(version_of(1))
    assert made is not None
    assert [made.facts[name] for name in ("moves", "hot_moves", "bytes_moved")] == [[0]] * 3
    assert [TaskReport.from_json(task) for task in made.facts["tasks"]] == [
        TaskReport(task["stage"], task["instance"], node=task["node"]) for task in facts["tasks"]
    ]


def test_keys_that_were_forgotten_stay_so(tmp_path: Path) -> None:
    def toggle(key: dict[str, Any], rows: Any, state: dict[str, Any] | None) -> Any:
        return (None if state else {"seen": True}), None

    schema = pa.schema({"seen": pa.bool_()})
    stage = PerKey(toggle, state=schema, output=schema).bind([pa.field("user", pa.string())], [])
    player = Player(tmp_path / "old", [stage], Plan.even(2, 1))
    player.play(0, users("a", "b", "c", "d", "e", "f", "g", "h", "i", "j"))
    player.play(1, users("a", "b"))
    assert reshard(tmp_path / "old", 3, tmp_path / "new").rows == 8


def split(folder: Path) -> Player:
    """Return a pipeline with a hot key on two instances."""
    player = a_player(folder)
    player.play(0, users(*NAMES))
    key = int(hash_keys(pa.array(["hot"]))[0])
    player.play(1, users(*NAMES), plan=Plan(player.plan.assignment, 2, 1, {key: (0, 1)}))
    return player


def test_hot_keys_are_refused_until_they_are_whole(tmp_path: Path) -> None:
    player = split(tmp_path / "old")
    with pytest.raises(WrongCheckpoint, match=r'stage 0 has hot keys in its plan.*"static"'):
        reshard(tmp_path / "old", 4, tmp_path / "new")

    newest = player.play(2, users("hot"), plan=Plan.even(8, 3))
    reshard(tmp_path / "old", 4, tmp_path / "new")
    made = Checkpoint(tmp_path / "new")
    manifest = made.manifest(version_of(2))
    assert manifest is not None
    assert sorted_rows(made, manifest) == sorted_rows(player.checkpoint, newest)
    kept = [row for rows in rows_by_shard(made, manifest).values() for row in rows]
    assert [row["state_n"] for row in kept if row["user"] == "hot"] == [41]


def test_parts_that_no_plan_names_are_refused_too(tmp_path: Path) -> None:
    player = split(tmp_path / "old")
    parts = player.checkpoint.manifest(version_of(1))
    assert parts is not None
    player.checkpoint.decide(version_of(2), Decision([Plan.even(8, 2)], 0, version_of(1), [{}]))
    player.checkpoint.commit(Manifest(version_of(2), parts.stages, (), parts.facts))
    with pytest.raises(WrongCheckpoint, match="stage 0 has keys that were hot"):
        reshard(tmp_path / "old", 4, tmp_path / "new")
    assert {path.name for path in tmp_path.iterdir()} == {"old"}


def test_output_that_the_sink_has_not_got_goes_along(tmp_path: Path) -> None:
    a_player(tmp_path / "old").play(0, users("a"), done=False)
    reshard(tmp_path / "old", 4, tmp_path / "new")
    made = Checkpoint(tmp_path / "new")
    assert not made.is_done(0)
    manifest = made.manifest(0)
    assert manifest is not None
    assert [(made.output / name).read_bytes() for name in manifest.output] == [b"what came out"]
    assert made.decided(0).base == INITIAL

    (tmp_path / "old" / "output" / "0.parquet").unlink()
    with pytest.raises(DamagedCheckpoint, match=r"output/0\.parquet is missing"):
        reshard(tmp_path / "old", 4, tmp_path / "newer")


@pytest.mark.parametrize("kind", [Kind.SETTLED, Kind.FLUSHED])
def test_what_followed_a_batch_is_found_by_all_who_look_for_it(kind: Kind, tmp_path: Path) -> None:
    player = a_player(tmp_path / "old")
    player.play(0, users("a"))
    player.play(1, users("b"))
    player.play(1, users(), kind=kind, watermark=99)
    reshard(tmp_path / "old", 4, tmp_path / "new")
    made = Checkpoint(tmp_path / "new")
    # What sinks have that are given the version.
    assert made.decided(version_of(1, kind)).base == version_of(1)
    # As the next batch does, and the end of a run that had nothing new.
    for version in (version_of(2), version_of(1, Kind.FLUSHED)):
        assert made.newest(version, 1).facts["watermark"] == 99
    assert all(made.is_done(version_of(1, each)) for each in (Kind.BATCH, kind))


def test_an_initial_state_is_copied_as_one(tmp_path: Path) -> None:
    player = a_player(tmp_path / "old")
    made = play_initial(player, users(*NAMES))
    reshard(tmp_path / "old", 4, tmp_path / "new")
    new = Checkpoint(tmp_path / "new")
    assert new.versions() == [INITIAL]
    assert sorted_rows(new, new.newest(0, 1)) == sorted_rows(player.checkpoint, made)


def test_a_batch_without_its_plan_is_damaged(tmp_path: Path) -> None:
    a_player(tmp_path / "old").play(0, users("a"))
    (tmp_path / "old" / "plans" / "000000000000.json").unlink()
    with pytest.raises(DamagedCheckpoint, match="has the manifest of batch 0 but not its plan"):
        reshard(tmp_path / "old", 4, tmp_path / "new")


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_player(tmp_path / "old").play(0, users(*NAMES))

    def refuse(self: SegmentWriter, run: pa.RecordBatch) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SegmentWriter, "add", refuse)
    with pytest.raises(OSError, match="No space left"):
        reshard(tmp_path / "old", 4, tmp_path / "new")
    assert {path.name for path in tmp_path.iterdir()} == {"old"}


def test_a_pipeline_that_is_running_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    player = a_player(tmp_path / "old")
    player.play(0, users(*NAMES))
    commit = resharding._commit

    def meanwhile(*arguments: Any) -> None:
        commit(*arguments)
        player.play(1, users("a"))

    monkeypatch.setattr(resharding, "_commit", meanwhile)
    with pytest.raises(CheckpointTaken, match="got a batch meanwhile; stop the pipeline"):
        reshard(tmp_path / "old", 4, tmp_path / "new")
    assert {path.name for path in tmp_path.iterdir()} == {"old"}


@pytest.mark.parametrize(
    ("shards", "to", "message"),
    [
        (0, "new", "shards must be from 1 to 1048576, not 0"),
        (2**20 + 1, "new", "shards must be from 1 to 1048576, not 1048577"),
        (4, "old", "old is there already; name a folder that is not"),
        (4, "old/state/new", "is inside of the state that is copied"),
        (4, "a/new", "there is no directory .*/a for .*; make it first"),
    ],
)
def test_what_cannot_be_made_is_refused(shards: int, to: str, message: str, tmp_path: Path) -> None:
    a_player(tmp_path / "old").play(0, users("a"))
    with pytest.raises(BadParameter, match=message):
        reshard(tmp_path / "old", shards, tmp_path / to)
    assert {path.name for path in tmp_path.iterdir()} == {"old"}
