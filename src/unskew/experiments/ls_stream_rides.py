"""LS-Stream, Figures 1, 2 and 10 to 13: rides, on more or fewer nodes and instances."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from unskew.balance import Plan
from unskew.experiments.base import Answers, Axis, Figure, Row, Sizes, Task
from unskew.experiments.ls_stream_rows import (
    BOTTLENECK,
    HIGHER,
    LATENCY,
    LOWER,
    against,
    by_seed,
    duels,
    higher,
    lines,
    lower,
)
from unskew.experiments.ls_stream_topology import (
    BURST,
    BUSY,
    CORES,
    IDLE,
    RIDE,
    RIDES,
    SERIES,
    Limit,
    Measure,
    Setting,
)
from unskew.workloads.rides import Rides

HASHED = 100
"""Instances of Figures 1 and 2."""

NODE_COUNTS = (6, 8, 10, 12, 14)
NODES, INSTANCES, MOST = 14, 28, 48
"""Nodes of all but Figure 10, instances of it, and up to how many throughput rises."""

RATE, SLOW_RATE = 4_500.0, 3_000.0
"""Tuples a second of Figure 12 and of Figure 13."""

BY_NODES = {
    **{(name, 6.0): each for name, each in zip(SERIES, (9.5e3, 11.5e3, 13e3, 15e3), strict=False)},
    **{
        (name, 14.0): each
        for name, each in zip(SERIES, (15.5e3, 19.5e3, 21.5e3, 25.5e3), strict=False)
    },
}
LATENCIES = {"hash": 10.3, "contrand": 8.5, "fastjoin": 7.2, "ls-stream": 5.4}
LOWER_AT_RATE = {"hash": 47.5, "contrand": 36.4, "fastjoin": 25.0}
LOWER_OVER_COUNTS = {"hash": 35.8, "contrand": 23.8, "fastjoin": 18.0}
HIGHER_OVER_COUNTS = {"hash": 52.0, "contrand": 27.0, "fastjoin": 6.0}

TOP, BOTTOM = "tuples of the largest tenth, %", "tuples of the smallest tenth, %"
SHARE = "tuples, %"


@dataclass(frozen=True)
class Hashed(Task):
    """Count the tuples of a day that hashing gives each instance."""

    messages: int

    @property
    def label(self) -> str:
        """What the progress bar calls it."""
        return f"rides hashed onto {HASHED} instances"

    def run(self, seed: int) -> NDArray[np.float64]:
        """Return the percent of the tuples that each instance has."""
        workload = Rides(self.messages, per_hour=max(1, self.messages // 24), seed=seed)
        plan = Plan.even(HASHED, HASHED)
        loads = np.zeros(HASHED, dtype=np.int64)
        for keys in workload.batches():
            loads += np.bincount(plan.shard_of(keys), minlength=HASHED)
        percent: NDArray[np.float64] = 100 * loads / loads.sum()
        return percent


def _hashed(sizes: Sizes) -> list[Task]:
    return [Hashed(sizes.dataset_messages or 7_200_000)]


def _figure_1(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    (task,) = _hashed(sizes)
    shares = {"hash": {float(i): float(each) for i, each in enumerate(answers[task])}}
    return lines(seed, "1", "instance {x:.0f}", SHARE, shares)


def _figure_2(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    (task,) = _hashed(sizes)
    ranked = np.sort(answers[task])[::-1]
    shares = {"hash": {float(i): float(each) for i, each in enumerate(ranked, 1)}}
    tenth = HASHED // 10
    ends = [(TOP, 39.6, ranked[:tenth].sum()), (BOTTOM, 0.0, ranked[-tenth:].sum())]
    return [
        *lines(seed, "2", "rank {x:.0f}", SHARE, shares),
        *(Row(seed, "2", "rides, 100 instances", *each, series="hash") for each in ends),
    ]


def _at(series: str, sizes: Sizes, instances: int = INSTANCES, nodes: int = NODES) -> Setting:
    return Setting(series, RIDES, sizes.simulated, instances, nodes)


def _node_limits(sizes: Sizes) -> list[Task]:
    return [Limit(_at(name, sizes, nodes=n), sizes.seeds) for n in NODE_COUNTS for name in SERIES]


def _count_limits(sizes: Sizes) -> list[Task]:
    return [Limit(_at(name, sizes, n), sizes.seeds) for n in sizes.counts for name in SERIES]


def _steady(series: str, sizes: Sizes) -> Measure:
    return Measure(_at(series, sizes), RATE, sizes.seeds)


def _slow(series: str, sizes: Sizes, instances: int) -> Measure:
    return Measure(_at(series, sizes, instances), SLOW_RATE, sizes.seeds)


def _figure_10(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    found = {
        name: {
            float(n): answers[Limit(_at(name, sizes, nodes=n), sizes.seeds)] for n in NODE_COUNTS
        }
        for name in SERIES
    }
    return _limits("10", found, seed, "{x:.0f} nodes, {series}")


def _figure_11(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    found = {
        name: {float(n): answers[Limit(_at(name, sizes, n), sizes.seeds)] for n in sizes.counts}
        for name in SERIES
    }
    rising = [float(n) for n in sizes.counts if n <= MOST] or [float(min(sizes.counts))]
    percent = {
        (own, other): min(higher(fmean(found[own][n]), fmean(found[other][n])) for n in rising)
        for own, other in duels()
    }
    where = f"the least up to {MOST} instances"
    return [
        *_limits("11", found, seed, "{x:.0f} instances, {series}"),
        *against(seed, "11", where, HIGHER, percent, HIGHER_OVER_COUNTS),
    ]


def _limits(
    figure: str, found: dict[str, dict[float, tuple[float, ...]]], seed: int, case: str
) -> list[Row]:
    means = {name: {x: fmean(each) for x, each in line.items()} for name, line in found.items()}
    notes = {(name, x): by_seed(each) for name, line in found.items() for x, each in line.items()}
    stated = BY_NODES if figure == "10" else {}
    return lines(seed, figure, f"rides, {case}", BOTTLENECK, means, stated=stated, notes=notes)


def _figure_12(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    found = {name: answers[_steady(name, sizes)] for name in SERIES}
    times = {name: {x: 1000 * y for x, y in got.over_time} for name, got in found.items()}
    means = {name: 1000 * got.latency for name, got in found.items()}
    percent = {pair: lower(means[pair[0]], means[pair[1]]) for pair in duels()}
    return [
        *lines(seed, "12", "rides, second {x:.1f}, {series}", "latency over time, ms", times),
        *(
            Row(
                *(seed, "12", f"rides, {name}, second half", LATENCY, LATENCIES.get(name), mean),
                series=name,
            )
            for name, mean in means.items()
        ),
        *against(seed, "12", f"at {RATE:,.0f} tuples/s", LOWER, percent, LOWER_AT_RATE),
    ]


def _figure_13(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    found = {
        name: {float(n): 1000 * answers[_slow(name, sizes, n)].latency for n in sizes.counts}
        for name in SERIES
    }
    percent = {
        (own, other): fmean(lower(found[own][n], found[other][n]) for n in found[own])
        for own, other in duels()
    }
    return [
        *lines(seed, "13", "rides, {x:.0f} instances, {series}", LATENCY, found),
        *against(seed, "13", "mean over instances", LOWER, percent, LOWER_OVER_COUNTS),
    ]


_NODES = (
    f"A node has {CORES} cores. An instance takes {IDLE:g} of a core for itself and {BUSY:g} more "
    f"while it serves, and all share evenly what cores there are: our model, from where the paper "
    f"has throughput fall, at {MOST} instances on {NODES} nodes, and from how much less hash does "
    f"on 6 nodes."
)
_DATA = (
    f"Generated rides, an hour of them in each run. Service times are {RIDE:g} times those of Zipf "
    f"streams, so that hash holds the paper's 15,500 tuples/s on {INSTANCES} instances and {NODES} "
    f"nodes."
)
_COUNTS, _SECONDS = Axis("instances"), Axis("seconds")

HASHING = (
    Figure(
        number="1",
        title="Tuples of each instance under hashing",
        x=Axis("instance"),
        y=Axis(SHARE),
        series=("hash",),
        tasks=_hashed,
        rows=_figure_1,
        metric=SHARE,
        remark=f"A day of generated rides, fitted to Figure 2, on {HASHED} instances.",
    ),
    Figure(
        number="2",
        title="Instances ranked by their tuples",
        x=Axis("rank"),
        y=Axis(SHARE),
        series=("hash",),
        tasks=_hashed,
        rows=_figure_2,
        metric=SHARE,
        remark="The generator was fitted to the 39.6 % of the largest tenth.",
    ),
)

FIGURES = (
    Figure(
        number="10",
        title="Bottleneck over nodes",
        x=Axis("nodes"),
        y=Axis("tuples/s"),
        series=SERIES,
        tasks=_node_limits,
        rows=_figure_10,
        metric=BOTTLENECK,
        remark=f"{INSTANCES} instances. {_DATA} {_NODES}",
    ),
    Figure(
        number="11",
        title="Bottleneck over instances",
        x=_COUNTS,
        y=Axis("tuples/s"),
        series=SERIES,
        tasks=_count_limits,
        rows=_figure_11,
        metric=BOTTLENECK,
        remark=f"{NODES} nodes. {_DATA} {_NODES}",
    ),
    Figure(
        number="12",
        title="Latency over time",
        x=_SECONDS,
        y=Axis("ms"),
        series=SERIES,
        tasks=lambda sizes: [_steady(name, sizes) for name in SERIES],
        rows=_figure_12,
        metric="latency over time, ms",
        remark=f"At {RATE:,.0f} tuples/s on {INSTANCES} instances and {NODES} nodes. Tuples come "
        f"in bursts every {1000 * BURST:.0f} ms, chosen so that hash has the paper's 10.3 ms: at "
        f"service times that allow its throughput a tuple that comes alone waits for less than "
        f"1 ms. {_DATA}",
    ),
    Figure(
        number="13",
        title="Latency over instances",
        x=_COUNTS,
        y=Axis("ms"),
        series=SERIES,
        tasks=lambda sizes: [_slow(name, sizes, n) for n in sizes.counts for name in SERIES],
        rows=_figure_13,
        metric=LATENCY,
        remark=f"At {SLOW_RATE:,.0f} tuples/s on {NODES} nodes, in bursts. {_DATA} {_NODES}",
    ),
)
