"""How tuples travel from node to node: each alone, or over links that all of a node share."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from unskew.kernel import kernel
from unskew.simulator.nodes import Network
from unskew.simulator.routing import Marks
from unskew.simulator.tuples import NO_TUPLES, Tuples


class Sent(NamedTuple):
    """Tuples that travel, what their source noted on them, and the nodes that they travel between.

    Attributes
    ----------
    tuples : Tuples
        With the time when they start, or when they come.
    marks : array
        What their sources noted.
    givers, takers : array of int32
        Nodes.
    """

    tuples: Tuples
    marks: Marks
    givers: NDArray[np.int32]
    takers: NDArray[np.int32]

    @classmethod
    def nothing(cls) -> Sent:
        """Return no tuples."""
        none = np.empty(0, dtype=np.int32)
        return cls(NO_TUPLES, none, none, none)

    def pick(self, which: Any) -> Sent:
        """Return some of them, by slice, order or truth."""
        return Sent(self.tuples.pick(which), *(column[which] for column in self[1:]))

    def divided(self, times: int) -> Sent:
        """Return them with the shards of a stage whose every shard s became so many.

        These are s * times and those that follow it. No source chose among them, so they take
        turns.

        Examples
        --------
        >>> none = np.zeros(3, dtype=np.int32)
        >>> Sent(NO_TUPLES, np.array([0, 2, 2]), none, none).divided(2).marks.tolist()
        [0, 5, 4]
        """
        turns = np.arange(self.marks.size, dtype=self.marks.dtype) % times
        return self._replace(marks=self.marks * times + turns)

    def at(self, times: NDArray[np.float64]) -> Sent:
        """Return them at other times."""
        return self._replace(tuples=self.tuples._replace(times=times))

    def join(self, others: Sent) -> Sent:
        """Return these and others."""
        rest = zip(self[1:], others[1:], strict=True)
        return Sent(self.tuples.join(others.tuples), *(np.concatenate(each) for each in rest))

    def before(self, time: float) -> tuple[Sent, Sent]:
        """Return those before a time, in the order of time, and the rest."""
        order = np.argsort(self.tuples.times, kind="stable")
        cut = int(np.searchsorted(self.tuples.times[order], time))
        return self.pick(order[:cut]), self.pick(order[cut:])


class Travel(Protocol):
    """The network to a stage."""

    def go(self, sent: Sent, watermark: float) -> Sent:
        """Take tuples that start in the order of time; none later starts before `watermark`.

        Returns those that have come, in the order in which they do.
        """

    def divide(self, times: int) -> None:
        """Let tuples under way be of the shards that theirs are divided into; see `Sent`."""

    @property
    def busy(self) -> NDArray[np.float64]:
        """Seconds that the links of each node were busy, of those out and of those in."""


class Alone:
    """Every tuple travels as if it were alone.

    Parameters
    ----------
    network : Network
        What a hop costs.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self._waiting = Sent.nothing()

    @property
    def busy(self) -> NDArray[np.float64]:
        """Nothing is known of links."""
        return np.empty((2, 0))

    def go(self, sent: Sent, watermark: float) -> Sent:
        """Take tuples, and return those that have come; see `Travel`."""
        network, times = self._network, sent.tuples.times
        if network.remote == network.local:
            # Nobody overtakes, so nothing has to wait to be put in order.
            return sent.at(times + network.local)
        stays = sent.givers == sent.takers
        moving = sent.at(times + np.where(stays, network.local, network.remote))
        come, self._waiting = self._waiting.join(moving).before(watermark + network.local)
        return come

    def divide(self, times: int) -> None:
        """Divide the shards of tuples under way; see `Travel`."""
        self._waiting = self._waiting.divided(times)


class OverLinks:
    """The tuples that leave a node wait for each other, and so do those that come to one.

    A link serves one tuple after the other in the order in which they come to it. A tuple comes in
    while it goes out, so that without others it takes as long as it would alone. Each stage has
    links of its own: what goes to another stage is not in the way.

    Parameters
    ----------
    network : Network
        What a hop costs.
    nodes : int
        How many may send or take.
    """

    def __init__(self, network: Network, nodes: int) -> None:
        self.busy = np.zeros((2, nodes))
        self._network = network
        self._free = np.zeros((2, nodes))
        self._on_the_way = Sent.nothing()
        self._waiting = Sent.nothing()

    def go(self, sent: Sent, watermark: float) -> Sent:
        """Take tuples, and return those that have come; see `Travel`."""
        network = self._network
        stays = sent.givers == sent.takers
        near = sent.pick(stays)
        near = near.at(near.tuples.times + network.local)
        far = sent.pick(~stays)
        started = self._through(0, far, far.givers) - network.sending
        on_the_way = self._on_the_way.join(far.at(started + network.latency))
        there, self._on_the_way = on_the_way.before(watermark + network.latency)
        come = there.at(self._through(1, there, there.takers))
        ready, self._waiting = self._waiting.join(near).join(come).before(watermark + network.local)
        return ready

    def divide(self, times: int) -> None:
        """Divide the shards of tuples under way; see `Travel`."""
        self._on_the_way = self._on_the_way.divided(times)
        self._waiting = self._waiting.divided(times)

    def _through(self, way: int, sent: Sent, nodes: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return when tuples are through the links of these nodes, out or in."""
        left = np.empty_like(sent.tuples.times)
        _queue(sent.tuples.times, nodes, self._network.sending, self._free[way], left)
        self.busy[way] += self._network.sending * np.bincount(nodes, minlength=self.busy.shape[1])
        return left


@kernel
def _queue(
    times: NDArray[np.float64],
    nodes: NDArray[np.int32],
    seconds: float,
    free: NDArray[np.float64],
    left: NDArray[np.float64],
) -> None:
    """Write when each tuple is through; `free` tells when each link is, and is updated."""
    for i in range(times.size):
        node = nodes[i]
        free[node] = max(times[i], free[node]) + seconds
        left[i] = free[node]
