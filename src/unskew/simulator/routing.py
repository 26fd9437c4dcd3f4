"""How tuples find their instance: over shards that groupings choose, or by the plan alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from unskew.balance import Plan
from unskew.grouping import Consistent
from unskew.grouping.base import Grouping, grouping
from unskew.kernel import kernel

Marks = NDArray[np.signedinteger[Any]]
"""What a source notes on each tuple that it sends; the plan makes an instance of it."""


class Router(Protocol):
    """All sources of a stage."""

    def send(self, plan: Plan, keys: NDArray[np.uint64], sources: NDArray[np.int32]) -> Marks:
        """Return what each source notes on its tuples, which it sees in order."""

    def instances(self, plan: Plan, keys: NDArray[np.uint64], marks: Marks) -> NDArray[np.int32]:
        """Return where a plan has tuples go."""

    def shards(self, plan: Plan, keys: NDArray[np.uint64], marks: Marks) -> Marks:
        """Return the shard of each tuple, and one more than there are for hot keys."""


class ByGrouping:
    """A grouping for each source chooses the shard, and the plan says where that runs.

    Parameters
    ----------
    name, parameters
        Of the grouping.
    shards, sources : int
        How many of each.
    seed : int
        Of the groupings.

    Examples
    --------
    >>> plan, keys = Plan.even(shards=4, instances=2), np.array([9, 9, 9], dtype=np.uint64)
    >>> router = ByGrouping("shuffle", {}, shards=4, sources=1, seed=0)
    >>> marks = router.send(plan, keys, np.zeros(3, dtype=np.int32))
    >>> marks.tolist(), router.instances(plan, keys, marks).tolist()
    ([0, 1, 2], [0, 1, 0])
    """

    def __init__(
        self, name: str, parameters: Mapping[str, Any], *, shards: int, sources: int, seed: int
    ) -> None:
        # Where shards run is for the plan of the engine to say: here each is by itself.
        own = {"shards": shards} if name == Consistent.name else {}
        self._groupings: list[Grouping] = [
            grouping(name, shards, seed=seed, source=source, **{**parameters, **own})
            for source in range(sources)
        ]

    @property
    def can_split(self) -> bool:
        """Whether shards can be divided into more."""
        return all(isinstance(each, Consistent) for each in self._groupings)

    def split(self, times: int) -> None:
        """Divide each shard s into so many: s * times and those that follow it."""
        self._groupings = [
            each.split(times) if isinstance(each, Consistent) else each for each in self._groupings
        ]

    def send(
        self, plan: Plan, keys: NDArray[np.uint64], sources: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """Return the shard of each tuple, each source seeing its own in order."""
        if len(self._groupings) == 1:
            return _shards_of(self._groupings[0], keys)
        order = np.argsort(sources, kind="stable")
        bounds = np.searchsorted(sources[order], np.arange(len(self._groupings) + 1))
        shards = np.empty(keys.size, dtype=np.int32)
        for source, router in enumerate(self._groupings):
            own = order[bounds[source] : bounds[source + 1]]
            shards[own] = _shards_of(router, keys[own])
        return shards

    def instances(self, plan: Plan, keys: NDArray[np.uint64], marks: Marks) -> NDArray[np.int32]:
        """Return where the shards are."""
        return plan.assignment[marks]

    def shards(self, plan: Plan, keys: NDArray[np.uint64], marks: Marks) -> Marks:
        """Return what the groupings chose."""
        return marks


def _shards_of(router: Grouping, keys: NDArray[np.uint64]) -> NDArray[np.int32]:
    """Return the shards that a grouping chooses."""
    return router.shards_of(keys) if isinstance(router, Consistent) else router.route(keys)


class ByPlan:
    """The hash of a key tells its shard, and a hot key is dealt to its instances: as on Spark.

    Each source deals on its own, and sources begin with different instances.

    Parameters
    ----------
    sources : int
        How many.

    Examples
    --------
    >>> plan = Plan(np.array([0, 1, 0, 1]), 2, hot={9: (0, 1)})
    >>> keys, router = np.array([9, 9, 9, 5], dtype=np.uint64), ByPlan(sources=1)
    >>> marks = router.send(plan, keys, np.zeros(4, dtype=np.int32))
    >>> router.instances(plan, keys, marks).tolist(), router.shards(plan, keys, marks).tolist()
    ([0, 1, 0, 1], [4, 4, 4, 1])
    """

    def __init__(self, sources: int) -> None:
        self._sources = sources
        self._plan: Plan | None = None
        self._hot = np.empty(0, dtype=np.uint64)
        self._turns = np.empty((sources, 0), dtype=np.int64)

    def send(
        self, plan: Plan, keys: NDArray[np.uint64], sources: NDArray[np.int32]
    ) -> NDArray[np.int64]:
        """Return the turn of each tuple among those of its key, if that is hot."""
        if plan is not self._plan:
            self._plan = plan
            self._hot = np.array(sorted(plan.hot), dtype=np.uint64)
            self._turns = np.repeat(np.arange(self._sources)[:, None], self._hot.size, axis=1)
        # A key may become hot while its tuple is on the way.
        turns = sources.astype(np.int64)
        if self._hot.size:
            _deal(keys, sources, self._hot, self._turns, turns)
        return turns

    def instances(self, plan: Plan, keys: NDArray[np.uint64], marks: Marks) -> NDArray[np.int32]:
        """Return where shards and hot keys are."""
        return plan.route(keys, marks.astype(np.int64, copy=False))

    def shards(self, plan: Plan, keys: NDArray[np.uint64], marks: Marks) -> NDArray[np.int64]:
        """Return the shard of each key; hot keys have none."""
        return plan.shard_at(0, keys)


@kernel
def _deal(
    keys: NDArray[np.uint64],
    sources: NDArray[np.int32],
    hot: NDArray[np.uint64],
    next_turns: NDArray[np.int64],
    turns: NDArray[np.int64],
) -> None:
    """Write the turn of each tuple of a hot key; `hot` is sorted."""
    for i in range(keys.size):
        place = np.searchsorted(hot, keys[i])
        if place < hot.size and hot[place] == keys[i]:
            turns[i] = next_turns[sources[i], place]
            next_turns[sources[i], place] += 1
