"""Frugal: the least key splitting that keeps a given imbalance."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.grouping.base import Grouping
from unskew.grouping.choices import home_of, key_bits, place_of, stride_of, strides_of
from unskew.grouping.least_loaded import Levels, least_loaded, new_levels, send
from unskew.kernel import kernel
from unskew.parameters import number
from unskew.sketches.space_saving import (
    TOTAL,
    USED,
    Counters,
    admit_by_chance,
    count,
    halve,
    new_counters,
)

_EVIDENCE = 8
"""Tuples in the sketch before a key counts as hot: it is not hot because it came twice."""

_MEMORY = 32
"""Tuples for each instance after which the sketch is halved."""

_FLOOR = 3
"""Tuples above the mean that are no imbalance worth splitting for."""

_HORIZON = 500_000
"""Tuples over which the budget holds; a longer stream gets no more slack."""

MESSAGES, TOP, USUAL = 0, 1, 2
"""Places in `scalars`: tuples since the start or batch, slot of the hottest key, and the tuples
that the last batch had for each instance."""


class Frugal(Grouping):
    """Split a key only when the imbalance would otherwise pass a budget, the largest keys first.

    Guarantee: after m tuples of a source no instance has more than
    m / n + max(3, max_imbalance min(m, 500_000) / n) of them, whatever the keys and their order. So
    the imbalance is at most max(max_imbalance, 3 n / m), also of several sources together if m is
    the tuples of the source with the fewest. In batches (`begin_batch`) it holds within each batch;
    the 3 tuples become a twentieth of what the batch before brought an instance, rounded and at
    least 2, if that is less.

    Cost: O(1) a tuple, amortised, for the sketch and the least loaded instance, and a walk over
    instances that are full, up to n of them in the worst case, few on Zipf streams. Memory is
    bounded by the sketch, 4 keys an instance.

    Parameters
    ----------
    instances, seed, source
        As of `Grouping`.
    max_imbalance : float, default 0.01
        The budget, above 0: how far, in parts of the mean, the busiest instance may be above it.
        Less is more splitting.
    counters : int, optional
        Keys that the sketch keeps, at least 1; 4 an instance and no less than 64 by default.

    Notes
    -----
    Every key has a home and, from there, its own sequence through all instances, the same at every
    source and in every batch. A tuple goes to the first instance of its key's sequence that has
    room, and who has room depends on the size of the key. Hot keys fall into classes by the number
    of instances that they fill (up to 1, 8, 64, ...). A class sees an instance as full when the
    load of its own and of smaller classes there is above the mean by half the slack, or all load by
    three quarters. So where keys meet the larger one yields, which costs one more copy of a single
    key, and the smaller ones, of which there are many, stay. The hottest key of all, until another
    has a larger count, goes to the least loaded instance when its home is full, and evens out the
    rest. A cold key leaves its home only if that is above the mean by the whole slack: in a stream
    with hot keys that hardly happens, as those have made room before.

    Hot keys are found by SpaceSaving with randomised admission, halved every 32 tuples an instance:
    a key that cools is forgotten, and goes back to its home. The walk of a hot key goes on where
    its last one stopped, until the mean has grown by a tuple.

    Examples
    --------
    >>> router = Frugal(8, max_imbalance=0.05)
    >>> keys = np.tile(np.array([1, 1, 1, 2], dtype=np.uint64), 1000)
    >>> chosen = router.route(keys)
    >>> bool(router.loads.max() <= 500 * 1.05)
    True
    >>> len(set(chosen[keys == 2]))
    3

    References
    ----------
    Ours. Pd-Stream names an adaptive threshold for hot keys as future work.
    """

    name: ClassVar[str] = "frugal"
    reference: ClassVar[str] = "unskew's own; after Pd-Stream's future work"

    _per_batch: ClassVar[tuple[str, ...]] = ("loads", "class_loads", "levels", "walks")

    def __init__(
        self,
        instances: int,
        *,
        seed: int = 0,
        source: int = 0,
        max_imbalance: float = 0.01,
        counters: int | None = None,
    ) -> None:
        super().__init__(instances, seed=seed, source=source)
        self.max_imbalance = number("max_imbalance", max_imbalance, above=0, below=1e6)
        self.counters = self._counters(counters, each=4)
        self._first = self._place_of_source()
        self._strides = strides_of(self.instances)
        self._sketch = new_counters(self.counters)
        self._keep("sketch", self._sketch)
        # Loads by class: cold, then up to 1, 8, 64, ... instances.
        classes = 2 + -(-(self.instances - 1).bit_length() // 3)
        self._class_loads = np.zeros((self.instances, classes), dtype=np.int64)
        self._state["class_loads"] = self._class_loads
        self._levels = new_levels(self.instances)
        self._keep("levels", self._levels)
        self._state["walks"] = self._walks = np.zeros((self.counters, 2), dtype=np.int64)
        self._state["scalars"] = self._scalars = np.zeros(3, dtype=np.int64)

    @property
    def fan_out(self) -> int:
        """Every instance, for a key hot enough."""
        return self.instances

    @property
    def hot_keys(self) -> int:
        """Keys that the sketch has enough evidence for."""
        used = self._sketch.scalars[USED]
        return int(np.count_nonzero(self._sketch.counts[:used] >= _EVIDENCE))

    @property
    def state_bytes(self) -> int:
        """Bytes of router state, the table of strides included."""
        return super().state_bytes + self._strides.nbytes

    def begin_batch(self) -> None:
        """Start balancing afresh, with the hot keys carried over."""
        messages = self._scalars[MESSAGES]
        if messages:
            self._scalars[USUAL] = max(1, messages // self.instances)
        self._scalars[MESSAGES] = 0
        super().begin_batch()

    def _route(self, keys: NDArray[np.uint64], chosen: NDArray[np.int32]) -> None:
        _kernel(
            keys,
            chosen,
            self._loads,
            self._class_loads,
            self._levels,
            self._sketch,
            self._walks,
            self._scalars,
            self._strides,
            self._key_seed,
            self._chance_seed,
            self._first,
            self.max_imbalance,
        )


@kernel
def slack_of(mean: int, instances: int, usual: int, budget: float) -> int:
    """Return how many tuples above the mean, a whole number, an instance may have."""
    floor = _FLOOR if usual == 0 else min(_FLOOR, max(2, (usual + 10) // 20))
    return max(floor, int(budget * min(mean, _HORIZON // instances)))


@kernel
def class_of(count: int, total: int, instances: int) -> int:
    """Return the class of a key: 0 cold, 1 if it fills one instance or less, 2 up to 8, ..."""
    if count < _EVIDENCE:
        return 0
    found = 1
    filled, limit = count * instances, total
    while filled > limit:
        found += 1
        limit <<= 3
    return found


@kernel
def _kernel(
    keys: NDArray[np.uint64],
    chosen: NDArray[np.int32],
    loads: NDArray[np.int64],
    class_loads: NDArray[np.int64],
    levels: Levels,
    sketch: Counters,
    walks: NDArray[np.int64],
    scalars: NDArray[np.int64],
    strides: NDArray[np.int32],
    seed: np.uint64,
    chance_seed: np.uint64,
    first: int,
    budget: float,
) -> None:
    n = loads.size
    counts = sketch.counts
    # The mean and all limits are whole numbers that change once in n tuples.
    mean = scalars[MESSAGES] // n
    next_mean = (mean + 1) * n
    slack = slack_of(mean, n, scalars[USUAL], budget)
    for i in range(keys.size):
        key = keys[i]
        slot = count(sketch, key)
        if slot < 0:
            slot = admit_by_chance(sketch, key, chance_seed)
            if slot >= 0:
                # The walk was that of the key that had the slot before.
                walks[slot, 0] = 0
        if sketch.scalars[TOTAL] >= _MEMORY * n:
            halve(sketch)
        scalars[MESSAGES] += 1
        if scalars[MESSAGES] == next_mean:
            mean += 1
            next_mean += n
            slack = slack_of(mean, n, scalars[USUAL], budget)
        bits = key_bits(key, seed)
        place = place_of(home_of(bits, n), first, n)
        size = 0 if slot < 0 else class_of(counts[slot], sketch.scalars[TOTAL], n)
        if size == 0:
            if loads[place] >= mean + slack:
                stride = stride_of(bits, strides)
                while loads[place] >= mean + slack:
                    place = _step(place, stride, n)
        else:
            if counts[slot] > counts[scalars[TOP]]:
                scalars[TOP] = slot
            most = mean + max(2, (3 * slack) >> 2)
            most_below = mean + max(1, slack >> 1)
            if slot == scalars[TOP]:
                if loads[place] >= most_below:
                    place = least_loaded(levels)
            else:
                if walks[slot, 0] == mean + 1:
                    place = int(walks[slot, 1])
                stride = 0
                while loads[place] >= most or _load_below(class_loads, place, size) >= most_below:
                    if stride == 0:
                        stride = stride_of(bits, strides)
                    place = _step(place, stride, n)
                walks[slot, 0] = mean + 1
                walks[slot, 1] = place
        send(loads, levels, place)
        class_loads[place, size] += 1
        chosen[i] = place


@kernel
def _step(place: int, stride: int, instances: int) -> int:
    """Return the next place of a key's sequence."""
    place += stride
    return place if place < instances else place - instances


@kernel
def _load_below(class_loads: NDArray[np.int64], place: int, size: int) -> int:
    """Return the load of a place from keys of this class and smaller ones."""
    load = 0
    for below in range(size + 1):
        load += class_loads[place, below]
    return load
