"""The contract of every balancer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from numpy.typing import NDArray

from unskew.balance.plan import Plan
from unskew.balance.report import Report
from unskew.errors import BadSnapshot


class Balancer(ABC):
    """Suggest the plan of the next interval; the engine carries it out.

    A balancer is pure: it reads no clock and draws no unseeded randomness, so the simulator and
    Spark run the same one. Every plan that it returns has every shard on a live instance.

    Attributes
    ----------
    bounds : tuple of int, optional
        Fewest and most instances that it may ask for; without them it keeps those that there are.
    """

    name: ClassVar[str]
    bounds: tuple[int, int] | None = None

    @abstractmethod
    def next_plan(self, plan: Plan, report: Report) -> Plan:
        """Return the plan to use next, `plan` itself if nothing should move."""

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
