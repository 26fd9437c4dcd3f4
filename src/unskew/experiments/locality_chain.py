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

PER_WEEK, TAGS, COMMON = 5_800_000, 200, 20_000
"""Posts of a week, the paper's 173 million over seven months, and the hashtags of each region and
of none that these have; where there are fewer posts, there are fewer hashtags."""

UNIT = 64
"""What one post counts where counts fade: they are whole numbers."""

Keys = tuple[NDArray[np.uint64], NDArray[np.uint64]]
"""The regions and the hashtags of some posts."""


def posts_of(per_week: int, seed: int, *, stable: bool = False) -> Regions:
    """Return posts in which each hashtag is as frequent as if there were as many as the paper's.

    Examples
    --------
    >>> posts_of(PER_WEEK // 10, seed=0).per_week
    580000
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


def planned(
    plans: Sequence[Plan],
    seen: KeyPairs,
    *,
    row_bytes: float = ROW_BYTES,
    key_bytes: float = KEY_BYTES,
    **parameters: Any,
) -> list[Plan]:
    """Return what `Locality` makes of plans where these pairs were seen.

    Parameters
    ----------
    plans : two of Plan
        Those in force.
    seen : KeyPairs
        Since the last plan.
    row_bytes, key_bytes : float
        Of a post on its way, and of the state of a key.
    **parameters
        Of `Locality`.

    Examples
    --------
    >>> keys = np.array([1, 2, 3, 4], dtype=np.uint64)
    >>> pairs = KeyPairs(keys, keys + np.uint64(90), np.array([5, 5, 5, 5]))
    >>> measured(planned(hashed(2), pairs), (pairs.first, pairs.second)).locality
    1.0
    """
    balancer = Locality(**{"period": 1, "pairs": PAIRS, "keys": PAIRS, **parameters})
    return balancer.next_plans(plans, _reports(plans, seen, row_bytes, key_bytes))


def _reports(
    plans: Sequence[Plan], seen: KeyPairs, row_bytes: float, key_bytes: float
) -> list[Report]:
    """Return what the two stages would report of posts with these pairs of keys."""
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
    return found


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


class Memory:
    """Pairs that were seen, of which the older count less.

    Parameters
    ----------
    pairs : KeyPairs
        To begin with.
    fade : float
        What a count is worth at the next plan.

    Examples
    --------
    >>> keys = np.array([1, 2], dtype=np.uint64)
    >>> memory = Memory(KeyPairs(keys, keys, np.array([4, 1])), fade=0.5)
    >>> memory.add(KeyPairs(keys[:1], keys[:1], np.array([1])))
    >>> (memory.pairs.counts / UNIT).tolist()
    [3.0, 0.5]
    """

    def __init__(self, pairs: KeyPairs, fade: float) -> None:
        self.pairs = pairs._replace(counts=UNIT * pairs.counts)
        self._fade = fade

    def add(self, pairs: KeyPairs) -> None:
        """Let what is known fade, and count these."""
        faded = (self._fade * self.pairs.counts).astype(np.int64)
        # A pair that was seen once is forgotten after three times the life of a count.
        kept = faded > UNIT * np.exp(-3)
        old = KeyPairs(self.pairs.first[kept], self.pairs.second[kept], faded[kept])
        self.pairs = KeyPairs.together([old, pairs._replace(counts=UNIT * pairs.counts)])


def week_of(posts: Regions, number: int, *, part: tuple[int, int] = (0, 1)) -> Keys:
    """Return the keys of a week, or of part i of so many equal ones of it."""
    size, (which, parts) = posts.per_week, part
    ends = (number * size + each * size // parts for each in (which, which + 1))
    return posts.draw(*ends)
