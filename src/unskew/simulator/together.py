"""Stages that one balancer plans together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from unskew.balance import Balancer
from unskew.errors import BadParameter
from unskew.simulator.base import AnyRunning
from unskew.simulator.stage import Running
from unskew.simulator.watch import of_all_stages


class Together:
    """Show one balancer what all its stages measured, and have all of them follow its plans.

    Parameters
    ----------
    balancer : Balancer
        A joint one.
    members : list of Running
        The stages, in order. Where the balancer says where keys live, each counts pairs of its keys
        and those of the next of them, whatever is between the two. Else they share nodes: a report
        tells how loaded each node is by all of them.
    """

    def __init__(self, balancer: Balancer, members: Sequence[Running]) -> None:
        self._balancer = balancer
        self._members = members
        if not balancer.places_keys:
            return
        sizes = sorted({member.stage.instances for member in members})
        if len(sizes) > 1:
            raise BadParameter(
                f"{balancer.name} plans {', '.join(repr(m.stage.name) for m in members)} together, "
                f"which have {sizes[0]} to {sizes[-1]} instances; give all the same number"
            )
        for number, (member, following) in enumerate(pairwise(members), start=1):
            member.count_pairs(number, following.stage)

    def control(self, now: float) -> None:
        """Carry out what the balancer makes of what was measured since the last time."""
        reports = [report for member in self._members if (report := member.report(now))]
        if len(reports) < len(self._members):
            return
        if not self._balancer.places_keys:
            reports = of_all_stages(reports)
        plans = self._balancer.next_plans([member.plan for member in self._members], reports)
        for member, plan in zip(self._members, plans, strict=True):
            member.follow(plan, now)


def controlled(running: Sequence[AnyRunning]) -> list[AnyRunning | Together]:
    """Return what is to be controlled: stages alone, and those that are planned together."""
    joint: dict[int, tuple[Balancer, list[Running]]] = {}
    alone: list[AnyRunning | Together] = []
    for stage in running:
        balancer = stage.stage.balancer if isinstance(stage, Running) else None
        if isinstance(stage, Running) and balancer is not None and balancer.is_joint:
            joint.setdefault(id(balancer), (balancer, []))[1].append(stage)
        else:
            alone.append(stage)
    return alone + [Together(balancer, members) for balancer, members in joint.values()]
