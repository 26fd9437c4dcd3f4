"""Pd-Stream, Figures 4 to 7: latency and throughput, simulated on the topology of Table VI."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from unskew.experiments.base import Answers, Axis, Figure, Row, Sizes, Task
from unskew.experiments.pd_stream_balance import DATASETS, INSTANCES, SERIES, Place
from unskew.experiments.pd_stream_topology import (
    JOIN,
    MERGE,
    MERGERS,
    SHARE,
    SHARES,
    SOURCES,
    WINDOW,
    WINDOWS,
    Outcome,
    Simulate,
)

Rows = Callable[[Answers, Sizes, int], list[Row]]

LATENCY: Mapping[Place, float] = {
    ("ddos", "pd-stream", 16): 61.92,
    ("ddos", "pd-stream", 128): 26.11,
    ("hashtags", "pd-stream", 16): 62.33,
    ("hashtags", "pd-stream", 128): 28.64,
}
THROUGHPUT: Mapping[Place, float] = {
    ("ddos", "pd-stream", 16): 445,
    ("ddos", "pd-stream", 128): 2582,
    ("hashtags", "pd-stream", 16): 448,
    ("hashtags", "pd-stream", 128): 2459,
}
IN_JOIN = "in the join, ms"
PARTIALS = "partial states per tuple"
IMBALANCE = "imbalance of the join"
OFFERED = "work of the {} at the limit, in parts of its time"
SLACK = "lower by, %, at this rate"
MARGIN = "higher by, %, with this window"
LOWER: Mapping[Place, float] = {
    ("ddos", "w-choices", 128): 27.16,
    ("ddos", "dagreedy", 128): 46.92,
    ("hashtags", "w-choices", 128): 14.67,
    ("hashtags", "dagreedy", 128): 42.97,
}
"""Percent by which the latency of pd-stream is below that of the other."""

HIGHER: Mapping[Place, float] = {
    ("ddos", "w-choices", 128): 23.89,
    ("ddos", "dagreedy", 128): 52.06,
    ("hashtags", "w-choices", 128): 23.69,
    ("hashtags", "dagreedy", 128): 33.78,
}
"""Percent by which the throughput of pd-stream is above that of the other."""


def simulations(sizes: Sizes) -> list[Simulate]:
    """Return the tasks of Figures 4 and 6."""
    return [
        Simulate(name, sizes.simulated, n, sizes.seeds) for name in DATASETS for n in sizes.counts
    ]


def most_instances(sizes: Sizes) -> list[Simulate]:
    """Return the tasks of Figures 5 and 7: the largest number of instances."""
    largest = max(sizes.counts)
    return [task for task in simulations(sizes) if task.instances == largest]


def _duels(sizes: Sizes) -> list[Simulate]:
    """Return the same of pd-stream and w-choices alone."""
    return [replace(task, series=("pd-stream", "w-choices")) for task in most_instances(sizes)]


def windows(sizes: Sizes) -> list[Simulate]:
    """Return the tasks that vary the window."""
    return [replace(task, window=window) for task in _duels(sizes) for window in WINDOWS]


def shares(sizes: Sizes) -> list[Simulate]:
    """Return the tasks that vary the rate."""
    return [replace(task, share=share) for task in _duels(sizes) for share in SHARES]


def latencies(sizes: Sizes) -> list[Task]:
    """Return the tasks of Figure 4."""
    return [*simulations(sizes), *shares(sizes)]


def throughputs(sizes: Sizes) -> list[Task]:
    """Return the tasks of Figure 6."""
    return [*simulations(sizes), *windows(sizes)]


def lower(own: Outcome, other: Outcome) -> float:
    """Return by how many percent our latency is below the other's."""
    return 100 * (1 - own.latency / other.latency)


def higher(own: Outcome, other: Outcome) -> float:
    """Return by how many percent our throughput is above the other's."""
    return 100 * (own.limit / other.limit - 1)


def _by_seed(own: Outcome, other: Outcome) -> str:
    """Return how far seeds differ."""
    if len(own.limits) == 1:
        return ""
    each = [100 * (mine / its - 1) for mine, its in zip(own.limits, other.limits, strict=True)]
    return f"{min(each):.1f} to {max(each):.1f} % by seed"


def _duel(number: str, task: Simulate, case: str, metric: str, ours: float, seed: int) -> Row:
    place = (f"{task.source} (generated)", float(task.instances), "w-choices")
    return Row(seed, number, case, metric, None, ours, "", *place)


def _case(task: Simulate, series: str) -> str:
    return f"{task.source} (generated), {task.instances} instances, {series}"


