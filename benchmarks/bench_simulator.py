"""Simulated tuples a second, and how the cost grows with the instances.

Asked: at least 3M tuples a second with partial-key at 128 instances, and 4096 instances at less
than twice the cost of 64. Runs take turns, and the best of each counts.
"""

from __future__ import annotations

import time

from unskew.simulator import Constant, Poisson, Stage, simulate
from unskew.workloads import Zipf

INSTANCES = (64, 128, 4096)
MESSAGES, TURNS = 3_000_000, 4


def main() -> None:
    """Print the rate at each number of instances, and the two figures that are asked for."""
    for instances in INSTANCES:
        seconds(instances, 10_000)
    best = dict.fromkeys(INSTANCES, float("inf"))
    for _ in range(TURNS):
        for instances in INSTANCES:
            best[instances] = min(best[instances], seconds(instances, MESSAGES))
    for instances, took in best.items():
        print(f"{instances:5d} instances: {MESSAGES / took / 1e6:.1f}M tuples a second")
    print(f"asked 3M at 128 instances: {MESSAGES / best[128] / 1e6:.1f}M")
    print(f"cost of 4096 over 64 instances, asked under 2: {best[4096] / best[64]:.2f}")


def seconds(instances: int, messages: int) -> float:
    """Return how long one simulation takes, at half the rate that even loads could be served at."""
    stage = Stage("count", instances, Constant(1e-3), "partial-key")
    workload = Zipf(1.0, 1_000_000, messages)
    start = time.perf_counter()
    simulate(workload, Poisson(500.0 * instances), [stage])
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
