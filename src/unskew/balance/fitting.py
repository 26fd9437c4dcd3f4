"""A plan from what a sample of keys showed."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import ceil, gcd

import numpy as np
from numpy.typing import NDArray

from unskew.balance.plan import Plan
from unskew.errors import BadParameter
from unskew.parameters import key_hashes, whole_number

_EVIDENCE = 8
"""Tuples in the sample before a key counts as hot: it is not hot because it came twice."""

FINENESS = 128
"""Turns of a hot key for each instance that it fills: the loads are even within 1 in 128."""

_MOST_TURNS = 1 << 14
"""Turns of a hot key at most."""


def fit_plan(
    keys: NDArray[np.uint64], tuples: NDArray[np.int64], instances: int, shards: int | None = None
) -> Plan:
    """Return a plan that would have balanced these keys, with as few copies as that takes.

    A key with more tuples than one instance should have fills as many instances as it can and
    shares one more. All others stay whole: those above half of that are placed one by one, the
    rest with their shards, the largest first, each on the least loaded instance. At last each
    split key evens out the instances that it is on.

    Parameters
    ----------
    keys : array of uint64
        Hash of each distinct key.
    tuples : array of int64
        How many tuples it has in the sample.
    instances : int
        Number of instances, at least 1.
    shards : int, optional
        Number of shards; a power of two of at least 64 an instance by default, up to 65,536.

    Examples
    --------
    >>> keys = np.arange(100, dtype=np.uint64)
    >>> tuples = np.full(100, 10)
    >>> tuples[7] = 3000
    >>> plan = fit_plan(keys, tuples, 4)
    >>> len(plan.instances_of(7)), len(plan.instances_of(8))
    (4, 1)
    >>> loads_under(plan, keys, tuples).round(-1).tolist()
    [1000.0, 1000.0, 1000.0, 1000.0]
    """
    keys = key_hashes("fit_plan", keys)
    instances = whole_number("instances", instances, least=1, most=2**31 - 1)
    if shards is None:
        shards = max(instances, min(1 << 16, 1 << (64 * instances - 1).bit_length()))
    whole_number("shards", shards, least=1, most=2**31 - 1)
    if keys.size != tuples.size:
        raise BadParameter(f"{keys.size} keys have {tuples.size} counts; give one for each")
    plan = Plan.even(shards, instances)
    mean = float(tuples.sum()) / instances
    if mean == 0:
        return plan
    is_hot = tuples >= max(_EVIDENCE, mean / 2) if instances > 1 else np.zeros(keys.size, bool)
    is_split = is_hot & (tuples > mean)
    loads = np.zeros(instances)
    parts = _split(keys[is_split], tuples[is_split], mean, loads)
    shares = np.bincount(plan.shard_of(keys[~is_hot]), tuples[~is_hot], shards)
    single = np.flatnonzero(is_hot & ~is_split)
    chosen = _place(np.concatenate((shares, tuples[single])).astype(np.float64), loads)
    for key, size in _largest_first(keys[is_split], tuples[is_split]):
        pour(parts[key], size, loads)
    hot = {key: turns(part, mean) for key, part in parts.items()}
    hot |= {
        key: (instance,)
        for key, instance in zip(keys[single].tolist(), chosen[shards:].tolist(), strict=True)
    }
    return Plan(chosen[:shards], instances, hot=hot)


def loads_under(
    plan: Plan, keys: NDArray[np.uint64], tuples: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the tuples that each instance would get, on average, from these keys."""
    hashes = np.array(sorted(plan.hot), dtype=np.uint64)
    is_hot = np.isin(keys, hashes)
    homes = plan.assignment[plan.shard_of(keys[~is_hot])]
    loads = np.bincount(homes, tuples[~is_hot], plan.instances).astype(np.float64)
    for key, size in zip(keys[is_hot].tolist(), tuples[is_hot].tolist(), strict=True):
        turns = np.bincount(plan.hot[key], minlength=plan.instances)
        loads += turns * (size / turns.sum())
    return loads


