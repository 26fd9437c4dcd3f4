"""Static: nothing ever moves."""

from __future__ import annotations

from typing import ClassVar

from unskew.balance.base import Balancer
from unskew.balance.plan import Plan
from unskew.balance.report import Report


class Static(Balancer):
    """Leave every shard where it is: what Spark does, and what others are compared with.

    Examples
    --------
    >>> import numpy as np
    >>> none = np.zeros(2)
    >>> plan = Plan.even(2, 2)
    >>> Static().next_plan(plan, Report(1.0, none, none, none, none, none)) is plan
    True
    """

    name: ClassVar[str] = "static"

    def next_plan(self, plan: Plan, report: Report) -> Plan:
        """Return the same plan."""
        del report
        return plan
