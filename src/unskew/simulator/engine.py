"""The engine: a stream of tuples through stages, from the first arrival to the last departure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from unskew.errors import BadInput, BadParameter
from unskew.parameters import number, whole_number
from unskew.simulator.arrivals import Arrivals
from unskew.simulator.base import AnyRunning, AnyStage
from unskew.simulator.latencies import Latencies
from unskew.simulator.merge import Merge, RunningMerge
from unskew.simulator.results import Result
from unskew.simulator.together import controlled
from unskew.simulator.tuples import NO_TUPLES, Tuples
from unskew.workloads.base import Workload

CHUNK = 1 << 17
"""Tuples that are in one step of the engine; results do not depend on it."""

Progress = Callable[[int, int | None], None]
"""Called with the tuples simulated so far and their number."""


def simulate(
    workload: Workload,
    arrivals: Arrivals,
    stages: Sequence[AnyStage],
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
        The keys, one for each tuple or, as of `KeyColumns`, several: then a stage says with `key=`
        which of them it routes by.
    arrivals : Arrivals
        When they come.
    stages : list of Stage or Join
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
        Stages that have one joint balancer are planned together. What a balancer remembers is as
        before when the simulation is over.
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
    >>> from unskew.simulator import Constant, Poisson, Stage
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
    if not any(stage.is_watched for stage in stages):
        tick = np.inf
    running = _start(stages, sources, seed, width, count_keys)
    in_control = controlled(running)
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
            tuples = stage.process(tuples.by_key(stages[i].key), watermark)
            watermark += stages[i].network.local
        if tuples.times.size:
            end = max(end, float(tuples.times.max()))
            latency.add(tuples.times - tuples.born)
            if keep_trace:
                trace.append(np.stack((tuples.born, tuples.times), axis=1))
        if merging is not None:
            merging.process(tuples, watermark)

    with _as_they_were(stages):
        for batch in workload.batches(step):
            times, clock = arrivals.times(done, done + len(batch), clock)
            origin = ((done + np.arange(len(batch))) % sources).astype(np.int32)
            tuples = Tuples.arriving(times, origin, _with_keys_for(stages, batch))
            while tuples.times.size and tuples.times[-1] >= next_control:
                cut = int(np.searchsorted(tuples.times, next_control))
                advance(tuples.pick(slice(cut)), next_control)
                for each in in_control:
                    each.control(next_control)
                next_control += tick
                tuples = tuples.pick(slice(cut, None))
            now = float(times[-1])
            advance(tuples, now)
            done += len(batch)
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
        stages=tuple(stage.result(end) for stage in running),
        merge=None if merging is None else merging.result(end),
        trace=np.concatenate(trace) if keep_trace else None,
    )


def _start(
    stages: Sequence[AnyStage], sources: int, seed: int, width: float, keys: bool
) -> list[AnyRunning]:
    """Return the stages ready to run, each with the nodes of the stage before as its sources."""
    running: list[AnyRunning] = []
    nodes = stages[0].nodes.of(sources)
    for place, stage in enumerate(stages):
        running.append(stage.start(place, nodes, seed, width, keys=keys))
        nodes = stage.nodes.of(stage.instances)
    return running


@contextmanager
def _as_they_were(stages: Sequence[AnyStage]) -> Iterator[None]:
    """Let balancers forget what they learn meanwhile, so that the next simulation is like this."""
    before = [(stage.balancer, stage.balancer.snapshot()) for stage in stages if stage.balancer]
    try:
        yield
    finally:
        for balancer, memory in before:
            balancer.restore(memory)


def _with_keys_for(stages: Sequence[AnyStage], batch: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the keys of tuples, if all stages find theirs among them."""
    there = 1 if batch.ndim == 1 else batch.shape[1]
    for stage in stages:
        if stage.key >= there:
            raise BadParameter(
                f"stage {stage.name!r} has key={stage.key}, counted from 0, but tuples have {there}"
            )
    return batch


def _in_order(tuples: Tuples, watermark: float) -> tuple[Tuples, Tuples]:
    """Return the tuples before the watermark in the order of time, and the rest."""
    order = np.argsort(tuples.times, kind="stable")
    cut = int(np.searchsorted(tuples.times[order], watermark))
    return tuples.pick(order[:cut]), tuples.pick(order[cut:])
