"""Locality: keys that occur together live together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.balance.base import Balancer, Thought
from unskew.balance.key_graph import KeyGraph
from unskew.balance.key_pairs import KeyPairs
from unskew.balance.partitioning import check_metis
from unskew.balance.placed import Placed
from unskew.balance.placing import Tree, distances, followed, leaves, places_of
from unskew.balance.plan import Plan
from unskew.balance.report import Report
from unskew.errors import BadParameter, BadSnapshot
from unskew.parameters import number, whole_number

_KNOWN = re.compile(r"seen|rows of \d+|(first|second|counts) of \d+ and \d+")
"""Names of what a snapshot has."""


class Locality(Balancer):
    """Put keys of successive stages that often come in one tuple onto the same instance.

    Counts which keys of one stage are followed by which of the next, and every so many intervals
    cuts the graph of these keys into as many parts as there are instances, so that few tuples go
    from one part to another and no instance has too much of any stage. Keys that it has not seen
    go by their hash, as ever. Parts are named so that few keys move, and nothing moves at all
    unless what goes over the network less until the next plan is more than the state that moves.

    Parameters
    ----------
    period : int, default 5
        Intervals between two plans; the pairs of one are counted.
    imbalance : float, default 1.03
        Load that an instance of a stage may have, in means, by the tuples that were counted.
    pairs : int, default 100_000
        Pairs to keep the counts of, about 60 bytes each.
    keys : int, default 100_000
        Keys of a stage to have in a plan: those that were not seen of late stay where they are
        until there are more.
    pays : float, default 1.0
        How many times the bytes that move a plan has to save.
    memory : float, default 0.5
        Part of the counts that still counts after a plan was made of them; the paper has 0, which
        forgets what is rare.
    once : bool, default False
        Whether to keep the first plan for good: the paper's offline mode.
    tree : nested sequence of int, optional
        Instances by the racks and nodes that they are in, ``[[0, 1], [2, 3]]``: keys that cannot
        be on one instance are as near as can be. All are equally far from each other by default.
    seed : int, default 0
        Of METIS.

    References
    ----------
    Locality-aware routing, Sections 3.2 to 3.4; what pays and racks are its future work.
    """

    name: ClassVar[str] = "locality"
    is_joint: ClassVar[bool] = True

    def __init__(
        self,
        *,
        period: int = 5,
        imbalance: float = 1.03,
        pairs: int = 100_000,
        keys: int = 100_000,
        pays: float = 1.0,
        memory: float = 0.5,
        once: bool = False,
        tree: Tree | None = None,
        seed: int = 0,
    ) -> None:
        self.period = whole_number("period", period, least=1, most=2**31 - 1)
        self.imbalance = number("imbalance", imbalance, least=1)
        self.counts_pairs = whole_number("pairs", pairs, least=1, most=2**31 - 1)
        self.keys = whole_number("keys", keys, least=1, most=2**31 - 1)
        self.pays = number("pays", pays, least=0)
        self.memory = number("memory", memory, least=0, below=1)
        self.once = once
        self.tree = tree
        self.seed = whole_number("seed", seed, least=0, most=2**31 - 1)
        self._pairs: dict[tuple[int, int], KeyPairs] = {}
        self._rows: dict[int, NDArray[np.int64]] = {}
        self._seen = 0

    def next_plan(self, plan: Plan, report: Report) -> Plan:
        """Return the plan of a stage alone, where no keys follow on others."""
        return self.next_plans([plan], [report])[0]

    def think(self, plans: Sequence[Plan], reports: Sequence[Report]) -> Thought | None:
        """Count pairs; return how the next plans are found, when it is time for some."""
        self._count(reports)
        if self._seen < self.period or not self._pairs:
            return None
        instances = sorted(leaves(self.tree)) if self.tree is not None else None
        if instances not in (None, list(range(plans[0].instances))):
            raise BadParameter(
                f"tree={self.tree!r} has instances {instances}, and the stages have 0 to "
                f"{plans[0].instances - 1}; name each of them once"
            )
        check_metis()
        hops = [(*hop, pairs) for hop, pairs in sorted(self._pairs.items())]
        rows = [self._rows[stage] for stage in range(len(plans))]
        thought = partial(
            better_plans,
            *(list(plans), hops, rows, list(reports)),
            tree=list(range(plans[0].instances)) if self.tree is None else self.tree,
            most=self.imbalance,
            keys=self.keys,
            pays=self.pays,
            seed=self.seed,
        )
        # What a plan was made of counts less for the next one.
        self._pairs = {
            hop: faded for hop, pairs in self._pairs.items() if (faded := pairs.faded(self.memory))
        }
        self._rows = {stage: _faded(rows, self.memory) for stage, rows in self._rows.items()}
        self._seen = -(2**62) if self.once else 0
        return thought

    def _count(self, reports: Sequence[Report]) -> None:
        self._seen += 1
        for stage, report in enumerate(reports):
            known = self._rows.get(stage)
            if known is None or known.size != report.rows.size:
                known = np.zeros_like(report.rows)
            self._rows[stage] = known + report.rows
            for following, pairs in report.pairs.items():
                before = self._pairs.get((stage, following), KeyPairs.none())
                added = KeyPairs.together([before, pairs])
                self._pairs[stage, following] = added.most(self.counts_pairs)

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return what the balancer remembers."""
        found: dict[str, NDArray[Any]] = {"seen": np.array([self._seen])}
        for (stage, following), pairs in self._pairs.items():
            for name, column in zip(KeyPairs._fields, pairs, strict=True):
                found[f"{name} of {stage} and {following}"] = column
        for stage, rows in self._rows.items():
            found[f"rows of {stage}"] = rows
        return found

    def restore(self, snapshot: dict[str, NDArray[Any]]) -> None:
        """Continue from a snapshot."""
        known = {name: np.array(array) for name, array in snapshot.items()}
        if "seen" not in known or any(_KNOWN.fullmatch(name) is None for name in known):
            raise BadSnapshot(
                f"{self.name} remembers how often it was asked, rows and pairs of keys, but the "
                f"snapshot has {', '.join(known) or 'nothing'}; restore it into the balancer that "
                f"it was taken from"
            )
        self._seen = int(known.pop("seen")[0])
        self._pairs, self._rows = {}, {}
        for name in known:
            stage, *following = map(int, re.findall(r"\d+", name))
            if not following:
                self._rows[stage] = known[name].astype(np.int64)
            elif name.startswith("counts"):
                ends = f"of {stage} and {following[0]}"
                first, second = (
                    known[f"{end} {ends}"].astype(np.uint64) for end in ("first", "second")
                )
                counts = known[name].astype(np.int64)
                self._pairs[stage, following[0]] = KeyPairs(first, second, counts)


