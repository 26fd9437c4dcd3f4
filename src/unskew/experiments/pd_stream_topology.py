"""The topology of Pd-Stream, Table VI, simulated.

Eight sources (`project`) route to the join, whose partial results four instances merge. What
comes before the sources is the same for every grouping and left out.

The paper gives no service times. Two numbers of its own fix ours: the 445 tuples a second that
pd-stream makes of 16 instances on DDoS, where it is balanced and little is merged, and the 2582 of
128, where the merge is what limits it, as the paper says of high parallelism. So those two agree by
construction; every other number of Figures 4 to 7 is a result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.experiments.base import Task
from unskew.experiments.pd_stream_balance import SERIES
from unskew.simulator import (
    Constant,
    Exponential,
    Merge,
    Poisson,
    Result,
    Saturation,
    Stage,
    saturation,
    simulate,
)
from unskew.workloads import dataset
from unskew.workloads.base import Workload

SOURCES, MERGERS = 8, 4
"""Of Table VI."""

JOIN = 16 / 445
"""Seconds of a join on average, from pd-stream's throughput on 16 instances."""

MERGE = 0.00168
"""Seconds to merge a partial state, from pd-stream's throughput on 128 instances."""

WINDOW = 1.0
"""Seconds after which partial states are merged: the benchmark that the paper runs writes the
present value of its aggregates every second."""

SHARE = 0.85
"""Rate of Figures 4, 5 and 7, as a part of the largest that pd-stream holds there."""

SHARES = (0.5, 0.7, SHARE)
"""Latency grows near the limit, so the margin over w-choices is told for each of these."""

PRECISION = 0.01
"""Of the largest rate that is held."""

_JOIN, _MERGE = "join", "merge"

SLICES = 20
"""Points of a line over time."""

PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "dagreedy": {"interval": 10_000 // SOURCES},
    "dalton": {"slide": 10_000 // SOURCES},
}
"""Each source sees an eighth of the tuples: intervals of 10,000 tuples of the whole stream."""

WINDOWS = (0.2, 0.5, WINDOW, 10.0)
"""How much splitting costs depends on the window: the margin over w-choices is told for each of
these."""


@dataclass(frozen=True)
class Outcome:
    """One grouping at one number of instances, each number a mean over seeds; seconds.

    `limits` has what it holds with each seed, in tuples a second: which of the few merging
    instances gets the hot keys makes a tenth of it. `offered` is the work that came for the busiest
    instance of the join and of the merge at those limits, 1 where it is the bottleneck.
    `partials` are partial states merged for each tuple, `imbalance` is that of the join.
    """

    limits: tuple[float, ...]
    offered: dict[str, float]
    rate: float
    join: float
    merge: float
    partials: float
    imbalance: float
    over_time: tuple[tuple[float, float, float], ...]

    @property
    def limit(self) -> float:
        """The largest rate that is held, in tuples a second."""
        return fmean(self.limits)

    @property
    def latency(self) -> float:
        """In the join, and from the end of the window to the end of the merge."""
        return self.join + self.merge

    @property
    def note(self) -> str:
        """Say it if the queues grow."""
        if self.rate < min(self.limits):
            return ""
        least = "" if len(self.limits) == 1 else " with one of the seeds"
        return (
            f"holds only {min(self.limits):,.0f} of {self.rate:,.0f} tuples/s{least}: its queues "
            f"grow, so the latency is that of this length of run"
        )


@dataclass(frozen=True)
class Simulate(Task):
    """Simulate groupings on one data set at one number of instances."""

    source: str
    messages: int
    instances: int
    seeds: int = 1
    window: float = WINDOW
    share: float = SHARE
    series: tuple[str, ...] = SERIES

    @property
    def label(self) -> str:
        """What the progress bar calls it."""
        return (
            f"{self.source}, {self.instances} instances, windows of {self.window:g} s, "
            f"{100 * self.share:g} % load"
        )

    def run(self, seed: int) -> dict[str, Outcome]:
        """Measure."""
        seeds = range(seed, seed + self.seeds)
        found = {name: [self.limit(name, each) for each in seeds] for name in self.series}
        rate = self.share * fmean(each.rate for each in found["pd-stream"])
        return {name: self.outcome(name, found[name], rate, seeds) for name in self.series}

    def outcome(
        self, name: str, found: Sequence[Saturation], rate: float, seeds: Sequence[int]
    ) -> Outcome:
        """Return what one grouping holds, and its latencies at a rate."""
        means = []
        over_time = []
        for seed in seeds:
            result = simulate(
                *(self._workload(seed), Poisson(rate, seed=seed), self._stages(name, seed)),
                keep_trace=True,
                **self._options(seed),
            )
            assert result.merge is not None
            assert result.trace is not None
            born, left = result.trace.T
            join = (left - born)[born >= result.last_arrival / 2].mean()
            partials = result.merge.partials / result.messages
            off = result.stages[0].imbalance
            means.append((float(join), result.merge.latency.mean, partials, off))
            over_time.append(_over_time(result))
        join, merge, partials, imbalance = np.mean(means, axis=0).tolist()
        limits = tuple(each.rate for each in found)
        offered = {
            name: fmean(each.result.offered_at[name] for each in found) for name in (_JOIN, _MERGE)
        }
        return Outcome(limits, offered, rate, join, merge, partials, imbalance, over_time[0])

    def limit(self, name: str, seed: int) -> Saturation:
        """Return the largest rate that is held without queues growing."""
        arrivals = Poisson(self.instances / JOIN, seed=seed)
        return saturation(
            *(self._workload(seed), arrivals, self._stages(name, seed)),
            precision=PRECISION,
            **self._options(seed),
        )

    def _workload(self, seed: int) -> Workload:
        return dataset(self.source, messages=self.messages, seed=seed)

    def _stages(self, name: str, seed: int) -> list[Stage]:
        return [
            Stage(
                *(_JOIN, self.instances, Exponential(JOIN, seed=seed)),
                grouping=name,
                parameters=PARAMETERS.get(name, {}),
            )
        ]

    def _options(self, seed: int) -> dict[str, Any]:
        merge = Merge(MERGERS, Constant(MERGE), self.window)
        return {"merge": merge, "sources": SOURCES, "seed": seed}


def _over_time(result: Result) -> tuple[tuple[float, float, float], ...]:
    """Return for each slice its end, the mean latency and the tuples/s that were merged."""
    trace, merge = result.trace, result.merge
    assert trace is not None
    assert merge is not None
    edges = np.linspace(0, result.last_arrival, SLICES + 1)
    join = _means(edges, trace[:, 0], trace[:, 1] - trace[:, 0])
    wait = _means(edges, merge.ends, merge.waits)
    merged = np.interp(edges, np.append(0, merge.merged), np.append(0, merge.tuples.cumsum()))
    done = np.diff(merged) / np.diff(edges)
    return tuple(zip(edges[1:].tolist(), (join + wait).tolist(), done.tolist(), strict=True))


def _means(
    edges: NDArray[np.float64], times: NDArray[np.float64], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the mean between each two edges, that of the slice before where there is nothing."""
    place = np.searchsorted(edges, times, side="right") - 1
    inside = place < edges.size - 1
    size = edges.size - 1
    sums = np.bincount(place[inside], weights=values[inside], minlength=size)
    counts = np.bincount(place[inside], minlength=size)
    last = np.maximum.accumulate(np.where(counts > 0, np.arange(size), 0))
    return (sums / np.maximum(counts, 1))[last]
