from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from unskew.balance import Plan
from unskew.errors import (
    CheckpointTaken,
    DamagedCheckpoint,
    NewerCheckpoint,
    UnsupportedFolder,
    WrongCheckpoint,
)
from unskew.state import Checkpoint, Manifest, Run, Spec
from unskew.state.decision import Decision
from unskew.state.files import local_folder
from unskew.state.versions import INITIAL, Kind, version_of

SPEC = Spec("count", "aggregation(n=Count())", 8, ("user: string", "state_n: int64"))
RUN = Run("a-0-0-1.arrow", 64, 100, 7, 3, 2**60, 2**61)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    made = Checkpoint(tmp_path / "checkpoint")
    made.open([SPEC])
    return made


def a_manifest(version: int, *names: str) -> Manifest:
    return Manifest(
        version, [{3: tuple(RUN._replace(file=name) for name in names)}], ["out"], {"n": 1}
    )


def test_a_manifest_comes_back(checkpoint: Checkpoint) -> None:
    manifest = a_manifest(version_of(4), "a", "b")
    checkpoint.commit(manifest)
    assert checkpoint.manifest(version_of(4)) == manifest
    assert checkpoint.manifest(version_of(5)) is None


def test_a_second_commit_of_a_batch_is_refused_and_changes_nothing(checkpoint: Checkpoint) -> None:
    checkpoint.commit(a_manifest(0, "mine"))
    with pytest.raises(CheckpointTaken, match="another driver"):
        checkpoint.commit(a_manifest(0, "theirs"))
    assert checkpoint.manifest(0) == a_manifest(0, "mine")


def test_a_batch_goes_on_from_the_flush_after_the_one_before(checkpoint: Checkpoint) -> None:
    assert checkpoint.newest(version_of(0), 1) == Manifest.empty(1)
    checkpoint.commit(a_manifest(version_of(0), "first"))
    assert checkpoint.newest(version_of(1), 1).files() == {"first"}
    checkpoint.commit(a_manifest(version_of(0, Kind.SETTLED), "flushed"))
    assert checkpoint.newest(version_of(1), 1).files() == {"flushed"}
    assert checkpoint.newest(version_of(0, Kind.SETTLED), 1).files() == {"first"}
    checkpoint.commit(a_manifest(version_of(0, Kind.FLUSHED), "all out"))
    assert checkpoint.newest(version_of(1), 1).files() == {"all out"}
    assert checkpoint.newest(version_of(0, Kind.FLUSHED), 1).files() == {"flushed"}
    assert checkpoint.versions() == [0, 1, 2]


def test_an_initial_state_is_what_the_first_batch_goes_on_from(checkpoint: Checkpoint) -> None:
    checkpoint.commit(a_manifest(INITIAL, "initial"))
    assert checkpoint.newest(version_of(0), 1).files() == {"initial"}


def test_a_missing_manifest_is_not_taken_for_an_empty_state(checkpoint: Checkpoint) -> None:
    with pytest.raises(DamagedCheckpoint, match=r"000000000004\.json is missing"):
        checkpoint.newest(version_of(5), 1)


def test_done_can_be_said_twice(checkpoint: Checkpoint) -> None:
    assert not checkpoint.is_done(2)
    checkpoint.mark_done(2)
    checkpoint.mark_done(2)
    assert checkpoint.is_done(2)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        pytest.param(lambda data: data[:-3], DamagedCheckpoint, "was cut or altered", id="cut"),
        pytest.param(
            lambda data: data.replace(b'"n":1', b'"n":2'),
            DamagedCheckpoint,
            "was cut or altered",
            id="altered",
        ),
        pytest.param(lambda data: b"", DamagedCheckpoint, "does not begin like", id="empty"),
        pytest.param(
            lambda data: data.replace(b'"format": 2', b'"format": 9'),
            NewerCheckpoint,
            "has format 9 and this version of unskew reads up to 2",
            id="of a newer version",
        ),
        pytest.param(
            lambda data: data.replace(b'"unskew": "manifest"', b'"unskew": "plan"'),
            DamagedCheckpoint,
            "is a 'plan', not a manifest",
            id="something else",
        ),
    ],
)
def test_a_damaged_document_is_named(
    checkpoint: Checkpoint, change: object, error: type[Exception], message: str
) -> None:
    checkpoint.commit(a_manifest(0, "a"))
    path = checkpoint.folder / "manifests" / "000000000000.json"
    path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(error, match=message) as raised:
        checkpoint.manifest(0)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        pytest.param([], "with 1 stages, not 0", id="fewer stages"),
        pytest.param(
            [Spec(SPEC.name, SPEC.operator, 16, SPEC.state)],
            "has shards 16 and .* was written with 8; .* --reshard",
            id="other shards",
        ),
        pytest.param(
            [Spec(SPEC.name, SPEC.operator, 8, ("user: int64",))], "has state", id="other columns"
        ),
    ],
)
def test_the_checkpoint_of_another_pipeline_is_refused(
    checkpoint: Checkpoint, specs: list[Spec], message: str
) -> None:
    with pytest.raises(WrongCheckpoint, match=message):
        Checkpoint(checkpoint.folder).open(specs)
    Checkpoint(checkpoint.folder).open([SPEC])
    assert checkpoint.specs() == [SPEC]


def test_a_file_system_that_overwrites_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.link", lambda old, new: Path(new).write_bytes(b""))
    with pytest.raises(UnsupportedFolder, match="let a file be created twice"):
        Checkpoint(tmp_path).open([SPEC])


def test_a_file_system_without_links_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(old: object, new: object) -> None:
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    with pytest.raises(UnsupportedFolder, match="Operation not permitted"):
        Checkpoint(tmp_path).open([SPEC])


DECISION = Decision([Plan.even(4, 2)], 7, 0, [{}])


def test_garbage_is_what_no_kept_manifest_names(checkpoint: Checkpoint) -> None:
    for version in range(0, 20, 4):
        checkpoint.decide(version, DECISION)
        checkpoint.commit(a_manifest(version, f"state-{version}", "base"))
        checkpoint.mark_done(version)
        (checkpoint.segments / f"state-{version}").touch()
    (checkpoint.segments / "base").touch()
    (checkpoint.segments / "of a killed run").touch()
    (checkpoint.segments / "still being written").touch()
    for path in checkpoint.segments.iterdir():
        if path.name != "still being written":
            os.utime(path, (0, 0))

    checkpoint.collect_garbage(kept=2, grace=60)

    assert {path.name for path in checkpoint.segments.iterdir()} == {
        *("base", "state-12", "state-16", "still being written"),
    }
    assert checkpoint.versions() == [12, 16]
    assert checkpoint.decision(8) is None
    assert checkpoint.decision(12) == DECISION
    assert not checkpoint.is_done(8)
    assert json.loads((checkpoint.folder / "pipeline.json").read_text().splitlines()[1])


@pytest.mark.parametrize("given", ["s3a://bucket/state", "hdfs://name/state"])
def test_what_is_no_folder_of_this_machine_is_refused(given: str) -> None:
    with pytest.raises(UnsupportedFolder, match=f"{given} cannot hold state"):
        local_folder(given)


def test_a_folder_may_be_named_as_spark_does(tmp_path: Path) -> None:
    assert local_folder(f"file://{tmp_path}/state") == tmp_path / "state"
