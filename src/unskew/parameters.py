"""Checks of single parameters, so that every error names the parameter, its value and its range."""

from __future__ import annotations

import numpy as np

from unskew.errors import BadParameter


def whole_number(name: str, value: object, *, least: int, most: int) -> int:
    """Return `value` as an int if it is one within the range, else raise `BadParameter`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise BadParameter(f"{name} must be a whole number, not {value!r}")
    if not least <= value <= most:
        raise BadParameter(f"{name} must be from {least} to {most}, not {value}")
    return int(value)


def fraction(name: str, value: object, *, above: float = 0.0, below: float = np.inf) -> float:
    """Return `value` as a float if it lies strictly between the bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise BadParameter(f"{name} must be a number, not {value!r}")
    if not above < value < below:
        raise BadParameter(f"{name} must be above {above} and below {below}, not {value}")
    return float(value)
