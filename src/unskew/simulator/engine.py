"""The engine: a stream of tuples through stages, from the first arrival to the last departure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.errors import BadInput, BadParameter
from unskew.metrics import imbalance
from unskew.parameters import number, whole_number
from unskew.simulator.arrivals import Arrivals
from unskew.simulator.latencies import Latencies
from unskew.simulator.merge import Merge, MergeResult, RunningMerge
from unskew.simulator.stage import NO_TUPLES, Running, Stage, Tuples
from unskew.workloads.base import Workload

CHUNK = 1 << 17
"""Tuples that are in one step of the engine; results do not depend on it."""

Progress = Callable[[int, int | None], None]
"""Called with the tuples simulated so far and their number."""


@dataclass(frozen=True)
class StageResult:
    """What a stage did.

    Attributes
    ----------
    name : str
        Of the stage.
    loads : array of int64
        Tuples of each instance.
    imbalance : float
        Of the loads.
    utilisation : array of float64
        Part of the whole time that each instance was busy.
    locality : float
        Part of the hops to this stage that stayed on their node.
    replication_factor : float or None
        Instances per key, where keys were counted.
    moves : int
        Shards that changed instance.
    times : array of float64
        Ends of the slices of time that the series below are for.
    queues : array of int64
        Tuples at each instance at the end of each slice.
    busy : array of float64
        Part of each slice that each instance was busy.
    completed : array of int64
        Tuples that left in each slice.
    """

    name: str
    loads: NDArray[np.int64]
    imbalance: float
    utilisation: NDArray[np.float64]
    locality: float
    replication_factor: float | None
    moves: int
    times: NDArray[np.float64]
    queues: NDArray[np.int64]
    busy: NDArray[np.float64]
    completed: NDArray[np.int64]


@dataclass(frozen=True)
class Result:
    """What came out of a simulation.

    Attributes
    ----------
    messages : int
        Tuples, all of which have left.
    seconds : float
        When the last one left, or was merged.
    last_arrival : float
        When the last one came.
    drain : float
        How long it took to empty the queues: from the last arrival to the last departure, or past
        the time of one more window to the last merge, if that took longer.
    latency : Latencies
        From the birth of each tuple to its last departure.
    stages : tuple of StageResult
        In order.
    merge : MergeResult or None
        What the merge stage did, where there was one.
    trace : array of float64 or None
        Birth and last departure of each tuple, a row each, where they were asked for.
    """

    messages: int
    seconds: float
    last_arrival: float
    drain: float
    latency: Latencies
    stages: tuple[StageResult, ...]
    merge: MergeResult | None = None
    trace: NDArray[np.float64] | None = None

    @property
    def throughput(self) -> float:
        """Tuples a second over the whole time."""
        return self.messages / self.seconds

    @property
    def offered(self) -> float:
        """Work that came for the busiest instance of all, as `offered_at` tells it."""
        return max(self.offered_at.values())

    @property
    def offered_at(self) -> dict[str, float]:
        """Work that came for the busiest instance of each stage, and of the merge as "merge".

        As a part of the time in which it came: above 1 a queue grows. Unlike utilisation, which
        never is above 1, it is in proportion to the rate.
        """
        busy = {stage.name: float(stage.utilisation.max()) for stage in self.stages}
        if self.merge is not None:
            busy["merge"] = float(self.merge.utilisation.max())
        if self.last_arrival <= 0:
            return dict.fromkeys(busy, np.inf)
        return {name: part * self.seconds / self.last_arrival for name, part in busy.items()}


def simulate(
    workload: Workload,
    arrivals: Arrivals,
    stages: Sequence[Stage],
    *,
    merge: Merge | None = None,
    sources: int = 1,
    seed: int = 0,
    width: float | None = None,
    control: float | None = None,
    count_keys: bool = False,
    keep_trace: bool = False,
    chunk: int = CHUNK,
    progress: Progress | None = None,
) -> Result:
    """Send a workload through stages, and measure.

    Each stage routes by the real groupings, one for each instance of the stage before, or by its
    plan as a pipeline on Spark does (see `Stage`), and every instance serves its tuples one after
    the other in the order in which they come. The same arguments give the same numbers, whatever
    the chunk.

    Parameters
    ----------
    workload : Workload
        The keys.
    arrivals : Arrivals
        When they come.
    stages : list of Stage
        What they pass through.
    merge : Merge, optional
        Merges the partial states of the last stage.
    sources : int, default 1
        Tuples come to the first stage in turn from so many sources, source i on node i of the
        first stage's nodes, round and round.
    seed : int, default 0
        Seed of the groupings.
    width : float, optional
        Seconds of the slices of the series; a hundredth of the time of arrival by default, or one
        second where the workload does not know its length.
    control : float, optional
        Seconds between two calls of the balancers; they are never called unless it is given.
    count_keys : bool, default False
        Count distinct keys at each instance, for the replication factor; takes time and memory.
    keep_trace : bool, default False
        Keep birth and departure of every tuple.
    chunk : int, default CHUNK
        Tuples in one step.
    progress : callable, optional
        Called after every step.

    Examples
    --------
    >>> from unskew.simulator import Constant, Poisson
    >>> from unskew.workloads import Zipf
    >>> stage = Stage("count", instances=4, service=Constant(0.001), grouping="partial-key")
    >>> result = simulate(Zipf(1.0, 1000, 10_000), Poisson(2000.0), [stage])
    >>> result.messages, bool(0.001 <= result.latency.mean < 0.01)
    (10000, True)
    """
    if not stages:
        raise BadParameter("there is nothing to simulate; give at least one stage")
    sources = whole_number("sources", sources, least=1, most=2**20)
    step = whole_number("chunk", chunk, least=1, most=2**24)
    if width is None:
        width = 1.0 if workload.messages is None else workload.messages / arrivals.rate / 100
    width = number("width", width, above=0)
    tick = np.inf if control is None else number("control", control, above=0)
    balanced = [stage.name for stage in stages if stage.balancer is not None]
    if balanced and control is None:
        raise BadParameter(
            f"the balancer of {balanced[0]!r} is called every so many seconds; say how many with "
            f"control="
        )
    if not balanced:
        tick = np.inf
    running = _start(stages, sources, seed, width, count_keys)
    between = [NO_TUPLES for _ in stages]
    latency = Latencies()
    trace: list[NDArray[np.float64]] = []
    merging = None if merge is None else RunningMerge(merge, len(stages), seed)
    done, clock, next_control, end, now = 0, 0.0, tick, 0.0, 0.0

    def advance(tuples: Tuples, watermark: float) -> None:
        """Push tuples through all stages, as far as is certain that none overtakes another."""
        nonlocal end
        for i, stage in enumerate(running):
            if i > 0:
                tuples, between[i] = _in_order(between[i].join(tuples), watermark)
            tuples = stage.process(tuples, watermark)
            watermark += stage.stage.network.local
        if tuples.times.size:
            end = max(end, float(tuples.times.max()))
            latency.add(tuples.times - tuples.born)
            if keep_trace:
                trace.append(np.stack((tuples.born, tuples.times), axis=1))
        if merging is not None:
            merging.process(tuples, watermark)

    for batch in workload.batches(step):
        times, clock = arrivals.times(done, done + batch.size, clock)
        origin = ((done + np.arange(batch.size)) % sources).astype(np.int32)
        tuples = Tuples(times, origin, batch, times)
        while tuples.times.size and tuples.times[-1] >= next_control:
            cut = int(np.searchsorted(tuples.times, next_control))
            advance(tuples.pick(slice(cut)), next_control)
            for stage in running:
                stage.control(next_control)
            next_control += tick
            tuples = tuples.pick(slice(cut, None))
        now = float(times[-1])
        advance(tuples, now)
        done += batch.size
        if progress is not None:
            progress(done, workload.messages)
    advance(NO_TUPLES, np.inf)
    if not done:
        raise BadInput(f"{workload.name} is empty; give a workload with at least one tuple")
    drain = end - now
    if merging is not None:
        end = max(end, merging.end)
        drain = max(drain, merging.drain)
    return Result(
        messages=done,
        seconds=end,
        last_arrival=now,
        drain=drain,
        latency=latency,
        stages=tuple(_result(stage, end) for stage in running),
        merge=None if merging is None else merging.result(end),
        trace=np.concatenate(trace) if keep_trace else None,
    )


def _start(
    stages: Sequence[Stage], sources: int, seed: int, width: float, keys: bool
) -> list[Running]:
    """Return the stages ready to run, each with the nodes of the stage before as its sources."""
    running: list[Running] = []
    nodes = stages[0].nodes.of(sources)
    for place, stage in enumerate(stages):
        running.append(Running(stage, place, nodes, seed, width, keys=keys))
        nodes = stage.nodes.of(stage.instances)
    return running


def _in_order(tuples: Tuples, watermark: float) -> tuple[Tuples, Tuples]:
    """Return the tuples before the watermark in the order of time, and the rest."""
    order = np.argsort(tuples.times, kind="stable")
    cut = int(np.searchsorted(tuples.times[order], watermark))
    return tuples.pick(order[:cut]), tuples.pick(order[cut:])


def _result(stage: Running, end: float) -> StageResult:
    series = stage.series
    busy = series.utilisation()
    return StageResult(
        name=stage.stage.name,
        loads=series.loads,
        imbalance=imbalance(series.loads),
        utilisation=busy.sum(axis=0) * series.width / end,
        locality=stage.local / stage.hops,
        replication_factor=None if stage.tally is None else stage.tally.replication_factor,
        moves=stage.moves,
        times=series.times,
        queues=series.queues(),
        busy=busy,
        completed=series.completed(),
    )
