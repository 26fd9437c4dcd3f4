"""Dalton: a bandit for each hot key learns which instances to use."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.grouping.base import Grouping
from unskew.grouping.choices import home_of, key_bits, scatter
from unskew.kernel import kernel
from unskew.mixing import counter_bits, unit
from unskew.parameters import number, whole_number
from unskew.sketches.space_saving import TOTAL, USED, Counters, new_counters, observe, restart

MOST_ARMS = 6
_UNTRIED = -2.0


class Arms(NamedTuple):
    """The bandits, a row for each slot of the sketch."""

    owners: NDArray[np.uint64]
    sizes: NDArray[np.int32]
    caps: NDArray[np.int32]
    places: NDArray[np.int32]
    values: NDArray[np.float32]
    held: NDArray[np.bool_]


class Dalton(Grouping):
    """Let a bandit choose the instance of each hot key; cold keys go to their home.

    The reward of an instance is -(0.5 (load - mean) / max(load, mean) + 0.5 holders / instances),
    so that it learns to avoid loaded instances and further copies. A key is hot if it had more than
    1 / instances of the last slide. It may use 2 instances at first and one more after each slide
    in which it stayed hot, up to 6: a key with a larger share than 6 instances can carry is never
    balanced. Values of instances never tried are -2 and not stored. O(1) a tuple.

    Load and mean include the current tuple, holders are those of this slide, the chosen one
    included. A hot tuple draws once whether to explore, and if so once more: any instance while the
    key may have more of them, else one that it has. Of equal values the oldest instance is used;
    values are rounded to 32 bits. Keys are counted by SpaceSaving, hot by the tuples that it is
    sure of (count less error), and a key that loses its counter is cold.

    Parameters
    ----------
    instances, seed, source
        As of `Grouping`; each source explores differently.
    epsilon : float, default 0.1
        Share of the tuples of hot keys that explore.
    rate : float, default 0.1
        How fast values follow rewards.
    slide : int, default 10_000
        Tuples after which hot keys are found anew and holders forgotten.
    counters : int, optional
        Keys that the sketch keeps, 4 an instance and no less than 64 by default.

    Examples
    --------
    >>> router = Dalton(8, slide=100)
    >>> chosen = router.route(np.zeros(5000, dtype=np.uint64))
    >>> len(set(chosen.tolist()))
    6

    References
    ----------
    Zapridou, Mytilinis, Ailamaki: Dalton: learned partitioning for distributed data streams,
    VLDB 2022.
    """

    name: ClassVar[str] = "dalton"
    reference: ClassVar[str] = "Dalton: Zapridou et al., VLDB 2022"

    def __init__(
        self,
        instances: int,
        *,
        seed: int = 0,
        source: int = 0,
        epsilon: float = 0.1,
        rate: float = 0.1,
        slide: int = 10_000,
        counters: int | None = None,
    ) -> None:
        super().__init__(instances, seed=seed, source=source)
        self.epsilon = number("epsilon", epsilon, above=0, below=1)
        self.rate = number("rate", rate, above=0, below=1)
        self.slide = whole_number("slide", slide, least=1, most=2**62)
        self.counters = self._counters(counters, each=4)
        self._sketch = new_counters(self.counters)
        self._keep("sketch", self._sketch)
        self._arms = Arms(
            np.zeros(self.counters, dtype=np.uint64),
            np.zeros(self.counters, dtype=np.int32),
            np.zeros(self.counters, dtype=np.int32),
            np.zeros((self.counters, MOST_ARMS), dtype=np.int32),
            np.zeros((self.counters, MOST_ARMS), dtype=np.float32),
            np.zeros((self.counters, MOST_ARMS), dtype=np.bool_),
        )
        self._keep("arms", self._arms)
        self._state["drawn"] = self._drawn = np.zeros(1, dtype=np.int64)

    @property
    def fan_out(self) -> int:
        """Six at a time; a key that cools and is hot again may come to others."""
        return self.instances

    @property
    def hot_keys(self) -> int:
        """Keys that were hot in the last slide."""
        hot = (self._arms.caps > 0) & (self._arms.owners == self._sketch.keys)
        return int(np.count_nonzero(hot))

    def _route(self, keys: NDArray[np.uint64], chosen: NDArray[np.int32]) -> None:
        _kernel(
            keys,
            chosen,
            self._loads,
            self._sketch,
            self._arms,
            self._drawn,
            self._key_seed,
            self._chance_seed,
            self.epsilon,
            self.rate,
            self.slide,
        )


@kernel
def _kernel(
    keys: NDArray[np.uint64],
    chosen: NDArray[np.int32],
    loads: NDArray[np.int64],
    sketch: Counters,
    arms: Arms,
    drawn: NDArray[np.int64],
    seed: np.uint64,
    chance_seed: np.uint64,
    epsilon: float,
    rate: float,
    slide: int,
) -> None:
    n = loads.size
    total = loads.sum()
    for i in range(keys.size):
        key = keys[i]
        slot = observe(sketch, key)
        place = home_of(key_bits(key, seed), n)
        total += 1
        if arms.caps[slot] > 0 and arms.owners[slot] == key:
            arm = _pull(arms, slot, n, drawn, chance_seed, epsilon)
            place = int(arms.places[slot, arm])
            arms.held[slot, arm] = True
            holders = arms.held[slot, : arms.sizes[slot]].sum()
            load, mean = loads[place] + 1.0, total / n
            reward = -0.5 * (load - mean) / max(load, mean) - 0.5 * holders / n
            value = arms.values[slot, arm]
            arms.values[slot, arm] = np.float32(value + rate * (reward - value))
        loads[place] += 1
        chosen[i] = place
        if sketch.scalars[TOTAL] == slide:
            _end_slide(n, sketch, arms, seed)


@kernel
def _pull(
    arms: Arms,
    slot: int,
    instances: int,
    drawn: NDArray[np.int64],
    seed: np.uint64,
    epsilon: float,
) -> int:
    """Return the arm to use: the best, or with a chance of epsilon any, perhaps a new one."""
    size = int(arms.sizes[slot])
    drawn[0] += 1
    bits = counter_bits(seed, np.uint64(drawn[0]))
    if unit(bits) >= epsilon:
        return int(np.int64(np.argmax(arms.values[slot, :size])))
    drawn[0] += 1
    bits = counter_bits(seed, np.uint64(drawn[0]))
    if size == min(arms.caps[slot], instances):
        return scatter(bits, size)
    place = scatter(bits, instances)
    for arm in range(size):
        if arms.places[slot, arm] == place:
            return int(np.int64(arm))
    arms.places[slot, size] = place
    arms.values[slot, size] = _UNTRIED
    arms.held[slot, size] = False
    arms.sizes[slot] += 1
    return int(size)


@kernel
def _end_slide(instances: int, sketch: Counters, arms: Arms, seed: np.uint64) -> None:
    """Find the hot keys; those that stay hot keep their arms, new ones have their home."""
    for slot in range(sketch.scalars[USED]):
        key = sketch.keys[slot]
        certain = sketch.counts[slot] - sketch.errors[slot]
        if certain * instances <= sketch.scalars[TOTAL]:
            arms.caps[slot] = 0
        elif arms.caps[slot] == 0 or arms.owners[slot] != key:
            arms.owners[slot] = key
            arms.caps[slot] = 2
            arms.sizes[slot] = 1
            arms.places[slot, 0] = home_of(key_bits(key, seed), instances)
            arms.values[slot, 0] = _UNTRIED
        elif arms.caps[slot] < MOST_ARMS:
            arms.caps[slot] += 1
        arms.held[slot] = False
    restart(sketch)
