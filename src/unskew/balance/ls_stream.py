"""LS-Stream: the straggler hands shards to the least loaded, and keys too large are split."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.balance.annealing import Handover
from unskew.balance.base import Balancer
from unskew.balance.plan import Plan
from unskew.balance.report import Report
from unskew.balance.resizing import resized
from unskew.balance.samples import Samples
from unskew.balance.splitting import Split, levelled, split_hot_keys
from unskew.errors import BadSnapshot
from unskew.metrics import shard_load
from unskew.parameters import number, one_of, whole_number

LOADS, OBJECTIVES = ("work", "resources"), ("score", "mif")

_NOISE = 0.25
"""An instance that is by less than this faster or slower than the mean counts as any other."""

_SPEEDS = (0.1, 10.0)
"""Speeds, in means, that are believed."""

_BUSY, _IDLE, _WANTED = 0.85, 0.5, 0.7
"""Mean utilisation above which there are too few instances, below which there are too many, and
that as many as are asked for should have."""

_ROUNDS = 4
"""Handovers in a plan at the most, for each instance."""

_NEXT_TO_NOTHING = 1e-3
"""Of the mean load: what a handover has to make up to be worth it."""


class LsStream(Balancer):
    """Let stragglers hand shards, with their state, to the least loaded until loads are even.

    Acts when the imbalance is above the threshold: then it makes handovers, each between the most
    and the least loaded instance, until it is not, or nothing would be gained. Which shards go is
    chosen by simulated annealing: load that is made up, time that tuples wait less, few tuples that
    move. The load of an instance is the work of its shards over its speed, as measured. A key with
    more load than an instance may have is split before, where the operator can be: moving cannot
    help there. Instances that share such a key get as much of it as evens out their loads.

    Parameters
    ----------
    threshold : float, default 0.2
        Imbalance above which to act: the largest distance from the mean, up or down, in means. The
        paper has 1.0, which lets an instance have twice the mean.
    load : {"work", "resources"}, default "work"
        What the load of a shard is: the service that its tuples asked for, as measured; or the
        paper's model of it, half what it keeps and half the pairs that it could have.
    objective : {"score", "mif"}, default "score"
        What a choice is worth; "mif" is the paper's migration impact factor, gain over tuples
        moved, which prefers single shards.
    can_split : bool, default True
        Whether to split keys where the operator can be.
    samples : int, default 3
        Intervals of which loads are the mean, without the largest and the smallest.
    instances : tuple of int, optional
        Fewest and most instances, within which to ask for more when they are busy for more than
        85 % of the time and for fewer when for less than 50 %; as many as there are by default.
    seed : int, default 0
        Of the annealing.

    Examples
    --------
    >>> none = np.zeros(4)
    >>> busy = np.array([4.0, 3.0, 2.0, 1.0])
    >>> report = Report(10.0, none, busy, none, np.array([1.0, 0.0]), none)
    >>> LsStream().next_plan(Plan(np.zeros(4), 2), report).assignment.tolist()
    [1, 0, 0, 1]

    References
    ----------
    LS-Stream, Sections III to V.
    """

    name: ClassVar[str] = "ls-stream"

    def __init__(
        self,
        *,
        threshold: float = 0.2,
        load: str = "work",
        objective: str = "score",
        can_split: bool = True,
        samples: int = 3,
        instances: tuple[int, int] | None = None,
        seed: int = 0,
    ) -> None:
        self.threshold = number("threshold", threshold, above=0)
        self.load = one_of("load", load, LOADS)
        self.objective = one_of("objective", objective, OBJECTIVES)
        self.can_split = can_split
        self.seed = whole_number("seed", seed, least=0, most=2**63 - 1)
        most = whole_number("samples", samples, least=1, most=1000)
        self.bounds = _bounds(instances)
        self._loads, self._speeds, self._used = Samples(most), Samples(most), Samples(most)
        self._hot = np.empty(0, dtype=np.uint64)

    def next_plan(self, plan: Plan, report: Report) -> Plan:
        """Return the plan to use next, `plan` itself if nothing should move."""
        if not report.busy.any() and not any(report.hot.values()):
            # An interval without load tells nothing.
            return plan
        work = self._measure(plan, report)
        wanted = self._wanted(plan)
        begun = resized(plan, wanted, work)
        speeds = self._speed(wanted)
        shown = replace(
            report,
            busy=work,
            hot=self._of_keys(work, report),
            can_split=report.can_split and self.can_split,
        )
        split = split_hot_keys(begun, shown, above=1 + self.threshold, speeds=speeds)
        times = split.loads / speeds
        if split.hot and times.max() > (1 + self.threshold) * times.mean():
            split = levelled(split, speeds)
        table = self._handovers(begun, split, speeds, report)
        following = replace(
            begun, assignment=table, epoch=plan.epoch + 1, hot=split.hot, leaving=split.leaving
        )
        return plan if following.says_as(plan) else following

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return what the balancer remembers."""
        return {
            "loads": self._loads.snapshot(),
            "speeds": self._speeds.snapshot(),
            "used": self._used.snapshot(),
            "hot": self._hot,
        }

    def restore(self, snapshot: dict[str, NDArray[Any]]) -> None:
        """Continue from a snapshot."""
        if snapshot.keys() != self.snapshot().keys():
            raise BadSnapshot(
                f"{self.name} remembers {', '.join(self.snapshot())}, but the snapshot has "
                f"{', '.join(snapshot)}; restore it into the balancer that it was taken from"
            )
        self._loads.restore(snapshot["loads"])
        self._speeds.restore(snapshot["speeds"])
        self._used.restore(snapshot["used"])
        self._hot = np.array(snapshot["hot"], dtype=np.uint64)

    def _measure(self, plan: Plan, report: Report) -> NDArray[np.float64]:
        """Take a sample of loads and speeds; return the work of each shard."""
        if not np.array_equal(self._hot, plan.hot_hashes):
            # Shards had these keys, or did not have them, in the samples before.
            self._hot = plan.hot_hashes
            self._loads.forget()
        if self.load == "resources" and report.stored is not None:
            self._loads.add(_resources(report.stored, report.rows))
        else:
            self._loads.add(report.asked)
        self._used.add(np.array([report.utilisation.mean()]))
        if report.work is not None:
            self._speeds.add(_speeds(plan, report))
        return self._loads.mean()

    def _of_keys(self, work: NDArray[np.float64], report: Report) -> dict[int, float]:
        """Return the load of the hottest keys beside that of the shards, which is of more samples.

        A key has the part of an interval that it had, however much came in it.
        """
        asked = report.asked
        # Without shards that asked for anything there is nothing to measure the keys by.
        unit = float(work.sum() / asked.sum()) if asked.any() and work.any() else 1.0
        return {key: size * unit for key, size in report.hot.items()}

    def _speed(self, instances: int) -> NDArray[np.float64]:
        """Return how fast each instance is, in means."""
        speeds = self._speeds.mean() if len(self._speeds) else np.empty(0)
        if speeds.size != instances:
            return np.ones(instances)
        return np.where(np.abs(speeds - 1) < _NOISE, 1.0, speeds)

    def _wanted(self, plan: Plan) -> int:
        """Return how many instances there should be."""
        if self.bounds is None:
            return plan.instances
        used = float(self._used.mean()[0])
        wanted = plan.instances
        if used > _BUSY or used < _IDLE:
            wanted = ceil(plan.instances * used / _WANTED)
        least, most = self.bounds
        wanted = min(most, max(least, wanted))
        if wanted != plan.instances:
            self._used.forget()
        return wanted

    def _handovers(
        self,
        plan: Plan,
        split: Split,
        speeds: NDArray[np.float64],
        report: Report,
    ) -> NDArray[np.int32]:
        """Return the instance of each shard after as many handovers as are worth it."""
        table = plan.assignment.copy()
        work, loads = split.busy, split.loads / speeds
        tuples = report.state_bytes if report.stored is None else report.stored
        capacity = _capacity(loads, report)
        mean = loads.mean()
        stuck = np.zeros(plan.instances, dtype=np.bool_)
        for turn in range(_ROUNDS * plan.instances):
            taker = int(loads.argmin())
            over = np.where(stuck, -np.inf, loads)
            giver = int(over.argmax())
            off = max(over[giver] - mean, mean - loads[taker])
            if over[giver] <= mean or off <= self.threshold * mean:
                break
            shards = np.flatnonzero(table == giver)
            handover = Handover(
                *(float(loads[giver]), float(loads[taker]), capacity),
                *(work[shards] / speeds[giver], work[shards] / speeds[taker]),
                tuples[shards].astype(np.float64),
            )
            chosen = handover.choose(
                seed=self.seed + (plan.epoch << 12) + turn, by_impact=self.objective == "mif"
            )
            if not chosen.any():
                chosen = handover.choose_one(0.1 * self.threshold * mean)
            given, taken = handover.given[chosen].sum(), handover.taken[chosen].sum()
            if given + taken <= _NEXT_TO_NOTHING * mean:
                stuck[giver] = True
                continue
            table[shards[chosen]] = taker
            loads[giver] -= given
            loads[taker] += taken
        return table


