"""LS-Stream, Figures 7 to 9, 14 and 15: Zipf streams of more or less skew on 20 instances."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from unskew.experiments.base import Answers, Axis, Figure, Row, Sizes, Task
from unskew.experiments.ls_stream_rows import (
    BOTTLENECK,
    LATENCY,
    LI,
    LOWER,
    WORK_LI,
    against,
    by_seed,
    duels,
    lines,
    lower,
)
from unskew.experiments.ls_stream_topology import (
    CONTROL,
    KEEP,
    KEYS,
    PAIR,
    PRECISION,
    PROBE,
    SERIES,
    SHARDS,
    WINDOW,
    Limit,
    Measure,
    Measured,
    Setting,
    name_of,
)

RATE, SLOW_RATE = 5_000.0, 3_000.0
"""Tuples a second of Figures 7 and 9, and of Figure 15."""

THRESHOLDS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
SKEWS = (0.4, 0.6, 0.8)
"""Zipf exponents for which the paper tells what thresholds do."""

IMBALANCES = {("hash", 0.4): 1.5, ("hash", 0.8): 5.3}
BOTTLENECKS = {
    ("hash", 0.2): 29_500.0,
    ("contrand", 0.2): 28_500.0,
    ("hash", 1.0): 11_000.0,
    ("contrand", 1.0): 14_500.0,
}
LARGEST = {"hash": 49.3, "contrand": 39.2, "fastjoin": 18.1}
"""Percent by which the largest latency of ls-stream over all skews is below that of others."""

STABLE = "threshold from which nothing changes"
STABLE_BOTTLENECK = {"zipf 0.4": 2.0}
STABLE_LATENCY = {"zipf 0.6": 4.0}

NEAR = 0.03
"""Two points of a line are the same if they differ by at most this part."""


def _measure(series: str, exponent: float, sizes: Sizes) -> Measure:
    return Measure(Setting(series, exponent, sizes.simulated), RATE, sizes.seeds)


def _limit(series: str, exponent: float, sizes: Sizes) -> Limit:
    return Limit(Setting(series, exponent, sizes.simulated), sizes.seeds)


def _measures(sizes: Sizes) -> list[Task]:
    return [_measure(name, each, sizes) for each in sizes.exponents for name in SERIES]


def _limits(sizes: Sizes) -> list[Task]:
    return [_limit(name, each, sizes) for each in sizes.exponents for name in SERIES]


def _picked(
    answers: Answers, sizes: Sizes, pick: Callable[[Measured], float]
) -> dict[str, dict[float, float]]:
    return {
        name: {each: pick(answers[_measure(name, each, sizes)]) for each in sizes.exponents}
        for name in SERIES
    }


def _figure_7(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    case = "zipf {x:.1f}, {series}"
    load = _picked(answers, sizes, lambda got: got.imbalance)
    work = _picked(answers, sizes, lambda got: got.work_imbalance)
    return [
        *lines(seed, "7", case, LI, load, stated=IMBALANCES),
        *lines(seed, "7", case, WORK_LI, work),
    ]


def _figure_8(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    found = {
        name: {each: answers[_limit(name, each, sizes)] for each in sizes.exponents}
        for name in SERIES
    }
    means = {name: {x: fmean(each) for x, each in line.items()} for name, line in found.items()}
    notes = {(name, x): by_seed(each) for name, line in found.items() for x, each in line.items()}
    case = "zipf {x:.1f}, {series}"
    return lines(seed, "8", case, BOTTLENECK, means, stated=BOTTLENECKS, notes=notes)


def _figure_9(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    latency = _picked(answers, sizes, lambda got: 1000 * got.latency)
    largest = {name: max(line.values()) for name, line in latency.items()}
    percent = {pair: lower(largest[pair[0]], largest[pair[1]]) for pair in duels()}
    return [
        *lines(seed, "9", "zipf {x:.1f}, {series}", LATENCY, latency),
        *against(seed, "9", "largest latency over all skews", LOWER, percent, LARGEST),
    ]


def _varied(exponent: float, threshold: float, sizes: Sizes) -> Setting:
    return Setting("ls-stream", exponent, sizes.simulated, threshold=threshold)


def _threshold_limits(sizes: Sizes) -> list[Task]:
    return [Limit(_varied(z, each, sizes), sizes.seeds) for z in SKEWS for each in THRESHOLDS]


def _threshold_measures(sizes: Sizes) -> list[Task]:
    return [
        Measure(_varied(z, each, sizes), SLOW_RATE, sizes.seeds)
        for z in SKEWS
        for each in THRESHOLDS
    ]


def _figure_14(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    found = {
        name_of(z): {
            each: fmean(answers[Limit(_varied(z, each, sizes), sizes.seeds)]) for each in THRESHOLDS
        }
        for z in SKEWS
    }
    rows = lines(seed, "14", "{series}, threshold {x:g}", BOTTLENECK, found)
    return rows + _stable(seed, "14", found, STABLE_BOTTLENECK)


def _figure_15(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    found = {
        name_of(z): {
            each: 1000 * answers[Measure(_varied(z, each, sizes), SLOW_RATE, sizes.seeds)].latency
            for each in THRESHOLDS
        }
        for z in SKEWS
    }
    rows = lines(seed, "15", "{series}, threshold {x:g}", LATENCY, found)
    return rows + _stable(seed, "15", found, STABLE_LATENCY)


def _stable(
    seed: int, figure: str, found: dict[str, dict[float, float]], stated: dict[str, float]
) -> list[Row]:
    """Return the first threshold of each line from which all points are near the last."""
    rows = []
    for name, line in found.items():
        last = line[THRESHOLDS[-1]]
        far = [each for each in THRESHOLDS if abs(line[each] / last - 1) > NEAR]
        first = THRESHOLDS[0] if not far else next(t for t in THRESHOLDS if t > far[-1])
        rows.append(Row(seed, figure, name, STABLE, stated.get(name), first, series=name))
    return rows


_JOIN = (
    f"{KEYS} keys; windows of {WINDOW:g} s; {1e6 * KEEP:.0f} microseconds to keep a tuple, "
    f"{1e6 * PROBE:.0f} to look for partners with each copy of it, {1e9 * PAIR:.0f} ns a pair: "
    f"none of these are in the paper. The balancer looks every {CONTROL:g} s, {SHARDS} shards for "
    f"each instance. hash is BiStream, contrand BiStream-ContRand; ls-stream has the paper's "
    f"threshold of 1.0 and its model of load, and moves whole shards; ours measures load, has a "
    f"threshold of 0.2 and splits hot keys. FastJoin moves the same shards, and routers cost "
    f"nothing, so what the paper explains by a lighter router does not show."
)
_BURSTS = (
    "Tuples come in bursts, as the sources of Storm hand them on; in the second half of the run."
)
_LIMITS = (
    f"The largest rate at which no queue grows, within {100 * PRECISION:g} %, while the rate rises "
    f"to it in the first third of the tuples; means over seeds."
)
_SKEW, _THRESHOLD = Axis("Zipf exponent"), Axis("threshold")
_NAMES = tuple(name_of(each) for each in SKEWS)

FIGURES = (
    Figure(
        number="7",
        title="Load imbalance",
        x=_SKEW,
        y=Axis("load imbalance"),
        series=SERIES,
        tasks=_measures,
        rows=_figure_7,
        metric=LI,
        remark=f"At {RATE:,.0f} tuples/s. The load of an instance is that of the paper, half of "
        f"stored and coming tuples and half of their product, each instance taken as one "
        f"partition; that of the seconds of service is in the table. The number of keys was chosen "
        f"so that hash has the two numbers that the paper states. {_JOIN}",
    ),
    Figure(
        number="8",
        title="Bottleneck over skew",
        x=_SKEW,
        y=Axis("tuples/s"),
        series=SERIES,
        tasks=_limits,
        rows=_figure_8,
        metric=BOTTLENECK,
        remark=f"{_LIMITS} Three of the paper's four numbers fix our service times: both at Zipf "
        f"0.2, and hash at Zipf 1.0. {_JOIN}",
    ),
    Figure(
        number="9",
        title="Latency over skew",
        x=_SKEW,
        y=Axis("ms"),
        series=SERIES,
        tasks=_measures,
        rows=_figure_9,
        metric=LATENCY,
        remark=f"At {RATE:,.0f} tuples/s. {_BURSTS} {_JOIN}",
    ),
)

PARAMETERS = (
    Figure(
        number="14",
        title="Bottleneck over the threshold",
        x=_THRESHOLD,
        y=Axis("tuples/s"),
        series=_NAMES,
        tasks=_threshold_limits,
        rows=_figure_14,
        metric=BOTTLENECK,
        remark=f"ls-stream alone. {_LIMITS} {_JOIN}",
    ),
    Figure(
        number="15",
        title="Latency over the threshold",
        x=_THRESHOLD,
        y=Axis("ms"),
        series=_NAMES,
        tasks=_threshold_measures,
        rows=_figure_15,
        metric=LATENCY,
        remark=f"ls-stream alone, at {SLOW_RATE:,.0f} tuples/s. {_BURSTS} {_JOIN}",
    ),
)
