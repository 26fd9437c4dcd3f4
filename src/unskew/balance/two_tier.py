"""Two tiers: slots within a node, then nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.balance.band import Band
from unskew.balance.base import Balancer, Thought
from unskew.balance.between_nodes import even_nodes
from unskew.balance.node_view import NodeView, node_view
from unskew.balance.plan import Plan
from unskew.balance.report import Report
from unskew.balance.resting import KNOWN, Resting
from unskew.balance.splitting import Split, levelled, split_hot_keys
from unskew.balance.standing import Standing, service
from unskew.balance.within_nodes import even_slots
from unskew.errors import BadParameter, BadSnapshot
from unskew.metrics import offset_degree
from unskew.parameters import number, one_of, whole_number

MEASURES, OTHERS = ("cpu", "busy"), ("network", "disk")

_WORTH = 0.02
"""Of the mean load of a slot: what sharing hot keys otherwise has to take off the highest."""


@dataclass(frozen=True)
class Adjustment:
    """What the two tiers did when the clock last struck.

    Attributes
    ----------
    band : Band
        What was normal for nodes.
    names : tuple of str
        Of the nodes.
    before, after : array of float64
        Load of each node, as measured, and as it should be under the plans that were made.
    within, between : tuple of (int, int, int, int)
        Stage, shard, instance before and instance after of what moved to another slot of its node,
        and of what moved to another node.
    split : tuple of (int, int)
        Stage and hash of keys that were split, and were not before.
    dropped : tuple of (str, str)
        Pairings, giver and taker, that were dropped.
    offsets : list of array of float64
        Offset degree of each node as measured, for each stage; not a number where keys were not
        counted.
    """

    band: Band
    names: tuple[str, ...]
    before: NDArray[np.float64]
    after: NDArray[np.float64]
    within: tuple[tuple[int, int, int, int], ...] = ()
    between: tuple[tuple[int, int, int, int], ...] = ()
    split: tuple[tuple[int, int], ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()
    offsets: list[NDArray[np.float64]] = field(default_factory=list)


class TwoTier(Balancer):
    """Even out the instances of each node, its slots, and then the nodes, in one plan.

    Loads within a band around the mean are normal and nothing is moved for them. Where a slot is
    above it, shards go to the lowest slot of the same node, the largest first; then low nodes are
    paired with high and normal ones, which hand shards over. A key with more load than a slot may
    have is split before, where the operator can be. Of all stages that share nodes it sees the sum:
    a shard of any of them may be what goes. It takes as few moves as bring a load some way into the
    band, and a shard that moved stays for three intervals unless its load changes by a quarter.

    Parameters
    ----------
    theta : float, default 1/3
        Half the width of the band, in means: with a mean of 45 % from 30 to 60 %. Small values
        move more.
    band : tuple of float, default (0.3, 0.6)
        What is normal the first time, while the mean is still below it and says nothing.
    period : int, default 1
        Intervals from one look at the loads to the next, the paper's clock T.
    aim : float, default 0.5
        How much of `theta` may be left of a load that was out of the band: 1 moves least, and has
        loads at the edge of the band; 0 goes on to the mean.
    measure : {"cpu", "busy"}, default "cpu"
        What the CPU of a node is: as it was measured, whoever used it, so that what others do there
        counts; or how busy its instances were, for work that waits more than it computes.
    q : float, default 1.0
        Weight of a node's CPU against its memory, from 0 to 1.
    weights : mapping of str to float, optional
        Weights of "network" and "disk" in the load of a node, together below 1; the rest is for
        CPU and memory.
    capacities : mapping of str to float, optional
        Cores of nodes, by name, or by the machine in ``machine:process``. As the report tells by
        default, or one for each instance. Nodes of twice the cores take twice the load.

    Attributes
    ----------
    last : Adjustment or None
        What was done the last time, for people; it is not remembered in a snapshot.

    Examples
    --------
    >>> from unskew.balance.report import NodeLoads
    >>> nodes = NodeLoads(("a", "b"), np.array([0, 0, 1, 1]), np.array([0.8, 0.1]), np.zeros(2))
    >>> none = np.zeros(4)
    >>> busy = np.array([0.6, 0.3, 0.7, 0.2])
    >>> used = np.array([0.9, 0.7, 0.2, 0.0])
    >>> report = Report(1.0, none, busy, none, used, none, nodes=nodes)
    >>> balancer = TwoTier()
    >>> balancer.next_plan(Plan(np.array([0, 0, 1, 2]), 4), report).assignment.tolist()
    [3, 0, 1, 2]
    >>> balancer.last.between, balancer.last.after.round(2).tolist()
    (((0, 0, 0, 3),), [0.5, 0.4])

    References
    ----------
    St-Stream, Section 4.2. Nodes of different capacities, network and disk are its future work;
    stopping inside the band, the rest of moved shards and the sum over stages are ours.
    """

    name: ClassVar[str] = "two-tier"
    is_joint: ClassVar[bool] = True
    thinks_beside: ClassVar[bool] = False

    def __init__(
        self,
        *,
        theta: float = 1 / 3,
        band: tuple[float, float] = (0.3, 0.6),
        period: int = 1,
        aim: float = 0.5,
        measure: str = "cpu",
        q: float = 1.0,
        weights: Mapping[str, float] | None = None,
        capacities: Mapping[str, float] | None = None,
    ) -> None:
        self.theta = number("theta", theta, above=0, below=1)
        self.band = _ends(band)
        self.period = whole_number("period", period, least=1, most=2**31 - 1)
        self.aim = _part("aim", aim)
        self.measure = one_of("measure", measure, MEASURES)
        self.q = _part("q", q)
        self.weights = _weights(weights or {})
        self.capacities = {
            str(name): number(f"the capacity of {name}", each, above=0)
            for name, each in (capacities or {}).items()
        }
        self.last: Adjustment | None = None
        self._seen = 0
        self._resting = Resting()

    def next_plan(self, plan: Plan, report: Report) -> Plan:
        """Return the plan to use next of a stage alone, `plan` itself if nothing should move."""
        return self.next_plans([plan], [report])[0]

    def think(self, plans: Sequence[Plan], reports: Sequence[Report]) -> Thought | None:
        """See what all stages measured; return their next plans when the clock strikes."""
        asked = [report.asked for report in reports]
        hot = [value for report in reports for value in report.hot.values()]
        if not any(own.any() for own in asked) and not any(hot):
            # An interval without load tells nothing.
            return None
        self._seen += 1
        if self._seen % self.period:
            return None
        # A batch with more rows is no change of a shard whose part of them is the same.
        shares = [own / max(float(own.sum()), 1e-12) for own in asked]
        free = [self._resting.free(stage, self._seen, own) for stage, own in enumerate(shares)]
        following = self._adjusted(plans, reports, free)
        self._resting.remember(self._seen, plans, following, shares)
        return lambda: following

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return what the balancer remembers."""
        return {"seen": np.array([self._seen]), **self._resting.snapshot()}

    def restore(self, snapshot: dict[str, NDArray[Any]]) -> None:
        """Continue from a snapshot."""
        rest = {name: array for name, array in snapshot.items() if name != "seen"}
        if len(rest) == len(snapshot) or any(KNOWN.fullmatch(name) is None for name in rest):
            raise BadSnapshot(
                f"{self.name} remembers how often it was asked and which shards moved, but the "
                f"snapshot has {', '.join(snapshot) or 'nothing'}; restore it into the balancer "
                f"that it was taken from"
            )
        self._seen = int(snapshot["seen"][0])
        self._resting.restore(rest)

    def _adjusted(
        self,
        plans: Sequence[Plan],
        reports: Sequence[Report],
        free: Sequence[NDArray[np.bool_]],
    ) -> list[Plan]:
        """Return the plans that both tiers come to."""
        view = node_view(
            reports,
            measure=self.measure,
            q=self.q,
            weights=self.weights,
            capacities=self.capacities,
        )
        splits = [self._split(*each) for each in zip(plans, reports, strict=True)]
        standing = Standing(plans, reports, splits, free, view)
        band = self._band_of(view.mean, 1.0)
        for stage, report in enumerate(reports):
            band_of = partial(self._band_of, seconds=report.seconds)
            for node in range(len(view.names)):
                even_slots(standing, stage, node, band_of)
        dropped = even_nodes(standing, band)
        following = [_followed(*each) for each in zip(plans, standing.tables, splits, strict=True)]
        self._tell(plans, reports, following, view, standing, band, dropped)
        return following

    def _band_of(self, mean: float, seconds: float) -> Band:
        """Return what is normal, for loads in seconds of so many."""
        low, high = (end * seconds for end in self.band)
        if self._seen == self.period and mean < low:
            return Band.between(low, high, self.aim)
        return Band.around(mean, self.theta, self.aim)

    def _split(self, plan: Plan, report: Report) -> Split:
        """Return the hot keys of a stage: those that are too large for any slot."""
        shown = replace(report, busy=report.asked)
        split = split_hot_keys(plan, shown, above=1 + self.theta)
        mean = split.loads.mean()
        if split.hot and split.loads.max() > (1 + self.theta) * mean:
            even = levelled(split)
            # For less than that hot keys and shards would make way for each other for ever.
            if even.loads.max() < split.loads.max() - _WORTH * mean:
                return even
        return split

    def _tell(
        self,
        plans: Sequence[Plan],
        reports: Sequence[Report],
        following: Sequence[Plan],
        view: NodeView,
        standing: Standing,
        band: Band,
        dropped: Sequence[tuple[int, int]],
    ) -> None:
        """Keep what was done, for those who ask."""
        within: list[tuple[int, int, int, int]] = []
        between: list[tuple[int, int, int, int]] = []
        split: list[tuple[int, int]] = []
        for stage, (old, new) in enumerate(zip(plans, following, strict=True)):
            nodes = view.of_instance[stage]
            for shard, giver, taker in new.moves(old):
                kind = within if nodes[giver] == nodes[taker] else between
                kind.append((stage, shard, giver, taker))
            split += [(stage, key) for key in sorted(new.hot.keys() - old.hot.keys())]
        self.last = Adjustment(
            band=band,
            names=view.names,
            before=view.load,
            after=standing.loads,
            within=tuple(within),
            between=tuple(between),
            split=tuple(split),
            dropped=tuple((view.names[one], view.names[other]) for one, other in dropped),
            offsets=[
                _offsets(plan, report, nodes, len(view.names), self.theta)
                for plan, report, nodes in zip(plans, reports, view.of_instance, strict=True)
            ],
        )


