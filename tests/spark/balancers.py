"""Balancers for tests: as much change as there can be."""

from __future__ import annotations

from unskew.balance import Balancer, Plan, Report


class Restless(Balancer):
    """Move every shard in every batch, and split the hottest keys one batch and not the next."""

    name = "restless"

    def next_plan(self, plan: Plan, report: Report) -> Plan:
        table = (plan.assignment + 1) % plan.instances
        hot = {}
        if report.can_split and plan.epoch % 2 == 0:
            hottest = sorted(report.hot, key=lambda key: (-report.hot[key], key))[:3]
            hot = {key: tuple(range(plan.instances)) for key in hottest}
        return Plan(table, plan.instances, plan.epoch + 1, hot)
