"""DAGreedy: hot keys weigh a new copy against the load of the copies they have."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.grouping.base import Grouping
from unskew.grouping.choices import home_of, key_bits, place_of
from unskew.grouping.least_loaded import (
    Levels,
    Sets,
    clear,
    include,
    least_loaded,
    least_of,
    new_levels,
    new_sets,
    send,
)
from unskew.kernel import kernel
from unskew.parameters import whole_number
from unskew.sketches.space_saving import TOTAL, USED, Counters, new_counters, observe, restart


class DAGreedy(Grouping):
    """Send a hot key where holding it already outweighs the load, a cold key to its home.

    The instance with the largest 0.5 [holds the key] - 0.5 (load - mean) / mean takes the tuple. So
    a hot key gains a copy only when its least loaded holder is above the least loaded instance by
    more than the mean: little splitting, and an imbalance of up to 1 from hot keys. A key is hot if
    it had more than 1 / (100 instances) of the previous interval. O(1) a tuple: only the least
    loaded holder and the least loaded instance can win.

    The paper bounds holding by its window; here a key holds its instances, its home first, while it
    stays hot. Of equal scores the holder's wins. Keys are counted by SpaceSaving with 4 counters an
    instance, not exactly, so the threshold is met only by keys that such a sketch is sure of (count
    less error), and a key that loses its counter is cold.

    Parameters
    ----------
    instances, seed, source
        As of `Grouping`.
    interval : int, default 10_000
        Tuples after which hot keys are found anew.
    counters : int, optional
        Keys that the sketch keeps, 4 an instance and no less than 64 by default.

    Examples
    --------
    >>> router = DAGreedy(4, interval=100)
    >>> chosen = router.route(np.zeros(2000, dtype=np.uint64))
    >>> set(chosen[:100].tolist()) < set(chosen.tolist())
    True

    References
    ----------
    Pacaci, Oezsu: Distribution-aware stream partitioning, BeyondMR 2018.
    """

    name: ClassVar[str] = "dagreedy"
    reference: ClassVar[str] = "DAGreedy: Pacaci and Oezsu, BeyondMR 2018"
    _per_batch: ClassVar[tuple[str, ...]] = ("loads", "levels")

    def __init__(
        self,
        instances: int,
        *,
        seed: int = 0,
        source: int = 0,
        interval: int = 10_000,
        counters: int | None = None,
    ) -> None:
        super().__init__(instances, seed=seed, source=source)
        self.interval = whole_number("interval", interval, least=1, most=2**62)
        self.counters = self._counters(counters, each=4)
        self._first = self._place_of_source()
        self._levels = new_levels(self.instances)
        self._keep("levels", self._levels)
        self._sketch = new_counters(self.counters)
        self._keep("sketch", self._sketch)
        self._holders = new_sets(self.counters, self.instances)
        self._keep("holders", self._holders)
        self._state["owners"] = self._owners = np.zeros(self.counters, dtype=np.uint64)

    @property
    def fan_out(self) -> int:
        """Every instance, for a hot key."""
        return self.instances

    @property
    def hot_keys(self) -> int:
        """Keys that were hot in the previous interval."""
        hot = (self._holders.sizes > 0) & (self._owners == self._sketch.keys)
        return int(np.count_nonzero(hot))

    def _route(self, keys: NDArray[np.uint64], chosen: NDArray[np.int32]) -> None:
        _kernel(
            keys,
            chosen,
            self._loads,
            self._levels,
            self._sketch,
            self._holders,
            self._owners,
            self._key_seed,
            self._first,
            self.interval,
        )


@kernel
def _kernel(
    keys: NDArray[np.uint64],
    chosen: NDArray[np.int32],
    loads: NDArray[np.int64],
    levels: Levels,
    sketch: Counters,
    holders: Sets,
    owners: NDArray[np.uint64],
    seed: np.uint64,
    first: int,
    interval: int,
) -> None:
    n = loads.size
    total = loads.sum()
    for i in range(keys.size):
        key = keys[i]
        slot = observe(sketch, key)
        if holders.sizes[slot] > 0 and owners[slot] == key:
            place = least_of(holders, slot, loads, levels)
            emptiest = least_loaded(levels)
            if (loads[place] - loads[emptiest]) * n > total:
                # Below all holders, so none of them.
                place = emptiest
                include(holders, slot, place)
        else:
            place = place_of(home_of(key_bits(key, seed), n), first, n)
        send(loads, levels, place)
        total += 1
        chosen[i] = place
        if sketch.scalars[TOTAL] == interval:
            _end_interval(n, sketch, holders, owners, seed, first)


@kernel
def _end_interval(
    instances: int,
    sketch: Counters,
    holders: Sets,
    owners: NDArray[np.uint64],
    seed: np.uint64,
    first: int,
) -> None:
    """Find the hot keys; those that stay hot keep their holders, new ones have their home."""
    for slot in range(sketch.scalars[USED]):
        key = sketch.keys[slot]
        certain = sketch.counts[slot] - sketch.errors[slot]
        if certain * 100 * instances <= sketch.scalars[TOTAL]:
            clear(holders, slot)
        elif holders.sizes[slot] == 0 or owners[slot] != key:
            clear(holders, slot)
            owners[slot] = key
            home = place_of(home_of(key_bits(key, seed), instances), first, instances)
            include(holders, slot, home)
    restart(sketch)
