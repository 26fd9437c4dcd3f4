"""The merge stage: what split keys cost after the stage that splits them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unskew.grouping import Key
from unskew.parameters import number, whole_number
from unskew.simulator.latencies import Latencies
from unskew.simulator.nodes import Nodes
from unskew.simulator.queues import serve
from unskew.simulator.service import Service
from unskew.simulator.tuples import NO_TUPLES, Tuples
from unskew.tally import KeyIndex

_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Merge:
    """A stage that makes one result of the partial states of each key.

    At the end of every window each instance of the last stage sends one partial state for each key
    that it has served in it. So a key that is on three instances costs three merges.

    Parameters
    ----------
    instances : int
        Number of merging instances; a key has one of them as its home.
    service : Service
        Work of merging one partial state.
    window : float
        Seconds of a window, above 0.
    nodes : Nodes, default one node
        Where the instances run.
    """

    instances: int
    service: Service
    window: float
    nodes: Nodes = field(default_factory=Nodes)

    def __post_init__(self) -> None:
        """Check the ranges."""
        whole_number("instances", self.instances, least=1, most=2**31 - 1)
        number("window", self.window, above=0)


@dataclass(frozen=True)
class MergeResult:
    """What the merge stage did.

    Attributes
    ----------
    partials : int
        Partial states that were merged.
    results : int
        Keys and windows: the partial states there would be if no key were split.
    latency : Latencies
        From the end of the window to the end of each merge.
    utilisation : array of float64
        Part of the whole time that each instance was busy.
    ends, merged, waits : array of float64
        For each window that had tuples: when it ended, when its last partial state was merged, and
        the mean time from its end to a merge.
    tuples : array of int64
        For each of those windows, how many tuples it had.
    """

    partials: int
    results: int
    latency: Latencies
    utilisation: NDArray[np.float64]
    ends: NDArray[np.float64]
    merged: NDArray[np.float64]
    waits: NDArray[np.float64]
    tuples: NDArray[np.int64]


class RunningMerge:
    """A merge stage while it is simulated."""

    def __init__(self, merge: Merge, place: int, seed: int) -> None:
        self.merge = merge
        self.place = place
        self.latency = Latencies()
        self.end = 0.0
        self.drain = 0.0
        self._router = Key(merge.instances, seed=seed)
        self._free = np.zeros(merge.instances)
        self._busy = np.zeros(merge.instances)
        self._waiting = NO_TUPLES
        self._window = 0
        self._partials = 0
        self._results = 0
        self._windows: list[tuple[float, float, float]] = []
        self._tuples: list[int] = []

    def process(self, tuples: Tuples, watermark: float) -> None:
        """Take in served tuples; none that comes later has left before `watermark`."""
        self._waiting = self._waiting.join(tuples)
        while self._waiting.times.size:
            # Windows without tuples are not walked through.
            first = int(self._waiting.times.min() / self.merge.window)
            self._window = max(self._window, first)
            end = (self._window + 1) * self.merge.window
            if end > watermark:
                break
            self._close(end)

    def result(self, end: float) -> MergeResult:
        """Return what was measured until a time."""
        ends, merged, waits = np.array(self._windows).reshape(-1, 3).T
        return MergeResult(
            *(self._partials, self._results, self.latency, self._busy / end),
            *(ends, merged, waits, np.array(self._tuples, dtype=np.int64)),
        )

    def _close(self, end: float) -> None:
        """Merge the partial states of the window that ends now."""
        inside = self._waiting.times < end
        done, self._waiting = self._waiting.pick(inside), self._waiting.pick(~inside)
        self._window += 1
        keys = done.keys[_first(done.keys * _ODD + done.sources.astype(np.uint64))]
        self._partials += keys.size
        self._results += int(np.count_nonzero(_first(keys)))
        targets = self._router.route(keys)
        arrivals = np.full(keys.size, end)
        left, busy = np.empty(keys.size), np.empty(keys.size)
        serve(
            arrivals,
            self.merge.service.work(keys, self._partials - keys.size, self.place),
            targets,
            self._free,
            self.merge.nodes.of(self.merge.instances),
            self.merge.nodes.starts,
            self.merge.nodes.speeds,
            left,
            busy,
        )
        self._busy += np.bincount(targets, weights=busy, minlength=self._busy.size)
        self.latency.add(left - arrivals)
        self.end = max(self.end, float(left.max(initial=end)))
        # The merge of a window may take until the next one ends.
        self.drain = max(0.0, self.end - end - self.merge.window)
        if keys.size:
            self._windows.append((end, float(left.max()), float((left - arrivals).mean())))
            self._tuples.append(done.keys.size)


def _first(values: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return which values are the first of their kind."""
    ids = KeyIndex().ids(values).astype(np.int64)
    before = np.maximum.accumulate(np.concatenate(([-1], ids)))[:-1]
    return ids > before
