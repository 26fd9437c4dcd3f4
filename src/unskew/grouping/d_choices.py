"""D-Choices: head keys to the least loaded of d choices, d as small as balance allows."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.grouping.choices import home_of, key_bits, place_of, scatter, second_of
from unskew.grouping.head import HeadGrouping, in_head
from unskew.grouping.least_loaded import Levels, least_loaded, new_levels, send
from unskew.kernel import kernel
from unskew.mixing import counter_bits
from unskew.parameters import number
from unskew.sketches.space_saving import TOTAL, USED, Counters, observe

_REFRESH = 16
"""Tuples for each instance between two computations of d."""


class DChoices(HeadGrouping):
    """Send a head key to the least loaded of its d choices, a tail key to one of its two.

    d is the smallest number for which, for every prefix of the head, the load expected on the
    instances that it reaches fits onto them within `e`; where only all instances will do, they are
    all searched, as in W-Choices. It is computed anew every 16 tuples an instance from the sketch.
    O(d) a tuple, and up to n h steps for a head of h keys each time that d is computed.

    Parameters
    ----------
    instances, seed, source
        As of `Grouping`.
    theta : float, optional
        Share from which a key belongs to the head; 1 / (5 instances) by default.
    counters : int, optional
        Keys that the sketch keeps, 8 an instance and no less than 64 by default.
    e : float, default 1e-4
        Imbalance to tolerate, as a share of all tuples. Less makes d larger.

    Examples
    --------
    >>> router = DChoices(8)
    >>> np.ptp(np.bincount(router.route(np.zeros(800, dtype=np.uint64)))) <= 16
    np.True_

    References
    ----------
    Nasir et al.: When two choices are not enough, ICDE 2016, Section IV.
    """

    name: ClassVar[str] = "d-choices"
    reference: ClassVar[str] = "D-Choices: Nasir et al., ICDE 2016"
    _per_batch: ClassVar[tuple[str, ...]] = ("loads", "levels")

    def __init__(
        self,
        instances: int,
        *,
        seed: int = 0,
        source: int = 0,
        theta: float | None = None,
        counters: int | None = None,
        e: float = 1e-4,
    ) -> None:
        super().__init__(instances, seed=seed, source=source, theta=theta, counters=counters)
        self.e = number("e", e, above=0)
        self._levels = new_levels(self.instances)
        self._keep("levels", self._levels)
        self._state["choices"] = self._choices = np.array([min(2, self.instances), 0])
        self._shares = np.empty(self.counters, dtype=np.float64)

    @property
    def choices(self) -> int:
        """The d in force."""
        return int(self._choices[0])

    @property
    def state_bytes(self) -> int:
        """Bytes of router state, the list of head shares included."""
        return super().state_bytes + self._shares.nbytes

    def _route(self, keys: NDArray[np.uint64], chosen: NDArray[np.int32]) -> None:
        _kernel(
            keys,
            chosen,
            self._loads,
            self._levels,
            self._choices,
            self._shares,
            self._sketch,
            self._key_seed,
            self._first,
            self.theta,
            self.e,
        )


@kernel
def choices_needed(shares: NDArray[np.float64], instances: int, e: float) -> int:
    """Return the least d for a head with these shares, largest first.

    A prefix of h keys reaches b = n - n ((n - 1) / n)^(h d) of n instances on average. Onto them go
    the prefix itself, (b / n)^d of the rest of the head and (b / n)^2 of the tail, which must not
    be more than b (1 / n + e).

    Examples
    --------
    >>> choices_needed(np.array([0.3, 0.1]), 20, 1e-4)
    11
    """
    if shares.size == 0:
        return min(2, instances)
    head = 0.0
    for share in shares:
        head += share
    d = max(2, int(np.ceil(shares[0] * instances)))
    while d < instances and not _fits(shares, head, instances, d, e):
        d += 1
    return min(d, instances)


@kernel
def _fits(shares: NDArray[np.float64], head: float, instances: int, d: int, e: float) -> bool:
    """Return whether every prefix of the head fits onto the instances that d choices reach."""
    prefix = 0.0
    for h in range(shares.size):
        prefix += shares[h]
        part = 1.0 - ((instances - 1) / instances) ** ((h + 1) * d)
        load = prefix + part**d * (head - prefix) + part**2 * (1.0 - head)
        if load > part * instances * (1.0 / instances + e):
            return False
    return True


@kernel
def _head_shares(sketch: Counters, theta: float, shares: NDArray[np.float64]) -> int:
    """Write the shares of the head, largest first, and return how many there are."""
    size = 0
    for slot in range(sketch.scalars[USED]):
        if in_head(sketch, slot, theta):
            share = (sketch.counts[slot] - sketch.errors[slot]) / sketch.scalars[TOTAL]
            at = size
            while at > 0 and shares[at - 1] < share:
                shares[at] = shares[at - 1]
                at -= 1
            shares[at] = share
            size += 1
    return size


@kernel
def _kernel(
    keys: NDArray[np.uint64],
    chosen: NDArray[np.int32],
    loads: NDArray[np.int64],
    levels: Levels,
    choices: NDArray[np.int64],
    shares: NDArray[np.float64],
    sketch: Counters,
    seed: np.uint64,
    first: int,
    theta: float,
    e: float,
) -> None:
    n = loads.size
    for i in range(keys.size):
        key = keys[i]
        slot = observe(sketch, key)
        if choices[1] == 0:
            size = _head_shares(sketch, theta, shares)
            choices[0] = choices_needed(shares[:size], n, e)
            choices[1] = _REFRESH * n
        choices[1] -= 1
        bits = key_bits(key, seed)
        place = place_of(home_of(bits, n), first, n)
        if not in_head(sketch, slot, theta):
            other = place_of(second_of(bits, n), first, n)
            if loads[other] < loads[place]:
                place = other
        elif choices[0] == n:
            place = least_loaded(levels)
        else:
            for j in range(1, choices[0]):
                other = place_of(scatter(counter_bits(bits, np.uint64(j)), n), first, n)
                if loads[other] < loads[place]:
                    place = other
        send(loads, levels, place)
        chosen[i] = place
