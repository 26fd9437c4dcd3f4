"""What runs in Spark's Python workers: a grouping, or a plan, over the hashes of one partition.

Nothing here asks for a session. The objects are pickled by reference to this module, so a task
carries a few hundred bytes, and a worker needs unskew installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import gcd
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext

from unskew.balance import Plan
from unskew.grouping import Grouping
from unskew.kernel import compiling
from unskew.spark.collecting import spare_what_is_loaded


class Route(Protocol):
    """A function from key hashes to instances that may remember what it has sent."""

    def __call__(self, keys: NDArray[np.uint64], /) -> NDArray[np.int32]:
        """Return the instance of each tuple, in order."""


class Router(Protocol):
    """What a task makes its own `Route` from."""

    def route_for(self, source: int) -> Route:
        """Return the route of one source: one task."""


@dataclass(frozen=True)
class ByGrouping:
    """Route by a grouping; the class itself travels, so that it need not be registered there."""

    grouping: type[Grouping]
    instances: int
    parameters: dict[str, Any] = field(default_factory=dict)

    def route_for(self, source: int) -> Route:
        """Return the route of one source: a grouping of its own."""
        made = self.grouping(self.instances, source=source, **self.parameters)
        with compiling(f"{self.grouping.__module__}.{self.grouping.__qualname__}"):
            made.route(np.empty(0, dtype=np.uint64))
        return made.route


@dataclass(frozen=True)
class ByPlan:
    """Route by a plan, each tuple of a hot key to the next of its instances."""

    plan: Plan

    def route_for(self, source: int) -> Route:
        """Return the route of one source; sources begin with different instances."""
        turns = dict.fromkeys(self.plan.hot, source)

        def route(keys: NDArray[np.uint64]) -> NDArray[np.int32]:
            taken = np.zeros(keys.size, dtype=np.int64)
            for key, turn in turns.items():
                rows = np.flatnonzero(keys == np.uint64(key))
                taken[rows] = np.arange(turn, turn + rows.size)
                turns[key] += rows.size
            return self.plan.route(keys, taken)

        return route

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as plain data: the tables of a plan are kept from being written."""
        return _by_plan, (self.plan.to_json(),)


def _by_plan(data: dict[str, Any]) -> ByPlan:
    return ByPlan(Plan.from_json(data))


def in_row_order(router: Router, batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """Route the rows of one task as they come; the state of the router is all that is kept.

    Parameters
    ----------
    router : Router
        Makes the route of this task.
    batches : iterator of array of int64
        Key hashes, as ``xxhash64`` makes them.

    Yields
    ------
    array of int32
        The instance of each row.
    """
    route = router.route_for(_source())
    spare_what_is_loaded()
    for hashes in batches:
        yield pa.array(route(_unsigned(hashes)))


def in_content_order(
    router: Router, batches: Iterator[tuple[pa.Array, pa.Array]]
) -> Iterator[pa.Array]:
    """Route the rows of one task in the order of their hashes, whatever order they come in.

    Rows of equal content are all alike, so which of them goes where does not matter: the rows that
    each instance gets depend on nothing but the rows of the partition. Keeps 40 bytes for each row
    of the partition until its last one has come; the rows themselves wait in the JVM, which spills
    them to disk.

    Parameters
    ----------
    router : Router
        Makes the route of this task.
    batches : iterator of (array of int64, array of int64)
        Key hashes, and hashes of the whole rows.

    Yields
    ------
    array of int32
        The instance of each row, in the order in which the rows came.
    """
    keys, rows = [], []
    for some_keys, some_rows in batches:
        # Copies: Arrow would keep each batch of the stream alive.
        keys.append(_unsigned(some_keys).copy())
        rows.append(_unsigned(some_rows).copy())
    if not keys:
        return
    sizes = [part.size for part in keys]
    all_keys, all_rows = np.concatenate(keys), np.concatenate(rows)
    del keys, rows
    order = _interleave(np.argsort(all_rows))
    del all_rows
    chosen = np.empty(order.size, dtype=np.int32)
    route = router.route_for(_source())
    spare_what_is_loaded()
    chosen[order] = route(all_keys[order])
    yield from (pa.array(part) for part in np.split(chosen, np.cumsum(sizes)[:-1]))


def _interleave(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a fixed permutation of sorted rows: runs of equal ones are spread evenly over all.

    A grouping that balances at every moment would split the key of a run over all instances.
    """
    size = order.size
    stride = max(1, round(size * 0.6180339887498949))
    while gcd(stride, size) > 1:
        stride += 1
    return order[np.arange(size) * stride % size]


def _unsigned(hashes: pa.Array) -> NDArray[np.uint64]:
    """Return Spark's signed hashes as ours, without a copy."""
    found: NDArray[np.int64] = hashes.to_numpy(zero_copy_only=True)
    return found.view(np.uint64)


def _source() -> int:
    """Return which source this task is: its partition, the same in every attempt."""
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0
