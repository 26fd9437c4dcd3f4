"""Locality-aware routing, Figures 10 to 12: posts of regions over weeks, on six nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp
from statistics import fmean

import numpy as np

from unskew.experiments.base import Answers, Axis, Figure, Row, Sizes, Task
from unskew.experiments.locality_chain import (
    PAIRS,
    Keys,
    Measured,
    hashed,
    locality_with,
    measured,
    pairs_of,
    planned,
    posts_of,
    week_of,
)
from unskew.experiments.ls_stream_rows import lines

HASH, OFFLINE, ONLINE, OURS, ORACLE = SERIES = ("hash", "offline", "online", "ours", "oracle")
"""No plan, one after the first week, one after each, one every part of a week by counts that fade,
and one that knows the week that comes."""

WEEKS = 10
INSTANCES = 6

PERIODS = (1, 7, 28)
"""Plans in a week, for the distance from the oracle."""

OFTEN = PERIODS[-1]
"""Those of ours."""

LIFE = 1.0
"""Weeks after which a post counts 1 / e of a new one, for ours."""

PARTS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Parts of the pairs that are kept, for Figure 12."""

WIDTHS = (2, 4, 6)
"""Instances of Figure 12."""

FEW = 1e-3
"""Part of the pairs for which the paper says what it brings."""

RACKS = [[0, 1, 2], [3, 4, 5]]

PERCENT = "locality and imbalance, %"
MEAN, LAST, EXPECTED = (
    "locality, mean over weeks, %",
    "locality, last three weeks, %",
    "locality, on the posts that the plan was made of, %",
)
MEAN_OFF, LAST_OFF = "imbalance, mean over weeks, %", "imbalance, last three weeks, %"
BEHIND = "points of locality below the oracle"
LOCALITY = "locality, %"
TIMES = "locality, in those of hash"
AWAY, LOCALITY_OF_RACKS = "posts that leave their rack, %", "locality with racks, %"
PER_DAY = "posts a day"

PANELS = ("locality", "imbalance of the stage that has more")

EVENT_WEEK, DAYS = 1, 7


def _per_week(sizes: Sizes) -> int:
    assert sizes.dataset_messages is not None
    return sizes.dataset_messages // WEEKS


@dataclass(frozen=True)
class Weeks(Task):
    """Measure each week what plans do to it that were made of others, or of itself.

    Answers with a list of what was measured for each series, and for the plan of each week on the
    posts that it was made of as "expected".
    """

    per_week: int

    @property
    def label(self) -> str:
        """What the progress bar calls it."""
        return f"{WEEKS} weeks of {self.per_week:,} posts"

    def run(self, seed: int) -> dict[str, list[Measured]]:
        """Measure."""
        posts = posts_of(self.per_week, seed)
        plain = hashed(INSTANCES)
        plans = {HASH: plain, OFFLINE: plain, ONLINE: plain}
        found: dict[str, list[Measured]] = {name: [] for name in (*plans, ORACLE, "expected")}
        for week in range(WEEKS):
            keys = week_of(posts, week)
            pairs = pairs_of(keys)
            for name, own in plans.items():
                found[name].append(measured(own, keys))
            found[ORACLE].append(measured(planned(plain, pairs), keys))
            plans[ONLINE] = planned(plans[ONLINE], pairs)
            if week == 0:
                plans[OFFLINE] = plans[ONLINE]
            found["expected"].append(measured(plans[ONLINE], keys))
        return found


@dataclass(frozen=True)
class Often(Task):
    """Measure a week in which a plan is made every so often, after one of which all is known.

    Attributes
    ----------
    per_week, plans : int
        Posts, and plans, of a week.
    fades : bool
        Whether counts fade, or are those since the last plan alone.
    """

    per_week: int
    plans: int
    fades: bool

    @property
    def label(self) -> str:
        """What the progress bar calls it."""
        return f"{self.plans} plans a week of {self.per_week:,} posts"

    def run(self, seed: int) -> list[Measured]:
        """Measure each part of the week."""
        posts = posts_of(self.per_week, seed)
        balancer = locality_with(memory=exp(-1 / (self.plans * LIFE)) if self.fades else 0.0)
        plans = planned(hashed(INSTANCES), pairs_of(week_of(posts, WEEKS - 2)), balancer)
        found = []
        for part in range(self.plans):
            keys = week_of(posts, WEEKS - 1, part=(part, self.plans))
            found.append(measured(plans, keys))
            plans = planned(plans, pairs_of(keys), balancer)
        return found


