"""The kernels of Spark's ``xxhash64``: numbers and bytes, folded into the hashes of their owners.

The owner of an element is the row whose hash it goes into, or -1 where it goes into none. What a
row has for a hash already is the seed of its next element.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.kernel import compiled, kernel

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)


@compiled
def without_nulls(
    bitmap: NDArray[np.uint8], offset: int, owners: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the owners with -1 for each element that an Arrow bitmap says is null.

    Examples
    --------
    >>> without_nulls(np.array([0b101], dtype=np.uint8), 0, np.arange(3)).tolist()
    [0, -1, 2]
    """
    kept = np.empty_like(owners)
    for i in range(owners.size):
        bit = offset + i
        valid = (bitmap[bit >> 3] >> (bit & 7)) & 1
        kept[i] = owners[i] if valid else -1
    return kept


@compiled
def ranks_of_owners(owners: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    """Count the elements of each owner from 0, in order; -1 where there is no owner.

    Examples
    --------
    >>> ranks_of_owners(np.array([0, 0, 1, -1, 0]), 2).tolist()
    [0, 1, 0, -1, 2]
    """
    seen = np.zeros(rows, dtype=np.int64)
    ranks = np.empty_like(owners)
    for i in range(owners.size):
        owner = owners[i]
        if owner < 0:
            ranks[i] = -1
        else:
            ranks[i] = seen[owner]
            seen[owner] += 1
    return ranks


@kernel
def _rotate(x: np.uint64, bits: int) -> np.uint64:
    return np.uint64((x << np.uint64(bits)) | (x >> np.uint64(64 - bits)))


@kernel
def _mix(h: np.uint64) -> np.uint64:
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return np.uint64(h ^ (h >> np.uint64(32)))


@kernel
def _add_long(h: np.uint64, x: np.uint64) -> np.uint64:
    h ^= _rotate(x * _P2, 31) * _P1
    return np.uint64(_rotate(h, 27) * _P1 + _P4)


@kernel
def _add_int(h: np.uint64, x: np.uint64) -> np.uint64:
    h ^= x * _P1
    return np.uint64(_rotate(h, 23) * _P2 + _P3)


@kernel
def _add_byte(h: np.uint64, x: np.uint64) -> np.uint64:
    h ^= x * _P5
    return np.uint64(_rotate(h, 11) * _P1)


@kernel
def fold_ints(
    values: NDArray[np.uint32], owners: NDArray[np.int64], hashes: NDArray[np.uint64]
) -> None:
    """Fold 32-bit numbers, as Spark hashes an int.

    Examples
    --------
    >>> hashes = np.array([42], dtype=np.uint64)
    >>> fold_ints(np.array([1], dtype=np.uint32), np.array([0]), hashes)
    >>> int(hashes.view(np.int64)[0])
    -6698625589789238999
    """
    for i in range(owners.size):
        row = owners[i]
        if row >= 0:
            h = hashes[row] + _P5 + np.uint64(4)
            hashes[row] = _mix(_add_int(h, np.uint64(values[i])))


@kernel
def fold_longs(
    values: NDArray[np.uint64], owners: NDArray[np.int64], hashes: NDArray[np.uint64]
) -> None:
    """Fold 64-bit numbers, as Spark hashes a bigint.

    Examples
    --------
    >>> hashes = np.array([42], dtype=np.uint64)
    >>> fold_longs(np.array([1], dtype=np.uint64), np.array([0]), hashes)
    >>> int(hashes.view(np.int64)[0])
    -7001672635703045582
    """
    for i in range(owners.size):
        row = owners[i]
        if row >= 0:
            h = hashes[row] + _P5 + np.uint64(8)
            hashes[row] = _mix(_add_long(h, values[i]))


@kernel
def _read_int(data: NDArray[np.uint8], at: np.uint64) -> np.uint64:
    # Unsigned positions need no check for negative ones: the four reads become a single load.
    return np.uint64(
        np.uint64(data[at])
        | np.uint64(data[at + np.uint64(1)]) << np.uint64(8)
        | np.uint64(data[at + np.uint64(2)]) << np.uint64(16)
        | np.uint64(data[at + np.uint64(3)]) << np.uint64(24)
    )


@kernel
def _read_long(data: NDArray[np.uint8], at: np.uint64) -> np.uint64:
    high = _read_int(data, at + np.uint64(4))
    return np.uint64(_read_int(data, at) | high << np.uint64(32))


@kernel
def _round(v: np.uint64, x: np.uint64) -> np.uint64:
    return np.uint64(_rotate(v + x * _P2, 31) * _P1)


@kernel
def _merge(h: np.uint64, v: np.uint64) -> np.uint64:
    return np.uint64((h ^ _round(np.uint64(0), v)) * _P1 + _P4)


@kernel
def _hash_bytes(
    data: NDArray[np.uint8], at: np.uint64, stop: np.uint64, seed: np.uint64
) -> np.uint64:
    size = stop - at
    if size >= np.uint64(32):
        v1 = seed + _P1 + _P2
        v2 = seed + _P2
        v3 = seed
        v4 = seed - _P1
        while stop - at >= np.uint64(32):
            v1 = _round(v1, _read_long(data, at))
            v2 = _round(v2, _read_long(data, at + np.uint64(8)))
            v3 = _round(v3, _read_long(data, at + np.uint64(16)))
            v4 = _round(v4, _read_long(data, at + np.uint64(24)))
            at += np.uint64(32)
        h = _rotate(v1, 1) + _rotate(v2, 7) + _rotate(v3, 12) + _rotate(v4, 18)
        h = _merge(_merge(_merge(_merge(h, v1), v2), v3), v4)
    else:
        h = seed + _P5
    h += size
    while stop - at >= np.uint64(8):
        h = _add_long(h, _read_long(data, at))
        at += np.uint64(8)
    if stop - at >= np.uint64(4):
        h = _add_int(h, _read_int(data, at))
        at += np.uint64(4)
    while at < stop:
        h = _add_byte(h, np.uint64(data[at]))
        at += np.uint64(1)
    return _mix(h)


@kernel
def fold_bytes(
    offsets: NDArray[np.signedinteger[Any]],
    data: NDArray[np.uint8],
    owners: NDArray[np.int64],
    hashes: NDArray[np.uint64],
) -> None:
    """Fold strings or bytes: element i is what lies between offsets i and i + 1.

    Examples
    --------
    >>> hashes = np.array([42], dtype=np.uint64)
    >>> data = np.frombuffer(b"spark", dtype=np.uint8)
    >>> fold_bytes(np.array([0, 5]), data, np.array([0]), hashes)
    >>> int(hashes[0])
    16485812939041303506
    """
    for i in range(owners.size):
        row = owners[i]
        if row >= 0:
            hashes[row] = _hash_bytes(
                data, np.uint64(offsets[i]), np.uint64(offsets[i + 1]), hashes[row]
            )


@compiled
def fold_big_integers(
    words: NDArray[np.uint64], owners: NDArray[np.int64], hashes: NDArray[np.uint64]
) -> None:
    """Fold two's complement of 128 bits as its fewest bytes, most significant first.

    Examples
    --------
    >>> number, same = np.full(1, 42, dtype=np.uint64), np.full(1, 42, dtype=np.uint64)
    >>> fold_big_integers(np.array([[258, 0]], dtype=np.uint64), np.array([0]), number)
    >>> fold_bytes(np.array([0, 2]), np.array([1, 2], dtype=np.uint8), np.array([0]), same)
    >>> bool(number[0] == same[0])
    True
    """
    data = np.empty(16, dtype=np.uint8)
    for i in range(owners.size):
        row = owners[i]
        if row < 0:
            continue
        for j in range(8):
            shift = np.uint64(56 - 8 * j)
            data[j] = np.uint8((words[i, 1] >> shift) & np.uint64(255))
            data[8 + j] = np.uint8((words[i, 0] >> shift) & np.uint64(255))
        first = 0
        filler = 255 if data[0] >= 128 else 0
        while first < 15 and data[first] == filler and (data[first + 1] >= 128) == (filler == 255):
            first += 1
        hashes[row] = _hash_bytes(data, np.uint64(first), np.uint64(16), hashes[row])
