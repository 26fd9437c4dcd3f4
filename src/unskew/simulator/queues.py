"""First come, first served: when each tuple leaves, in numba.

A queue with one server needs no calendar of events. A tuple starts when it has come and the one
before it has left, so one pass over the tuples in the order of their arrival gives every time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.kernel import kernel


@kernel
def serve(
    arrivals: NDArray[np.float64],
    work: NDArray[np.float64],
    targets: NDArray[np.int32],
    free: NDArray[np.float64],
    nodes: NDArray[np.int32],
    starts: NDArray[np.float64],
    speeds: NDArray[np.float64],
    departures: NDArray[np.float64],
    busy: NDArray[np.float64],
) -> None:
    """Write when each tuple leaves and how long it was served.

    Parameters
    ----------
    arrivals, work, targets
        Time, work and instance of each tuple, in the order of time.
    free
        When each instance is done with all before; updated.
    nodes
        Node of each instance.
    starts, speeds
        When speeds change, and the speed of each node from then on.
    departures, busy
        Written: when each tuple leaves, and the seconds that it was served.
    """
    for i in range(arrivals.size):
        target = targets[i]
        start = max(arrivals[i], free[target])
        end = _finish(start, work[i], nodes[target], starts, speeds)
        free[target] = end
        departures[i] = end
        busy[i] = end - start


@kernel
def _finish(
    start: float,
    work: float,
    node: int,
    starts: NDArray[np.float64],
    speeds: NDArray[np.float64],
) -> float:
    """Return when work is done that starts at a time, whatever changes of speed come meanwhile."""
    part = starts.size - 1
    while part > 0 and starts[part] > start:
        part -= 1
    while part + 1 < starts.size:
        possible = (starts[part + 1] - start) * speeds[part, node]
        if possible >= work:
            break
        work -= possible
        start = starts[part + 1]
        part += 1
    return float(start + work / speeds[part, node])


@kernel
def tally(
    arrivals: NDArray[np.float64],
    departures: NDArray[np.float64],
    busy: NDArray[np.float64],
    targets: NDArray[np.int32],
    width: float,
    came: NDArray[np.int64],
    left: NDArray[np.int64],
    served: NDArray[np.float64],
) -> None:
    """Count tuples, and the time that they were served, by slice of time and instance."""
    for i in range(arrivals.size):
        target = targets[i]
        came[int(arrivals[i] / width), target] += 1
        last = int(departures[i] / width)
        left[last, target] += 1
        start = departures[i] - busy[i]
        part = int(start / width)
        while part < last:
            end = (part + 1) * width
            served[part, target] += end - start
            start = end
            part += 1
        served[last, target] += departures[i] - start


@kernel
def tally_latencies(
    latencies: NDArray[np.float64],
    least: float,
    per_factor: float,
    counts: NDArray[np.int64],
) -> None:
    """Count latencies in a histogram whose bins grow by a constant factor."""
    for i in range(latencies.size):
        if latencies[i] <= least:
            counts[0] += 1
        else:
            counts[min(counts.size - 1, 1 + int(np.log(latencies[i] / least) * per_factor))] += 1
