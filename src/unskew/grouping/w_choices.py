"""W-Choices: head keys to the least loaded of all instances, tail keys to one of two."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.grouping.choices import home_of, key_bits, place_of, second_of
from unskew.grouping.head import HeadGrouping, in_head
from unskew.grouping.least_loaded import Levels, least_loaded, new_levels, send
from unskew.kernel import kernel
from unskew.sketches.space_saving import Counters, observe


class WChoices(HeadGrouping):
    """Send a head key to the least loaded of all instances, a tail key to one of its two choices.

    Balance as good as that of shuffle grouping while the head carries more than the tail can upset;
    every head key ends up everywhere. O(1) a tuple.

    Parameters
    ----------
    instances, seed, source
        As of `Grouping`.
    theta : float, optional
        Share from which a key belongs to the head; 1 / (5 instances) by default.
    counters : int, optional
        Keys that the sketch keeps, 8 an instance and no less than 64 by default; at least 1 / theta
        are needed to see all head keys.

    Examples
    --------
    >>> router = WChoices(4)
    >>> np.bincount(router.route(np.zeros(400, dtype=np.uint64))).tolist()
    [100, 100, 100, 100]
    """

    name: ClassVar[str] = "w-choices"
    reference: ClassVar[str] = "W-Choices: Nasir et al., ICDE 2016"
    _per_batch: ClassVar[tuple[str, ...]] = ("loads", "levels")

    def __init__(
        self,
        instances: int,
        *,
        seed: int = 0,
        source: int = 0,
        theta: float | None = None,
        counters: int | None = None,
    ) -> None:
        super().__init__(instances, seed=seed, source=source, theta=theta, counters=counters)
        self._levels = new_levels(self.instances)
        self._keep("levels", self._levels)

    def _route(self, keys: NDArray[np.uint64], chosen: NDArray[np.int32]) -> None:
        _kernel(
            keys,
            chosen,
            self._loads,
            self._levels,
            self._sketch,
            self._key_seed,
            self._first,
            self.theta,
        )


@kernel
def _kernel(
    keys: NDArray[np.uint64],
    chosen: NDArray[np.int32],
    loads: NDArray[np.int64],
    levels: Levels,
    sketch: Counters,
    seed: np.uint64,
    first: int,
    theta: float,
) -> None:
    for i in range(keys.size):
        key = keys[i]
        if in_head(sketch, observe(sketch, key), theta):
            place = least_loaded(levels)
        else:
            bits = key_bits(key, seed)
            place = place_of(home_of(bits, loads.size), first, loads.size)
            other = place_of(second_of(bits, loads.size), first, loads.size)
            if loads[other] < loads[place]:
                place = other
        send(loads, levels, place)
        chosen[i] = place
