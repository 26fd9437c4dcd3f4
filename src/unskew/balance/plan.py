"""The plan: where each shard runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.errors import BadParameter
from unskew.parameters import whole_number


@dataclass(frozen=True, eq=False)
class Plan:
    """An immutable table from shard to instance, with an epoch that counts its versions.

    Parameters
    ----------
    assignment : array of int32
        Instance of each shard.
    instances : int
        Number of instances; every entry of the table is one of them.
    epoch : int, default 0
        Number of the version.

    Examples
    --------
    >>> plan = Plan.even(shards=4, instances=2)
    >>> plan.assignment.tolist()
    [0, 1, 0, 1]
    >>> later = plan.move({3: 0})
    >>> later.moves(plan), later.epoch
    ([(3, 1, 0)], 1)
    """

    assignment: NDArray[np.int32]
    instances: int
    epoch: int = 0

    def __post_init__(self) -> None:
        """Check that every shard has an instance, and keep the table from being written."""
        table = np.array(self.assignment, dtype=np.int32)
        whole_number("instances", self.instances, least=1, most=2**31 - 1)
        if table.ndim != 1 or table.size == 0:
            raise BadParameter(f"a plan needs one instance for each shard, not shape {table.shape}")
        if int(table.min()) < 0 or int(table.max()) >= self.instances:
            raise BadParameter(
                f"a plan for {self.instances} instances names instances {table.min()} to "
                f"{table.max()}; every shard must be on a live instance"
            )
        table.setflags(write=False)
        object.__setattr__(self, "assignment", table)

    @classmethod
    def even(cls, shards: int, instances: int) -> Plan:
        """Return the plan that deals the shards to the instances in turn."""
        return cls((np.arange(shards) % instances).astype(np.int32), instances)

    @property
    def shards(self) -> int:
        """Number of shards."""
        return int(self.assignment.size)

    def move(self, changes: dict[int, int]) -> Plan:
        """Return the next plan: the same but for some shards, given as shard: instance."""
        table = self.assignment.copy()
        for shard, instance in changes.items():
            table[shard] = instance
        return Plan(table, self.instances, self.epoch + 1)

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
