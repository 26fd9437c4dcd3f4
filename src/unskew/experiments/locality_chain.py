"""Two stages whose keys a balancer places, without queues: where each post goes, and who plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.balance import KeyPairs, Locality, Plan, Report
from unskew.metrics import imbalance, locality
from unskew.workloads import Regions

SHARDS = 64
"""Of each instance."""

PAIRS = 1_000_000
"""Pairs that a plan is made of at the most, the paper's number."""

ROW_BYTES, KEY_BYTES = 4_000.0, 100.0
"""Of a post on its way, and of the state of a key."""

PER_WEEK, TAGS, COMMON = 1_000_000, 50, 2000
"""Posts of a week, and the hashtags of each region and of none that these have: those of `Regions`.
Where there are fewer posts, there are fewer hashtags."""

Keys = tuple[NDArray[np.uint64], NDArray[np.uint64]]
"""The regions and the hashtags of some posts."""


def posts_of(per_week: int, seed: int, *, stable: bool = False) -> Regions:
    """Return posts in which each hashtag is about as frequent, however many there are of them.

    Examples
    --------
    >>> posts_of(PER_WEEK // 10, seed=0).per_week
    100000
    """
    part = per_week / PER_WEEK
    tags, common = (max(8, round(part * full)) for full in (TAGS, COMMON))
    return Regions(per_week, tags=tags, common=common, stable=stable, seed=seed)


def hashed(instances: int) -> list[Plan]:
    """Return the plans of both stages that have all keys in the shards of their hashes."""
    return [Plan.even(SHARDS * instances, instances)] * 2


def pairs_of(keys: Keys) -> KeyPairs:
    """Return how often each region came with each hashtag, exactly."""
    return KeyPairs(*keys, np.ones(keys[0].size, dtype=np.int64)).added_up()


def locality_with(**parameters: Any) -> Locality:
    """Return the balancer as the paper has it, with a plan at every report, but for parameters."""
    return Locality(**{"period": 1, "pairs": PAIRS, "keys": PAIRS, "memory": 0.0, **parameters})


def planned(
    plans: Sequence[Plan],
    seen: KeyPairs,
    balancer: Locality | None = None,
    *,
    row_bytes: float = ROW_BYTES,
    key_bytes: float = KEY_BYTES,
) -> list[Plan]:
    """Return what a balancer makes of plans where these pairs were seen.

    Parameters
    ----------
    plans : two of Plan
        Those in force.
    seen : KeyPairs
        Since the last plan.
    balancer : Locality, optional
        One that remembers nothing by default.
    row_bytes, key_bytes : float
        Of a post on its way, and of the state of a key.

    Examples
    --------
    >>> keys = np.array([1, 2, 3, 4], dtype=np.uint64)
    >>> pairs = KeyPairs(keys, keys + np.uint64(90), np.array([5, 5, 5, 5]))
    >>> measured(planned(hashed(2), pairs), (pairs.first, pairs.second)).locality
    1.0
    """
    found: list[Report] = []
    for plan, keys in zip(plans, (seen.first, seen.second), strict=True):
        rows = np.bincount(plan.shard_of(keys), seen.counts, plan.shards).astype(np.int64)
        idle, nothing = np.zeros(plan.shards), np.zeros(plan.instances)
        found.append(
            Report(
                *(1.0, rows, idle, idle, nothing, nothing.astype(np.int64)),
                pairs={} if found else {1: seen},
                row_bytes=row_bytes,
                key_bytes=key_bytes,
            )
        )
    return (balancer or locality_with()).next_plans(plans, found)


@dataclass(frozen=True)
class Measured:
    """What plans did to posts.

    Attributes
    ----------
    locality : float
        Part of the posts whose region and hashtag were on one instance.
    imbalances : tuple of float
        Of the two stages.
    away : float
        Part of the posts that went to another half of the instances: another rack of two.
    """

    locality: float
    imbalances: tuple[float, float]
    away: float

    @property
    def imbalance(self) -> float:
        """That of the stage that has more."""
        return max(self.imbalances)


def measured(plans: Sequence[Plan], keys: Keys) -> Measured:
    """Return what plans do to posts."""
    size = plans[0].instances
    places = [plan.assignment[plan.shard_of(own)] for plan, own in zip(plans, keys, strict=True)]
    first, second = (imbalance(np.bincount(own, minlength=size)) for own in places)
    half = (size + 1) // 2
    racks = locality(places[0] // half, places[1] // half)
    return Measured(locality(*places), (first, second), 1 - racks)


def week_of(posts: Regions, number: int, *, part: tuple[int, int] = (0, 1)) -> Keys:
    """Return the keys of a week, or of part i of so many equal ones of it."""
    size, (which, parts) = posts.per_week, part
    ends = (number * size + each * size // parts for each in (which, which + 1))
    return posts.draw(*ends)
