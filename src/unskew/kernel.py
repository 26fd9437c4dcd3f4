"""How kernels are compiled: one decorator for all functions that run tuple by tuple."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

_UNCOUNTED: dict[str, Any] = {"_nrt": False}


def kernel(function: F) -> F:
    """Compile a function that only reads and writes the arrays it is given.

    The machine code is cached on disk, once per machine. Arrays are borrowed from the caller, so
    references to them are not counted: counting costs an atomic operation for each array of a named
    tuple at each call, which is more than the rest of a sketch. A kernel that makes an array does
    not compile.
    """
    compiled: F = njit(cache=True, **_UNCOUNTED)(function)
    return compiled


def _lowest_bit(_typing: Any, _bits: Any) -> Any:
    """Return the number of the lowest bit set: one instruction, for which numba has no name."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


_intrinsic: Any = intrinsic(_lowest_bit)

lowest_bit: Callable[[np.uint64], int] = _intrinsic
"""Return, in a kernel, the number of the lowest bit set in a uint64 that is not 0."""
