"""Consistent Grouping, Figures 14 and 15: throughput and latency of 24 workers, some slow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from unskew.balance import Balancer, Consistent
from unskew.experiments.base import Answers, Axis, Figure, Row, Sizes, Task
from unskew.experiments.consistent_grouping_runs import LAG, LOAD, SOURCES
from unskew.simulator import Constant, Nodes, Poisson, Result, Stage, simulate
from unskew.workloads import dataset

SERIES = ("key", "partial-key", "shuffle", "consistent")
WORKERS = 24
SLOW = 0.3
DELAYS = (0.1, 0.4, 0.7, 1.0)
"""Milliseconds that a tuple takes."""

RATE = 0.9
"""Part of what key grouping holds, at which latencies are measured."""

CONTROLS = 100
"""Intervals of a run."""

THROUGHPUT, LATENCY, KEPT = "tuples/s held", "latency, ms", "memory over that of key"
TIMES, LOWER = "throughput over that of key", "latency of key over that of consistent"


class Held(NamedTuple):
    """What a grouping holds: tuples a second, mean latency in seconds, and copies of a key."""

    limit: float
    latency: float
    copies: float


@dataclass(frozen=True)
class Storm(Task):
    """24 workers that are alike but for some slow ones, by all groupings."""

    messages: int
    delay: float
    slow: int

    @property
    def label(self) -> str:
        """What the progress bar calls it."""
        return f"24 workers, {self.slow} slow, {self.delay:g} ms"

    @property
    def speeds(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Speed of each worker."""
        return np.where(np.arange(WORKERS) < self.slow, SLOW, 1.0)

    def run(self, seed: int) -> dict[str, Held]:
        """Measure."""
        seconds = self.delay / 1000
        first = {name: self._simulate(name, LOAD, seed, keys=True) for name in SERIES}
        limits = {name: self._limit(result) for name, result in first.items()}
        rate = RATE * limits["key"] * seconds / float(self.speeds.sum())
        held = {}
        for name in SERIES:
            result = self._simulate(name, rate, seed)
            assert result.trace is not None
            late = result.trace[result.messages // 2 :]
            copies = first[name].stages[0].replication_factor
            held[name] = Held(
                limits[name], float((late[:, 1] - late[:, 0]).mean()), float(copies or 0.0)
            )
        return held

    def _simulate(self, name: str, load: float, seed: int, *, keys: bool = False) -> Result:
        """Run one grouping at a part of all capacity."""
        seconds = self.delay / 1000
        rate = load * float(self.speeds.sum()) / seconds
        balancer: Balancer | None = Consistent() if name == "consistent" else None
        length = self.messages / rate
        stage = Stage(
            "count",
            WORKERS,
            Constant(seconds),
            grouping=name,
            nodes=Nodes(WORKERS, speeds=self.speeds.tolist()),
            shards=10 * WORKERS if balancer else None,
            balancer=balancer,
            lag=LAG * length / CONTROLS if balancer else 0.0,
        )
        return simulate(
            dataset("twitter", messages=self.messages, seed=seed),
            Poisson(rate, seed=seed),
            [stage],
            sources=SOURCES,
            seed=seed,
            width=length / CONTROLS,
            control=length / CONTROLS if balancer else None,
            count_keys=keys,
            keep_trace=not keys,
        )

    def _limit(self, result: Result) -> float:
        """Return the tuples a second at which no queue grows, as the second half was dealt."""
        came = result.stages[0].came
        own = came[: int(np.ceil(result.last_arrival / result.stages[0].times[0]))]
        loads = own[len(own) // 2 :].sum(axis=0)
        return float(loads.sum() / (loads * self.delay / 1000 / self.speeds).max())


def _tasks(slow: int, sizes: Sizes) -> list[Task]:
    return [Storm(sizes.simulated, delay, slow) for delay in DELAYS]


def _rows(number: str, slow: int, answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    rows = []
    for delay in DELAYS:
        held: dict[str, Held] = answers[Storm(sizes.simulated, delay, slow)]
        key, own = held["key"], held["consistent"]
        for name, each in held.items():
            case = f"{delay:g} ms a tuple, {name}"
            stated = {"partial-key": 8.5 / 7, "consistent": 8.5 / 7, "shuffle": 2.0}
            memory = stated.get(name) if number == "14" else None
            for metric, paper, ours in (
                (THROUGHPUT, None, each.limit),
                (LATENCY, None, 1000 * each.latency),
                (KEPT, memory, each.copies / key.copies),
            ):
                rows.append(Row(seed, number, case, metric, paper, ours, x=delay, series=name))
        case = f"{delay:g} ms a tuple, consistent"
        most = (3.44, 2.0) if number == "15" and delay == DELAYS[-1] else (None, None)
        note = "the paper's is the most over all delays"
        ratios = own.limit / key.limit, key.latency / own.latency
        for metric, said, ratio in zip((TIMES, LOWER), most, ratios, strict=True):
            rows.append(
                Row(seed, number, case, metric, said, ratio, note, x=delay, series="consistent")
            )
    return rows


_RUN = (
    f"Twitter, generated from Table I; {SOURCES} sources, {WORKERS} workers; consistent has 10 "
    f"shards for each worker, makes more where it needs them, and is measured in the second half; "
    f"the last source hears of a plan after {LAG:g} of an interval. "
    f"What is held is the rate at which no queue grows. Latency is that of all groupings at "
    f"{100 * RATE:g} % of what key grouping holds, with Poisson arrivals, without a network. "
    f"Memory is copies of a key, where the paper gives parts of the cluster's memory."
)

FIGURES = (
    Figure(
        number="14",
        title="24 workers that are alike",
        x=Axis("ms a tuple"),
        y=Axis("tuples/s held", log=True),
        series=SERIES,
        tasks=lambda sizes: _tasks(0, sizes),
        rows=lambda answers, sizes, seed: _rows("14", 0, answers, sizes, seed),
        metric=THROUGHPUT,
        remark=_RUN,
    ),
    Figure(
        number="15",
        title="Two of 24 workers at 30 %",
        x=Axis("ms a tuple"),
        y=Axis("tuples/s held", log=True),
        series=SERIES,
        tasks=lambda sizes: _tasks(2, sizes),
        rows=lambda answers, sizes, seed: _rows("15", 2, answers, sizes, seed),
        metric=THROUGHPUT,
        remark=_RUN,
    ),
)