def _largest_first(keys: NDArray[np.uint64], tuples: NDArray[np.int64]) -> list[tuple[int, float]]:
    """Return (key, size) pairs in an order that does not depend on that of the sample."""
    order = np.lexsort((keys, -tuples))
    return list(zip(keys[order].tolist(), tuples[order].astype(float).tolist(), strict=True))


def _split(
    keys: NDArray[np.uint64], tuples: NDArray[np.int64], mean: float, loads: NDArray[np.float64]
) -> dict[int, dict[int, float]]:
    """Fill instances with keys that are larger than one; return the tuples of each by instance."""
    parts: dict[int, dict[int, float]] = {}
    for key, size in _largest_first(keys, tuples):
        part: dict[int, float] = {}
        left = size
        while left > mean * 1e-9:
            room = mean - loads
            fits = np.flatnonzero(room >= left)
            # The tightest that takes all that is left, or else the emptiest.
            instance = int(fits[room[fits].argmin()]) if fits.size else int(room.argmax())
            if instance in part:
                break
            taken = min(left, max(float(room[instance]), 0.0))
            if taken <= mean * 1e-9:
                break
            part[instance] = taken
            loads[instance] += taken
            left -= taken
        parts[key] = part
    return parts


def _place(weights: NDArray[np.float64], loads: NDArray[np.float64]) -> NDArray[np.int32]:
    """Put each item, the largest first, on the least loaded instance; return the instances."""
    chosen = np.empty(weights.size, dtype=np.int32)
    # Ties go to the instance with the fewest items, so that empty shards are dealt evenly too.
    heap = [(float(load), 0, instance) for instance, load in enumerate(loads)]
    heapify(heap)
    for item in np.argsort(-weights, kind="stable").tolist():
        load, items, instance = heappop(heap)
        chosen[item] = instance
        heappush(heap, (load + float(weights[item]), items + 1, instance))
    for load, _, instance in heap:
        loads[instance] = load
    return chosen


def pour(
    part: dict[int, float],
    size: float,
    loads: NDArray[np.float64],
    speeds: NDArray[np.float64] | None = None,
) -> None:
    """Pour a split key anew over the instances that it is on, to one level as far as that goes.

    Parameters
    ----------
    part : dict of int to float
        What each instance has of the key; changed.
    size : float
        Of the whole key.
    loads : array of float64
        Of all instances, the key included; changed.
    speeds : array of float64, optional
        How fast they are: the level is that of loads over speeds.
    """
    places = np.array(list(part))
    loads[places] -= list(part.values())
    pace = np.ones(loads.size) if speeds is None else speeds
    order = places[np.argsort(loads[places] / pace[places], kind="stable")]
    lows = loads[order] / pace[order]
    # The level at which the k emptiest hold all of the key; the first k whose level is not above
    # the next one counts.
    levels = (size + np.cumsum(loads[order])) / np.cumsum(pace[order])
    count = next((k for k in range(1, order.size) if levels[k - 1] <= lows[k]), order.size)
    part.clear()
    for instance in order[:count].tolist():
        full = float(levels[count - 1] * pace[instance])
        part[instance] = full - float(loads[instance])
        loads[instance] = full


def turns(part: dict[int, float], mean: float) -> tuple[int, ...]:
    """Return the instances of a split key, each as often as its part asks, well mixed."""
    size = sum(part.values())
    number = min(_MOST_TURNS, max(len(part), ceil(FINENESS * size / mean)))
    exact = np.array(list(part.values())) * (number / size)
    counts = np.maximum(1, np.floor(exact).astype(np.int64))
    short = number - int(counts.sum())
    if short > 0:
        counts[np.argsort(counts - exact, kind="stable")[:short]] += 1
    counts //= gcd(*counts.tolist())
    # Each instance's turns at even distances: its j-th of m at (j + 1/2) / m.
    times = np.concatenate([(np.arange(count) + 0.5) / count for count in counts])
    named = np.repeat(np.array(list(part)), counts)
    return tuple(named[np.argsort(times, kind="stable")].tolist())
