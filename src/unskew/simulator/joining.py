"""A stage that joins two streams within a window, tuple by tuple, at any scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.balance import Balancer, Plan, Report
from unskew.errors import BadParameter
from unskew.grouping import ContRand
from unskew.kernel import kernel
from unskew.metrics import load_imbalance
from unskew.mixing import counter_bits, spread_seed, unit
from unskew.parameters import check_parameters, number, whole_number
from unskew.simulator.copies import Copies
from unskew.simulator.meter import Meter
from unskew.simulator.nodes import Network, Nodes
from unskew.simulator.queues import serve
from unskew.simulator.results import StageResult
from unskew.simulator.sending import Sender, ToGroups, ToShards
from unskew.simulator.series import Series
from unskew.simulator.stage import HOTTEST, check_keeps_instances
from unskew.simulator.stored import HOME, Parts, Stored
from unskew.simulator.tuples import Tuples
from unskew.simulator.watch import Watch, node_loads, pause
from unskew.tally import KeyIndex, KeyTally

_SIDES = np.uint64(0x7369646573)
"""Parts what is drawn for sides from all else that has the same seed."""


@dataclass(frozen=True)
class Join:
    """A symmetric join of two streams: each tuple meets those of the other side in the window.

    A tuple is kept at one instance for the length of the window, and looks for partners at every
    instance that may keep some of its key. It is done when the last of these copies is. Each pair
    is found once, when the later of the two comes, whatever moves or is split meanwhile.

    Parameters
    ----------
    name : str
        What results call it.
    instances : int
        Number of instances.
    window : float
        Seconds up to which two tuples may be apart, above 0.
    keep, probe, pair : float
        Seconds of work to keep a tuple, to look for partners with each copy of it, and to make
        each pair.
    left : float, default 0.5
        Part of the tuples that is of the left stream, between 0 and 1; which ones is drawn.
    grouping : str, default "key"
        How a tuple finds its place: "key" by the plan, "contrand" at a group of instances.
    parameters : dict, optional
        Parameters of the grouping.
    nodes : Nodes, default one node
        Where the instances run.
    shards : int, optional
        Shards of the plan; one for each instance by default.
    balancer : Balancer, optional
        Moves shards, with the tuples that they keep.
    can_split : bool, default False
        Whether the balancer may have a key on several instances.
    row_bytes : float, default 0
        State that is kept with each tuple.
    move_seconds_per_byte : float, default 0
        How long both instances of a move stand still for each byte of state. A key that becomes
        hot leaves what it keeps where that is; an instance that is not named for it any more brings
        its part home.

    Examples
    --------
    >>> from unskew.simulator import Steady, simulate
    >>> from unskew.workloads import Zipf
    >>> join = Join("join", instances=4, window=1.0, keep=1e-4, probe=1e-4, pair=1e-6)
    >>> result = simulate(Zipf(1.0, 1000, 10_000), Steady(5000.0), [join])
    >>> result.stages[0].loads.sum(), bool(result.stages[0].pairs > 10_000)
    (np.int64(10000), True)

    References
    ----------
    LS-Stream, Sections III and IV.
    """

    name: str
    instances: int
    window: float
    keep: float
    probe: float
    pair: float
    left: float = 0.5
    grouping: str = "key"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    nodes: Nodes = field(default_factory=Nodes)
    shards: int | None = None
    balancer: Balancer | None = None
    can_split: bool = False
    row_bytes: float = 0.0
    move_seconds_per_byte: float = 0.0

    def __post_init__(self) -> None:
        """Check the ranges, and that a balancer has something to move."""
        whole_number("instances", self.instances, least=1, most=2**31 - 1)
        if self.shards is not None:
            whole_number("shards", self.shards, least=self.instances, most=2**31 - 1)
        number("window", self.window, above=0)
        number("left", self.left, above=0, below=1)
        for name in ("keep", "probe", "pair", "row_bytes", "move_seconds_per_byte"):
            number(name, getattr(self, name), least=0)
        if self.grouping not in ("key", ContRand.name):
            raise BadParameter(
                f"join {self.name!r} has grouping {self.grouping!r}, which does not tell where all "
                f'partners of a tuple are; choose "key" or "{ContRand.name}"'
            )
        if self.grouping == "key" and self.parameters:
            raise BadParameter(
                f"key has no parameters, but join {self.name!r} gives {', '.join(self.parameters)}"
            )
        check_parameters(self.grouping, ContRand, self.parameters, others=("instances",))
        if self.grouping != "key" and (self.shards or self.balancer or self.can_split):
            raise BadParameter(
                f"join {self.name!r} has grouping {self.grouping!r}, and only a plan has shards to "
                f'move and keys to split; give it grouping="key"'
            )
        if self.balancer is not None and self.shards is None:
            raise BadParameter(
                f"join {self.name!r} has a balancer, which moves shards; say how many with shards="
            )
        check_keeps_instances(self.name, self.balancer)
        if self.balancer is not None and self.balancer.places_keys:
            raise BadParameter(
                f"{self.balancer.name} plans stages together, and what join {self.name!r} keeps "
                f"does not move with keys; balance it by itself"
            )

    @property
    def key(self) -> int:
        """The first key of a tuple is that of the join."""
        return 0

    @property
    def network(self) -> Network:
        """Hops take no time: all that comes is of one order."""
        return Network()

    @property
    def is_watched(self) -> bool:
        """Loads over time are told, with a balancer or without."""
        return True

    def start(
        self, place: int, source_nodes: NDArray[np.int32], seed: int, width: float, *, keys: bool
    ) -> RunningJoin:
        """Return the stage ready to run."""
        return RunningJoin(self, place, seed, width, keys=keys)


@dataclass(frozen=True, kw_only=True)
class JoinResult(StageResult):
    """What a join did; loads and queues count copies.

    Attributes
    ----------
    pairs : int
        Pairs that were found.
    moved : int
        Tuples that went to another instance with their shard or key.
    looks : array of float64
        When the join was looked at, every `control` seconds.
    asked : array of float64
        Seconds of service that the tuples between two looks asked of each instance, a row a look.
    copies, stored : array of int64
        Copies that each instance got between two looks, and tuples that it had at the second.
    """

    pairs: int
    moved: int
    looks: NDArray[np.float64]
    asked: NDArray[np.float64]
    copies: NDArray[np.int64]
    stored: NDArray[np.int64]

    @property
    def load_imbalances(self) -> NDArray[np.float64]:
        """Of the seconds asked for, between each two looks; 0 where nothing came."""
        return np.array([load_imbalance(row) if row.any() else 0.0 for row in self.asked])


class RunningJoin:
    """A join while it is simulated."""

    def __init__(self, join: Join, place: int, seed: int, width: float, *, keys: bool) -> None:
        self.join = join
        self.plan = Plan.even(join.shards or join.instances, join.instances)
        self.series = Series(join.instances, width)
        self.moves = 0
        self.moved = 0
        self.pairs = 0
        self.tally = KeyTally(join.instances) if keys else None
        self._index = KeyIndex()
        self._sender = _sender(join, seed)
        self._side_seed = side_seed(seed, place)
        self._parts = Parts()
        self._stored = Stored(join.window)
        self._free = np.zeros(join.instances)
        self._started = 0
        self._watch = Watch(join.instances)
        self._looks: list[tuple[float, NDArray[Any], NDArray[Any], NDArray[Any]]] = []
        self._begin()

    def _begin(self) -> None:
        """Begin to measure anew."""
        self._meter = Meter(self.plan.shards, by_key=False)
        self._work = Meter(self.plan.shards, by_key=self.join.balancer is not None)
        self._asked = np.zeros(self.join.instances)
        self._copies = np.zeros(self.join.instances, dtype=np.int64)

    def process(self, tuples: Tuples, watermark: float) -> Tuples:
        """Serve tuples that come in the order of time; see `AnyRunning`.

        Returns them with the time when their last copy is done and, as source, where they are kept.
        """
        del watermark
        if not tuples.times.size:
            return tuples
        sides = draw_sides(self._side_seed, self._started, tuples.times.size, self.join.left)
        self._started += sides.size
        copies = self._sender.send(self.plan, tuples.keys, self._parts)
        pairs = self._stored.meet(tuples.times, sides, copies, len(self._parts))
        self.pairs += int(pairs.sum())
        join = self.join
        work = join.probe + join.keep * copies.is_kept + join.pair * pairs
        came = tuples.times[copies.rows]
        left, busy = np.empty_like(came), np.empty_like(came)
        serve(
            *(came, work, copies.instances, self._free, join.nodes.of(join.instances)),
            *(join.nodes.starts, join.nodes.speeds, left, busy),
        )
        self._measure(tuples.keys, copies, work, came, left, busy)
        first = np.searchsorted(copies.rows, np.arange(tuples.times.size))
        return tuples._replace(
            times=np.maximum.reduceat(left, first), sources=copies.instances[copies.is_kept]
        )

    def _measure(
        self,
        keys: NDArray[np.uint64],
        copies: Copies,
        work: NDArray[np.float64],
        came: NDArray[np.float64],
        left: NDArray[np.float64],
        busy: NDArray[np.float64],
    ) -> None:
        self.series.add(came, left, busy, copies.instances)
        self._watch.add(copies.instances, left - busy, left)
        np.add.at(self._asked, copies.instances, busy)
        np.add.at(self._copies, copies.instances, 1)
        if self.join.balancer is not None:
            own = keys[copies.rows]
            shards = self.plan.shard_at(0, own)
            self._meter.add(own, shards, busy)
            self._work.add(own, shards, work)
        if self.tally is not None:
            self.tally.add(self._index.ids(keys), copies.instances[copies.is_kept])

    def control(self, now: float) -> None:
        """Note the loads, show them to the balancer, and carry out its plan."""
        seconds = now - self._watch.since
        if seconds <= 0:
            return
        utilisation, queues = self._watch.look(now)
        self._stored.expire(now)
        self._looks.append((now, self._asked, self._copies, self._kept_at()))
        if self.join.balancer is not None:
            stored = self._kept_in()
            speeds = self.join.nodes.speeds_at(now)[self.join.nodes.of(self.join.instances)]
            hottest = self._work.hottest(HOTTEST * self.join.instances, also=self.plan.hot)
            report = Report(
                seconds=seconds,
                rows=self._meter.rows,
                busy=self._meter.busy,
                state_bytes=stored.astype(np.float64) * self.join.row_bytes,
                utilisation=utilisation,
                queues=queues,
                hot={key: size / float(speeds.mean()) for key, size in hottest.items()},
                can_split=self.join.can_split,
                nodes=node_loads(self.join.nodes, utilisation),
                work=self._work.busy / speeds.mean(),
                stored=stored,
                watermark=int(1e6 * now),
                latest=int(1e6 * (now + self.join.window)),
            )
            plan = self.join.balancer.next_plan(self.plan, report)
            self._move(plan, stored, now)
            self.plan = plan
        self._begin()

    def result(self, end: float) -> JoinResult:
        """Return what was measured until a time."""
        looks, asked, copies, stored = zip(*self._looks, strict=True) if self._looks else [()] * 4
        shape = (len(self._looks), self.join.instances)
        return JoinResult.of(
            self.join.name,
            self.series,
            end,
            # Its sources have nodes of their own.
            locality=0.0,
            replication_factor=None if self.tally is None else self.tally.replication_factor,
            moves=self.moves,
            pairs=self.pairs,
            moved=self.moved,
            looks=np.array(looks),
            asked=np.array(asked).reshape(shape),
            copies=np.array(copies, dtype=np.int64).reshape(shape),
            stored=np.array(stored, dtype=np.int64).reshape(shape),
        )

    def _kept_in(self) -> NDArray[np.int64]:
        """Return the tuples that each shard keeps."""
        counts, home = self._stored.counts.sum(axis=0), self._parts.instances == HOME
        shards = self.plan.shard_of(self._parts.keys[home])
        return np.bincount(shards, counts[home], self.plan.shards).astype(np.int64)

    def _kept_at(self) -> NDArray[np.int64]:
        """Return the tuples that each instance keeps."""
        places = self._parts.instances.copy()
        home = places == HOME
        places[home] = self.plan.assignment[self.plan.shard_of(self._parts.keys[home])]
        counts = self._stored.counts.sum(axis=0)
        return np.bincount(places, counts, self.join.instances).astype(np.int64)

    def _move(self, plan: Plan, stored: NDArray[np.int64], now: float) -> None:
        """Let instances stand still while tuples go where the next plan wants them."""
        for shard, giver, taker in plan.moves(self.plan):
            self.moves += 1
            self._pause(now, giver, taker, int(stored[shard]))
        for key in sorted(self.plan.hot):
            gone = np.array(sorted(self.plan.parts_of(key) - plan.parts_of(key)), dtype=np.int32)
            if gone.size:
                keys = np.full(gone.size, key, dtype=np.uint64)
                home, parts = self._parts.home(keys), self._parts.at(keys, gone)
                self._stored.make_room(len(self._parts))
                taker = int(plan.assignment[plan.shard_of(keys[:1])[0]])
                for giver, size in zip(
                    gone.tolist(), self._stored.merge(parts, home).tolist(), strict=True
                ):
                    self._pause(now, giver, taker, size)

    def _pause(self, now: float, giver: int, taker: int, tuples: int) -> None:
        if giver != taker:
            self.moved += tuples
            seconds = tuples * self.join.row_bytes * self.join.move_seconds_per_byte
            pause(self._free, now, giver, taker, seconds)


def _sender(join: Join, seed: int) -> Sender:
    if join.grouping == "key":
        return ToShards()
    return ToGroups(ContRand(join.instances, **{"seed": seed, **join.parameters}))


def side_seed(seed: int, place: int = 0) -> np.uint64:
    """Return what draws the sides of a join that is stage number `place`."""
    return np.uint64(counter_bits(spread_seed(seed) ^ _SIDES, np.uint64(place)))


def draw_sides(seed: np.uint64, start: int, count: int, left: float) -> NDArray[np.int8]:
    """Return the sides of some tuples from number `start` on: 0 is left, 1 is right.

    Examples
    --------
    >>> bool(abs(draw_sides(side_seed(0), 0, 10_000, left=0.3).mean() - 0.7) < 0.02)
    True
    """
    sides = np.empty(count, dtype=np.int8)
    _draw(sides, seed, start, left)
    return sides


@kernel
def _draw(sides: NDArray[np.int8], seed: np.uint64, start: int, left: float) -> None:
    for i in range(sides.size):
        sides[i] = 0 if unit(counter_bits(seed, np.uint64(start + i))) < left else 1
