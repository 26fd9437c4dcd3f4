"""The largest rate that a topology holds without its queues growing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unskew.errors import BadParameter
from unskew.parameters import number
from unskew.simulator.arrivals import Arrivals
from unskew.simulator.base import AnyStage
from unskew.simulator.engine import simulate
from unskew.simulator.results import Result
from unskew.workloads.base import Workload

BACKLOG = 0.02
"""Time to drain the queues after the last arrival, as a part of the time of arrival, up to which
queues count as not growing."""

GUESSES = 2
"""Simulations that only tell where to search."""

Progress = Callable[[int, int], None]
"""Called with the simulations done and how many there will be, of which it is only sure at the
end."""


@dataclass(frozen=True)
class Saturation:
    """The largest rate that was held, and the simulation at it."""

    rate: float
    result: Result


def saturation(
    workload: Workload,
    arrivals: Arrivals,
    stages: Sequence[AnyStage],
    *,
    precision: float = 0.01,
    progress: Progress | None = None,
    **options: Any,
) -> Saturation:
    """Search the largest rate at which the queues do not grow: the bottleneck of the papers.

    A rate is held if the queues are empty soon after the last arrival, within 2 % of the time that
    the arrivals took, and the merge has at most 2 % more to do than there is time; so the workload
    should be long against the time of one tuple and last for many windows. The work that a
    simulation offered to its busiest instance tells where to search; then rates around it are tried
    in ever larger steps until one is held and one is not, and that interval is halved.

    Parameters
    ----------
    workload, stages
        As of `simulate`.
    arrivals : Arrivals
        Its rate is where the search begins; faster and slower ones are made of it.
    precision : float, default 0.01
        Width of the last interval, as a part of the rate.
    progress : callable, optional
        Called after every simulation.
    **options
        Further arguments of `simulate`.

    Examples
    --------
    >>> from unskew.simulator import Constant, Stage, Steady
    >>> from unskew.workloads import Zipf
    >>> stage = Stage("count", instances=4, service=Constant(0.001))
    >>> found = saturation(Zipf(1.0, 100, 20_000), Steady(100.0), [stage])
    >>> 0.97 < found.rate / 4000 < 1.03
    True
    """
    precision = number("precision", precision, least=1e-4, below=1)
    most = GUESSES + 2 + int(1 / precision).bit_length()
    done = 0

    def run(rate: float) -> Result:
        nonlocal done, most
        result = simulate(workload, arrivals.faster(rate / arrivals.rate), stages, **options)
        done += 1
        most = max(most, done + 1)
        if progress is not None:
            progress(done, most)
        return result

    # Where tuples go hardly depends on the rate, so the first guess is near. Only merging gets
    # cheaper with the rate, as more tuples of a key share a window.
    rate = arrivals.rate
    for _ in range(GUESSES):
        offered = run(rate).offered
        if offered <= 0:
            raise BadParameter("nothing is ever busy in this topology, so every rate is held")
        if offered == np.inf:
            raise BadParameter("all tuples come at once, so there is no rate; spread the arrivals")
        rate /= offered
    low, high, best = 0.0, np.inf, None
    step = 2 * precision
    while not (best and high - low <= precision * high):
        if low and high < np.inf:
            rate = (low + high) / 2
        elif low:
            rate, step = low * (1 + step), 2 * step
        elif high < np.inf:
            rate, step = high / (1 + step), 2 * step
        result = run(rate)
        if _held(result):
            low, best = rate, result
        else:
            high = rate
    if progress is not None:
        progress(done, done)
    return Saturation(low, best)


def _held(result: Result) -> bool:
    drained = result.drain <= BACKLOG * result.last_arrival
    return drained and result.offered_at.get("merge", 0.0) <= 1 + BACKLOG
