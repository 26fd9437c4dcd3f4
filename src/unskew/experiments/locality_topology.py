"""The application of Section 4.1 of locality-aware routing, simulated: two counts, each by its key.

Each node has an instance of both. The sources of a node hand their tuples to the first count in
memory, so that only the hop between the two counts can be over the network, as the paper's 100 %
of locality without any network says.

The paper gives no service times. Four of its numbers fix ours:

- the work of a tuple at the first count from the axis of Figure 8, which ends at 700 thousand
  tuples a second for six nodes;
- the work of one from another node, without padding, from the 22 % by which the network lowers the
  throughput of the smallest tuples;
- the work of each byte of padding from another node, and that of the second count, from the 25 %
  that 10 points of locality bring at the most and the 90 % of locality from which there is no
  further gain, both with 12 kB.

So those agree by construction; every other number is a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unskew.balance import Placed, Plan
from unskew.experiments.base import Task
from unskew.simulator import Constant, KeyColumns, Network, Nodes, Stage, Steady, simulate
from unskew.workloads.base import Workload
from unskew.workloads.ranks import rank_keys

FIRST = 6 / 650_000
"""Seconds of a tuple at the first count, from the axis of Figure 8."""

GAIN, FLAT, FLAT_BYTES, LOWERED = 1.25, 0.9, 12_000, 0.22
"""What 10 points bring, where that ends and at which padding, and what the network costs tuples
without padding."""

_FAR = (GAIN - 1) / ((1 - FLAT) * (2 - GAIN))
"""Work of a tuple from another node with that padding, in those of the second count: with part r of
them from there it is 1 + r times this, 1.25 times as much at 20 % as at 10 %."""

SECOND = FIRST / (1 + (1 - FLAT) * _FAR)
"""Seconds of a tuple at the second count: where locality brings no more, the first is as busy."""

HANDLING = FIRST / (1 - LOWERED) - SECOND
"""Seconds that a tuple from another node costs in addition, without padding."""

BYTE = (_FAR * SECOND - HANDLING) / FLAT_BYTES
"""Seconds that each byte of padding costs in addition."""

TUPLE_BYTES = 100
"""Of a tuple without padding, on the network."""

LATENCY = 1e-4
"""Seconds of a hop to another node beside the time that its links take."""

FAST, SLOW = 10.0, 1.0
"""Gb/s of the paper's two networks."""

SERIES = ("locality-aware", "hash-based", "worst-case")

KEYS = 2000
"""Of each node: with as many as the paper's one, hashing would be balanced or not by chance."""


def counts(
    plans: Sequence[Plan], padding: int, gigabits: float, **options: Any
) -> tuple[Stage, Stage]:
    """Return the two stages, instance i of both on node i.

    Parameters
    ----------
    plans : two of Plan
        Where the keys of each are.
    padding : int
        Bytes of a tuple beside its keys.
    gigabits : float
        A second, that each node may send, and take.
    **options
        Of both stages.

    Examples
    --------
    >>> first, second = counts([Plan.even(2, 2)] * 2, padding=4000, gigabits=1.0)
    >>> round(1e6 * second.network.sending, 1)
    32.8
    """
    nodes = Nodes(plans[0].instances)
    network = Network(
        latency=LATENCY,
        tuple_bytes=TUPLE_BYTES + padding,
        bandwidth=gigabits * 1e9 / 8,
        is_shared=True,
        handling=HANDLING + BYTE * padding,
    )
    first, second = (Constant(seconds) for seconds in (FIRST, SECOND))
    return (
        Stage("first", nodes.count, first, "key", nodes=nodes, plan=plans[0], **options),
        Stage(
            *("second", nodes.count, second, "key"),
            nodes=nodes,
            network=network,
            plan=plans[1],
            key=1,
            **options,
        ),
    )


def throughput(
    workload: Workload, plans: Sequence[Plan], padding: int, gigabits: float = FAST
) -> float:
    """Return the tuples a second if there are always some to come."""
    stages = counts(plans, padding, gigabits)
    return simulate(workload, Steady(1e9), stages, sources=plans[0].instances).throughput


@dataclass(frozen=True)
class Synthetic(Task):
    """Measure the throughput of tuples of which a given part has both keys of one node.

    Attributes
    ----------
    series : str
        One of `SERIES`.
    nodes, padding, percent, messages : int
        How many, bytes, locality, and tuples.
    """

    series: str
    nodes: int
    padding: int
    percent: int
    messages: int

    @property
    def label(self) -> str:
        """What the progress bar calls it."""
        return f"{self.series}, {self.nodes} nodes, {self.padding // 1000} kB, {self.percent} %"

    def run(self, seed: int) -> float:
        """Measure."""
        draw = np.random.default_rng([seed, self.nodes, self.percent])
        first = draw.integers(self.nodes, size=self.messages)
        away = draw.random(self.messages) >= self.percent / 100
        # Any other node; where there is one alone, that one.
        steps = draw.integers(1, max(self.nodes, 2), size=self.messages)
        second = (first + away * steps) % self.nodes
        which = draw.integers(KEYS, size=(2, self.messages))
        keys = [
            _keys(stage, self.nodes)[which[stage], at] for stage, at in enumerate((first, second))
        ]
        return throughput(KeyColumns(*keys), self._plans(), self.padding)

    def _plans(self) -> list[Plan]:
        even = Plan.even(self.nodes, self.nodes)
        if self.series == "hash-based":
            return [even, even]
        off = 1 if self.series == "worst-case" else 0
        return [
            Plan(
                even.assignment,
                self.nodes,
                placed=Placed(
                    _keys(stage, self.nodes).ravel(),
                    np.tile((np.arange(self.nodes) + stage * off) % self.nodes, KEYS),
                ),
            )
            for stage in (0, 1)
        ]


def _keys(stage: int, nodes: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
    """Return the keys of a stage: a column for each node."""
    ranks = 1 + (stage << 40) + np.arange(KEYS * nodes, dtype=np.int64)
    return rank_keys(ranks).reshape(KEYS, nodes)
