"""How functions that run tuple by tuple are compiled, and where the machine code is kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from getpass import getuser
from hashlib import sha256
from pathlib import Path
from stat import S_IWGRP, S_IWOTH
from tempfile import TemporaryFile, gettempdir
from typing import IO, Any, TypeVar

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import config as numba_config
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a function that only reads and writes the arrays it is given.

    Arrays are borrowed from the caller, so references to them are not counted: counting costs an
    atomic operation for each array of a named tuple at each call, which is more than the rest of a
    sketch. A kernel that makes an array does not compile; that is what `compiled` is for.
    """
    return _compile(function, _nrt=False)


def compiled(function: F) -> F:
    """Compile a function that may make arrays of its own."""
    return _compile(function)


def stamp(package: Path) -> str:
    """Return a name that is another one after any change of the sources of a package.

    numba looks at the file of a function, not at the files of the functions that it calls, and
    would go on with machine code in which an old version of those is built in.
    """
    digest = sha256()
    # In an archive, as Spark sends packages to its workers, the archive itself is the source.
    archive = next((folder for folder in package.parents if folder.is_file()), None)
    if archive is not None:
        digest.update(archive.read_bytes())
    for file in sorted(package.rglob("*.py")):
        digest.update(f"{file.relative_to(package)}\0".encode())
        digest.update(file.read_bytes())
    return f"kernels-{digest.hexdigest()[:16]}"


def cache_directory(package: Path, given: str, temporary: Path) -> str | None:
    """Return where to keep machine code: the first place that can be written, or None.

    Parameters
    ----------
    package : Path
        Folder of the sources.
    given : str
        What the user told numba, empty if nothing; it goes first.
    temporary : Path
        Folder for temporary files, which goes last.
    """
    name = stamp(package)
    places = [Path(given) / name] if given else []
    # In the temporary folder itself, where others can neither rename nor replace it.
    places += [package / "__pycache__" / name, temporary / f"unskew-{_user()}-{name}"]
    for place in places:
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            with TemporaryFile(dir=place):
                if _is_ours(place):
                    return str(place)
        except OSError:
            continue
    return None


def _is_ours(folder: Path) -> bool:
    """Return whether nobody else can have put code there: numba would run it."""
    if not hasattr(os, "geteuid"):
        return True
    state = folder.stat()
    return state.st_uid == os.geteuid() and not state.st_mode & (S_IWGRP | S_IWOTH)


def _user() -> str:
    """Return who runs this, so that users do not get in each other's way."""
    try:
        return getuser()
    except (KeyError, OSError):
        return "unknown"


_settings: Any = numba_config
_CACHE = cache_directory(Path(__file__).parent, _settings.CACHE_DIR, Path(gettempdir()))


def _compile(function: F, **options: Any) -> F:
    """Compile with numba, with the machine code kept on disk: once per machine, not per process."""
    before = _settings.CACHE_DIR
    # numba reads the setting here, once.
    _settings.CACHE_DIR = _CACHE or before
    try:
        made: F = njit(cache=_CACHE is not None, **options)(function)
    finally:
        _settings.CACHE_DIR = before
    return made


@contextmanager
def compiling(name: str) -> Iterator[None]:
    """Let one process of this machine compile first what the others then load.

    Processes that start together would all compile the same. The first to come has the lock; it
    leaves a mark, and whoever finds that does not wait.

    Parameters
    ----------
    name : str
        What is compiled within the block; the same name, the same kernels.
    """
    if _CACHE is None or (mark := Path(_CACHE) / f"{name}.compiled").exists():
        yield
        return
    with (Path(_CACHE) / f"{name}.lock").open("w") as lock:
        _wait_for(lock)
        yield
        mark.touch()


def _wait_for(lock: IO[str]) -> None:
    """Wait until no other process has this file locked, where there are such locks."""
    try:
        from fcntl import LOCK_EX, flock
    except ImportError:
        return
    flock(lock, LOCK_EX)


def _lowest_bit(_typing: Any, _bits: Any) -> Any:
    """Return the number of the lowest bit set: one instruction, for which numba has no name."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


_intrinsic: Any = intrinsic(_lowest_bit)

lowest_bit: Callable[[np.uint64], int] = _intrinsic
"""Return, in a kernel, the number of the lowest bit set in a uint64 that is not 0."""
