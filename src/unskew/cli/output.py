"""Write result files whole or not at all, and find out early if they cannot be written."""

from __future__ import annotations

import os
from pathlib import Path

from unskew.errors import BadParameter


def check_target(path: Path) -> None:
    """Raise `BadParameter` if a file could not be written there, before any work is done."""
    folder = path.resolve().parent
    if path.is_dir():
        raise BadParameter(f"cannot write {path}: it is a directory; name a file in it")
    if not folder.is_dir():
        raise BadParameter(f"cannot write {path}: there is no directory {folder}; make it first")
    if not os.access(path if _is_special(path) else folder, os.W_OK):
        raise BadParameter(f"cannot write {path}: no permission; name a place that is yours")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that nobody ever sees half of it."""
    if _is_special(path):
        path.write_bytes(content)
        return
    target = path.resolve()
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as file:
            file.write(content)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    """Return whether it is a pipe or device, which must be written to and never replaced."""
    return path.exists() and not path.is_file()
