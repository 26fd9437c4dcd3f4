"""Consistent Grouping, Figures 9, 10, 12 and 13: workers that are not alike, over a day."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from unskew.experiments.base import Answers, Axis, Figure, Row, Sizes
from unskew.experiments.consistent_grouping_runs import (
    CHANGING,
    FEWER,
    LAG,
    LOAD,
    LOOKS,
    OURS,
    PUBLISHED,
    SLICES,
    SOURCES,
    SWING,
    UNLIKE,
    Cluster,
    Follow,
)
from unskew.experiments.consistent_grouping_schemes import whole

ALIKE: tuple[Cluster, ...] = ((0, 1.0),)
EACH = (5, 10, 20, 50, 100, 1000)
POINTS = 40
"""Points of a line over a day."""

SPREAD = "utilisation, largest minus smallest"
QUEUE = "queue at the end, largest minus smallest"
DELAY = "latency at the end, largest minus smallest, s"
SETTLED = "messages until the spread stays below 0.1, %"
WORST = "largest spread from 5 % of the messages after a change on"
MOVES, BACK = "shards moved", "shards that went back within ten intervals"
SHARDS = "shards in the end"


def over_time(
    number: str, tasks: Callable[[Sizes], Sequence[Follow]], stated: Mapping[str, float]
) -> Callable[[Answers, Sizes, int], list[Row]]:
    """Return what makes the rows of a day: the spread at some times, and how it went."""

    def rows(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
        made = []
        for task in tasks(sizes):
            day, name = answers[task], task.series
            step = max(1, len(day.messages) // POINTS)
            for x, y in zip(day.messages[::step], day.spread[::step], strict=True):
                share = round(100 * float(x), 1)
                case = f"{name}, after {share:g} % of the messages"
                made.append(Row(seed, number, case, SPREAD, None, float(y), x=share, series=name))
            made += [
                Row(seed, number, name, *number_of, series=name)
                for number_of in (
                    *summary(task, answers),
                    ("mean " + SPREAD, stated.get(name), float(day.spread.mean())),
                )
            ]
        return made

    return rows


def summary(task: Follow, answers: Answers) -> list[tuple[str, float | None, float]]:
    """Return how a day went: metric, what the paper says, ours."""
    day = answers[task]
    return [
        (QUEUE, None, float(day.queues[-1])),
        (DELAY, None, float(day.latency[-1])),
        # Where the spread never stays below, there is no number: findings say so.
        *(
            (f"{SETTLED} ({_name(cluster)})", None, 100 * settled)
            for cluster, settled in zip(task.clusters, day.settled, strict=True)
            if settled is not None
        ),
        *(
            (f"{WORST} ({_name(cluster)})", None, worst)
            for cluster, worst in zip(task.clusters, day.worst, strict=True)
        ),
        (MOVES, None, float(day.moves)),
        (BACK, None, float(day.returned)),
        (SHARDS, None, float(day.shards)),
    ]


def _name(cluster: Cluster) -> str:
    return f"{cluster[0]} workers {cluster[1]:g} times as fast"


def _alike(sizes: Sizes) -> list[Follow]:
    return [Follow(name, whole(sizes), ALIKE) for name in ("key", PUBLISHED, OURS)]


def _unlike(sizes: Sizes) -> list[Follow]:
    plain = [Follow(name, whole(sizes), UNLIKE) for name in ("key", "shuffle", PUBLISHED)]
    return [*plain, Follow(OURS, whole(sizes), UNLIKE, can_grow=True)]


def _by_shards(sizes: Sizes) -> list[Follow]:
    return [
        Follow(name, whole(sizes), UNLIKE, each=each) for each in EACH for name in (PUBLISHED, OURS)
    ]


def _changing(sizes: Sizes) -> list[Follow]:
    return [
        Follow(name, whole(sizes), CHANGING, each=100)
        for name in ("key", "shuffle", PUBLISHED, OURS)
    ]


def _figure_12(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    made = []
    for task in _by_shards(sizes):
        day, name = answers[task], task.series
        case = f"{task.each} shards for each worker, {name}"
        late = float(day.spread[len(day.spread) // 2 :].mean())
        for metric, paper, ours in ((SPREAD, None, late), *summary(task, answers)):
            made.append(Row(seed, "12", case, metric, paper, ours, x=float(task.each), series=name))
    return made


_DAY = (
    f"10 workers, {SOURCES} sources; Wikipedia, generated from Table I, over 24 hours whose rates "
    f"swing by {100 * SWING:g} % like a day (the figure with the paper's rates has no numbers), at "
    f"{100 * LOAD:g} % of all capacity. Utilisation is what came in a slice over what the "
    f"worker can do in it, so that it may be above 1. The published balancer has {LOOKS} "
    f"intervals in which each worker is paired once, thresholds 0.85 and 0.75 of the interval, "
    f"and no look ahead; ours has {SLICES} intervals, {FEWER} in a quick run, and aims at the same "
    f"band around the mean. "
    f"Each source hears of a plan after a time of its own, the last after {LAG:g} of an interval."
)
_TIME = Axis("messages, %")

FIGURES = (
    Figure(
        number="9",
        title="Workers that are alike",
        x=_TIME,
        y=Axis("utilisation spread"),
        series=("key", PUBLISHED, OURS),
        tasks=_alike,
        rows=over_time("9", _alike, {}),
        metric=SPREAD,
        remark=_DAY,
    ),
    Figure(
        number="10",
        title="Three workers five times as fast",
        x=_TIME,
        y=Axis("utilisation spread"),
        series=("key", "shuffle", PUBLISHED, OURS),
        tasks=_unlike,
        rows=over_time("10", _unlike, {"shuffle": 1.76 - 0.352}),
        metric=SPREAD,
        remark=f"10 shards for each worker, too few for ours, which makes more. {_DAY}",
    ),
)
LATER = (
    Figure(
        number="12",
        title="How many shards",
        x=Axis("shards for each worker", log=True),
        y=Axis("utilisation spread in the second half", log=True),
        series=(PUBLISHED, OURS),
        tasks=_by_shards,
        rows=_figure_12,
        metric=SPREAD,
        remark=f"Three workers five times as fast; here ours makes no more shards. {_DAY}",
    ),
    Figure(
        number="13",
        title="Speeds that change twice",
        x=_TIME,
        y=Axis("utilisation spread", log=True),
        series=("key", "shuffle", PUBLISHED, OURS),
        tasks=_changing,
        rows=over_time("13", _changing, {}),
        metric=SPREAD,
        remark=f"Fast workers {{3, 5}}, then {{5, 4}} after 6 of 22 parts of the messages and "
        f"{{2, 10}} after 12, all with the same capacity together; 100 shards for each. {_DAY}",
    ),
)
