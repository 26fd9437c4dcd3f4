"""The stream join of LS-Stream, Section VI, simulated.

The paper gives no service times, no number of keys, no window and no interval of control. Nine
numbers of its own fix ours:

- 250 keys of each Zipf stream, as hashing then has the load imbalances that it states, 1.5 at Zipf
  0.4 and 5.3 at Zipf 0.8;
- the work of a tuple from the 29,500 tuples a second of hashing at Zipf 0.2, how much of it each
  copy that looks for partners costs from the 28,500 of groups, and the work of a pair from the
  11,000 of hashing at Zipf 1.0;
- the work of a tuple of rides from the 15,500 tuples a second of hashing on 28 instances;
- how instances share the two cores of a node from the 48 instances on 14 nodes above which
  throughput falls, and from the 9,500 tuples a second of hashing on 6 nodes;
- how tuples come, in bursts, from the 10.3 ms of hashing at 4,500 tuples a second.

So those agree by construction, as far as a single number each can make them; every other number is
a result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.balance import balancer
from unskew.experiments.base import Task
from unskew.metrics import load_imbalance, shard_load
from unskew.mixing import mix, spread_seed
from unskew.simulator import Bursty, Join, JoinResult, Nodes, Ramp, Result, saturation, simulate
from unskew.workloads import Zipf
from unskew.workloads.base import Workload
from unskew.workloads.rides import ORDER_EVERY, Rides

SERIES = ("hash", "contrand", "fastjoin", "ls-stream", "ours")
"""BiStream, BiStream-ContRand, FastJoin, LS-Stream as published, and our version of it."""

OWN = ("ls-stream", "ours")

BALANCERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "fastjoin": ("fastjoin", {"threshold": 2.2}),
    "ls-stream": (
        "ls-stream",
        {"threshold": 1.0, "load": "resources", "objective": "mif", "can_split": False},
    ),
    "ours": ("ls-stream", {"threshold": 0.2}),
}
"""Name and parameters of the balancer of each series that has one."""

KEYS = 250
"""Of a Zipf stream."""

KEEP, PROBE, PAIR = 3.87e-4, 6.5e-5, 2.5e-8
"""Seconds to keep a tuple, to look for partners with each copy, and to make a pair."""

RIDE = 1.54
"""Work of a tuple of rides, in those of a Zipf stream."""

WINDOW = 1.0
"""Seconds. Only its product with the work of a pair matters."""

CONTROL = 0.5
"""Seconds between two looks of the balancer."""

SHARDS = 50
"""For each instance."""

MOVE = 1e-6
"""Seconds that both instances stand still for each tuple that moves: a tuple of 100 bytes takes
8 microseconds on the paper's network of 100 Mbit/s, but moves in bulk while others are served."""

CORES = 2
"""Of a node."""

BUSY, IDLE = 0.4, 0.183
"""Cores that an instance needs while it serves, and all the time."""

NODES, INSTANCES = 18, 20
"""Of the paper's cluster, and of the figures over skew; they are alone or by twos there, so none
waits for a core."""

BURST = 0.115
"""Seconds from one burst to the next, in which tuples come for latency."""

PRECISION = 0.02
"""Of the largest rate that is held: the paper's step is 500 tuples a second, 2 % or more."""

RIDES = "rides"


@dataclass(frozen=True)
class Setting:
    """One series on one stream.

    Attributes
    ----------
    series : str
        One of `SERIES`.
    data : float or str
        Exponent of a Zipf stream, or "rides".
    messages : int
        Length of each simulation.
    instances, nodes : int
        How many of each.
    threshold : float, optional
        Of the balancer, if not that of the series.
    """

    series: str
    data: float | str
    messages: int
    instances: int = INSTANCES
    nodes: int = NODES
    threshold: float | None = None

    @property
    def label(self) -> str:
        """What the progress bar calls it."""
        limit = "" if self.threshold is None else f", threshold {self.threshold:g}"
        where = f"{self.instances} instances, {self.nodes} nodes"
        return f"{name_of(self.data)}, {where}, {self.series}{limit}"

    def workload(self, seed: int) -> Workload:
        """Return the stream: both sides of the join."""
        if isinstance(self.data, str):
            # An hour of the city, whatever the length: hot spots stay where they are for so long.
            return Renamed(Rides(self.messages, per_hour=self.messages, seed=seed), seed)
        return Renamed(Zipf(self.data, KEYS, self.messages, seed=seed), seed)

    def join(self) -> Join:
        """Return the stage."""
        options: dict[str, Any] = {}
        if self.series == "contrand":
            options = {"grouping": "contrand"}
        elif self.series in BALANCERS:
            name, parameters = BALANCERS[self.series]
            if self.threshold is not None:
                parameters = {**parameters, "threshold": self.threshold}
            options = {
                "shards": SHARDS * self.instances,
                "balancer": balancer(name, **parameters),
                "can_split": True,
            }
        is_ride = self.data == RIDES
        keep, probe, pair = (each * (RIDE if is_ride else 1) for each in (KEEP, PROBE, PAIR))
        return Join(
            *("join", self.instances, WINDOW, keep, probe, pair),
            left=1 / ORDER_EVERY if is_ride else 0.5,
            nodes=shared_nodes(self.nodes, self.instances),
            row_bytes=1.0,
            move_seconds_per_byte=MOVE,
            **options,
        )


