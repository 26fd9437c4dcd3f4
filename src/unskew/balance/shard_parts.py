"""Hot keys as parts of shards: where a shard goes, its part of each of them goes along."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.balance.first_shards import first_shards
from unskew.balance.plan import Plan
from unskew.balance.report import Report

_COOL = 0.5
"""A key gives shards back only where it fills less than this part of all but one that it has."""


class ShardParts(NamedTuple):
    """The work of each shard, with its parts of hot keys.

    Attributes
    ----------
    work : array of float64
        Of each shard, all that would move with it.
    parts : dict of int to array of int64
        Shards of each key that is split.
    """

    work: NDArray[np.float64]
    parts: dict[int, NDArray[np.int64]]


def shard_parts(
    plan: Plan, report: Report, work: NDArray[np.float64], *, e: float, seed: int
) -> ShardParts:
    """Return hot keys as parts of shards: as many as each fills, the first of its own sequence.

    A key is split if it has more than one shard should carry, (1 + e) of the mean, and may be on
    several instances. It gets more shards when it fills them, and gives some back only when it
    fills less than half of them: its state is where it is until then.

    Parameters
    ----------
    plan : Plan
        Of the interval.
    report : Report
        What it measured.
    work : array of float64
        Of each shard, without keys that are split already.
    e : float
        Room of a shard above the mean.
    seed : int
        Chooses the sequences.

    Examples
    --------
    >>> none = np.zeros(4)
    >>> report = Report(1.0, none, none, none, none, none, hot={4: 6.0}, can_split=True)
    >>> found = shard_parts(Plan.even(4, 2), report, np.array([7.0, 1, 1, 1]), e=0.01, seed=0)
    >>> found.parts[4].size, found.work.tolist()
    (3, [3.0, 1.0, 3.0, 3.0])
    """
    work = work.copy()
    known = sorted(plan.hot.keys() | report.hot.keys())
    homes = plan.shard_of(np.array(known, dtype=np.uint64)).tolist()
    sizes = {key: max(0.0, float(report.hot.get(key, 0.0))) for key in known}
    for key, home in zip(known, homes, strict=True):
        if key not in plan.hot:
            sizes[key] = min(sizes[key], float(work[home]))
    total = float(work.sum()) + sum(sizes[key] for key in plan.hot)
    room = (1 + e) * total / plan.shards
    parts: dict[int, NDArray[np.int64]] = {}
    for key, home in zip(known, homes, strict=True):
        before = len(plan.hot.get(key, ()))
        count = _wanted(sizes[key], room, before, plan.shards) if report.can_split else 1
        if key not in plan.hot and count > 1:
            work[home] -= sizes[key]
        if count > 1:
            parts[key] = first_shards(key, count, plan.shards, seed)
            work[parts[key]] += sizes[key] / count
        elif key in plan.hot:
            work[home] += sizes[key]
    return ShardParts(np.maximum(work, 0.0), parts)


def _wanted(size: float, room: float, before: int, shards: int) -> int:
    """Return how many shards a key needs; one is as good as whole."""
    needed = min(shards, ceil(size / room)) if room > 0 else 1
    kept = min(before, shards)
    is_enough = needed <= kept and size >= _COOL * (kept - 1) * room
    return kept if kept > 1 and is_enough else needed


def named(
    plan: Plan,
    report: Report,
    parts: Mapping[int, NDArray[np.int64]],
    table: NDArray[np.int32],
) -> tuple[dict[int, tuple[int, ...]], dict[int, dict[int, int]]]:
    """Return the instances of hot keys, where their shards are, and those that are leaving them.

    An instance with two shards of a key is named twice. Where an operator keeps tuples, one that
    gets no more of a key leaves when what it has has expired.

    Parameters
    ----------
    plan, report
        Of the interval.
    parts : mapping of int to array of int64
        Shards of each key that is split.
    table : array of int32
        Instance of each shard from now on.
    """
    hot: dict[int, tuple[int, ...]] = {}
    leaving: dict[int, dict[int, int]] = {}
    for key in sorted(parts.keys() | plan.hot.keys()):
        home = int(table[plan.shard_of(np.array([key], dtype=np.uint64))[0]])
        copies = tuple(table[parts[key]].tolist()) if key in parts else (home,)
        if sorted(copies) == sorted(plan.hot.get(key, ())):
            copies = plan.hot[key]
        now, times = report.watermark, plan.leaving.get(key, {})
        stays = {at: until for at, until in times.items() if now is None or until > now}
        if report.latest is not None and report.can_split:
            stays = dict.fromkeys(sorted(set(plan.hot.get(key, ()))), report.latest) | stays
        leaving[key] = {at: until for at, until in stays.items() if at not in copies}
        if key in parts or (report.can_split and leaving[key]):
            hot[key] = copies
        else:
            del leaving[key]
    return hot, leaving
