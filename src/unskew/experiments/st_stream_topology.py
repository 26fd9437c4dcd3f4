"""The topology of St-Stream, Section 5, simulated: words are read, split and counted.

The paper gives neither service times nor all loads of its nodes. What is ours:

- nodes S1 and S2 have four cores, the others two, as its Table 4 has them; an instance, its slot,
  has a core to itself;
- before balancing S1, S2 and S7 have the loads that it states. Those of S3 to S6 are chosen: S6
  alone of them above 60 %, as its Fig. 15 has it, and together so that the largest load is 1.738
  means, its balance degree. Slots of a node differ, too, by up to 40 % of their mean;
- words come at 3,500 a second, the most of its range; a tenth of the work is to split, the rest to
  count, as much as makes the loads. A plan has the words where they make these loads, as labels do
  in the paper;
- the work of a word is exponentially distributed, as in queueing theory; the latency with the same
  work for all is told beside it, as the gain depends on that;
- what reading, the network and Redis take is the same for all words, and such that the mean latency
  without balancing is its 17 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.balance import Plan, Report, TwoTier
from unskew.balance.base import Thought
from unskew.balance.two_tier import Adjustment
from unskew.experiments.base import Task
from unskew.simulator import (
    Constant,
    Exponential,
    Network,
    Nodes,
    Poisson,
    Result,
    Service,
    Stage,
    simulate,
)
from unskew.workloads import Zipf

STORM, OURS = SERIES = ("storm", "two-tier")
"""Without a balancer, and with ours."""

LOADS = (0.1125, 0.212, 0.5, 0.54, 0.555, 0.76, 0.885)
CORES = (4, 4, 2, 2, 2, 2, 2)
NAMES = tuple(f"S{number}" for number in range(1, 8))
"""Of the seven nodes, before balancing."""

RATE = 3_500.0
"""Words a second."""

SPLIT = 0.1
"""Part of the work that is to split lines into words."""

WORDS, EXPONENT = 10_000, 1.0
"""Distinct words, and how their frequencies fall."""

SPLITS, COUNTS = 72, 720
"""Shards of the two stages."""

UNEVEN, FULLEST = 0.4, 0.92
"""By how much the first slot of a node is above the mean of its slots, and the last below it, as
far as the first is not loaded more than this."""

RANDOM, SAME = SERVICES = ("exponential", "constant")
"""How the work of words is distributed; the first is that of all figures."""

FIXED = {RANDOM: 0.0083, SAME: 0.0115}
"""Seconds that a word takes beside service and queues."""

CONTROL, PERIOD = 20.0, 3
"""Seconds between two reports, and reports between two looks: the clock of 60 s."""

WIDTH = 10.0
"""Seconds of a slice of time."""

SETTLED = 240.0
"""Seconds after which the paper has its nodes balanced."""


class Watched(TwoTier):
    """The balancer, with all that it did kept."""

    def __init__(self) -> None:
        super().__init__(period=PERIOD)
        self.done: list[Adjustment] = []

    def think(self, plans: Sequence[Plan], reports: Sequence[Report]) -> Thought | None:
        """See what was measured; keep what is made of it."""
        self.last = None
        thought = super().think(plans, reports)
        if self.last is not None:
            self.done.append(self.last)
        return thought


class Run(NamedTuple):
    """What one run measured.

    Attributes
    ----------
    times : array of float64
        End of each slice of time.
    loads : array of float64
        Part of the cores of each node that was busy, in each slice.
    slots : array of float64
        The same of each slot of the stage that counts.
    latency : array of float64
        Mean of the words that came in each slice, in seconds.
    moves : int
        Shards that moved, of both stages.
    done : tuple of Adjustment
        What the balancer did each time that it looked.
    """

    times: NDArray[np.float64]
    loads: NDArray[np.float64]
    slots: NDArray[np.float64]
    latency: NDArray[np.float64]
    moves: int
    done: tuple[Adjustment, ...]

    @property
    def is_settled(self) -> NDArray[np.bool_]:
        """Which slices are after the time that the paper needs."""
        found: NDArray[np.bool_] = self.times > SETTLED
        return found

    def settled(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean over the slices that are after the time that the paper needs."""
        mean: NDArray[np.float64] = values[self.is_settled].mean(axis=0)
        return mean


