"""Consistent Grouping: workers say whether they are busy or idle, and shards go between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.balance.base import Balancer
from unskew.balance.delegation import Delegation
from unskew.balance.plan import Plan
from unskew.balance.pooled_work import PooledWork
from unskew.balance.report import Report
from unskew.balance.samples import Samples
from unskew.balance.shard_parts import named, shard_parts
from unskew.balance.signals import Signals
from unskew.errors import BadParameter, BadSnapshot
from unskew.parameters import number, one_of, whole_number

SIGNALS = ("busy", "utilisation", "queue")

Signal = str | Callable[[Plan, Report], ArrayLike]
"""By what workers tell how much they have: one of `SIGNALS`, or a function of one's own."""

_SPEEDS = (0.01, 100.0)
"""Speeds, in means, that are believed."""

_ENOUGH = 0.02
"""Part of the mean busy time, or work, from which on an instance had enough to tell its speed."""

_STAY = 10
"""Intervals within which a shard does not go back to where it came from."""

_CHANGE = 0.25
"""Part by which a speed, or all the load, has to change for shards to be free again."""


class Consistent(Balancer):
    """Move shards from busy to idle instances, whose speeds are found and never given.

    Every interval each instance compares its utilisation, of that interval alone, with two
    thresholds. Busy and idle ones wait in two queues; the first of each are paired, and one shard
    goes from the busy to the idle one: the one that fits best, by the work that shards had in as
    many intervals as it takes that chance does not decide. Where busy ones wait and none is
    idle, the one takes it that was last busy longest ago. An instance keeps one shard at least. A
    shard moves only if both come nearer to the middle of the thresholds than the farther of them
    was, and does not go back within ten intervals unless speeds change, or with thresholds that
    are not relative the load: nothing swings.

    A key with more than one shard should carry is split, where it may be, over the first shards of
    its own sequence, as PoRC would; where one of these goes, the part of the key goes along.

    Where shards are too large for the band between the thresholds, `shards_wanted` says how many
    there should be.

    Parameters
    ----------
    busy, idle : float, default 0.85 and 0.75
        Utilisation above which an instance is busy, and below which it is idle.
    relative : bool, default True
        Whether 1 is not a whole interval of service, but what puts the middle of the thresholds to
        the utilisation that all would have if shards fitted speeds: then 0.85 and 0.75 are 6 %
        above and below that, at any load. That is what batches need, the slowest of which
        is always busy to their end. Without it, as in the paper, thresholds are parts of the
        interval.
    pairings : int, default 1000
        How often each instance is paired in one interval. After each round utilisations are what
        the moves would lead to, by the measured work of shards and speeds of instances, and it ends
        when no busy one meets an idle one. The paper has 1, which needs many short intervals.
    signal : {"busy", "utilisation", "queue"} or callable, default "busy"
        What utilisation is: the service that the tuples of an interval ask for, which may be
        more than the interval; the part of it that the instance was busy; its queue, in parts of
        `queue`, which pipelines refuse as nothing waits between batches; or a pure function of
        plan and report that returns one number for each instance.
    queue : int, default 1000
        Tuples that wait at an instance which count as a utilisation of 1.
    is_careful : bool, default True
        Whether moves have to help and shards stay for a while; without, as in the paper, few
        shards go back and forth.
    samples : int, default 3
        Intervals of which speeds are the mean, without the largest and the smallest.
    enough : int, default 50_000
        Tuples for each instance of which the work of shards is the mean, of some ten intervals if
        one has fewer; these are forgotten when an instance has more or less than chance explains. 0
        is this interval alone, as in the paper. With the signal "busy" instances move shards by
        what these ask of them, and speak, as with others, by this interval.
    e : float, default 0.01
        Room of a shard above the mean before a key is split over more.
    seed : int, default 0
        Chooses the sequences of keys that are split.

    Attributes
    ----------
    shards_wanted : int
        Shards that there should be for all to fit between the thresholds, 0 if there are enough.

    Examples
    --------
    >>> none, work = np.zeros(6), np.ones(6)
    >>> busy = np.array([1.0, 4.0] * 3)     # the second is four times as slow
    >>> report = Report(12.0, none, busy, none, np.array([0.25, 1.0]), none, work=work)
    >>> balancer = Consistent()
    >>> balancer.next_plan(Plan.even(6, 2), report).assignment.tolist()
    [0, 0, 0, 0, 0, 1]
    >>> balancer.shards_wanted
    40

    References
    ----------
    Consistent Grouping, Sections V-B, V-C and VI-A.
    """

    name: ClassVar[str] = "consistent"
    shards_per_instance: ClassVar[int] = 100

    def __init__(
        self,
        *,
        busy: float = 0.85,
        idle: float = 0.75,
        relative: bool = True,
        pairings: int = 1000,
        signal: Signal = "busy",
        queue: int = 1000,
        is_careful: bool = True,
        samples: int = 3,
        enough: int = 50_000,
        e: float = 0.01,
        seed: int = 0,
    ) -> None:
        self.idle = number("idle", idle, above=0)
        self.busy = number("busy", busy, above=self.idle)
        self.relative = relative
        self.pairings = whole_number("pairings", pairings, least=1, most=2**31 - 1)
        self.signal = signal if callable(signal) else one_of("signal", signal, SIGNALS)
        self.needs_queues = signal == "queue"
        self.queue = whole_number("queue", queue, least=1, most=2**62)
        self.is_careful = is_careful
        self.e = number("e", e, above=0)
        self.seed = whole_number("seed", seed, least=0, most=2**63 - 1)
        self.shards_wanted = 0
        self._signals = Signals()
        self._speeds = Samples(whole_number("samples", samples, least=1, most=1000))
        self._pooled = PooledWork(whole_number("enough", enough, least=0, most=2**53))
        self._interval = 0
        self._level = 0.0
        self._shards = 0
        # Shard, instance and interval of what left an instance not long ago.
        self._left = np.empty((3, 0), dtype=np.int64)

    def next_plan(self, plan: Plan, report: Report) -> Plan:
        """Return the plan to use next, `plan` itself if nothing should move."""
        if plan.instances == 1 or (not report.busy.any() and not any(report.hot.values())):
            # One has nobody to give to, and an interval without load tells nothing.
            return plan
        self._interval += 1
        speeds, has_changed = self._find_speeds(plan, report)
        work, parts = shard_parts(plan, report, report.asked, e=self.e, seed=self.seed)
        told = self._used(plan, report, work, speeds)
        level = _mean(told, speeds)
        if level <= 0 or not work.any():
            return plan
        self._look_back(plan, level, has_changed)
        if {key: each.size for key, each in parts.items()} != _copies(plan):
            # Shards have other parts of hot keys than they had.
            self._pooled.forget()
        work = self._pooled.add(plan, work, _tuples(report, work))
        # What a user's signal, a queue or a clock says of an instance no work of shards tells.
        used = _asked_of(plan, report, work, speeds) if self.signal == "busy" else told.copy()
        if self.relative:
            middle = (self.busy + self.idle) / 2
            told, used = (each * (middle / _mean(each, speeds)) for each in (told, used))
            level = middle
        pairs = Delegation(
            table=plan.assignment.copy(),
            told=told,
            used=used,
            costs=work * (level * speeds.sum() / work.sum()),
            speeds=speeds,
            signals=self._signals,
            busy=self.busy,
            idle=self.idle,
            is_careful=self.is_careful,
            barred={
                worker: self._left[0, self._left[1] == worker] for worker in set(self._left[1])
            },
        )
        pairs.run(self._interval, self.pairings)
        self._wish(plan, level, speeds, pairs)
        return self._following(plan, report, parts, pairs.table)

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return what the balancer remembers."""
        return {
            **self._signals.snapshot(),
            **self._pooled.snapshot(),
            "speeds": self._speeds.snapshot(),
            "left": self._left.copy(),
            "numbers": np.array([self._interval, self.shards_wanted, self._shards], dtype=np.int64),
            "level": np.array([self._level]),
        }

    def restore(self, snapshot: dict[str, NDArray[Any]]) -> None:
        """Continue from a snapshot."""
        # Those of earlier versions have no pooled work.
        if snapshot.keys() | self._pooled.snapshot() != self.snapshot().keys():
            raise BadSnapshot(
                f"{self.name} remembers {', '.join(self.snapshot())}, but the snapshot has "
                f"{', '.join(snapshot)}; restore it into the balancer that it was taken from"
            )
        self._signals.restore(snapshot)
        self._pooled.restore(PooledWork(0).snapshot() | snapshot)
        self._speeds.restore(snapshot["speeds"])
        self._left = snapshot["left"].astype(np.int64)
        numbers = snapshot["numbers"].astype(np.int64).tolist()
        self._interval, self.shards_wanted, self._shards = numbers
        self._level = float(snapshot["level"][0])

    def _find_speeds(self, plan: Plan, report: Report) -> tuple[NDArray[np.float64], bool]:
        """Take a sample of speeds; return them, and whether one is not what it was."""
        before = self._speeds.mean() if len(self._speeds) else np.empty(0)
        if before.size != plan.instances:
            before = np.ones(plan.instances)
        if report.work is None:
            # All that came is as much work as it took: nothing tells that one is slower.
            return before, False
        work, busy = self._at_home(plan, report.work, report.busy)
        # Beside one that is very slow, others are hardly busy with all that they do.
        is_enough = (busy > _ENOUGH * busy.mean()) | (work > _ENOUGH * work.mean())
        known = is_enough & (busy > 0) & (work > 0)
        measured = np.divide(work, busy, out=np.zeros(plan.instances), where=known)
        if not known.any():
            return before, False
        # What had nothing to do is as fast as it was, or as others are.
        pace = measured[known].mean() / before[known].mean()
        found = np.where(known, measured, before * pace)
        self._speeds.add(np.clip(found / found.mean(), *_SPEEDS))
        speeds = self._speeds.mean()
        return speeds, bool((np.abs(speeds - before) > _CHANGE * before).any())

    def _at_home(
        self, plan: Plan, work: NDArray[np.float64], busy: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return work and busy time of each instance, of shards that were there all the interval.

        Sources hear of a plan late: a shard that has just moved was in part served, at another
        speed, where it was. Only an instance that has hardly others goes by all of its shards.
        """
        came = np.zeros(plan.shards, dtype=np.bool_)
        if self._shards == plan.shards:
            came[self._left[0, self._left[2] == self._interval - 1]] = True
        total, own = (
            np.bincount(plan.assignment, each, plan.instances) for each in (work, work * ~came)
        )
        stayed = own > _ENOUGH * total.mean()
        counts = ~(came & stayed[plan.assignment])
        return (
            np.bincount(plan.assignment, work * counts, plan.instances).astype(np.float64),
            np.bincount(plan.assignment, busy * counts, plan.instances).astype(np.float64),
        )

    def _used(
        self,
        plan: Plan,
        report: Report,
        work: NDArray[np.float64],
        speeds: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return the utilisation of each instance in this interval."""
        if callable(self.signal):
            told = np.array(self.signal(plan, report), dtype=np.float64)
            if told.shape != (plan.instances,) or not (np.isfinite(told) & (told >= 0)).all():
                raise BadParameter(
                    f"the signal of {plan.instances} instances must be one number of 0 or more for "
                    f"each, not {told.tolist()}; mend the function that was given as signal"
                )
            return told
        if self.signal == "utilisation":
            return report.utilisation.astype(np.float64)
        if self.signal == "queue":
            return report.queues / self.queue
        return _asked_of(plan, report, work, speeds)

    def _look_back(self, plan: Plan, level: float, has_changed: bool) -> None:
        """Free shards to go back where they came from, if what they left for is no more."""
        # Around the mean it does not matter how much there is of all; and a batch that is balanced
        # better is shorter, of which all are busy for a larger part.
        more_or_less = not self.relative and abs(level - self._level) > _CHANGE * self._level
        if has_changed or more_or_less:
            self._level = level
        is_other = has_changed or more_or_less or self._shards != plan.shards
        self._left = self._left[:, (self._interval - self._left[2] <= _STAY) & (not is_other)]
        self._shards = plan.shards

    def _wish(
        self, plan: Plan, level: float, speeds: NDArray[np.float64], pairs: Delegation
    ) -> None:
        """Say how many shards there should be, where those that there are do not fit."""
        least = level * speeds.sum() / (speeds.min() * (self.busy - self.idle))
        # Next to a whole number is that number: 176, not 177.
        wanted = ceil(least * (1 - 1e-9))
        is_short = not pairs.is_settled() and plan.shards < wanted
        self.shards_wanted = wanted if is_short else 0

    def _following(
        self,
        plan: Plan,
        report: Report,
        parts: dict[int, NDArray[np.int64]],
        table: NDArray[np.int32],
    ) -> Plan:
        """Return the plan with shards and hot keys where they are to be."""
        changed = np.flatnonzero(table != plan.assignment)
        now = np.full(changed.size, self._interval)
        left = np.stack((changed, plan.assignment[changed], now))
        self._left = np.concatenate((self._left, left), axis=1)
        hot, leaving = named(plan, report, parts, table)
        following = replace(plan, assignment=table, epoch=plan.epoch + 1, hot=hot, leaving=leaving)
        return plan if following.says_as(plan) else following


def _asked_of(
    plan: Plan,
    report: Report,
    work: NDArray[np.float64],
    speeds: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the part of the interval that each instance needs for shards with this work."""
    own = np.bincount(plan.assignment, work, plan.instances) / speeds
    plain = (np.bincount(plan.assignment, report.asked, plan.instances) / speeds).sum()
    # Work is in seconds of the mean speed, whatever that is: busy time tells.
    pace = float(report.busy.sum() / plain) if plain > 0 and report.busy.any() else 1.0
    used: NDArray[np.float64] = own * (pace / report.seconds)
    return used


def _copies(plan: Plan) -> dict[int, int]:
    """Return how many shards have a part of each key that is split."""
    return {key: len(copies) for key, copies in plan.hot.items()}


def _tuples(report: Report, work: NDArray[np.float64]) -> float:
    """Return how many had this work: those of keys that are split are not in those of shards."""
    asked = float(report.asked.sum())
    return float(report.rows.sum() * work.sum() / asked) if asked else 0.0


def _mean(used: NDArray[np.float64], speeds: NDArray[np.float64]) -> float:
    """Return the utilisation that all would have if shards fitted speeds."""
    return float((used * speeds).sum() / speeds.sum())
