"""Keys that are not in the shard of their hash."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.errors import BadParameter


class Placed:
    """An immutable table from keys to the shards that they are in instead of that of their hash.

    Looking up a key costs a binary search; the table is two arrays, 12 bytes a key.

    Parameters
    ----------
    keys : array of uint64
        Hashes, each once, in any order.
    shards : array of int32
        The shard of each.

    Examples
    --------
    >>> table = Placed(np.array([9, 4], dtype=np.uint64), np.array([1, 0]))
    >>> keys = np.array([4, 5, 9], dtype=np.uint64)
    >>> table.look_up(keys, otherwise=np.array([7, 7, 7])).tolist()
    [0, 7, 1]
    """

    def __init__(self, keys: NDArray[np.uint64], shards: NDArray[Any]) -> None:
        if keys.shape != shards.shape or keys.ndim != 1:
            raise BadParameter(
                f"{keys.shape} keys are placed in {shards.shape} shards; give one each"
            )
        order = np.argsort(keys, kind="stable")
        self.keys = keys[order].astype(np.uint64)
        self.shards = shards[order].astype(np.int32)
        if (self.keys[1:] == self.keys[:-1]).any():
            raise BadParameter("a key is placed twice; a key has one shard")
        self.keys.setflags(write=False)
        self.shards.setflags(write=False)

    @classmethod
    def none(cls) -> Placed:
        """Return the table of no keys."""
        return cls(np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int32))

    def __len__(self) -> int:
        """Return how many keys it has."""
        return int(self.keys.size)

    def __eq__(self, other: object) -> bool:
        """Return whether another table says the same."""
        return (
            isinstance(other, Placed)
            and np.array_equal(self.keys, other.keys)
            and np.array_equal(self.shards, other.shards)
        )

    def __hash__(self) -> int:
        """Return a hash that equal tables share."""
        return hash((self.keys.tobytes(), self.shards.tobytes()))

    def __repr__(self) -> str:
        """Return how many keys it has."""
        return f"<{len(self)} keys placed>"

    def look_up(self, keys: NDArray[np.uint64], otherwise: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the shard of each key, or what it is otherwise."""
        if not self.keys.size:
            return otherwise
        at = np.minimum(np.searchsorted(self.keys, keys), self.keys.size - 1)
        return np.where(self.keys[at] == keys, self.shards[at], otherwise)

    def to_json(self) -> dict[str, str]:
        """Return what JSON knows: the bytes of the arrays, as a table may be long."""
        return {
            "keys": b64encode(self.keys.astype("<u8").tobytes()).decode(),
            "shards": b64encode(self.shards.astype("<i4").tobytes()).decode(),
        }

    @classmethod
    def from_json(cls, data: dict[str, str]) -> Placed:
        """Return what `to_json` made."""
        keys = np.frombuffer(b64decode(data["keys"], validate=True), "<u8").astype(np.uint64)
        shards = np.frombuffer(b64decode(data["shards"], validate=True), "<i4").astype(np.int32)
        return cls(keys, shards)
