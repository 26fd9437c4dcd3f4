"""The contract of every balancer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from numpy.typing import NDArray

from unskew.balance.plan import Plan
from unskew.balance.report import Report
from unskew.errors import BadParameter, BadSnapshot

Thought = Callable[[], list[Plan]]
"""How plans are found that take a while: pure, so that it may be thought beside a running batch."""


class Balancer(ABC):
    """Suggest the plan of the next interval; the engine carries it out.

    A balancer is pure: it reads no clock and draws no unseeded randomness, so the simulator and
    Spark run the same one. Every plan that it returns has every shard on a live instance.

    Attributes
    ----------
    bounds : tuple of int, optional
        Fewest and most instances that it may ask for; without them it keeps those that there are.
    is_joint : bool
        Whether it plans all stages together: then an engine asks `think`, or `next_plans`.
    counts_pairs : int
        Pairs of keys of successive stages that it wants each instance to tell of, 0 for none. A
        joint one that counts them says where keys live, another only where shards are.
    thinks_beside : bool
        Whether what it thinks may take so long that batches should go on meanwhile.
    shards_wanted : int
        Shards that there should be, where those that there are are too few, else 0. A plan keeps
        those that it has: it is for an engine to make more.
    needs_queues : bool
        Whether it goes by the tuples that wait. Batches have none: pipelines refuse it.
    shards_per_instance : int
        Shards that it should have for each instance from the start, unless others are asked for.
    """

    name: ClassVar[str]
    bounds: tuple[int, int] | None = None
    is_joint: ClassVar[bool] = False
    counts_pairs: int = 0
    shards_wanted: int = 0
    needs_queues: bool = False
    shards_per_instance: ClassVar[int] = 1
    thinks_beside: ClassVar[bool] = True

    @property
    def places_keys(self) -> bool:
        """Whether its plans say where keys live that are not with their shards."""
        return self.is_joint and self.counts_pairs > 0

    @abstractmethod
    def next_plan(self, plan: Plan, report: Report) -> Plan:
        """Return the plan to use next, `plan` itself if nothing should move."""

    def think(self, plans: Sequence[Plan], reports: Sequence[Report]) -> Thought | None:
        """See what was measured of all stages; return how better plans are found, if it is time.

        Quick, whatever the thought takes; only for joint balancers.
        """
        raise BadParameter(f"{self.name} plans each stage by itself; ask next_plan")

    def next_plans(self, plans: Sequence[Plan], reports: Sequence[Report]) -> list[Plan]:
        """Return the plans of all stages to use next; see `think`."""
        thought = self.think(plans, reports)
        return list(plans) if thought is None else thought()

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return what the balancer remembers, nothing by default, as plain arrays."""
        return {}

    def restore(self, snapshot: dict[str, NDArray[Any]]) -> None:
        """Continue from what `snapshot` of a balancer with the same parameters returned."""
        if snapshot:
            raise BadSnapshot(
                f"{self.name} remembers nothing, but the snapshot has {sorted(snapshot)}; restore "
                f"it into the balancer that it was taken from"
            )
