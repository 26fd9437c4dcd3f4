"""What a simulation measured: of each stage, and of the whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from unskew.metrics import imbalance
from unskew.simulator.latencies import Latencies
from unskew.simulator.merge import MergeResult
from unskew.simulator.series import Series


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
    keys_moved : int
        Keys that went to another shard on another instance.
    bytes_moved : float
        State that went with shards and keys, where it is known by key.
    links : array of float64
        Part of the whole time that the link of each node to this stage was busy, out of it in the
        first row and into it in the second; none where tuples do not share links.
    times : array of float64
        Ends of the slices of time that the series below are for.
    queues : array of int64
        Tuples at each instance at the end of each slice.
    busy : array of float64
        Part of each slice that each instance was busy.
    completed : array of int64
        Tuples that left in each slice.
    came : array of int64
        Tuples that came to each instance in each slice.
    shards : int
        How many there were in the end.
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
    keys_moved: int = 0
    bytes_moved: float = 0.0
    links: NDArray[np.float64] = field(default_factory=lambda: np.empty((2, 0)))
    came: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))
    shards: int = 0

    @classmethod
    def of(cls, name: str, series: Series, end: float, **others: Any) -> Self:
        """Return what a series tells until a time, and others."""
        busy = series.utilisation()
        return cls(
            name=name,
            loads=series.loads,
            imbalance=imbalance(series.loads),
            utilisation=busy.sum(axis=0) * series.width / end,
            times=series.times,
            queues=series.queues(),
            busy=busy,
            completed=series.completed(),
            came=series.came(),
            **others,
        )


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

        The busiest link of a network that is shared is told as "network to" its stage.
        As a part of the time in which it came: above 1 a queue grows. Unlike utilisation, which
        never is above 1, it is in proportion to the rate.
        """
        busy = {stage.name: float(stage.utilisation.max()) for stage in self.stages}
        for stage in self.stages:
            if stage.links.size:
                busy[f"network to {stage.name}"] = float(stage.links.max())
        if self.merge is not None:
            busy["merge"] = float(self.merge.utilisation.max())
        if self.last_arrival <= 0:
            return dict.fromkeys(busy, np.inf)
        return {name: part * self.seconds / self.last_arrival for name, part in busy.items()}
