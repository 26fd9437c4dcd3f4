"""Consistent Grouping: keys onto shards that are alike, shards onto instances by a plan."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from unskew.errors import BadParameter
from unskew.grouping.base import Grouping
from unskew.grouping.bounded_ring import BoundedRing
from unskew.grouping.random_choices import RandomChoices
from unskew.parameters import key_hashes, number, one_of, whole_number

WALKS = ("random-choices", "bounded-ring")

_MOST_SHARDS = 2**31 - 1


class Assignment(Protocol):
    """What says where shards run, as a plan does."""

    @property
    def assignment(self) -> NDArray[np.int32]:
        """Instance of each shard."""


class Consistent(Grouping):
    """Deal keys to shards of equal load, and shards to instances as a plan says.

    The shards, the paper's virtual workers, get the same number of tuples each, at most e + s / m
    above the mean after m tuples on s shards, whatever the keys: a walk over the shards finds one
    with room. So an instance gets tuples in proportion to its shards, and a plan that gives fast
    instances more of them fits machines that are not alike. The plan may be replaced at any time;
    only tuples that are still to come go by the new one. The cost is that of the walk, and one
    look into the plan.

    Parameters
    ----------
    instances, seed, source
        As of `Grouping`.
    e : float, default 0.01
        Room of a shard above the mean, above 0. Less room is less imbalance and more splitting.
    walk : {"random-choices", "bounded-ring"}, default "random-choices"
        How a key looks for a shard with room: by choices of its own (PoRC), or along a ring
        (CG-CH), which splits more keys.
    shards_per_instance : int, default 10
        Shards of each instance at the beginning, at least 1. More follow speeds more finely.
    shards : int, optional
        All shards together, at least one for each instance, in place of `shards_per_instance`.

    Examples
    --------
    >>> router = Consistent(2, shards=4)
    >>> keys = np.arange(4000, dtype=np.uint64)
    >>> router.route(keys).size, router.loads.tolist()
    (4000, [1994, 2006])
    >>> router.plan = [0, 0, 0, 1]      # the first is three times as fast
    >>> (np.bincount(router.route(keys)) / 4000).round(2).tolist()
    [0.75, 0.25]

    References
    ----------
    Consistent Grouping, Section V: power of random choices, and virtual workers.
    """

    name: ClassVar[str] = "consistent"
    reference: ClassVar[str] = "CG: Consistent Grouping, Section V"
    _per_batch: ClassVar[tuple[str, ...]] = ("loads", "walk")

    def __init__(
        self,
        instances: int,
        *,
        seed: int = 0,
        source: int = 0,
        e: float = 0.01,
        walk: str = "random-choices",
        shards_per_instance: int = 10,
        shards: int | None = None,
    ) -> None:
        super().__init__(instances, seed=seed, source=source)
        self.e = number("e", e, above=0)
        self.walk = one_of("walk", walk, WALKS)
        if shards is None:
            most = _MOST_SHARDS // self.instances
            each = whole_number("shards_per_instance", shards_per_instance, least=1, most=most)
            shards = each * self.instances
        self.shards = whole_number("shards", shards, least=self.instances, most=_MOST_SHARDS)
        make = RandomChoices if self.walk == "random-choices" else BoundedRing
        self._walk: RandomChoices | BoundedRing = make(self.shards, seed=seed, source=source, e=e)
        self._state |= {f"walk.{name}": array for name, array in self._walk._state.items()}
        table = np.arange(self.shards, dtype=np.int32) % np.int32(self.instances)
        self._state["plan"] = self._plan = table.astype(np.int32)

    @property
    def plan(self) -> NDArray[np.int32]:
        """Instance of each shard; set it to a `unskew.balance.Plan`, or to one for each shard."""
        return self._plan.copy()

    @plan.setter
    def plan(self, given: Assignment | Any) -> None:
        table = np.asarray(getattr(given, "assignment", given))
        if table.shape != (self.shards,) or not np.issubdtype(table.dtype, np.integer):
            raise BadParameter(
                f"the plan of {self.shards} shards must be one instance for each, not "
                f"{table.dtype} of shape {table.shape}; make it for {self.shards} shards"
            )
        if int(table.min()) < 0 or int(table.max()) >= self.instances:
            raise BadParameter(
                f"a plan for {self.instances} instances names instances {table.min()} to "
                f"{table.max()}; every shard must be on a live instance"
            )
        self._plan[...] = table

    @property
    def fan_out(self) -> int:
        """Every instance, for a key hot enough."""
        return self.instances

    @property
    def state_bytes(self) -> int:
        """Bytes of router state, that of the walk included."""
        return self._loads.nbytes + self._plan.nbytes + self._walk.state_bytes

    @property
    def shard_loads(self) -> NDArray[np.int64]:
        """Tuples sent to each shard by this source since the start or `begin_batch`."""
        return self._walk.loads

    def shards_of(self, keys: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Route tuples, and return the shard of each: `plan` has its instance.

        Parameters
        ----------
        keys : array of uint64
            Hashes of the keys.
        """
        shards = self._walk.route(key_hashes("route", keys))
        self._loads += np.bincount(self._plan[shards], minlength=self.instances)
        return shards

    def split(self, times: int) -> Consistent:
        """Return the same grouping with every shard divided into so many, on the same instance.

        Shard s becomes s * times and those that follow it, among which its load is divided. By
        random choices a key keeps its sequence: its new choices are parts of its old ones.

        Parameters
        ----------
        times : int
            How many shards each becomes, at least 1.

        Examples
        --------
        >>> router = Consistent(2, shards=2)
        >>> finer = router.split(3)
        >>> finer.shards, finer.plan.tolist()
        (6, [0, 0, 0, 1, 1, 1])
        """
        times = whole_number("times", times, least=1, most=_MOST_SHARDS // self.shards)
        finer = Consistent(
            self.instances,
            seed=self.seed,
            source=self.source,
            e=self.e,
            walk=self.walk,
            shards=self.shards * times,
        )
        finer._plan[...] = np.repeat(self._plan, times)
        finer._loads[...] = self._loads
        whole, rest = np.divmod(np.repeat(self.shard_loads, times), times)
        parts = np.arange(finer.shards) % times
        finer._walk.begin_with(whole + (parts < rest))
        return finer

    def _route(self, keys: NDArray[np.uint64], chosen: NDArray[np.int32]) -> None:
        chosen[...] = self._plan[self.shards_of(keys)]
