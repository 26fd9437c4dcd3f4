"""Files that appear whole or not at all, and never twice: the one primitive that commits need."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from unskew.errors import CannotWrite, UnsupportedFolder


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the file, and the way out, if it cannot be written."""
    try:
        yield
    except (FileExistsError, CannotWrite):
        raise
    except OSError as error:
        raise CannotWrite(
            f"{path} could not be written: {error}; nothing of it counts, and what was committed "
            f"is as it was. Make room, or see why, and start again"
        ) from error


def local_folder(given: str | os.PathLike[str]) -> Path:
    """Return an absolute path, or raise `UnsupportedFolder` for what is no path of this machine."""
    text = os.fspath(given)
    text = text.removeprefix("file://")
    if "://" in text:
        raise UnsupportedFolder(
            f"{text} cannot hold state: object stores and hdfs are not supported; use a folder "
            f"that the driver and all executors see as a path, such as a mount of NFS"
        )
    return Path(text).absolute()


def create(path: Path, data: bytes) -> None:
    """Create a file with all of its content, durably, unless there is one.

    The content is written under another name first; the link to the final name is what commits.

    Raises
    ------
    FileExistsError
        If there is a file of this name; it is left as it is.
    """
    hidden = path.parent / f".{path.name}.{uuid4().hex}"
    try:
        with writing(path):
            with hidden.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(hidden, path)
    finally:
        hidden.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def check_folder(folder: Path) -> None:
    """See that a second file of a name is refused here, or raise `UnsupportedFolder`."""
    probe = folder / f".probe.{uuid4().hex}"
    try:
        create(probe, b"first")
        try:
            create(probe, b"second")
        except FileExistsError:
            return
        raise UnsupportedFolder(
            f"{folder} let a file be created twice, so two drivers could both commit a batch; use "
            f"a folder on a file system with hard links, such as ext4, xfs or NFS"
        )
    except OSError as error:
        if isinstance(error, UnsupportedFolder):
            raise
        cause = error.__cause__ if isinstance(error, CannotWrite) else error
        raise UnsupportedFolder(
            f"{folder} cannot hold state: {cause}; use a folder that can be written, on a file "
            f"system with hard links, such as ext4, xfs or NFS"
        ) from error
    finally:
        probe.unlink(missing_ok=True)
