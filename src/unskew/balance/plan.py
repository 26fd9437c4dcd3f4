"""The plan: where each shard runs, and which instances share a hot key."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.balance.placed import Placed
from unskew.errors import BadParameter, BadPlan
from unskew.parameters import key_hashes, whole_number

FORMAT = 2
"""Version of the JSON form of a plan; it grows when older readers would misread it."""


class Rehomed(NamedTuple):
    """Keys that go from one shard to another.

    Attributes
    ----------
    keys : array of uint64
        Their hashes, sorted.
    shards, to : array of int64
        Where each was, and where it is to be.
    """

    keys: NDArray[np.uint64]
    shards: NDArray[np.int64]
    to: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Plan:
    """An immutable table from shard to instance and from hot key to instances, with an epoch.

    The shard of a key is its hash, as a signed number, modulo the number of shards; Spark computes
    the same with ``pmod(xxhash64(...), shards)``. A hot key does not go with its shard: its tuples
    are dealt to the instances that the plan names for it, and one named twice takes twice as many.

    Parameters
    ----------
    assignment : array of int32
        Instance of each shard.
    instances : int
        Number of instances; every entry of the table is one of them.
    epoch : int, default 0
        Number of the version.
    hot : mapping of int to sequence of int, default none
        Instances of each hot key, by the hash of the key as an unsigned number.
    leaving : mapping of int to mapping of int to int, default none
        Instances that get no more tuples of a hot key but still keep some, and the event time, in
        microseconds, at which the last of these has expired: joins look there until then.
    placed : Placed, default none
        Shards of keys that are not in that of their hash: keys that should live together.

    Examples
    --------
    >>> plan = Plan.even(shards=4, instances=2)
    >>> plan.assignment.tolist()
    [0, 1, 0, 1]
    >>> later = plan.move({3: 0})
    >>> later.moves(plan), later.epoch
    ([(3, 1, 0)], 1)
    >>> split = Plan(plan.assignment, 2, hot={7: (0, 1, 1)})
    >>> split.route(np.array([7, 7, 7, 6], dtype=np.uint64), np.arange(4)).tolist()
    [0, 1, 1, 0]
    """

    assignment: NDArray[np.int32]
    instances: int
    epoch: int = 0
    hot: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    leaving: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    placed: Placed = field(default_factory=Placed.none)

    def __post_init__(self) -> None:
        """Check that every shard has an instance, and keep the tables from being written."""
        table = np.array(self.assignment, dtype=np.int32)
        whole_number("instances", self.instances, least=1, most=2**31 - 1)
        whole_number("epoch", self.epoch, least=0, most=2**63 - 1)
        if table.ndim != 1 or table.size == 0:
            raise BadParameter(f"a plan needs one instance for each shard, not shape {table.shape}")
        if int(table.min()) < 0 or int(table.max()) >= self.instances:
            raise BadParameter(
                f"a plan for {self.instances} instances names instances {table.min()} to "
                f"{table.max()}; every shard must be on a live instance"
            )
        hot = {}
        for key, given in self.hot.items():
            whole_number("the hash of a hot key", key, least=0, most=2**64 - 1)
            copies = tuple(int(instance) for instance in given)
            if not copies or min(copies) < 0 or max(copies) >= self.instances:
                raise BadParameter(
                    f"a plan for {self.instances} instances has hot key {key} on {copies}; every "
                    f"hot key needs live instances"
                )
            hot[int(key)] = copies
        leaving = {}
        for key, given_times in self.leaving.items():
            times = {int(instance): int(until) for instance, until in given_times.items()}
            if not times:
                continue
            if min(times) < 0 or max(times) >= self.instances or times.keys() & {*hot.get(key, ())}:
                raise BadParameter(
                    f"a plan of {self.instances} instances has key {key} leave {sorted(times)} for "
                    f"{hot.get(key, ())}; only live instances that get no more of it are left"
                )
            if key not in hot:
                raise BadParameter(f"a plan has key {key} leave instances, but it is not hot there")
            leaving[int(key)] = MappingProxyType(times)
        shards = self.placed.shards
        if shards.size and (int(shards.min()) < 0 or int(shards.max()) >= table.size):
            raise BadParameter(
                f"a plan of {table.size} shards has keys in shards {shards.min()} to "
                f"{shards.max()}; every key must be in one of them"
            )
        table.setflags(write=False)
        object.__setattr__(self, "assignment", table)
        object.__setattr__(self, "hot", MappingProxyType(hot))
        object.__setattr__(self, "leaving", MappingProxyType(leaving))

    def __eq__(self, other: object) -> bool:
        """Return whether another plan says the same of every shard and hot key."""
        return isinstance(other, Plan) and self.to_json() == other.to_json()

    def says_as(self, other: Plan) -> bool:
        """Return whether another plan has all shards and keys in the same places, if later."""
        return {**self.to_json(), "epoch": 0} == {**other.to_json(), "epoch": 0}

    def __hash__(self) -> int:
        """Return a hash that equal plans share."""
        return hash((self.assignment.tobytes(), self.instances, self.epoch))

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to workers as what JSON knows."""
        return Plan.from_json, (self.to_json(),)

    @classmethod
    def even(cls, shards: int, instances: int) -> Plan:
        """Return the plan that deals the shards to the instances in turn."""
        return cls((np.arange(shards) % instances).astype(np.int32), instances)

    @property
    def shards(self) -> int:
        """Number of shards."""
        return int(self.assignment.size)

    def shard_of(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the shard of each key hash: where it is placed, or that of its hash."""
        return self.placed.look_up(keys, self.hashed_shard_of(keys))

    def hashed_shard_of(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the shard that each key hash has unless it is placed elsewhere."""
        return key_hashes("shard_of", keys).view(np.int64) % self.shards

    def state_shards(self, instance: int, present: Iterable[int] = ()) -> list[int]:
        """Return the shards whose state an instance keeps: its own, and that of its hot keys.

        A hot key is not with its shard: each instance keeps its part of all hot keys in a shard of
        its own, which has the number of the instance after those of all others and never moves.
        Those that instances have left which are no more are dealt to the others.

        Parameters
        ----------
        instance : int
            Which one.
        present : iterable of int
            Shards that have state, among them perhaps some that were left.

        Examples
        --------
        >>> Plan.even(shards=4, instances=2).state_shards(1, present=[3, 7])
        [1, 3, 5, 7]
        """
        own = set(np.flatnonzero(self.assignment == instance).tolist())
        own.add(self.hot_shard(instance))
        own.update(s for s in present if self.is_hot_shard(s) and self.keeper(s) == instance)
        return sorted(own)

    def hot_shard(self, instance: int) -> int:
        """Return the shard in which an instance keeps its parts of hot keys."""
        return self.shards + instance

    def is_hot_shard(self, shard: int) -> bool:
        """Return whether a shard is one of parts of hot keys."""
        return shard >= self.shards

    def keeper(self, shard: int) -> int:
        """Return the instance that keeps the state of a shard, of hot keys or not."""
        if self.is_hot_shard(shard):
            return (shard - self.shards) % self.instances
        return int(self.assignment[shard])

    @property
    def hot_hashes(self) -> NDArray[np.uint64]:
        """The hashes of the hot keys, sorted."""
        return np.array(sorted(self.hot), dtype=np.uint64)

    def shard_at(self, instance: int, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the shard that an instance keeps the state of each key in; see `state_shards`."""
        chosen = self.shard_of(keys)
        if self.hot:
            chosen[np.isin(keys, self.hot_hashes)] = self.hot_shard(instance)
        return chosen

    def route(self, keys: NDArray[np.uint64], turns: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the instance of each tuple.

        Parameters
        ----------
        keys : array of uint64
            Hashes of the keys.
        turns : array of int64
            For each tuple the number by which a hot key chooses among its instances, in turn.
        """
        chosen = self.assignment[self.shard_of(keys)]
        if self.hot:
            hashes = self.hot_hashes
            place = np.minimum(np.searchsorted(hashes, keys), hashes.size - 1)
            is_hot = hashes[place] == keys
            for number in np.unique(place[is_hot]).tolist():
                rows = np.flatnonzero(is_hot & (place == number))
                copies = np.array(self.hot[int(hashes[number])], dtype=np.int32)
                chosen[rows] = copies[turns[rows] % copies.size]
        return chosen

    def route_to_all(
        self, keys: NDArray[np.uint64], turns: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.bool_]]:
        """Return all that may have state of each tuple's key: for joins.

        A tuple is kept by the instance that `route` gives it, and looks for partners there and at
        all others that keep some of its key: those that the plan names, and the home of its shard.

        Returns
        -------
        rows, instances, is_kept : arrays
            For each copy of a tuple its place in `keys`, where it goes, and whether it is kept.
        """
        chosen = self.route(keys, turns)
        rows, instances = [np.arange(keys.size)], [chosen]
        for key in self.hot:
            own = np.flatnonzero(keys == np.uint64(key))
            for instance in sorted(self.holders_of(key)):
                others = own[chosen[own] != instance]
                rows.append(others)
                instances.append(np.full(others.size, instance, dtype=np.int32))
        places = np.concatenate(rows)
        is_kept = np.arange(places.size) < keys.size
        return places, np.concatenate(instances), is_kept

    def parts_of(self, key: int) -> frozenset[int]:
        """Return the instances that are named for a hot key or are leaving it, or none."""
        return frozenset(self.hot.get(key, ())) | frozenset(self.leaving.get(key, ()))

    def holders_of(self, key: int) -> frozenset[int]:
        """Return every instance that may have state of a key: its parts, and its home."""
        home = self.assignment[self.shard_of(np.array([key], dtype=np.uint64))]
        return self.parts_of(key) | frozenset(home.tolist())

    def move(self, changes: dict[int, int]) -> Plan:
        """Return the next plan: the same but for some shards, given as shard: instance."""
        table = self.assignment.copy()
        for shard, instance in changes.items():
            table[shard] = instance
        return Plan(table, self.instances, self.epoch + 1, self.hot, self.leaving, self.placed)

    def moves(self, before: Plan) -> list[tuple[int, int, int]]:
        """Return (shard, from, to) of each shard that another plan had elsewhere."""
        if before.shards != self.shards:
            raise BadParameter(
                f"plans of {before.shards} and {self.shards} shards cannot be compared"
            )
        changed = np.flatnonzero(before.assignment != self.assignment)
        return [
            (int(shard), int(before.assignment[shard]), int(self.assignment[shard]))
            for shard in changed
        ]

    def hot_moves(self, before: Plan) -> list[tuple[int, frozenset[int], frozenset[int]]]:
        """Return (key, from, to) of each key that is on other instances than in another plan.

        A key that only one of the plans calls hot is, in the other, where its shard is.
        """
        found = []
        for key in sorted(self.hot.keys() | before.hot.keys()):
            old, new = before.instances_of(key), self.instances_of(key)
            if old != new:
                found.append((key, old, new))
        return found

    def cooled(self, before: Plan) -> dict[int, list[int]]:
        """Return, by hot shard, the keys whose parts there nobody would look for any more.

        Another plan had them there; now they have to go home.

        Examples
        --------
        >>> before = Plan(np.array([0, 1]), 3, hot={4: (0, 1, 2)})
        >>> Plan(before.assignment, 3, hot={4: (1, 2)}).cooled(before)
        {}
        >>> Plan(before.assignment, 3, hot={4: (0, 1)}).cooled(before)
        {4: [4]}
        >>> Plan(before.assignment, 3).cooled(before)
        {2: [4], 3: [4], 4: [4]}
        """
        found: dict[int, list[int]] = {}
        for key in sorted(before.hot):
            gone = before.holders_of(key)
            if key in self.hot:
                gone -= self.holders_of(key)
            for instance in sorted(gone):
                found.setdefault(before.hot_shard(instance), []).append(key)
        return dict(sorted(found.items()))

    def rehomed(self, before: Plan) -> Rehomed:
        """Return the keys that another plan had in other shards.

        Examples
        --------
        >>> before = Plan.even(shards=4, instances=2)
        >>> placed = Placed(np.array([7], dtype=np.uint64), np.array([1]))
        >>> Plan(before.assignment, 2, placed=placed).rehomed(before)
        Rehomed(keys=array([7], dtype=uint64), shards=array([3]), to=array([1]))
        """
        keys = np.union1d(self.placed.keys, before.placed.keys)
        old, new = before.shard_of(keys), self.shard_of(keys)
        moved = old != new
        return Rehomed(keys[moved], old[moved], new[moved])

    def instances_of(self, key: int) -> frozenset[int]:
        """Return every instance that tuples of a key, given by its hash, may go to."""
        if key in self.hot:
            return frozenset(self.hot[key])
        shard = self.shard_of(np.array([key], dtype=np.uint64))
        return frozenset(self.assignment[shard].tolist())

    def to_json(self) -> dict[str, Any]:
        """Return the plan as what JSON knows; hashes are text, as JSON readers round numbers.

        Examples
        --------
        >>> Plan.even(2, 2).to_json()["assignment"]
        [0, 1]
        """
        return {
            "format": FORMAT,
            "instances": self.instances,
            "epoch": self.epoch,
            "assignment": self.assignment.tolist(),
            "hot": {str(key): list(copies) for key, copies in self.hot.items()},
            "leaving": {
                str(key): {str(instance): until for instance, until in times.items()}
                for key, times in self.leaving.items()
            },
            "placed": self.placed.to_json(),
        }

    @classmethod
    def from_json(cls, data: Any) -> Plan:
        """Return the plan that `to_json` wrote, given as text or as already read.

        Raises
        ------
        BadPlan
            If it is no plan, or of a later version.
        """
        try:
            read = json.loads(data) if isinstance(data, str) else data
            version = read["format"]
            if isinstance(version, int) and version > FORMAT:
                raise BadPlan(
                    f"the plan has format {version} and this version of unskew reads up to "
                    f"{FORMAT}; read it with a newer unskew"
                )
            hot = {int(key): tuple(copies) for key, copies in read["hot"].items()}
            # The first format had neither of these.
            leaving = {
                int(key): {int(instance): int(until) for instance, until in times.items()}
                for key, times in read.get("leaving", {}).items()
            }
            placed = Placed.from_json(read["placed"]) if "placed" in read else Placed.none()
            table = np.array(read["assignment"])
            return cls(table, read["instances"], read["epoch"], hot, leaving, placed)
        except BadPlan:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise BadPlan(
                f"this is no plan as Plan.to_json writes it ({type(error).__name__}: {error}); "
                f"make a new one"
            ) from error

    def to_arrow(self) -> pa.Table:
        """Return the plan as a table: a row for each shard, then one for each turn of a hot key.

        Examples
        --------
        >>> Plan(np.array([1, 0]), 2, hot={7: (0, 1)}).to_arrow().to_pydict()["instance"]
        [1, 0, 0, 1]
        """
        turns = [(key, copy) for key, copies in self.hot.items() for copy in copies]
        shards: list[int | None] = [*range(self.shards), *[None] * len(turns)]
        keys: list[int | None] = [*[None] * self.shards, *(key for key, _ in turns)]
        instances = [*self.assignment.tolist(), *(copy for _, copy in turns)]
        columns = {
            "shard": pa.array(shards, pa.int32()),
            "key": pa.array(keys, pa.uint64()),
            "instance": pa.array(instances, pa.int32()),
        }
        known = self.to_json()
        about = {
            name: known[name] for name in ("format", "instances", "epoch", "leaving", "placed")
        }
        return pa.table(columns).replace_schema_metadata({"unskew.plan": json.dumps(about)})

    @classmethod
    def from_arrow(cls, table: pa.Table) -> Plan:
        """Return the plan that `to_arrow` made, or raise `BadPlan` as `from_json` does."""
        about = (table.schema.metadata or {}).get(b"unskew.plan")
        if about is None:
            raise BadPlan("this table is no plan as Plan.to_arrow makes it; make a new one")
        hot: dict[str, list[int]] = {}
        shards = table.column("shard").to_pylist()
        rows = zip(
            shards, *(table.column(name).to_pylist() for name in ("key", "instance")), strict=True
        )
        assignment = []
        for shard, key, instance in rows:
            if shard is None:
                hot.setdefault(str(key), []).append(instance)
            else:
                assignment.append(instance)
        return cls.from_json({**json.loads(about), "assignment": assignment, "hot": hot})