def _resources(stored: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the paper's load of each shard: memory and pairs, each over its mean (eq. 7 to 11)."""
    memory = shard_load(stored, rows, g=1.0)
    pairs = shard_load(stored, rows, g=0.0)
    parts = [each / max(float(each.mean()), 1e-9) for each in (memory, pairs)]
    load: NDArray[np.float64] = 0.5 * (parts[0] + parts[1])
    return load


def _speeds(plan: Plan, report: Report) -> NDArray[np.float64]:
    """Return how fast each instance did its work, in means; 1 where it had too little to tell."""
    assert report.work is not None
    work = np.bincount(plan.assignment, report.work, plan.instances)
    busy = np.bincount(plan.assignment, report.busy, plan.instances)
    known = busy > 0.1 * busy.mean()
    speeds = np.divide(work, busy, out=np.ones(plan.instances), where=known)
    believed: NDArray[np.float64] = np.clip(speeds, *_SPEEDS)
    return believed


def _capacity(loads: NDArray[np.float64], report: Report) -> float:
    """Return the load at which an instance would be busy all the time."""
    used = report.utilisation.mean()
    return float(loads.mean() / used) if used > 0 and loads.any() else np.inf


def _bounds(instances: tuple[int, int] | None) -> tuple[int, int] | None:
    if instances is None:
        return None
    least, most = instances
    least = whole_number("the fewest instances", least, least=1, most=2**31 - 1)
    return least, whole_number("the most instances", most, least=least, most=2**31 - 1)
