"""How functions that run tuple by tuple are compiled, and where the machine code is kept."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
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


def _cache_directory() -> str:
    """Return a directory beside the sources that is another one after any change of them.

    numba looks at the file of a function, not at the files of the functions that it calls, and
    would go on with machine code in which an old version of those is built in.
    """
    package = Path(__file__).parent
    stamps = sorted(
        (str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in package.rglob("*.py")
    )
    return str(
        package / "__pycache__" / f"kernels-{sha256(repr(stamps).encode()).hexdigest()[:16]}"
    )


_CACHE = _cache_directory()
_settings: Any = numba_config


def _compile(function: F, **options: Any) -> F:
    """Compile with numba, with the machine code kept on disk: once per machine, not per process."""
    before = _settings.CACHE_DIR
    # numba reads the setting here, once; what the user set for all functions goes first.
    _settings.CACHE_DIR = before or _CACHE
    try:
        made: F = njit(cache=True, **options)(function)
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