@dataclass(frozen=True)
class Kept(Task):
    """Measure plans that were made of the most frequent pairs alone, on the next week.

    Answers with what was measured for each number of instances and part of the pairs, on the week
    that the plan is made of and on the next, beside hash on the next; with the number of pairs; and
    with racks, for six instances.
    """

    per_week: int

    @property
    def label(self) -> str:
        """What the progress bar calls it."""
        return f"parts of the pairs of {self.per_week:,} posts"

    def run(self, seed: int) -> KeptAnswer:
        """Measure."""
        posts = posts_of(self.per_week, seed)
        seen, following = (week_of(posts, week) for week in (0, 1))
        pairs = pairs_of(seen)
        found: dict[tuple[int, float], tuple[Measured, Measured]] = {}
        plain: dict[int, Measured] = {}
        for width in WIDTHS:
            start = hashed(width)
            plain[width] = measured(start, following)
            for part in PARTS:
                few = pairs.most(max(1, round(part * pairs.counts.size)))
                plans = planned(start, few)
                found[width, part] = (measured(plans, seen), measured(plans, following))
        racks = measured(planned(hashed(INSTANCES), pairs, locality_with(tree=RACKS)), following)
        return KeptAnswer(int(pairs.counts.size), found, plain, racks)


@dataclass(frozen=True)
class KeptAnswer:
    """What `Kept` measured."""

    pairs: int
    found: Mapping[tuple[int, float], tuple[Measured, Measured]]
    plain: Mapping[int, Measured]
    racks: Measured


@dataclass(frozen=True)
class Event(Task):
    """Count the posts with the hashtag of an event, by day and region: the three that had most."""

    per_week: int

    @property
    def label(self) -> str:
        """What the progress bar calls it."""
        return f"an event of a week of {self.per_week:,} posts"

    def run(self, seed: int) -> list[list[int]]:
        """Return for each of the regions, as they come to it, its posts of each day."""
        posts = posts_of(self.per_week, seed)
        days = [week_of(posts, EVENT_WEEK, part=(day, DAYS)) for day in range(DAYS)]
        tag = _newest(week_of(posts, EVENT_WEEK - 1), days)
        counts = [Counter(regions[tags == tag].tolist()) for regions, tags in days]
        most = sum(counts, Counter()).most_common(3)
        lines = [[count[region] for count in counts] for region, _ in most]
        return sorted(lines, key=lambda line: line.index(max(line)))


def _newest(before: Keys, days: Sequence[Keys]) -> np.uint64:
    """Return the hashtag that is most frequent among those that were not there before."""
    tags, counts = np.unique(np.concatenate([own for _, own in days]), return_counts=True)
    counts[np.isin(tags, before[1])] = 0
    return np.uint64(tags[counts.argmax()])


