"""Segments: files with runs of many shards, written once by one task and then only read."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from time import time
from types import TracebackType
from typing import Self
from zlib import crc32

import pyarrow as pa

from unskew.errors import DamagedCheckpoint
from unskew.state.documents import FORMAT, check_format
from unskew.state.files import writing
from unskew.state.manifest import Run
from unskew.state.runs import last_expiry, next_expiry

log = logging.getLogger("unskew.pipeline")

_MAGIC = b"unskew state"
_HEAD = 64
_ALIGNED = 64
"""Runs begin at multiples of this, so that hashes can be read where they are mapped."""


class SegmentWriter:
    """Write runs one after the other; its bytes are durable once it is closed.

    Parameters
    ----------
    path : Path
        Must not exist: names are made of run, batch and attempt, so that nobody has the same.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._end = 0
        with writing(path):
            # Not buffered: a task may read again what it has just written.
            self._file = path.open("xb", buffering=0)
        self._write(_MAGIC + FORMAT.to_bytes(4, "little"))

    def add(self, run: pa.RecordBatch) -> Run:
        """Write a run; return where it is."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, run.schema) as writer:
            writer.write_batch(run)
        data = sink.getvalue()
        offset = -(-max(self._end, _HEAD) // _ALIGNED) * _ALIGNED
        self._write(bytes(offset - self._end))
        self._write(data)
        return Run(
            file=self.path.name,
            offset=offset,
            length=data.size,
            checksum=crc32(data),
            rows=run.num_rows,
            expires=next_expiry(run),
            latest=last_expiry(run),
        )

    def close(self) -> None:
        """Make it durable."""
        with writing(self.path):
            os.fsync(self._file.fileno())
            self._file.close()

    def _write(self, data: bytes | pa.Buffer) -> None:
        """Write all: a full disk, or a very large run, may take only a part at a time."""
        left = memoryview(data)
        self._end += left.nbytes
        with writing(self.path):
            while left.nbytes:
                left = left[self._file.write(left) :]

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it; a file that was not finished is removed, as nobody will name it."""
        if kind is None:
            self.close()
        else:
            self._file.close()
            self.path.unlink(missing_ok=True)


Opener = Callable[[Run], pa.RecordBatch]
"""How the rows of a run are had."""


class SegmentReader:
    """Map runs into memory: only the pages that are looked at are read.

    Each run is checked against its checksum the first time that it is opened here, and so is a copy
    of it; a copy that is damaged is made anew.

    Parameters
    ----------
    folder : Path
        Where the segments are.
    cache : Path, optional
        Folder on a disk of this machine to copy runs to, where `folder` is far away.
    marks : Path, optional
        Folder on this machine in which its readers tell each other what they have checked.
    """

    def __init__(self, folder: Path, cache: Path | None = None, marks: Path | None = None) -> None:
        self.folder = folder
        self.cache = cache
        self.marks = marks
        self.read_bytes = 0
        self._checked: set[str] = set()
        self._swept = 0.0

    def __call__(self, run: Run) -> pa.RecordBatch:
        """Return the rows of a run."""
        data = self._mapped(run) if self.cache is None else self._copied(run)
        with pa.ipc.open_stream(data) as reader:
            return reader.read_next_batch()

    def _mapped(self, run: Run) -> pa.Buffer:
        path = self.folder / run.file
        data = _slice(path, run.offset, run.length)
        name = _copy_name(run)
        if not self._is_checked(run.file, path) and not self._is_checked(name, path):
            _check_head(path)
            self._check(path, run, data)
            self._set_checked(name, path)
        return data

    def _copied(self, run: Run) -> pa.Buffer:
        assert self.cache is not None
        near = self.cache / _copy_name(run)
        with suppress(DamagedCheckpoint, OSError):
            data = _slice(near, 0, run.length)
            if self._is_checked(near.name, near) or crc32(data) == run.checksum:
                self._set_checked(near.name, near)
                return data
        path = self.folder / run.file
        _check_head(path)
        data = _slice(path, run.offset, run.length)
        self._check(path, run, data)
        hidden = near.with_name(f".{near.name}.{os.getpid()}")
        try:
            self.cache.mkdir(parents=True, exist_ok=True)
            with hidden.open("wb") as file:
                file.write(data)
            hidden.replace(near)
        except OSError as error:
            # What was read is all that is needed; only the next batch reads it once more.
            log.warning("%s could not keep a copy: %s", self.cache, error)
            with suppress(OSError):
                hidden.unlink()
            return data
        self._set_checked(near.name, near)
        return _slice(near, 0, run.length)

    def forget(self, named: Collection[Run], grace: float) -> None:
        """Forget other runs than those named, and remove copies of them but for the newest.

        Looks through the folders once in a grace period, as many readers may share them.

        Parameters
        ----------
        named : collection of Run
            All that the last manifest has.
        grace : float
            Seconds that a copy is left alone: others may be making it.
        """
        limit = time() - grace
        if self._swept > limit:
            return
        self._swept = time()
        kept = {_copy_name(run) for run in named} | {run.file for run in named}
        self._checked &= kept
        for folder in (self.cache, self.marks):
            for path in folder.iterdir() if folder is not None and folder.is_dir() else ():
                if path.name.partition("=")[0] not in kept:
                    with suppress(FileNotFoundError):
                        if path.stat().st_mtime < limit:
                            path.unlink()

    def trust(self, file: str) -> None:
        """Take all runs of a segment as checked: this machine has just written them."""
        self._set_checked(file, self.folder / file)

    def _is_checked(self, name: str, path: Path) -> bool:
        if name not in self._checked and self.marks is not None and _mark(self.marks, name, path):
            self._checked.add(name)
        return name in self._checked

    def _set_checked(self, name: str, path: Path) -> None:
        if name not in self._checked:
            self._checked.add(name)
            if self.marks is not None:
                _mark(self.marks, name, path, make=True)

    def _check(self, path: Path, run: Run, data: pa.Buffer) -> None:
        self.read_bytes += run.length
        found = crc32(data)
        if found != run.checksum:
            raise DamagedCheckpoint(
                f"{path} was altered: bytes {run.offset} to {run.offset + run.length} have the "
                f"checksum {found}, not {run.checksum}; restore the file from a copy"
            )


def _copy_name(run: Run) -> str:
    return f"{run.file}@{run.offset}"


def _mark(marks: Path, name: str, path: Path, *, make: bool = False) -> bool:
    """Return whether there is a mark of a run in a file as it is now: a changed one has others."""
    with suppress(OSError):
        about = path.stat()
        mark = marks / f"{name}={about.st_mtime_ns}-{about.st_size}"
        if make:
            mark.touch()
        return mark.exists()
    return False


def _slice(path: Path, offset: int, length: int) -> pa.Buffer:
    try:
        with pa.memory_map(str(path)) as file:
            if file.size() >= offset + length:
                file.seek(offset)
                return file.read_buffer(length)
            size = file.size()
    except FileNotFoundError as error:
        raise DamagedCheckpoint(f"{path} is missing; restore the file from a copy") from error
    raise DamagedCheckpoint(
        f"{path} was cut: it has {size:,} bytes, and {offset + length:,} were written; restore the "
        f"file from a copy"
    )


def _check_head(path: Path) -> None:
    head = bytes(_slice(path, 0, len(_MAGIC) + 4))
    if not head.startswith(_MAGIC):
        raise DamagedCheckpoint(f"{path} is no segment of unskew; restore the file from a copy")
    check_format(path, int.from_bytes(head[len(_MAGIC) :], "little"))
