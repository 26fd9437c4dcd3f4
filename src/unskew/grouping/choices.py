"""What a key's hash gives: a home, a second choice, a sequence through all instances.

One mix of key and seed makes 64 bits: the upper half chooses the home, the lower half the rest, so
that a grouping pays for one mix a tuple.
"""

from __future__ import annotations

from math import gcd

import numpy as np
from numpy.typing import NDArray

from unskew.kernel import kernel
from unskew.mixing import mix

_HALF = np.uint64(32)
_LOWER = np.uint64(0xFFFFFFFF)


@kernel
def scatter(bits: np.uint64, number: int) -> int:
    """Return a number from 0 up to, not including, `number`, from the upper 32 bits."""
    return int(np.int64(((bits >> _HALF) * np.uint64(number)) >> _HALF))


@kernel
def key_bits(key: np.uint64, seed: np.uint64) -> np.uint64:
    """Return the bits from which all choices of a key come."""
    return mix(key ^ seed)


@kernel
def home_of(bits: np.uint64, instances: int) -> int:
    """Return the home of a key: its first choice."""
    return scatter(bits, instances)


@kernel
def second_of(bits: np.uint64, instances: int) -> int:
    """Return the second choice of a key, never its home unless there is only one instance."""
    if instances == 1:
        return 0
    home = scatter(bits, instances)
    second = scatter(bits << _HALF, instances - 1)
    return second if second < home else second + 1


@kernel
def place_of(instance: int, first: int, instances: int) -> int:
    """Return the place of an instance for a source whose first place is instance `first`."""
    place = instance - first
    return place if place >= 0 else place + instances


@kernel
def stride_of(bits: np.uint64, strides: NDArray[np.int32]) -> int:
    """Return the stride of a key's sequence: home, home + stride, ..., through all instances."""
    return int(strides[scatter(bits << _HALF, strides.size)])


def strides_of(instances: int, most: int = 4096) -> NDArray[np.int32]:
    """Return strides that lead through all instances: those that share no divisor with them.

    Examples
    --------
    >>> strides_of(12).tolist()
    [1, 5, 7, 11]
    """
    found = (stride for stride in range(1, instances + 1) if gcd(stride, instances) == 1)
    return np.fromiter((stride for _, stride in zip(range(most), found, strict=False)), np.int32)