def _figure_10(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    found = answers[Event(_per_week(sizes))]
    own = {name: dict(enumerate(line, 1)) for name, line in zip(_REGIONS, found, strict=True)}
    numbers = {name: {float(x): float(y) for x, y in line.items()} for name, line in own.items()}
    return lines(seed, "10", "day {x:g}, {series}", PER_DAY, numbers)


def _over_weeks(sizes: Sizes) -> list[Task]:
    size = _per_week(sizes)
    plain = [Often(size, each, fades=False) for each in PERIODS]
    return [Weeks(size), *plain, *(Often(size, each, fades=True) for each in PERIODS[1:])]


def _figure_11(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    size = _per_week(sizes)
    found = answers[Weeks(size)]
    often = answers[Often(size, OFTEN, fades=True)]
    rows = []
    for panel, pick in zip(PANELS, (_locality, _imbalance), strict=True):
        own = {
            name: {float(week): pick(each) for week, each in enumerate(found[name], 1)}
            for name in SERIES
            if name in found
        }
        own[OURS] = {float(WEEKS): fmean(map(pick, often))}
        case = f"week {{x:g}}, {{series}}, {panel.split()[0]}"
        stated = {(ONLINE, 2.0): 49.0, (OFFLINE, 2.0): 49.0} if pick is _locality else {}
        rows += lines(seed, "11", case, PERCENT, own, stated=stated, panel=panel)
    known = {name: own[1:] for name, own in found.items()}
    rows += [
        _row(seed, HASH, MEAN, 16.6, map(_locality, known[HASH])),
        _row(seed, ONLINE, MEAN, 50.0, map(_locality, known[ONLINE])),
        _row(seed, ONLINE, EXPECTED, 75.0, map(_locality, known["expected"])),
        _row(seed, ORACLE, MEAN, None, map(_locality, known[ORACLE])),
        _row(seed, OFFLINE, LAST, 40.0, map(_locality, known[OFFLINE][-3:])),
        _row(seed, HASH, MEAN_OFF, 12.0, map(_imbalance, known[HASH])),
        _row(seed, ONLINE, MEAN_OFF, None, map(_imbalance, known[ONLINE])),
        _row(seed, OFFLINE, LAST_OFF, 40.0, map(_imbalance, known[OFFLINE][-3:])),
        _row(seed, OURS, MEAN_OFF, None, map(_imbalance, often)),
    ]
    best = _locality(found[ORACLE][-1])
    for task in _over_weeks(sizes)[1:]:
        assert isinstance(task, Often)
        whose = "counts that fade" if task.fades else "counts since the last plan"
        behind = best - fmean(map(_locality, answers[task]))
        case = f"{task.plans} plans a week, {whose}"
        series = OURS if task.fades else ONLINE
        rows.append(Row(seed, "11", case, BEHIND, None, behind, x=task.plans, series=series))
    return rows


def _figure_12(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    got = answers[Kept(_per_week(sizes))]
    rows = []
    for place, panel in enumerate(("on the week that was counted", "on the next week")):
        own = {
            f"{width} instances": {
                100 * part: 100 * got.found[width, part][place].locality for part in PARTS
            }
            for width in WIDTHS
        }
        case = f"{{x:g}} % of the pairs, {{series}}, {panel}"
        rows += lines(seed, "12", case, LOCALITY, own, panel=panel)
        for width in WIDTHS:
            times = got.found[width, FEW][place].locality / got.plain[width].locality
            paper = 2.0 if width == INSTANCES and place == 0 else None
            case = f"{100 * FEW:g} % of {got.pairs:,} pairs, {width} instances, {panel}"
            rows.append(Row(seed, "12", case, TIMES, paper, times))
    whole = got.found[INSTANCES, 1.0][1]
    for name, each in (("hash", got.plain[INSTANCES]), ("no tree", whole), ("tree", got.racks)):
        case = f"two racks of three, {name}"
        rows += [
            Row(seed, "12", case, AWAY, None, 100 * each.away),
            Row(seed, "12", case, LOCALITY_OF_RACKS, None, 100 * each.locality),
        ]
    return rows


def _row(seed: int, series: str, metric: str, paper: float | None, numbers: Iterable[float]) -> Row:
    return Row(seed, "11", series, metric, paper, fmean(numbers), series=series)


def _locality(got: Measured) -> float:
    return 100 * got.locality


def _imbalance(got: Measured) -> float:
    return 100 * got.imbalance


_REGIONS = ("first region", "second region", "third region")
_DATA = (
    "Posts are generated, as the paper's are not published; how many belong to a region for good, "
    "for a season or for a week was chosen so that online, offline and the expectation are near "
    "the paper's. "
)

FIGURES = (
    Figure(
        number="10",
        title="A hashtag in three regions",
        x=Axis("day of the week"),
        y=Axis(PER_DAY),
        series=_REGIONS,
        tasks=lambda sizes: [Event(_per_week(sizes))],
        rows=_figure_10,
        metric=PER_DAY,
        remark="The most frequent hashtag that is new in a week: an event that goes from one "
        f"region to the next. {_DATA}",
    ),
    Figure(
        number="11",
        title="Locality and balance over weeks",
        x=Axis("week"),
        y=Axis("%"),
        series=SERIES,
        tasks=_over_weeks,
        rows=_figure_11,
        metric=PERCENT,
        remark=f"{INSTANCES} instances, pairs counted exactly, the {PAIRS:,} most frequent in a "
        f"plan. online plans after each week and offline after the first, each by the pairs of "
        f"that week; ours plans {OFTEN} times a week by counts that fade to 1 / e in "
        f"{LIFE:g} week, in the last week alone. The oracle knows the pairs of the week that "
        f"comes. {_DATA}",
    ),
    Figure(
        number="12",
        title="Locality over the pairs kept",
        x=Axis("pairs kept, %", log=True),
        y=Axis(LOCALITY),
        series=tuple(f"{width} instances" for width in WIDTHS),
        tasks=lambda sizes: [Kept(_per_week(sizes))],
        rows=_figure_12,
        metric=LOCALITY,
        remark=f"The most frequent pairs of a week. {_DATA}",
    ),
)
