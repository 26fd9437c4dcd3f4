from __future__ import annotations

import numpy as np
import pytest

from unskew.balance import NodeLoads, Plan, Report, TwoTier

pytest.importorskip("pyspark")

from unskew.spark.planning import Planner


@pytest.mark.parametrize("beside", [True, False])
def test_a_balancer_that_is_quick_is_not_waited_for(beside: bool) -> None:
    plan = Plan(np.array([0, 0, 0, 1]), 2)
    used = np.array([0.8, 0.1])
    nodes = NodeLoads(("a", "b"), np.array([0, 1], dtype=np.int32), used, np.zeros(2))
    busy, none = np.array([0.3, 0.3, 0.2, 0.1]), np.zeros(4)
    report = Report(1.0, none.astype(np.int64), busy, none, used, np.zeros(2, int), nodes=nodes)
    (following,) = Planner(beside=beside).next_plans(TwoTier(), [plan], [report])

    # Measured under the plan that was in force, its plan would be wrong a batch later.
    assert following.assignment.tolist() == [1, 0, 0, 1]
