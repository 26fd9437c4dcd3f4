from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from unskew.errors import BadParameter
from unskew.workloads import Regions
from unskew.workloads.regions import EVENTS, FLASH, GLOBAL, SEASON, SEASONAL, SHARES, STABLE, WEEKLY

PER_WEEK = 20_000


def posts(**options: Any) -> Regions:
    return Regions(PER_WEEK, regions=20, tags=10, common=50, **options)


def week(number: int, drawn: Regions) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    return drawn.draw(number * PER_WEEK, (number + 1) * PER_WEEK)


def regions_by_tag(number: int, drawn: Regions) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for region, tag in zip(*(keys.tolist() for keys in week(number, drawn)), strict=True):
        found.setdefault(tag, set()).add(region)
    return found


@given(start=st.integers(0, 5 * PER_WEEK), sizes=st.lists(st.integers(0, 300), max_size=5))
def test_posts_do_not_depend_on_those_before_them(start: int, sizes: list[int]) -> None:
    ends = np.cumsum([start, *sizes]).tolist()
    whole = posts().draw(start, ends[-1])
    parts = [posts().draw(*each) for each in pairwise(ends)]
    for place, keys in enumerate(whole):
        found = np.concatenate([part[place] for part in parts] or [keys[:0]])
        assert found.tolist() == keys.tolist()


def test_rows_are_the_keys_in_words() -> None:
    numbers = np.array([70, 3, 70, 40_001])
    rows = posts().rows(numbers).to_pylist()
    regions, tags = posts().draw(0, 40_002)
    assert rows[0] == rows[2] != rows[3]
    assert all(row["hashtag"].startswith("#") and row["region"].isalpha() for row in rows)
    every = posts().rows(np.arange(5000)).to_pylist()
    for name, keys in (("region", regions[:5000]), ("hashtag", tags[:5000])):
        pairs = {(row[name], key) for row, key in zip(every, keys.tolist(), strict=True)}
        assert len({word for word, _ in pairs}) == len({key for _, key in pairs}) == len(pairs)
    assert len(posts().rows(np.empty(0, dtype=np.int64))) == 0


def test_what_lasts_for_good_for_a_season_and_for_a_week() -> None:
    drawn = posts()
    weeks = [set(week(number, drawn)[1].tolist()) for number in range(2 * SEASON + 1)]

    def shared(one: int, other: int) -> float:
        return len(weeks[one] & weeks[other]) / len(weeks[one])

    # For good: those of no region and of one; then of a season, of which each week some end.
    assert shared(0, 1) > shared(0, 2) > shared(0, SEASON)
    assert shared(0, SEASON) == pytest.approx(shared(0, 2 * SEASON), abs=0.02)
    kept = weeks[0] & weeks[2 * SEASON]
    regions, tags = week(0, drawn)
    of_kept = np.isin(tags, np.array([*kept], dtype=np.uint64)).mean()
    assert of_kept == pytest.approx(SHARES[GLOBAL] + SHARES[STABLE], abs=0.02)
    new = np.isin(week(1, drawn)[1], np.array([*weeks[0]], dtype=np.uint64), invert=True).mean()
    assert SHARES[WEEKLY] + SHARES[FLASH] - 0.02 < new
    assert new < SHARES[WEEKLY] + SHARES[FLASH] + SHARES[SEASONAL]
    assert regions.size == PER_WEEK


def test_a_hashtag_is_of_one_region_of_all_or_of_those_of_an_event() -> None:
    owners = Counter(len(regions) for regions in regions_by_tag(0, posts()).values())
    # 20 regions: those of none are in many, one is that of the event, all others are in one.
    assert owners[EVENTS] >= 1
    few = sum(count for size, count in owners.items() if size == 1)
    assert few > 0.8 * sum(owners.values())


def test_an_event_goes_from_region_to_region() -> None:
    drawn = posts()
    regions, tags = week(1, drawn)
    old = np.isin(tags, week(0, drawn)[1])
    names, counts = np.unique(tags[~old], return_counts=True)
    event = names[counts.argmax()]
    assert counts.max() / PER_WEEK == pytest.approx(SHARES[FLASH], rel=0.15)
    places = np.flatnonzero(tags == event)
    walked = list(dict.fromkeys(regions[places].tolist()))
    assert len(walked) == EVENTS
    thirds = places * EVENTS // PER_WEEK
    assert [walked[each] for each in thirds.tolist()] == regions[places].tolist()


def test_stable_posts_have_the_same_hashtags_in_every_week() -> None:
    drawn = posts(stable=True)
    assert drawn.week(5 * PER_WEEK) == 0
    assert posts().week(5 * PER_WEEK) == 5
    first, later = (regions_by_tag(number, drawn) for number in (0, 7))
    common = first.keys() & later.keys()
    assert len(common) > 0.9 * len(first)
    single = [tag for tag in common if len(first[tag]) == len(later[tag]) == 1]
    assert len(single) > 100
    assert all(first[tag] == later[tag] for tag in single)


def test_seeds_differ() -> None:
    one, other = (posts(seed=seed).draw(0, 1000) for seed in (0, 1))
    assert not np.array_equal(one[0], other[0])
    assert not np.array_equal(one[1], other[1])


@pytest.mark.parametrize(
    ("options", "told"),
    [({"per_week": 1}, "per_week must be from 3"), ({"regions": 0}, "keys"), ({"tags": 0}, "keys")],
    ids=["a week without posts", "no regions", "no hashtags"],
)
def test_what_cannot_be_posted_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(BadParameter, match=told):
        Regions(**options)