def _faded(counts: NDArray[np.int64], memory: float) -> NDArray[np.int64]:
    return (counts * memory).astype(np.int64)


def better_plans(
    plans: Sequence[Plan],
    hops: Sequence[tuple[int, int, KeyPairs]],
    rows: Sequence[NDArray[np.int64]],
    reports: Sequence[Report],
    *,
    tree: Tree,
    most: float,
    keys: int,
    pays: float,
    seed: int,
) -> list[Plan]:
    """Return plans under which keys that met are near each other, or the same if that does not pay.

    Parameters
    ----------
    plans : sequence of Plan
        In force, of each stage.
    hops : sequence of tuple
        Two stages and the pairs of keys that were seen there, as of `KeyGraph.of`.
    rows : sequence of array of int64
        Tuples of each shard, of each stage.
    reports : sequence of Report
        The last ones, for the sizes of tuples and states.
    tree, most, keys, pays, seed
        As of `Locality`.
    """
    graph = KeyGraph.of(hops)
    before = np.empty(graph.keys.size, dtype=np.int32)
    rest = np.zeros((len(plans), plans[0].instances))
    for stage, plan in enumerate(plans):
        own = graph.stages == stage
        shards = plan.shard_of(graph.keys[own])
        before[own] = plan.assignment[shards]
        unknown = rows[stage] - np.bincount(shards, graph.weights[own], plan.shards)
        rest[stage] = np.bincount(plan.assignment, np.maximum(unknown, 0), plan.instances)
    # Cut anew, or only let keys follow those that they occur with: that moves less.
    cut = places_of(graph, before, rest, tree, most=most, seed=seed)
    near = followed(graph, before, rest, tree, most=most)
    apart = distances(tree)
    gain, places = max(
        ((_gain(graph, before, each, reports, pays, apart), each) for each in (cut, near)),
        key=lambda choice: choice[0],
    )
    if gain <= 0:
        return list(plans)
    return [
        with_places(plan, graph.keys[graph.stages == stage], places[graph.stages == stage], keys)
        for stage, plan in enumerate(plans)
    ]


def with_places(plan: Plan, keys: NDArray[np.uint64], places: NDArray[np.int32], most: int) -> Plan:
    """Return the plan that has these keys on these instances, and all others where they were.

    A key goes to a shard of its instance, that of its hash if it is one of them. Keys that were
    placed before and are not named now stay, the first of them, as long as there is room.

    Parameters
    ----------
    plan : Plan
        Which to change.
    keys : array of uint64
        Sorted.
    places : array of int32
        Instance of each.
    most : int
        Keys to place at the most, those named first.
    """
    hashed = plan.hashed_shard_of(keys)
    now = plan.shard_of(keys)
    shards = np.where(plan.assignment[hashed] == places, hashed, now)
    order = np.argsort(plan.assignment, kind="stable")
    starts = np.searchsorted(plan.assignment[order], np.arange(plan.instances + 1))
    counts = np.diff(starts)[places]
    # An instance without shards can keep no keys.
    wrong = np.flatnonzero((plan.assignment[shards] != places) & (counts > 0))
    picked = keys[wrong] % counts[wrong].astype(np.uint64)
    shards[wrong] = order[starts[places[wrong]] + picked.astype(np.int64)]
    elsewhere = np.flatnonzero(shards != hashed)[:most]
    stay = np.flatnonzero(~np.isin(plan.placed.keys, keys))[: most - elsewhere.size]
    placed = Placed(
        np.concatenate((keys[elsewhere], plan.placed.keys[stay])),
        np.concatenate((shards[elsewhere], plan.placed.shards[stay])),
    )
    if placed == plan.placed:
        return plan
    return replace(plan, epoch=plan.epoch + 1, placed=placed)


def _gain(
    graph: KeyGraph,
    before: NDArray[np.int32],
    after: NDArray[np.int32],
    reports: Sequence[Report],
    pays: float,
    apart: NDArray[np.int64],
) -> float:
    """Return the bytes that tuples save which stay near, if they come as often, less what moves.

    Between two racks they count as often as there are levels in between.
    """
    far = [apart[places[graph.first], places[graph.second]] for places in (before, after)]
    sizes = np.array([report.row_bytes for report in reports])[graph.stages[graph.first]]
    saved = float((graph.counts * sizes * (far[0] - far[1])).sum())
    states = np.array([report.key_bytes for report in reports])[graph.stages]
    return saved - pays * float(states[before != after].sum())
