"""The folder of a pipeline: plans, manifests, done markers, segments and output, by batch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import time
from typing import Any

from unskew.errors import CheckpointTaken, DamagedCheckpoint, WrongCheckpoint
from unskew.state.documents import read_document, write_document
from unskew.state.files import check_folder, create
from unskew.state.manifest import Manifest

INITIAL = -1
"""Version of a state that was there before the first batch."""


BATCH, SETTLED, FLUSHED = 0, 1, 2
"""What made a version: a batch; the end of a run after it; a flush after that."""

_KINDS = ("", "-settled", "-flushed")
_PER_BATCH = 4
_IS_VERSION = re.compile(r"(initial|\d{12}(-settled|-flushed)?)\.json")


def version_of(batch: int, kind: int = BATCH) -> int:
    """Return the number of the state after a batch, or after what followed it.

    Examples
    --------
    >>> version_of(0), version_of(2), version_of(2, SETTLED)
    (0, 8, 9)
    """
    return _PER_BATCH * batch + kind


def batch_of(version: int) -> int:
    """Return the batch that a version is of, or follows."""
    return version // _PER_BATCH


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
    """

    name: str
    operator: str
    shards: int
    state: tuple[str, ...]


class Checkpoint:
    """A folder that the driver and all executors see.

    Nothing is ever overwritten and no name is ever looked for by listing the folder: that is done
    only to find garbage.

    Parameters
    ----------
    folder : path
        Is made if it is not there.
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

    def plan(self, version: int) -> dict[str, Any] | None:
        """Return what was decided for a version, or None if nothing was."""
        return self._read("plans", "plan", version)

    def decide(self, version: int, plan: Mapping[str, Any]) -> None:
        """Write what shall be done, before it is."""
        self._write("plans", "plan", version, dict(plan))

    def manifest(self, version: int) -> Manifest | None:
        """Return what was committed, or None if nothing was."""
        found = self._read("manifests", "manifest", version)
        return None if found is None else Manifest.from_json(found)

    def commit(self, manifest: Manifest) -> None:
        """Make a version count, all at once.

        Raises
        ------
        CheckpointTaken
            If another driver has committed it.
        """
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
        for kind in range(len(_KINDS) - 1, -1, -1):
            earlier = version_of(before, kind)
            if found is None and earlier < version:
                found = self.manifest(earlier)
        if found is None:
            raise DamagedCheckpoint(
                f"{self._path('manifests', version_of(before))} is missing, and the next batch "
                f"goes on from it; restore the file, or start with an empty checkpoint for Spark "
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
        return sorted(
            _version(path.stem)
            for path in (self.folder / "manifests").iterdir()
            if _IS_VERSION.fullmatch(path.name)
        )

    def collect_garbage(self, kept: int, grace: float) -> int:
        """Remove what no kept manifest names; return how many files that were.

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
        removed = 0
        limit = time() - grace
        for folder in (self.segments, self.output):
            for path in folder.iterdir():
                if path.name not in named and _is_older(path, limit):
                    path.unlink(missing_ok=True)
                    removed += 1
        for version in old:
            # The manifest goes last: by it the rest would be found again.
            for kind in ("plans", "done", "manifests"):
                self._path(kind, version).unlink(missing_ok=True)
                removed += 1
        return removed

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

    def _path(self, kind: str, version: int) -> Path:
        return self.folder / kind / f"{_name(version)}.json"

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


def _name(version: int) -> str:
    if version == INITIAL:
        return "initial"
    return f"{batch_of(version):012}{_KINDS[version % _PER_BATCH]}"


def _version(name: str) -> int:
    if name == "initial":
        return INITIAL
    number, dash, kind = name.partition("-")
    return version_of(int(number), _KINDS.index(dash + kind))


def _is_older(path: Path, limit: float) -> bool:
    try:
        return path.stat().st_mtime < limit
    except FileNotFoundError:
        return False
