"""Streams and plans that are written down, for tests of stages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unskew.balance import Balancer, Plan, Report
from unskew.workloads.base import Generated


class Given(Generated):
    """A stream of keys that are written down."""

    name = description = "given"

    def __init__(self, keys: Sequence[int] | NDArray[np.uint64]) -> None:
        super().__init__(len(keys))
        self.keys = np.array(keys, dtype=np.uint64)

    def draw(self, start: int, stop: int) -> NDArray[np.uint64]:
        return self.keys[start:stop]


class Script(Balancer):
    """Use these plans in one interval after the other; keep what was reported."""

    name = "script"

    def __init__(self, *plans: Plan) -> None:
        self.left = list(plans)
        self.seen: list[Report] = []

    def next_plan(self, plan: Plan, report: Report) -> Plan:
        self.seen.append(report)
        return self.left.pop(0) if self.left else plan