class Renamed(Workload):
    """The same stream with other hashes of its keys, so that seeds differ in which keys meet.

    All of it is in memory, as a search reads it many times.
    """

    def __init__(self, workload: Workload, seed: int) -> None:
        self.name, self.description = workload.name, workload.description
        stream = np.concatenate(list(workload.batches()))
        keys, places = np.unique(stream, return_inverse=True)
        own = spread_seed(seed)
        self._keys = np.array([mix(key ^ own) for key in keys], dtype=np.uint64)[places]
        self.messages = self._keys.size

    def batches(self, size: int = 1 << 20) -> Iterator[NDArray[np.uint64]]:
        """Yield the key hashes in order."""
        return (self._keys[start : start + size] for start in range(0, self._keys.size, size))


def name_of(data: float | str) -> str:
    """Return what cases call a stream."""
    return data if isinstance(data, str) else f"zipf {data:.1f}"


def shared_nodes(nodes: int, instances: int) -> Nodes:
    """Return nodes whose cores all instances share evenly.

    An instance alone serves at speed 1 and keeps `BUSY` of a core busy with that; it waits for the
    rest of the time, for the network most of all. It also takes `IDLE` of a core for itself,
    whether it serves or not.

    Examples
    --------
    >>> shared_nodes(2, 3).speeds.tolist(), shared_nodes(2, 8).speeds.round(2).tolist()
    ([[1.0, 1.0]], [[0.79, 0.79]])
    """
    each = instances / nodes
    speed = min(1.0, max(CORES - IDLE * each, 0.01) / (BUSY * each))
    return Nodes(nodes, speeds=[speed] * nodes)


@dataclass(frozen=True)
class Limit(Task):
    """Search the largest rate that is held, with each of some seeds; tuples a second."""

    setting: Setting
    seeds: int

    @property
    def label(self) -> str:
        """What the progress bar calls it."""
        return f"limit of {self.setting.label}"

    def run(self, seed: int) -> tuple[float, ...]:
        """Measure."""
        messages = self.setting.messages
        return tuple(
            saturation(
                self.setting.workload(each),
                Ramp(15_000.0, tuples=max(1, messages // 3)),
                [self.setting.join()],
                precision=PRECISION,
                control=CONTROL,
                seed=each,
            ).rate
            for each in range(seed, seed + self.seeds)
        )


@dataclass(frozen=True)
class Measured:
    """What was measured at a rate, in the second half of the run.

    Attributes
    ----------
    latency : float
        Mean, in seconds.
    imbalance, work_imbalance : float
        Of the paper's load, of what is kept and what comes, and of the seconds of service.
    over_time : tuple of (float, float)
        End of each slice of the run and the mean latency in it.
    """

    latency: float
    imbalance: float
    work_imbalance: float
    over_time: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Measure(Task):
    """Simulate at a rate with each of some seeds."""

    setting: Setting
    rate: float
    seeds: int

    @property
    def label(self) -> str:
        """What the progress bar calls it."""
        return f"latency of {self.setting.label}"

    def run(self, seed: int) -> Measured:
        """Measure, and return means over the seeds."""
        found = [self._once(each) for each in range(seed, seed + self.seeds)]
        times = [time for time, _ in found[0].over_time]
        latencies = np.mean([[y for _, y in each.over_time] for each in found], axis=0).tolist()
        return Measured(
            latency=fmean(each.latency for each in found),
            imbalance=fmean(each.imbalance for each in found),
            work_imbalance=fmean(each.work_imbalance for each in found),
            over_time=tuple(zip(times, latencies, strict=True)),
        )

    def _once(self, seed: int) -> Measured:
        arrivals = Bursty(self.rate, burst=1e6, period=BURST, share=1e-3, seed=seed)
        result = simulate(
            *(self.setting.workload(seed), arrivals, [self.setting.join()]),
            control=CONTROL,
            seed=seed,
            keep_trace=True,
        )
        (stage,) = result.stages
        assert isinstance(stage, JoinResult)
        half = slice(stage.looks.size // 2, None)
        loads = [
            shard_load(stored, copies)
            for stored, copies in zip(stage.stored[half], stage.copies[half], strict=True)
        ]
        over_time = _over_time(result)
        return Measured(
            latency=fmean(y for _, y in over_time[len(over_time) // 2 :]),
            imbalance=_mean([load_imbalance(load) for load in loads]),
            work_imbalance=_mean(stage.load_imbalances[half].tolist()),
            over_time=over_time,
        )


SLICES = 20
"""Points of a line over time."""


def _over_time(result: Result) -> tuple[tuple[float, float], ...]:
    """Return the end and the mean latency of each slice of the run, by when tuples came."""
    assert result.trace is not None
    parts = np.array_split(result.trace, min(SLICES, len(result.trace)))
    return tuple((float(part[-1, 0]), float((part[:, 1] - part[:, 0]).mean())) for part in parts)


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0
