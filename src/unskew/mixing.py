"""Two bijections of 64 bits: one makes random numbers out of counters, one mixes keys.

They differ so that the hash of a key has nothing to do with the numbers that drew it.
"""

from __future__ import annotations

import numpy as np

from unskew.kernel import kernel

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_S27, _S30, _S31, _S33 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(33)
_A1, _A2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_B1, _B2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_S11 = np.uint64(11)
_UNIT = 2.0**-53


@kernel
def counter_bits(seed: np.uint64, counter: np.uint64) -> np.uint64:
    """Return the random bits that `seed` has at `counter`.

    This is SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) with random access: its state is a plain
    counter, so the n-th output needs no other.

    Examples
    --------
    >>> int(counter_bits(np.uint64(0), np.uint64(1))) == 0xE220A8397B1DCDAF
    True
    """
    z = seed + counter * _GOLDEN
    z = (z ^ (z >> _S30)) * _A1
    z = (z ^ (z >> _S27)) * _A2
    return z ^ (z >> _S31)


@kernel
def unit(bits: np.uint64) -> float:
    """Return the number in [0, 1) that the upper 53 bits make.

    Examples
    --------
    >>> unit(np.uint64(1 << 63))
    0.5
    """
    return float(bits >> _S11) * _UNIT


@kernel
def mix(bits: np.uint64) -> np.uint64:
    """Return 64 well mixed bits, by the finaliser of MurmurHash3: a bijection.

    Examples
    --------
    >>> int(mix(np.uint64(1))) == 0xB456BCFC34C2CB2C
    True
    """
    z = (bits ^ (bits >> _S33)) * _B1
    z = (z ^ (z >> _S33)) * _B2
    return z ^ (z >> _S33)


def spread_seed(seed: int) -> np.uint64:
    """Return a seed for `counter_bits`, so far from its neighbours that streams do not overlap.

    Examples
    --------
    >>> bool(spread_seed(0) != spread_seed(1))
    True
    """
    return np.uint64(mix(np.uint64(seed) ^ _A1))