def _figure_4(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    rows = []
    for task in simulations(sizes):
        for name, got in answers[task].items():
            paper = LATENCY.get((task.source, name, task.instances))
            rows += _drawn(
                *("4", task, name, seed, task.instances),
                [
                    ("latency, ms", paper, 1000 * got.latency),
                    (IN_JOIN, None, 1000 * got.join),
                ],
                got.note,
            )
    rows += _against(
        *("4", answers, sizes, seed, "latency of pd-stream lower by, %", LOWER),
        *(lower, lambda own, other: other.note),
    )
    for task in shares(sizes):
        case = f"{_case(task, 'pd-stream')} against w-choices, {100 * task.share:g} % of the rate"
        own, other = answers[task]["pd-stream"], answers[task]["w-choices"]
        rows.append(_duel("4", task, case, SLACK, lower(own, other), seed))
    return rows


def _figure_6(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    rows = []
    for task in simulations(sizes):
        for name, got in answers[task].items():
            paper = THROUGHPUT.get((task.source, name, task.instances))
            rows += _drawn(
                *("6", task, name, seed, task.instances),
                [
                    ("throughput, tuples/s", paper, got.limit),
                    (PARTIALS, None, got.partials),
                    (IMBALANCE, None, got.imbalance),
                    *((OFFERED.format(stage), None, part) for stage, part in got.offered.items()),
                ],
            )
    rows += _against(
        *("6", answers, sizes, seed, "throughput of pd-stream higher by, %", HIGHER),
        *(higher, _by_seed),
    )
    for task in windows(sizes):
        case = f"{_case(task, 'pd-stream')} against w-choices, windows of {task.window:g} s"
        own, other = answers[task]["pd-stream"], answers[task]["w-choices"]
        rows.append(_duel("6", task, case, MARGIN, higher(own, other), seed))
    return rows


def _over(number: str, metric: str, pick: Callable[[tuple[float, float, float]], float]) -> Rows:
    """Return what makes the rows of a figure over time."""

    def rows(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
        return [
            row
            for task in most_instances(sizes)
            for name, got in answers[task].items()
            for point in got.over_time
            for row in _drawn(
                number, task, name, seed, point[0], [(metric, None, pick(point))], got.note
            )
        ]

    return rows


def _drawn(
    number: str,
    task: Simulate,
    series: str,
    seed: int,
    x: float,
    numbers: Sequence[tuple[str, float | None, float]],
    note: str = "",
) -> list[Row]:
    """Return rows that have a place in a chart."""
    case = _case(task, series)
    if number in ("5", "7"):
        case += f", second {x:.1f}"
    panel = f"{task.source} (generated)"
    return [
        Row(seed, number, case, metric, paper, ours, note, panel, float(x), series)
        for metric, paper, ours in numbers
    ]


def _against(
    number: str,
    answers: Answers,
    sizes: Sizes,
    seed: int,
    metric: str,
    stated: Mapping[Place, float],
    percent: Callable[[Outcome, Outcome], float],
    note: Callable[[Outcome, Outcome], str],
) -> list[Row]:
    """Return pd-stream against each other grouping at the largest number of instances."""
    return [
        Row(
            *(seed, number, f"{_case(task, 'pd-stream')} against {other}", metric),
            *(
                stated.get((task.source, other, task.instances)),
                percent(got["pd-stream"], got[other]),
            ),
            *(note(got["pd-stream"], got[other]), f"{task.source} (generated)"),
            *(float(task.instances), other),
        )
        for task in most_instances(sizes)
        for got in [answers[task]]
        for other in SERIES
        if other != "pd-stream"
    ]


_TOPOLOGY = (
    f"{SOURCES} sources, the join with {1000 * JOIN:.0f} ms a tuple (exponential), {MERGERS} "
    f"merging instances with {1000 * MERGE:.2f} ms a partial state, sent every {WINDOW:g} s, "
    f"Poisson arrivals."
)
_RATE = f"The rate is {100 * SHARE:g} % of what pd-stream holds at the same number of instances."
_LATENCY = (
    "Time in the join, of the second half of the run when all groupings have learned for long, "
    "plus time from the end of the window to the end of the merge."
)
_THROUGHPUT = (
    "The largest rate at which no queue grows, of the join or the merge, found by search. The two "
    "numbers of pd-stream on ddos agree by construction: they fix our service times."
)
_SECONDS = Axis("seconds")

FIGURES = (
    Figure(
        number="4",
        title="Latency",
        x=INSTANCES,
        y=Axis("ms", log=True),
        series=SERIES,
        tasks=latencies,
        rows=_figure_4,
        metric="latency, ms",
        remark=f"{_LATENCY} {_TOPOLOGY} {_RATE}",
    ),
    Figure(
        number="5",
        title="Latency over time",
        x=_SECONDS,
        y=Axis("ms", log=True),
        series=SERIES,
        tasks=most_instances,
        rows=_over("5", "latency over time, ms", lambda point: 1000 * point[1]),
        metric="latency over time, ms",
        remark=f"{_TOPOLOGY} {_RATE} The paper states about 26 and 28 ms.",
    ),
    Figure(
        number="6",
        title="Throughput",
        x=INSTANCES,
        y=Axis("tuples/s", log=True),
        series=SERIES,
        tasks=throughputs,
        rows=_figure_6,
        metric="throughput, tuples/s",
        remark=f"{_THROUGHPUT} {_TOPOLOGY}",
    ),
    Figure(
        number="7",
        title="Throughput over time",
        x=_SECONDS,
        y=Axis("tuples/s"),
        series=SERIES,
        tasks=most_instances,
        rows=_over("7", "throughput over time, tuples/s", lambda point: point[2]),
        metric="throughput over time, tuples/s",
        remark=f"{_TOPOLOGY} {_RATE} Tuples count when their window is merged, so a grouping that "
        f"cannot hold the rate still shows what its other instances do, while its queues grow. The "
        f"paper states about 2500 and 2400 for pd-stream.",
    ),
)
