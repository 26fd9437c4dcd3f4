"""Balancers for tests: as much change as there can be."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from unskew.balance import Balancer, Placed, Plan, Report
from unskew.balance.base import Thought


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


class Wandering(Balancer):
    """Plan all stages together: every key that was seen is in another shard in every batch."""

    name = "wandering"
    is_joint = True
    counts_pairs = 1000

    def next_plan(self, plan: Plan, report: Report) -> Plan:
        return self.next_plans([plan], [report])[0]

    def think(self, plans: Sequence[Plan], reports: Sequence[Report]) -> Thought | None:
        keys: list[set[int]] = [set(plan.placed.keys.tolist()) for plan in plans]
        for stage, report in enumerate(reports):
            for following, pairs in report.pairs.items():
                keys[stage].update(pairs.first.tolist())
                keys[following].update(pairs.second.tolist())
        return partial(_wandered, list(plans), keys)


def _wandered(plans: Sequence[Plan], keys: Sequence[set[int]]) -> list[Plan]:
    found = []
    for plan, seen in zip(plans, keys, strict=True):
        hashes = np.array(sorted(seen), dtype=np.uint64)
        placed = Placed(hashes, (plan.shard_of(hashes) + 1) % plan.shards)
        found.append(replace(plan, epoch=plan.epoch + 1, placed=placed))
    return found


class Thinking(Balancer):
    """Think for a while, each time, of the plan in which a shard has moved; or of nothing."""

    name = "thinking"
    is_joint = True

    def __init__(self, seconds: float = 0.0, *, fails: bool = False) -> None:
        self.seconds, self.fails = seconds, fails

    def next_plan(self, plan: Plan, report: Report) -> Plan:
        return self.next_plans([plan], [report])[0]

    def think(self, plans: Sequence[Plan], reports: Sequence[Report]) -> Thought | None:
        return partial(_moved, list(plans), self.seconds, self.fails)


def _moved(plans: Sequence[Plan], seconds: float, fails: bool) -> list[Plan]:
    time.sleep(seconds)
    if fails:
        raise ValueError("could not think")
    return [plan.move({0: 1 - int(plan.assignment[0])}) for plan in plans]
