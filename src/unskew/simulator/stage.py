"""One stage of a simulated topology: sources route to instances, each with a queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.balance import Balancer, Plan, Report
from unskew.errors import BadParameter
from unskew.grouping import LocalOrShuffle
from unskew.parameters import number, whole_number
from unskew.simulator.key_states import KeyStates
from unskew.simulator.lagging import Lag
from unskew.simulator.local_routing import ByNode
from unskew.simulator.meter import Meter
from unskew.simulator.nodes import Network, Nodes
from unskew.simulator.pair_counts import PairCounts
from unskew.simulator.queues import serve
from unskew.simulator.results import StageResult
from unskew.simulator.routing import ByGrouping, ByPlan, Marks, Router
from unskew.simulator.series import Series
from unskew.simulator.service import Service
from unskew.simulator.travel import Alone, OverLinks, Sent, Travel
from unskew.simulator.tuples import Tuples
from unskew.simulator.watch import Watch, node_loads, pause
from unskew.tally import KeyIndex, KeyTally

HOTTEST = 16
"""Keys of most service that a report tells of, for each instance."""


@dataclass(frozen=True)
class Stage:
    """What a stage is: how many instances, how tuples are routed to them, what they cost there.

    Parameters
    ----------
    name : str
        What results call it.
    instances : int
        Number of instances.
    service : Service
        Work of each tuple.
    grouping : str, default "shuffle"
        How each upstream instance, a source, routes. Beside those of the library there is
        "local-or-shuffle", for stages without keys: an instance on the same node, if there is one.
    parameters : dict, optional
        Parameters of the grouping.
    nodes : Nodes, default one node
        Where the instances run.
    network : Network, default free
        What the hop to this stage costs.
    shards : int, optional
        Route to this many shards, which a plan maps to instances; needed for a balancer. With
        grouping "key" the plan alone routes, as in a pipeline on Spark: the shard of a key follows
        from its hash, whatever the seed.
    balancer : Balancer, optional
        Suggests a new plan at every control interval. A joint one plans all stages together that it
        is given to; one that says where keys live needs grouping "key".
    can_split : bool, default False
        Whether a key may be on several instances at once, if the balancer says so; needs shards
        and grouping "key".
    key : int, default 0
        Which key of a tuple the stage routes by, where tuples have several.
    plan : Plan, optional
        Where shards and keys are at the beginning; shards are dealt in turn by default. Instead of
        `shards`.
    row_bytes : float, default 0
        State that a shard, or a key, gains with each tuple.
    key_bytes : float, default 0
        State that a key has from its first tuple on; for balancers that move keys.
    lag : float, default 0
        Seconds until the last source knows of a new plan, each after its own part of that; needs
        shards, and a grouping other than "key".
    move_seconds_per_byte : float, default 0
        How long both instances of a move stand still for each byte of state. A key that becomes
        hot leaves its state where it is, and one that is not hot any more brings home what its
        instances have gained.
    """

    name: str
    instances: int
    service: Service
    grouping: str = "shuffle"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    nodes: Nodes = field(default_factory=Nodes)
    network: Network = field(default_factory=Network)
    shards: int | None = None
    balancer: Balancer | None = None
    can_split: bool = False
    key: int = 0
    plan: Plan | None = None
    row_bytes: float = 0.0
    key_bytes: float = 0.0
    move_seconds_per_byte: float = 0.0
    lag: float = 0.0

    def __post_init__(self) -> None:
        """Check the ranges, and that a balancer has something to move."""
        whole_number("instances", self.instances, least=1, most=2**31 - 1)
        whole_number("key", self.key, least=0, most=2**20)
        self._take_plan()
        if self.shards is not None:
            whole_number("shards", self.shards, least=self.instances, most=2**31 - 1)
        number("row_bytes", self.row_bytes, least=0)
        number("key_bytes", self.key_bytes, least=0)
        number("move_seconds_per_byte", self.move_seconds_per_byte, least=0)
        if number("lag", self.lag, least=0) and (self.shards is None or self.is_planned):
            raise BadParameter(
                f"stage {self.name!r} has a lag, and sources know plans of shards only; give it "
                f"shards= and a grouping other than {self.grouping!r}"
            )
        if self.balancer is not None and self.shards is None:
            raise BadParameter(
                f"stage {self.name!r} has a balancer, which moves shards; say how many with shards="
            )
        check_keeps_instances(self.name, self.balancer)
        if self.can_split and not self.is_planned:
            raise BadParameter(
                f"stage {self.name!r} has can_split, and only a plan splits keys; give it shards= "
                f'and grouping="key", not {self.grouping!r}'
            )
        if self.grouping == LocalOrShuffle.name and (self.shards or self.parameters):
            raise BadParameter(
                f"stage {self.name!r} has grouping {self.grouping!r}, which chooses among the "
                f"instances of a node; it has no shards and no parameters"
            )
        if self.places_keys and (self.can_split or not self.is_planned):
            raise BadParameter(
                f"stage {self.name!r} has a balancer that says where whole keys live; give it "
                f'grouping="key", not {self.grouping!r}, and no can_split'
            )

    def _take_plan(self) -> None:
        """Check the plan, and have the shards that it has."""
        if self.plan is None:
            return
        if self.plan.instances != self.instances or self.shards not in (None, self.plan.shards):
            raise BadParameter(
                f"stage {self.name!r} has {self.instances} instances and shards={self.shards}, but "
                f"its plan is for {self.plan.instances} and {self.plan.shards}"
            )
        if self.plan.hot:
            raise BadParameter(
                f"stage {self.name!r} begins with a plan that has hot keys, of which no tuple has "
                f"come yet; let a balancer find them"
            )
        if len(self.plan.placed) and self.grouping != "key":
            raise BadParameter(
                f"stage {self.name!r} has a plan that says where keys live, but grouping "
                f'{self.grouping!r} routes; give it grouping="key"'
            )
        object.__setattr__(self, "shards", self.plan.shards)

    @property
    def places_keys(self) -> bool:
        """Whether the balancer says where keys live."""
        return self.balancer is not None and self.balancer.places_keys

    @property
    def is_planned(self) -> bool:
        """Whether the plan alone says where a key is."""
        return self.shards is not None and self.grouping == "key"

    @property
    def is_watched(self) -> bool:
        """Whether something is looked at from time to time: where there is a balancer."""
        return self.balancer is not None

    def start(
        self, place: int, source_nodes: NDArray[np.int32], seed: int, width: float, *, keys: bool
    ) -> Running:
        """Return the stage ready to run."""
        return Running(self, place, source_nodes, seed, width, keys=keys)


class Running:
    """A stage while it is simulated."""

    def __init__(
        self,
        stage: Stage,
        place: int,
        source_nodes: NDArray[np.int32],
        seed: int,
        width: float,
        *,
        keys: bool,
    ) -> None:
        self.stage = stage
        self.place = place
        shards = stage.instances if stage.shards is None else stage.shards
        self.plan = stage.plan or Plan.even(shards, stage.instances)
        self.nodes = stage.nodes.of(stage.instances)
        self._router = _router(stage, shards, source_nodes, seed)
        self._lag = (
            Lag(self.plan, sources=source_nodes.size, most=stage.lag, seed=seed)
            if stage.lag
            else None
        )
        self._travel = _travel(stage, source_nodes)
        self.series = Series(stage.instances, width)
        self.moves = 0
        self.keys_moved = 0
        self.bytes_moved = 0.0
        self.local = 0
        self.hops = 0
        self.tally = KeyTally(stage.instances) if keys else None
        self._index = KeyIndex()
        self._source_nodes = source_nodes
        self._free = np.zeros(stage.instances)
        self._started = 0
        self._following: tuple[int, Stage] | None = None
        self._states = KeyStates(stage.row_bytes, stage.key_bytes)
        self._measure_anew()
        self._state_bytes = np.zeros(shards)
        self._hot_bytes: dict[int, float] = {}
        self._watch = Watch(stage.instances)
        self._carried = self._travel.busy.copy()

    def process(self, tuples: Tuples, watermark: float) -> Tuples:
        """Route and serve tuples that come in the order of time; none later is before `watermark`.

        Returns the served ones with the time they leave and, as source, the instance they leave.
        """
        ready, marks = self._hop(tuples, watermark)
        targets = self._targets(ready, marks)
        work = self.stage.service.work(ready.keys, self._started, self.place)
        if self.stage.network.handling:
            away = self._source_nodes[ready.sources] != self.nodes[targets]
            work = work + self.stage.network.handling * away
        self._started += ready.times.size
        left, busy = np.empty_like(ready.times), np.empty_like(ready.times)
        serve(
            ready.times,
            work,
            targets,
            self._free,
            self.nodes,
            self.stage.nodes.starts,
            self.stage.nodes.speeds,
            left,
            busy,
        )
        self.series.add(ready.times, left, busy, targets)
        if self.stage.balancer is not None:
            shards = self._router.shards(self.plan, ready.keys, marks)
            self._meter.add(ready.keys, shards, busy)
            self._work.add(ready.keys, shards, work)
            self._watch.add(targets, left - busy, left)
        if self.stage.places_keys:
            self._states.add(ready.keys)
        if self._following is not None:
            self._pairs.add(targets, ready.keys, ready.by_key(self._following[1].key).keys)
        if self.tally is not None:
            self.tally.add(self._index.ids(ready.keys), targets)
        return ready._replace(times=left, sources=targets)

    def control(self, now: float) -> None:
        """Show the balancer what was measured since the last time, and carry out its plan."""
        if self.stage.balancer is None:
            return
        report = self.report(now)
        if report is not None:
            self.follow(self.stage.balancer.next_plan(self.plan, report), now)
            self._make_shards(self.stage.balancer.shards_wanted)

    def count_pairs(self, number: int, following: Stage) -> None:
        """Count from now on which keys of a later stage, by its number, follow on those of this."""
        self._following = (number, following)
        self._pairs = self._no_pairs()

    def report(self, now: float) -> Report | None:
        """Return what was measured since the last time, unless that is now."""
        seconds = now - self._watch.since
        if seconds <= 0:
            return None
        utilisation, queues = self._watch.look(now)
        meter, hot = self._meter, self.plan.hot
        # At the mean speed of what was done, whoever did it.
        pace = float(meter.busy.sum() / self._work.busy.sum()) if meter.busy.any() else 1.0
        hottest = self._work.hottest(HOTTEST * self.stage.instances, also=hot)
        self._state_bytes += meter.rows * self.stage.row_bytes
        for key, rows in self._work.rows_of(hot).items():
            self._hot_bytes[key] = self._hot_bytes.get(key, 0.0) + rows * self.stage.row_bytes
        if self.stage.places_keys:
            self._state_bytes = self._states.of_shards(self.plan)
        known: dict[str, Any] = {}
        if self._following is not None:
            number, following = self._following
            known = {
                "pairs": {number: self._pairs.counted()},
                "row_bytes": following.network.tuple_bytes,
            }
        return Report(
            seconds=seconds,
            rows=meter.rows,
            busy=meter.busy,
            work=self._work.busy * pace,
            state_bytes=self._state_bytes.copy(),
            utilisation=utilisation,
            queues=queues,
            hot={key: size * pace for key, size in hottest.items()},
            can_split=self.stage.can_split,
            nodes=node_loads(self.stage.nodes, utilisation, self._links(seconds)),
            keys=self._work.keys_of(self.plan) if self.stage.is_planned else None,
            key_bytes=self._states.mean,
            **known,
        )

    def _links(self, seconds: float) -> NDArray[np.float64] | None:
        """Return the part of the last seconds that the busier link of each node was, if any is."""
        if not self.stage.network.is_shared:
            return None
        carried, self._carried = self._travel.busy - self._carried, self._travel.busy.copy()
        busier: NDArray[np.float64] = carried.max(axis=0)[: self.stage.nodes.count]
        return busier / seconds

    def follow(self, plan: Plan, now: float) -> None:
        """Carry out a plan, and begin to measure anew."""
        if self.stage.places_keys:
            self._move_keys(plan, now)
        else:
            self._move_state(plan, now)
        if self._lag is not None and plan is not self.plan:
            self._lag.follow(plan, now)
        self.plan = plan
        self._measure_anew()
        if self._following is not None:
            self._pairs = self._no_pairs()

    def result(self, end: float) -> StageResult:
        """Return what was measured until a time."""
        return StageResult.of(
            self.stage.name,
            self.series,
            end,
            locality=self.local / self.hops,
            replication_factor=None if self.tally is None else self.tally.replication_factor,
            moves=self.moves,
            keys_moved=self.keys_moved,
            bytes_moved=self.bytes_moved,
            links=self._travel.busy / end,
            shards=self.plan.shards,
        )

    def _no_pairs(self) -> PairCounts:
        balancer = self.stage.balancer
        return PairCounts(self.stage.instances, balancer.counts_pairs if balancer else 1)

    def _move_keys(self, plan: Plan, now: float) -> None:
        """Let instances stand still while keys, and those of whole shards, go to others."""
        self.moves += len(plan.moves(self.plan))
        rehomed = plan.rehomed(self.plan)
        places = self.plan.assignment[rehomed.shards], plan.assignment[rehomed.to]
        self.keys_moved += int(np.count_nonzero(places[0] != places[1]))
        flows = self._states.moved(self.plan, plan)
        self.bytes_moved += float(flows.sum())
        for giver, taker in np.argwhere(flows > 0).tolist():
            self._pause(now, giver, taker, float(flows[giver, taker]))

    def _move_state(self, plan: Plan, now: float) -> None:
        """Let instances stand still while state goes where the next plan wants it."""
        for shard, giver, taker in plan.moves(self.plan):
            self.moves += 1
            self._pause(now, giver, taker, float(self._state_bytes[shard]))
        for key in sorted(self.plan.hot.keys() - plan.hot.keys()):
            size, copies = self._hot_bytes.pop(key), self.plan.hot[key]
            home = plan.shard_of(np.array([key], dtype=np.uint64))
            self._state_bytes[home] += size
            for copy in copies:
                self._pause(now, copy, int(plan.assignment[home[0]]), size / len(copies))

    def _measure_anew(self) -> None:
        """Begin to add up the service of tuples, and the work that they are, by shard."""
        self._meter = Meter(self.plan.shards, by_key=False)
        self._work = Meter(self.plan.shards, by_key=self.stage.is_planned)

    def _make_shards(self, wanted: int) -> None:
        """Divide all shards, where the balancer says that they are too few and they can be."""
        router = self._router
        if wanted <= self.plan.shards or not isinstance(router, ByGrouping) or not router.can_split:
            return
        times = -(-wanted // self.plan.shards)
        router.split(times)
        # Tuples under way carry the shard that their source chose.
        self._travel.divide(times)
        if self._lag is not None:
            self._lag.split(times)
        table = np.repeat(self.plan.assignment, times)
        self.plan = Plan(table, self.plan.instances, self.plan.epoch + 1)
        self._state_bytes = np.repeat(self._state_bytes / times, times)
        self._measure_anew()

    def _targets(self, tuples: Tuples, marks: Marks) -> NDArray[np.int32]:
        """Return where tuples go: by the plan, or by what their sources know of it."""
        if self._lag is not None:
            return self._lag.instances(marks, tuples.sources, tuples.times)
        return self._router.instances(self.plan, tuples.keys, marks)

    def _pause(self, now: float, giver: int, taker: int, size: float) -> None:
        pause(self._free, now, giver, taker, size * self.stage.move_seconds_per_byte)

    def _hop(self, tuples: Tuples, watermark: float) -> tuple[Tuples, Marks]:
        """Route tuples, and return those that have come, in the order in which they do."""
        marks = self._router.send(self.plan, tuples.keys, tuples.sources)
        targets = self._targets(tuples, marks)
        givers, takers = self._source_nodes[tuples.sources], self.nodes[targets]
        self.local += int(np.count_nonzero(givers == takers))
        self.hops += givers.size
        come = self._travel.go(Sent(tuples, marks, givers, takers), watermark)
        return come.tuples, come.marks


def check_keeps_instances(stage: str, balancer: Balancer | None) -> None:
    """Refuse a balancer that may ask for other instances than there are."""
    if balancer is not None and balancer.bounds is not None:
        raise BadParameter(
            f"{balancer.name} may ask for {balancer.bounds[0]} to {balancer.bounds[1]} instances, "
            f"but the simulated stage {stage!r} stays with those that it has; give the balancer no "
            f"instances="
        )


def _router(stage: Stage, shards: int, source_nodes: NDArray[np.int32], seed: int) -> Router:
    sources = source_nodes.size
    if stage.grouping == LocalOrShuffle.name:
        return ByNode(source_nodes, stage.nodes.of(stage.instances))
    # Parameters, of which key grouping has none, are refused by the grouping.
    if stage.is_planned and not stage.parameters:
        return ByPlan(sources)
    return ByGrouping(stage.grouping, stage.parameters, shards=shards, sources=sources, seed=seed)


def _travel(stage: Stage, source_nodes: NDArray[np.int32]) -> Travel:
    if stage.network.is_shared:
        return OverLinks(stage.network, max(stage.nodes.count, 1 + int(source_nodes.max())))
    return Alone(stage.network)
