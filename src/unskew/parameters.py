"""Checks of single parameters, so that every error names the parameter, its value and its range."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from inspect import signature
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.errors import BadParameter


def check_parameters(
    what: str, made_by: Callable[..., Any], given: Iterable[str], *, others: Collection[str] = ()
) -> None:
    """Refuse names that are no parameters of what is made, or that others fill in."""
    known = [key for key in signature(made_by).parameters if key not in others]
    for key in given:
        if key not in known:
            takes = ", ".join(known) or "none"
            raise BadParameter(f"{what} has no parameter {key!r}; it takes {takes}")


def key_hashes(function: str, keys: object) -> NDArray[np.uint64]:
    """Return key hashes in one piece if they are what `function` takes."""
    if not isinstance(keys, np.ndarray) or keys.dtype != np.uint64 or keys.ndim != 1:
        shape = f"{keys.ndim} dimension(s) of {keys.dtype}" if isinstance(keys, np.ndarray) else ""
        raise BadParameter(
            f"{function} takes a one-dimensional array of uint64 key hashes, not "
            f"{shape or type(keys).__name__}; hash other keys with unskew.hash_keys"
        )
    # Arrow's arrays are read-only, and numba would compile every kernel once more for those.
    return np.require(keys, requirements=("C", "A", "W"))


def whole_number(name: str, value: object, *, least: int, most: int) -> int:
    """Return `value` as an int if it is one within the range, else raise `BadParameter`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise BadParameter(f"{name} must be a whole number, not {value!r}")
    if not least <= value <= most:
        raise BadParameter(f"{name} must be from {least} to {most}, not {value}")
    return int(value)


def one_of(name: str, value: object, known: Collection[str]) -> str:
    """Return `value` if it is one of the texts that are known, else raise `BadParameter`."""
    if not isinstance(value, str) or value not in known:
        raise BadParameter(f"{name} must be one of {', '.join(known)}, not {value!r}")
    return value


def number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> float:
    """Return `value` as a float if it is a number within the bounds that are given."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise BadParameter(f"{name} must be a number, not {value!r}")
    if not isfinite(value):
        raise BadParameter(f"{name} must be a finite number, not {value}")
    wanted = []
    if above is not None:
        wanted.append((f"above {above:g}", value > above))
    if least is not None:
        wanted.append((f"at least {least:g}", value >= least))
    if below is not None:
        wanted.append((f"below {below:g}", value < below))
    if most is not None:
        wanted.append((f"at most {most:g}", value <= most))
    if not all(fits for _, fits in wanted):
        raise BadParameter(
            f"{name} must be {' and '.join(text for text, _ in wanted)}, not {value}"
        )
    return float(value)
