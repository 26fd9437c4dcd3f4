"""Consistent hashing with bounded loads: clockwise to the next instance with room."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.grouping.base import Grouping
from unskew.grouping.choices import key_bits
from unskew.kernel import kernel
from unskew.mixing import counter_bits
from unskew.parameters import number, whole_number


class BoundedRing(Grouping):
    """Send a key to the next instance on the ring that has room.

    Room is ceil((1 + e) m / n) tuples after m tuples on n instances, the current one included, so
    the imbalance is never above e + n / m. A hot key fills its arc of the ring, and every key with
    a home on that arc is pushed along: more splitting than with choices that differ by key.
    O(log(n points)) a tuple to find the arc, and the walk.

    Parameters
    ----------
    instances, seed, source
        As of `Grouping`.
    e : float, default 0.01
        Room above the mean, above 0.
    points : int, default 16
        Points of each instance on the ring, at least 1. More points, arcs more alike.

    Examples
    --------
    >>> router = BoundedRing(2, e=0.5)
    >>> sorted(np.bincount(router.route(np.zeros(8, dtype=np.uint64))).tolist())
    [2, 6]

    References
    ----------
    Mirrokni, Thorup, Zadimoghaddam: Consistent hashing with bounded loads, SODA 2018; baseline CH
    of Consistent Grouping.
    """

    name: ClassVar[str] = "bounded-ring"
    reference: ClassVar[str] = "CH with bounded loads: Mirrokni et al., SODA 2018"
    _per_batch: ClassVar[tuple[str, ...]] = ("loads", "messages")

    def __init__(
        self, instances: int, *, seed: int = 0, source: int = 0, e: float = 0.01, points: int = 16
    ) -> None:
        super().__init__(instances, seed=seed, source=source)
        self.e = number("e", e, above=0)
        self.points = whole_number("points", points, least=1, most=2**16)
        hashes = np.empty(self.instances * self.points, dtype=np.uint64)
        _place_points(hashes, ~self._key_seed)
        order = np.argsort(hashes)
        self._hashes = hashes[order]
        self._owners = (order // self.points).astype(np.int32)
        self._state["messages"] = self._messages = np.zeros(1, dtype=np.int64)

    @property
    def fan_out(self) -> int:
        """Every instance, for a key hot enough."""
        return self.instances

    @property
    def state_bytes(self) -> int:
        """Bytes of router state, the ring included."""
        return super().state_bytes + self._hashes.nbytes + self._owners.nbytes

    def begin_with(self, loads: NDArray[np.int64]) -> None:
        """Go on as if so many tuples had been sent to each instance."""
        self._loads[...] = loads
        self._messages[0] = loads.sum()

    def _route(self, keys: NDArray[np.uint64], chosen: NDArray[np.int32]) -> None:
        _kernel(
            keys,
            chosen,
            self._loads,
            self._messages,
            self._hashes,
            self._owners,
            self._key_seed,
            (1.0 + self.e) / self.instances,
        )


@kernel
def _place_points(hashes: NDArray[np.uint64], seed: np.uint64) -> None:
    for i in range(hashes.size):
        hashes[i] = counter_bits(seed, np.uint64(i))


@kernel
def _kernel(
    keys: NDArray[np.uint64],
    chosen: NDArray[np.int32],
    loads: NDArray[np.int64],
    messages: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    owners: NDArray[np.int32],
    seed: np.uint64,
    share: float,
) -> None:
    for i in range(keys.size):
        messages[0] += 1
        room = np.ceil(share * messages[0])
        point = int(np.searchsorted(hashes, key_bits(keys[i], seed)))
        while True:
            if point == hashes.size:
                point = 0
            place = owners[point]
            if loads[place] < room:
                break
            point += 1
        loads[place] += 1
        chosen[i] = place
