"""The contract of every stage: what the engine asks of it."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unskew.balance import Balancer
from unskew.simulator.nodes import Network, Nodes
from unskew.simulator.results import StageResult
from unskew.simulator.tuples import Tuples


class AnyRunning(Protocol):
    """A stage while it is simulated."""

    def process(self, tuples: Tuples, watermark: float) -> Tuples:
        """Route and serve tuples that come in the order of time; none later is before `watermark`.

        Returns the served ones with the time they leave and, as source, the instance they leave.
        """

    def control(self, now: float) -> None:
        """Look at what was done since the last time, and let a balancer change the plan."""

    def result(self, end: float) -> StageResult:
        """Return what was measured until a time."""


class AnyStage(Protocol):
    """What a stage is."""

    @property
    def name(self) -> str:
        """What results call it."""

    @property
    def instances(self) -> int:
        """Number of instances."""

    @property
    def nodes(self) -> Nodes:
        """Where the instances run."""

    @property
    def network(self) -> Network:
        """What a hop to the stage costs."""

    @property
    def key(self) -> int:
        """Which key of a tuple is that of the stage, where tuples have several."""

    @property
    def balancer(self) -> Balancer | None:
        """What moves its shards."""

    @property
    def is_watched(self) -> bool:
        """Whether `control` is to be called from time to time."""

    def start(
        self, place: int, source_nodes: NDArray[np.int32], seed: int, width: float, *, keys: bool
    ) -> AnyRunning:
        """Return the stage ready to run, as number `place` of a topology."""
