"""The contract of every workload: a stream of key hashes, in batches, the same each time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from unskew.parameters import whole_number

BATCH = 1 << 20
"""Tuples in one batch unless told otherwise: 8 MB of hashes."""

MOST = 2**62
"""The most messages, keys or tuples in a batch; every sum of two of them is an int64."""


class Workload(ABC):
    """A stream of keys that can be read again and again.

    Every pass over `batches` gives the same stream, and the stream does not depend on the size of
    the batches, so that a result never depends on how it was read. One batch at a time is in
    memory, whatever the length of the stream.

    Attributes
    ----------
    name : str
        What tables and charts call it.
    description : str
        One line that says where the keys come from.
    messages : int or None
        Length of the stream; None where only reading it to the end would tell.
    """

    name: str
    description: str
    messages: int | None

    @abstractmethod
    def batches(self, size: int = BATCH) -> Iterator[NDArray[np.uint64]]:
        """Yield the key hashes in order, `size` at a time; the last batch may be shorter."""

    def __repr__(self) -> str:
        """Return the class and the name."""
        return f"<{type(self).__name__} {self.name}>"


class Generated(Workload):
    """A workload whose tuple number i is a function of i and a seed.

    That makes the stream independent of the batches by construction, and lets any part of it be
    drawn without the part before it.

    Parameters
    ----------
    messages : int
        Length of the stream, at least 1.
    seed : int, default 0
        Chooses the stream.
    """

    def __init__(self, messages: int, *, seed: int = 0) -> None:
        self.length = whole_number("messages", messages, least=1, most=MOST)
        self.messages = self.length
        self.seed = whole_number("seed", seed, least=0, most=2**63 - 1)

    @abstractmethod
    def draw(self, start: int, stop: int) -> NDArray[np.uint64]:
        """Return the key hashes of tuples `start` up to, not including, `stop`."""

    def batches(self, size: int = BATCH) -> Iterator[NDArray[np.uint64]]:
        """Yield the key hashes in order, `size` at a time; the last batch may be shorter."""
        step = whole_number("size", size, least=1, most=MOST)
        return (
            self.draw(start, min(start + step, self.length))
            for start in range(0, self.length, step)
        )
