"""Local-or-shuffle grouping: round robin among the instances that are near."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.errors import BadParameter
from unskew.grouping.base import Grouping
from unskew.kernel import kernel
from unskew.parameters import whole_number


class LocalOrShuffle(Grouping):
    """Send tuples to the instances on the source's own node in turn, or to all if there are none.

    For steps without keys: nothing goes over the network where a node has an instance. No two of
    the instances that a source uses differ by more than one of its tuples; how even they are over
    all sources depends on how even these are. O(1) a tuple.

    Parameters
    ----------
    instances, seed, source
        As of `Grouping`; each source begins at another instance.
    local : sequence of int, default none
        The instances on the node of this source, each once; without them it is `shuffle`.

    Examples
    --------
    >>> router = LocalOrShuffle(6, local=[1, 4])
    >>> router.route(np.array([9, 9, 9, 9], dtype=np.uint64)).tolist()
    [1, 4, 1, 4]

    References
    ----------
    Locality-aware routing, Section 2.2, after Storm.
    """

    name: ClassVar[str] = "local-or-shuffle"
    reference: ClassVar[str] = "Locality-aware routing, Section 2.2, after Storm"
    _per_batch: ClassVar[tuple[str, ...]] = ("loads", "turn")

    def __init__(
        self, instances: int, *, seed: int = 0, source: int = 0, local: Sequence[int] = ()
    ) -> None:
        super().__init__(instances, seed=seed, source=source)
        given: object = local
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise BadParameter(f"local must be a sequence of instances, not {local!r}")
        self.local = tuple(
            whole_number("local", each, least=0, most=self.instances - 1) for each in local
        )
        if len(set(self.local)) < len(self.local):
            raise BadParameter(f"local must be instances that are named once each, not {local!r}")
        takers = np.array(self.local or range(self.instances), dtype=np.int32)
        # As of `_place_of_source`, among those that it has.
        first = self._place_of_source() * takers.size // self.instances
        self._takers = np.roll(takers, -first)
        self._turn = np.zeros(1, dtype=np.int64)
        self._state["turn"] = self._turn

    @property
    def fan_out(self) -> int:
        """Every instance of the node, or every one."""
        return int(self._takers.size)

    def _route(self, keys: NDArray[np.uint64], chosen: NDArray[np.int32]) -> None:
        _kernel(chosen, self._takers, self._loads, self._turn)


@kernel
def _kernel(
    chosen: NDArray[np.int32],
    takers: NDArray[np.int32],
    loads: NDArray[np.int64],
    turn: NDArray[np.int64],
) -> None:
    place = turn[0]
    for i in range(chosen.size):
        chosen[i] = takers[place]
        loads[takers[place]] += 1
        place += 1
        if place == takers.size:
            place = 0
    turn[0] = place