def _followed(plan: Plan, table: NDArray[np.int32], split: Split) -> Plan:
    following = replace(
        plan, assignment=table, epoch=plan.epoch + 1, hot=split.hot, leaving=split.leaving
    )
    return plan if following.says_as(plan) else following


def _offsets(
    plan: Plan, report: Report, nodes: NDArray[np.int32], count: int, theta: float
) -> NDArray[np.float64]:
    """Return the offset degree of each node: tuples of its high slots against their keys."""
    found = np.full(count, np.nan)
    if report.keys is None:
        return found
    loads = service(plan, report)
    rows = np.bincount(plan.assignment, report.rows, plan.instances)
    keys = np.bincount(plan.assignment, report.keys, plan.instances)
    for node in range(count):
        own = np.flatnonzero(nodes == node)
        if not own.size or not rows[own].any() or not keys[own].any():
            continue
        high = loads[own] > (1 + theta) * loads[own].mean()
        # A slot may be high by its parts of hot keys alone, which are in no shard.
        if not high.any() or keys[own[high]].any():
            found[node] = offset_degree(rows[own], keys[own], high)
    return found


def _ends(band: tuple[float, float]) -> tuple[float, float]:
    if len(band) != 2:
        raise BadParameter(f"band must be the lowest and the highest normal load, not {band!r}")
    low = number("the low end of band", band[0], above=0)
    return low, number("the high end of band", band[1], above=low)


def _part(name: str, value: float) -> float:
    if number(name, value, least=0) > 1:
        raise BadParameter(f"{name} must be from 0 to 1, not {value}")
    return float(value)


def _weights(weights: Mapping[str, float]) -> dict[str, float]:
    found = {one_of("a name in weights", name, OTHERS): each for name, each in weights.items()}
    checked = {name: number(f"the weight of {name}", each, least=0) for name, each in found.items()}
    if sum(checked.values()) >= 1:
        raise BadParameter(
            f"weights must be below 1 together, as CPU and memory have the rest, not {weights!r}"
        )
    return checked
