"""Posts of regions: hashtags that belong to a place, for a while or for good."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.mixing import spread_seed
from unskew.parameters import whole_number
from unskew.workloads.base import MOST
from unskew.workloads.kinds import draw_kinds
from unskew.workloads.posts import tag_names
from unskew.workloads.ranks import rank_keys
from unskew.workloads.zipf import Zipf

GLOBAL, STABLE, SEASONAL, WEEKLY, FLASH = range(5)
"""What a hashtag belongs to: no region; one for good, for a season or for a week; or one event."""

SHARES = (0.30, 0.31, 0.17, 0.20, 0.02)
"""Posts with each of them, so that keys planned by the week before meet as often as in the paper:
about half on six nodes, 40 % by an old plan, and 75 % had the week been known."""

SEASON = 4
"""Weeks that a hashtag of a season lasts; each week a quarter of them are new."""

EVENTS = 3
"""Regions that the event of a week goes through, one after the other."""


class Regions:
    """Posts, each with a region and a hashtag that may occur mostly there.

    Which hashtags belong to which region changes by the week: some for good, some for a season,
    some for a week, and each week an event goes from one region to the next. Any posts can be made
    without those before them, so that a task that runs again makes the same rows.

    Parameters
    ----------
    per_week : int, default 1_000_000
        Posts of a week.
    regions : int, default 300
        How many, with shares by a Zipf law of 0.8.
    tags : int, default 50
        Hashtags of each region and kind, by a Zipf law of 1.2.
    common : int, default 2000
        Hashtags of no region, by a Zipf law of 0.8.
    stable : bool, default False
        Whether every week is like the first.
    seed : int, default 0
        Chooses the posts.

    Examples
    --------
    >>> posts = Regions(seed=1)
    >>> posts.rows(np.array([7])).to_pylist()
    [{'region': 'wepebesha', 'hashtag': '#tatatava'}]

    References
    ----------
    Locality-aware routing, Section 4.3: locations and hashtags, over weeks; the data are ours.
    """

    def __init__(
        self,
        per_week: int = 1_000_000,
        *,
        regions: int = 300,
        tags: int = 50,
        common: int = 2000,
        stable: bool = False,
        seed: int = 0,
    ) -> None:
        self.per_week = whole_number("per_week", per_week, least=EVENTS, most=MOST)
        self.stable = stable
        self.seed = whole_number("seed", seed, least=0, most=2**62)
        self._regions = Zipf(0.8, regions, MOST, seed=seed)
        self._tags = Zipf(1.2, tags, MOST, seed=seed + 1)
        self._common = Zipf(0.8, common, MOST, seed=seed + 2)
        self._seed = spread_seed(seed + 3)

    def week(self, post: int) -> int:
        """Return the week of a post, from 0 up."""
        return 0 if self.stable else post // self.per_week

    def draw(self, start: int, stop: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return the regions and the hashtags of posts `start` up to, not including, `stop`."""
        posts = np.arange(start, stop)
        weeks = posts // self.per_week if not self.stable else np.zeros_like(posts)
        kinds = np.empty(posts.size, dtype=np.int64)
        draw_kinds(self._seed, start, np.cumsum(SHARES), kinds)
        regions, ranks = self._regions.ranks(start, stop), self._tags.ranks(start, stop)
        event = kinds == FLASH
        # The event of a week is one hashtag, and moves on while the week passes.
        passed = posts % self.per_week * EVENTS // self.per_week
        regions[event] = 1 + (7 * weeks + 3 * passed)[event] % self._regions.keys
        born = np.where(kinds == SEASONAL, (weeks + ranks) // SEASON, weeks)
        born[(kinds == STABLE) | (kinds == GLOBAL)] = 0
        owners = np.where((kinds == GLOBAL) | event, 0, regions)
        ranks = np.where(kinds == GLOBAL, self._common.ranks(start, stop), ranks)
        ranks[event] = 0
        # One number for each: no two hashtags share one.
        tags = ((born * 5 + kinds) * (self._regions.keys + 1) + owners) << 20 | ranks
        return rank_keys(regions), rank_keys(tags)

    def rows(self, numbers: NDArray[np.int64]) -> pa.StructArray:
        """Return the region and the hashtag of the posts of these numbers, from 0 up."""
        start, stop = (int(numbers.min()), int(numbers.max()) + 1) if numbers.size else (0, 1)
        regions, tags = (keys[numbers - start] for keys in self.draw(start, stop))
        columns = [pc.utf8_slice_codeunits(tag_names(regions), 1), tag_names(tags)]
        return pa.StructArray.from_arrays(columns, ["region", "hashtag"])
