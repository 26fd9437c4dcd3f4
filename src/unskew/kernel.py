"""How functions that run tuple by tuple are compiled, and where the machine code is kept."""

from __future__ import annotations

from collections.abc import Callable
from getpass import getuser
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import Any, TypeVar

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
    places = [Path(given)] if given else []
    places += [package / "__pycache__", temporary / f"unskew-{_user()}"]
    for place in places:
        try:
            (place / name).mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=place / name):
                return str(place / name)
        except OSError:
            continue
    return None


def _user() -> str:
    """Return who runs this: code that others wrote is not for us to run."""
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


def _lowest_bit(_typing: Any, _bits: Any) -> Any:
    """Return the number of the lowest bit set: one instruction, for which numba has no name."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


_intrinsic: Any = intrinsic(_lowest_bit)

lowest_bit: Callable[[np.uint64], int] = _intrinsic
"""Return, in a kernel, the number of the lowest bit set in a uint64 that is not 0."""
