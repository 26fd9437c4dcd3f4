"""Keys too large for one instance: how many they need, and which."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.balance.fitting import FINENESS, pour, turns
from unskew.balance.plan import Plan
from unskew.balance.report import Report

_ROUNDS = 4
"""Times that keys which share instances are poured one after the other."""

_LEVEL = 2 / FINENESS
"""Of the mean load: a part of a key that is by less than this off is as it should be, or the turns
of two parts that differ in rounding would follow each other for ever."""

_COOL = 0.5
"""A key that is split becomes whole again below so many means: half of what it was split for."""


class Split(NamedTuple):
    """Hot keys, and the load that is left.

    Attributes
    ----------
    hot : dict of int to tuple of int
        Instances of each hot key.
    leaving : dict of int to dict of int to int
        Instances that get no more of it, and until when they keep what they have.
    busy : array of float64
        Load of each shard, without its hot keys.
    loads : array of float64
        Load of each instance.
    sizes : dict of int to float
        Load of each hot key that is split.
    """

    hot: dict[int, tuple[int, ...]]
    leaving: dict[int, dict[int, int]]
    busy: NDArray[np.float64]
    loads: NDArray[np.float64]
    sizes: dict[int, float]


def split_hot_keys(
    plan: Plan, report: Report, *, above: float = 1.0, speeds: NDArray[np.float64] | None = None
) -> Split:
    """Return the keys to split: those with more load than an instance should have.

    A key gets as many instances as its load fills, and one more, so that its part leaves room for
    other shards. They are added at once, where there is least to do, and taken away only when the
    key has cooled: until then its state is where it is. Where an operator keeps tuples, instances
    that the key does not need any more get no new ones, and leave when what they have has expired:
    nothing moves. An interval without load tells nothing, so all stays as it is.

    Parameters
    ----------
    plan : Plan
        Of the interval.
    report : Report
        What it measured.
    above : float, default 1.0
        Load, in means, above which a key is split.
    speeds : array of float64, optional
        How fast each instance is; all the same by default.

    Examples
    --------
    >>> busy = np.array([9.0, 1.0, 1.0, 1.0])
    >>> none = np.zeros(4)
    >>> report = Report(1.0, none, busy, none, none, none, hot={4: 8.0}, can_split=True)
    >>> split = split_hot_keys(Plan.even(4, 4), report)
    >>> split.hot, split.loads.round(2).tolist()
    ({4: (0, 1, 2, 3)}, [3.0, 3.0, 3.0, 3.0])
    """
    busy = report.busy.astype(np.float64)
    homes = _homes(plan, report)
    sizes = {key: float(report.hot.get(key, 0.0)) for key in plan.hot}
    mean = (float(busy.sum()) + sum(sizes.values())) / plan.instances
    if report.can_split:
        for key in sorted(report.hot.keys() - plan.hot.keys()):
            size = min(float(report.hot[key]), float(busy[homes[key]]))
            if size > above * mean:
                sizes[key] = size
                busy[homes[key]] -= size
    wanted = {key: _wanted(plan, key, size, mean, above) for key, size in sizes.items()}
    leaving = {key: _not_yet_gone(plan, key, report) for key in sizes}
    hot: dict[int, tuple[int, ...]] = {}
    for key in sorted(sizes):
        if report.can_split and wanted[key] != 1:
            continue
        busy[homes[key]] += sizes.pop(key)
        others = {*plan.hot.get(key, ()), *leaving[key]} - {int(plan.assignment[homes[key]])}
        if report.can_split and report.latest is not None and others:
            # As good as whole, but for what others keep of it until that has expired.
            hot[key] = (int(plan.assignment[homes[key]]),)
            leaving[key] = dict.fromkeys(sorted(others), report.latest) | leaving[key]
    loads = np.bincount(plan.assignment, busy, plan.instances).astype(np.float64)
    pace = np.ones(plan.instances) if speeds is None else speeds
    for key in sorted(sizes, key=lambda key: (-sizes[key], key)):
        copies = plan.hot.get(key, ())
        home = int(plan.assignment[homes[key]])
        if report.stored is not None and home not in copies and len(set(copies)) < wanted[key]:
            # What is kept at the home is looked for there, whether it takes a part or not: it is
            # the first to take one. But a key that has enough does not follow its shard about.
            copies = (*copies, home)
        ranked = np.argsort(loads / pace, kind="stable").tolist()
        missing = wanted[key] - len(set(copies))
        if missing > 0:
            free = [i for i in ranked if i not in copies]
            copies = tuple(sorted({*copies, *free[:missing]}))
        elif missing < -1 and wanted[key] > 0 and report.latest is not None:
            first = sorted((i for i in ranked if i in copies), key=lambda i: i != home)
            stay = set(first[: wanted[key]])
            leaving[key] |= dict.fromkeys(sorted({*copies} - stay), report.latest)
            copies = tuple(copy for copy in copies if copy in stay)
        hot[key] = copies
        # An instance that is named twice takes twice as much.
        np.add.at(loads, list(copies), sizes[key] / len(copies))
    left = {
        key: {at: until for at, until in leaving[key].items() if at not in copies}
        for key, copies in hot.items()
    }
    return Split(hot, left, busy, loads, sizes)


def levelled(split: Split, speeds: NDArray[np.float64] | None = None) -> Split:
    """Return the same instances of each hot key, named as often as evens out the loads.

    Nothing moves by that: only where tuples go that are still to come. An instance that should have
    nothing more still keeps what it has, and is named once.

    Parameters
    ----------
    split : Split
        What `split_hot_keys` returned.
    speeds : array of float64, optional
        How fast each instance is: loads over speeds are to be even.

    Examples
    --------
    >>> split = Split({4: (0, 1)}, {}, np.array([3.0, 1.0]), np.array([5.0, 3.0]), {4: 4.0})
    >>> even = levelled(split)
    >>> even.loads.tolist(), sorted(even.hot[4]).count(1) / len(even.hot[4])
    ([4.0, 4.0], 0.75)
    """
    loads = split.loads.copy()
    # One that nobody asks for, or that is as good as whole, has nothing to be shared.
    shared = {key: copies for key, copies in split.hot.items() if split.sizes.get(key, 0.0) > 0}
    parts = {key: _shares(copies, split.sizes[key]) for key, copies in shared.items()}
    for _ in range(_ROUNDS):
        for key, part in parts.items():
            pour(part, split.sizes[key], loads, speeds)
    mean = float(loads.mean())
    hot: dict[int, tuple[int, ...]] = {}
    for key, copies in shared.items():
        part = {copy: parts[key].get(copy, 0.0) for copy in sorted(set(copies))}
        is_level = _furthest(_shares(copies, split.sizes[key]), part) <= _LEVEL * mean
        hot[key] = copies if is_level else turns(part, mean)
    return split._replace(hot={**split.hot, **hot}, loads=loads)


def _shares(copies: tuple[int, ...], size: float) -> dict[int, float]:
    """Return what each instance has of a key of some size."""
    named, times = np.unique(copies, return_counts=True)
    return dict(zip(named.tolist(), (times * (size / len(copies))).tolist(), strict=True))


def _furthest(shares: dict[int, float], others: dict[int, float]) -> float:
    return max(abs(share - others[instance]) for instance, share in shares.items())


def _wanted(plan: Plan, key: int, size: float, mean: float, above: float) -> int:
    """Return how many instances a key needs: one is as good as whole."""
    # What is on one instance has to be as large as any other to be split again.
    is_split = len(set(plan.hot.get(key, ()))) > 1
    if size < (_COOL if is_split else above) * mean:
        return 1
    return min(plan.instances, ceil(size / mean) + 1) if mean > 0 else 0


def _not_yet_gone(plan: Plan, key: int, report: Report) -> dict[int, int]:
    """Return the instances that still keep what they once got of a key."""
    now = report.watermark
    times = plan.leaving.get(key, {})
    return {at: until for at, until in times.items() if now is None or until > now}


def _homes(plan: Plan, report: Report) -> dict[int, int]:
    """Return the shards of all keys that are, or may become, hot."""
    keys = sorted(plan.hot.keys() | report.hot.keys())
    shards = plan.shard_of(np.array(keys, dtype=np.uint64))
    return dict(zip(keys, shards.tolist(), strict=True))