@dataclass(frozen=True)
class Words(Task):
    """Simulate one series for as long as so many words take."""

    series: str
    messages: int
    service: str = RANDOM

    @property
    def label(self) -> str:
        """What the progress bar calls it."""
        return f"words, {self.series}, {self.service} work"

    def run(self, seed: int) -> Run:
        """Measure."""
        balancer = Watched() if self.series == OURS else None
        nodes = Nodes(len(CORES), cores=CORES)
        plans = first_plans(seed)
        work = float(np.dot(LOADS, CORES)) / RATE
        fixed = FIXED[self.service] / 2
        hop = Network(local=fixed, latency=fixed)
        split = Stage(
            *("split", sum(CORES), self._service(SPLIT * work, seed), "shuffle"),
            nodes=nodes,
            network=hop,
            plan=plans[0],
            balancer=balancer,
        )
        count = Stage(
            *("count", sum(CORES), self._service((1 - SPLIT) * work, seed), "key"),
            nodes=nodes,
            network=hop,
            plan=plans[1],
            balancer=balancer,
            can_split=True,
        )
        result = simulate(
            *(words(self.messages, seed), Poisson(RATE, seed=seed), [split, count]),
            sources=sum(CORES),
            control=None if balancer is None else CONTROL,
            width=WIDTH,
            keep_trace=True,
            seed=seed,
        )
        return _measured(result, nodes, balancer)

    def _service(self, mean: float, seed: int) -> Service:
        return Constant(mean) if self.service == SAME else Exponential(mean, seed=seed)


def words(messages: int, seed: int) -> Zipf:
    """Return the stream of words."""
    return Zipf(EXPONENT, WORDS, messages, seed=seed)


@cache
def first_plans(seed: int) -> tuple[Plan, Plan]:
    """Return where shards of both stages are before balancing: nodes have their loads by that.

    The largest shard goes to the slot that misses most of its load.
    """
    slots = sum(CORES)
    split = Plan.even(SPLITS, slots)
    even = Plan.even(COUNTS, slots)
    sample = np.concatenate(list(words(200_000, seed).batches()))
    shares = np.bincount(even.shard_of(sample), minlength=COUNTS) / sample.size
    missing = _wanted()
    table = np.empty(COUNTS, dtype=np.int32)
    for shard in np.argsort(-shares, kind="stable").tolist():
        table[shard] = missing.argmax()
        missing[table[shard]] -= shares[shard]
    return split, Plan(table, slots)


def slots_of_nodes() -> list[NDArray[np.int64]]:
    """Return the slots of each node.

    Examples
    --------
    >>> [own.size for own in slots_of_nodes()]
    [4, 4, 2, 2, 2, 2, 2]
    """
    of_slot = Nodes(len(CORES), cores=CORES).of(sum(CORES))
    return [np.flatnonzero(of_slot == node) for node in range(len(CORES))]


def _wanted() -> NDArray[np.float64]:
    """Return the part of all counting that each slot has before balancing."""
    total = float(np.dot(LOADS, CORES))
    found = np.empty(sum(CORES))
    for own, load in zip(slots_of_nodes(), LOADS, strict=True):
        off = min(UNEVEN, FULLEST / load - 1)
        spread = np.linspace(1 + off, 1 - off, own.size)
        # Splitting is dealt to all slots alike.
        found[own] = load * spread - SPLIT * total / found.size
    return np.maximum(found, 0.0) / ((1 - SPLIT) * total)


def _measured(result: Result, nodes: Nodes, balancer: Watched | None) -> Run:
    whole = int(result.last_arrival / WIDTH)
    of_instance = nodes.of(sum(CORES))
    loads = np.zeros((whole, len(CORES)))
    for stage in result.stages:
        np.add.at(loads.T, of_instance, stage.busy[:whole].T)
    assert result.trace is not None
    born, left = result.trace.T
    slices = (born / WIDTH).astype(np.int64)
    times = np.bincount(slices, left - born, whole)[:whole]
    return Run(
        times=np.linspace(WIDTH, whole * WIDTH, whole),
        loads=loads / np.array(CORES),
        slots=result.stages[1].busy[:whole],
        latency=times / np.maximum(np.bincount(slices, minlength=whole)[:whole], 1),
        moves=sum(stage.moves for stage in result.stages),
        done=tuple(balancer.done) if balancer else (),
    )
