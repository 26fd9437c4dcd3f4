"""Plans that take a while, thought of beside the running batches."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from unskew.balance import Balancer, Plan, Report


class Planner:
    """Ask a joint balancer; its plans are in force when they are ready.

    Parameters
    ----------
    beside : bool
        Whether to think beside the batches that follow, which go on with the plans that there are;
        otherwise the next batch waits.
    """

    def __init__(self, *, beside: bool) -> None:
        self._pool = ThreadPoolExecutor(1, "unskew-plans") if beside else None
        self._thought: Future[list[Plan]] | None = None

    def next_plans(
        self, balancer: Balancer, plans: Sequence[Plan], reports: Sequence[Report]
    ) -> list[Plan]:
        """Return the plans of the next batch: those in force, or better ones that are ready."""
        if self._pool is None or not balancer.thinks_beside:
            return balancer.next_plans(plans, reports)
        following = list(plans)
        if self._thought is not None and self._thought.done():
            following, self._thought = self._fitting(plans, self._thought.result()), None
        thought = balancer.think(following, reports)
        if thought is not None and self._thought is None:
            self._thought = self._pool.submit(thought)
        return following

    def _fitting(self, plans: Sequence[Plan], better: list[Plan]) -> list[Plan]:
        """Return better plans, unless there are other instances by now."""
        fits = all(a.instances == b.instances for a, b in zip(plans, better, strict=True))
        return better if fits else list(plans)
