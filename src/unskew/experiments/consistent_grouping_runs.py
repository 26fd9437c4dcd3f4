"""Consistent Grouping: one stage of workers that are not alike, followed over a day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.balance import Balancer, Consistent, Plan, Report
from unskew.experiments.base import Task
from unskew.simulator import Constant, Hourly, Nodes, Stage, simulate
from unskew.workloads import dataset

PUBLISHED, OURS = "consistent as published", "ours"
DAY, SLICES, FEWER = 86_400.0, 400, 100
MANY = 10_000_000
"""Messages from which on a day has 400 slices; with fewer, chance would hide what is measured."""

LOAD = 0.8
"""Part of all capacity that comes, as the paper has it: utilisation under shuffle, if all were
alike."""

SWING = 0.1
"""Part by which the busiest hour is above the mean, and the quietest below."""

LOOKS = 2000
"""Intervals of a day of the published balancer, in each of which a worker is paired once."""

SOURCES = 8
"""As in the paper's cluster; each knows only what it sent itself, and hears of plans by itself."""

LAG = 0.5
"""Part of an interval until the last source knows of a plan."""

BAND = 0.1
"""Spread of utilisations below which workers count as balanced: from idle to busy."""

STAY = 10
"""Intervals within which a shard that goes back swings."""

Cluster = tuple[int, float]
"""Fast workers {y, z}: how many, and how many times as fast as the others."""

UNLIKE: tuple[Cluster, ...] = ((3, 5.0),)
CHANGING: tuple[Cluster, ...] = ((3, 5.0), (5, 4.0), (2, 10.0))


class Followed(NamedTuple):
    """What a day was like.

    Attributes
    ----------
    messages : array of float64
        Part of the messages that had come at the end of each slice.
    spread, queues, latency : array of float64
        Largest minus smallest of all workers in each slice: utilisation, by what came; tuples that
        wait at its end; seconds that these take.
    settled : list of float or None
        For each cluster, the part of all messages until the spread is below 0.1 for good; None
        where it is not when the next one begins, or the day ends.
    worst : list of float
        For each cluster, the largest spread in what is left of it after 5 % of all messages.
    moves, returned : int
        Shards that moved; and that moved back within ten intervals, 5 % of the messages after a
        change on.
    shards : int
        In the end.
    """

    messages: NDArray[np.float64]
    spread: NDArray[np.float64]
    queues: NDArray[np.float64]
    latency: NDArray[np.float64]
    settled: list[float | None]
    worst: list[float]
    moves: int
    returned: int
    shards: int


