"""The folder of a pipeline: plans, manifests, done markers, segments and output, by version."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import time
from typing import Any

from unskew.errors import CheckpointTaken, DamagedCheckpoint, WrongCheckpoint
from unskew.state.decision import Decision
from unskew.state.documents import read_document, write_document
from unskew.state.files import check_folder, create, sync_folder
from unskew.state.manifest import Manifest
from unskew.state.versions import INITIAL, Kind, batch_of, name_of, version_named, version_of


@dataclass(frozen=True)
class Spec:
    """What the stage of a pipeline keeps: a checkpoint can only be opened with the same.

    Attributes
    ----------
    name : str
        Of the stage.
    operator : str
        What it does.
    shards : int
        Number of shards.
    state : tuple of str
        The columns of its state, keys included, with their types.
    appends : bool, default False
        Whether rows of newer runs add to those of older ones.
    after : str, optional
        Name of the stage that feeds it, where that is not the one named before it.
    """

    name: str
    operator: str
    shards: int
    state: tuple[str, ...]
    appends: bool = False
    after: str | None = None


class Checkpoint:
    """A folder that the driver and all executors see.

    Nothing is ever overwritten, and a running pipeline looks for no name by listing a folder: only
    people do, and who collects garbage.

    Parameters
    ----------
    folder : path
        `open` makes it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def segments(self) -> Path:
        """Folder of the state."""
        return self.folder / "state"

    @property
    def output(self) -> Path:
        """Folder of what came out of each batch."""
        return self.folder / "output"

    def open(self, specs: Iterable[Spec]) -> None:
        """Make the folder, or see that it is one of a pipeline with the same stages.

        Raises
        ------
        WrongCheckpoint
            If other stages, or another number of shards, wrote it.
        UnsupportedFolder
            If the file system cannot refuse a second file of a name.
        """
        wanted = [{**asdict(spec), "state": list(spec.state)} for spec in specs]
        self.folder.mkdir(parents=True, exist_ok=True)
        check_folder(self.folder)
        for name in ("plans", "manifests", "done", "state", "output"):
            (self.folder / name).mkdir(exist_ok=True)
        path = self.folder / "pipeline.json"
        try:
            write_document(path, "pipeline", {"stages": wanted})
        except FileExistsError:
            self._check(path, wanted)

    def specs(self) -> list[Spec]:
        """Return what the stages of the pipeline are that wrote this."""
        try:
            found = read_document(self.folder / "pipeline.json", "pipeline")["stages"]
        except FileNotFoundError as error:
            raise WrongCheckpoint(
                f"{self.folder} is not the state of a pipeline: it has no pipeline.json"
            ) from error
        return [Spec(**{**stage, "state": tuple(stage["state"])}) for stage in found]

    def decision(self, version: int) -> Decision | None:
        """Return what was decided for a version, or None if nothing was."""
        found = self._read("plans", "plan", version)
        return None if found is None else Decision.from_json(found)

    def decided(self, version: int) -> Decision:
        """Return what was decided for a version that was committed.

        Raises
        ------
        DamagedCheckpoint
            If that is missing.
        """
        found = self.decision(version)
        if found is None:
            raise DamagedCheckpoint(
                f"{self.folder} has the manifest of batch {batch_of(version)} but not its plan; "
                f"restore the file {self._path('plans', version).name} from a copy"
            )
        return found

    def decide(self, version: int, decision: Decision) -> None:
        """Write what shall be done, before it is."""
        self._write("plans", "plan", version, decision.to_json())

    def manifest(self, version: int) -> Manifest | None:
        """Return what was committed, or None if nothing was."""
        found = self._read("manifests", "manifest", version)
        return None if found is None else Manifest.from_json(found)

    def commit(self, manifest: Manifest) -> None:
        """Make a version count, all at once; tasks have made their files durable before.

        Raises
        ------
        CheckpointTaken
            If another driver has committed it.
        """
        for folder in (self.segments, self.output):
            sync_folder(folder)
        self._write("manifests", "manifest", manifest.version, manifest.to_json())

    def newest(self, version: int, stages: int) -> Manifest:
        """Return the state that a version begins with: the newest one before it.

        Raises
        ------
        DamagedCheckpoint
            If there is none, though batches came before.
        """
        if version == version_of(0):
            return self.manifest(INITIAL) or Manifest.empty(stages)
        before = batch_of(version - 1)
        found = None
        for kind in reversed(Kind):
            earlier = version_of(before, kind)
            if found is None and earlier < version:
                found = self.manifest(earlier)
        if found is None:
            raise DamagedCheckpoint(
                f"{self._path('manifests', version_of(before))} is missing, and the next batch "
                f"goes on from it; name the folder of the state with state= if it is elsewhere, as "
                f"after re-sharding, restore the file, or start with an empty checkpoint for Spark "
                f"as well"
            )
        return found

    def is_done(self, version: int) -> bool:
        """Return whether the sink has all of a version."""
        return self._path("done", version).exists()

    def mark_done(self, version: int) -> None:
        """Note that the sink has all of a version; to note it twice is no harm."""
        with suppress(FileExistsError):
            create(self._path("done", version), b"")

    def versions(self) -> list[int]:
        """Return the versions that are kept, by listing the folder."""
        names = (path for path in (self.folder / "manifests").glob("*.json"))
        found = (version_named(path.stem) for path in names)
        return sorted(version for version in found if version is not None)

    def collect_garbage(self, kept: int, grace: float) -> None:
        """Remove what no kept manifest names.

        Parameters
        ----------
        kept : int
            How many manifests to keep, the newest, at least 2: a batch that is run again begins
            with the one before it.
        grace : float
            Seconds that a file is left alone: a task that is still running may be writing it.
        """
        versions = self.versions()
        old, new = versions[: -max(kept, 2)], versions[-max(kept, 2) :]
        named: set[str] = set()
        for version in new:
            manifest = self.manifest(version)
            if manifest is not None:
                named |= manifest.files() | set(manifest.output)
        limit = time() - grace
        for place in (self.segments, self.output):
            for path in place.iterdir():
                if path.name not in named and _is_older(path, limit):
                    path.unlink(missing_ok=True)
        for version in old:
            # The manifest goes last: by it the rest would be found again.
            for folder in ("plans", "done", "manifests"):
                self._path(folder, version).unlink(missing_ok=True)

    def _check(self, path: Path, wanted: list[dict[str, Any]]) -> None:
        found = read_document(path, "pipeline")["stages"]
        if len(found) != len(wanted):
            raise WrongCheckpoint(
                f"{self.folder} is of a pipeline with {len(found)} stages, not {len(wanted)}; use "
                f"the folder of this pipeline, or an empty one"
            )
        for old, new in zip(found, wanted, strict=True):
            for name, value in new.items():
                if old.get(name) != value:
                    way = (
                        "; unskew state CHECKPOINT --reshard changes the number of shards"
                        if name == "shards"
                        else "; use the folder of this pipeline, or an empty one"
                    )
                    raise WrongCheckpoint(
                        f"stage {new['name']!r} has {name} {value!r} and {self.folder} was written "
                        f"with {old.get(name)!r}{way}"
                    )

    def _path(self, folder: str, version: int) -> Path:
        return self.folder / folder / f"{name_of(version)}.json"

    def _read(self, folder: str, kind: str, version: int) -> dict[str, Any] | None:
        try:
            return read_document(self._path(folder, version), kind)
        except FileNotFoundError:
            return None

    def _write(self, folder: str, kind: str, version: int, body: dict[str, Any]) -> None:
        path = self._path(folder, version)
        try:
            write_document(path, kind, body)
        except FileExistsError as error:
            raise CheckpointTaken(
                f"{path} was written by another driver: two queries must not share a checkpoint; "
                f"stop one of them"
            ) from error


def _is_older(path: Path, limit: float) -> bool:
    try:
        return path.stat().st_mtime < limit
    except FileNotFoundError:
        return False