class Recorder(Balancer):
    """Another balancer, and the plans that it made."""

    name = "recorder"

    def __init__(self, inner: Balancer) -> None:
        self.inner = inner
        self.plans: list[NDArray[np.int32]] = []

    def next_plan(self, plan: Plan, report: Report) -> Plan:
        """Return the plan of the other."""
        following = self.inner.next_plan(plan, report)
        self.plans += [plan.assignment, following.assignment]
        self.shards_wanted = self.inner.shards_wanted
        return following

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return what the other remembers."""
        return self.inner.snapshot()

    def restore(self, snapshot: dict[str, NDArray[Any]]) -> None:
        """Let the other continue."""
        self.inner.restore(snapshot)


def went_back(plans: Sequence[NDArray[np.int32]], within: int) -> int:
    """Return how many moves of shards took them back to where they had been not long ago.

    Examples
    --------
    >>> went_back([np.array(each) for each in ([0, 0], [1, 0], [2, 0], [0, 1])], within=5)
    1
    """
    count = 0
    left: dict[tuple[int, int], int] = {}
    for number, (before, after) in enumerate(pairwise(plans)):
        if before.size != after.size:
            left = {}
            continue
        for shard in np.flatnonzero(before != after).tolist():
            back = left.get((shard, int(after[shard])))
            count += back is not None and number - back <= within
            left[shard, int(before[shard])] = number
    return count


@dataclass(frozen=True)
class Follow(Task):
    """One way to route, on clusters that follow each other within a day."""

    series: str
    messages: int
    clusters: tuple[Cluster, ...] = ((0, 1.0),)
    workers: int = 10
    each: int = 10
    """Shards of a worker at the beginning."""
    sources: int = SOURCES
    can_grow: bool = False
    slices: int | None = None
    """Of the day, each an interval of ours; by default as many as the messages are enough for."""

    @property
    def label(self) -> str:
        """What the progress bar calls it."""
        return f"{self.series}, {self.clusters}, {self.each} shards each"

    @cached_property
    def changes(self) -> list[float]:
        """When each cluster begins, as part of the messages."""
        return [6 / 22 * number for number in range(len(self.clusters))]

    def arrivals(self) -> Hourly:
        """Return when tuples come."""
        hours = np.sin(np.arange(24) / 24 * 2 * np.pi - 2)
        return Hourly((self.messages / DAY * (1 + SWING * hours / np.abs(hours).max())).tolist())

    def nodes(self) -> Nodes:
        """Return the workers, all clusters with the capacity of the first."""
        speeds = [capacities(self.workers, cluster) for cluster in self.clusters]
        speeds = [each * (speeds[0].sum() / each.sum()) for each in speeds]
        times = [self._time(part) for part in self.changes]
        later = [(time, each.tolist()) for time, each in zip(times[1:], speeds[1:], strict=True)]
        return Nodes(self.workers, speeds=speeds[0].tolist(), changes=later)

    def balancer(self) -> Recorder | None:
        """Return what moves shards."""
        if self.series == PUBLISHED:
            paper = Consistent(relative=False, pairings=1, is_careful=False, samples=1, enough=0)
            return Recorder(paper)
        return Recorder(Consistent()) if self.series == OURS else None

    def run(self, seed: int) -> Followed:
        """Measure."""
        nodes, balancer = self.nodes(), self.balancer()
        work = LOAD * float(nodes.speeds[0].sum()) / (self.messages / DAY)
        many = self.slices or (SLICES if self.messages >= MANY else FEWER)
        control = DAY / (LOOKS if self.series == PUBLISHED else many)
        # Only "consistent" can have its shards divided.
        routed = "consistent" if self.can_grow else "random-choices"
        stage = Stage(
            "count",
            self.workers,
            Constant(work),
            grouping=self.series if balancer is None else routed,
            nodes=nodes,
            shards=None if balancer is None else self.workers * self.each,
            balancer=balancer,
            lag=0.0 if balancer is None else LAG * control,
        )
        result = simulate(
            dataset("wikipedia", messages=self.messages, seed=seed),
            self.arrivals(),
            [stage],
            sources=self.sources,
            seed=seed,
            width=DAY / many,
            control=None if balancer is None else control,
        ).stages[0]
        # What is left when nothing comes any more says nothing of balance.
        width = float(result.times[0])
        slices = min(len(result.came), round(DAY / width))
        came = result.came[:slices]
        speeds = np.array([nodes.speeds_at(t - width / 2) for t in result.times[:slices]])
        used = came * work / (speeds * width)
        waits = result.queues[:slices]
        parts = came.sum(axis=1).cumsum() / self.messages
        spread = np.ptp(used, axis=1)
        return Followed(
            messages=parts,
            spread=spread,
            queues=np.ptp(waits, axis=1).astype(np.float64),
            latency=np.ptp(waits * work / speeds, axis=1),
            **settling(parts, spread, self.changes),
            moves=result.moves,
            returned=0 if balancer is None else self._returned(balancer),
            shards=result.shards,
        )

    def _returned(self, balancer: Recorder) -> int:
        """Return how many shards went back not long after they came, 5 % after each change on."""
        number = len(balancer.plans) / DAY
        count = 0
        for begin, end in pairwise([*self.changes, 1.0]):
            first, last = self._time(min(1.0, begin + 0.05)), self._time(end)
            own = balancer.plans[int(first * number) : int(last * number)]
            # Two plans are noted in each interval.
            count += went_back(own, 2 * STAY)
        return count

    def _time(self, part: float) -> float:
        """Return when so many of the messages have come."""
        if part == 0:
            return 0.0
        number = round(part * self.messages)
        return float(self.arrivals().times(number - 1, number, 0.0)[0][0])


def settling(
    parts: NDArray[np.float64], spread: NDArray[np.float64], changes: Sequence[float]
) -> dict[str, Any]:
    """Return how long each cluster took to be balanced, and how well it is from then on.

    Parameters
    ----------
    parts, spread : array of float64
        Part of the messages at the end of each slice, and the spread in it.
    changes : sequence of float
        Part of the messages at which each cluster begins.

    Examples
    --------
    >>> parts, spread = np.arange(1, 11) / 10, np.array([1, 0.2, 0, 0, 0, 0, 0, 0, 0.2, 0.3])
    >>> settling(parts, spread, [0.0, 0.5])
    {'settled': [0.2, None], 'worst': [1.0, 0.3]}
    """
    settled: list[float | None] = []
    worst = []
    for begin, end in pairwise([*changes, 1.0]):
        own = np.flatnonzero((parts > begin + 1e-9) & (parts <= end + 1e-9))
        wide = own[spread[own] >= BAND]
        if wide.size and wide[-1] == own[-1]:
            settled.append(None)
        else:
            settled.append(float(parts[wide[-1]] - begin) if wide.size else 0.0)
        late = own[parts[own] > begin + 0.05]
        worst.append(float(spread[late].max()) if late.size else 0.0)
    return {"settled": settled, "worst": worst}


def capacities(workers: int, cluster: Cluster) -> NDArray[np.float64]:
    """Return the speed of each worker of {y, z}: the first y are z times as fast as the others.

    Examples
    --------
    >>> capacities(4, (1, 5.0)).tolist()
    [5.0, 1.0, 1.0, 1.0]
    """
    fast, times = cluster
    return np.where(np.arange(workers) < fast, float(times), 1.0)
