"""Delay-bound work: rows wait and do not compute, so that two cores can run many instances."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pyarrow as pa

from unskew.aggregates import Count, Groups
from unskew.spark.speeds import speed_here


def wait(rows: int, seconds: float, speeds: Sequence[float] = ()) -> None:
    """Wait some seconds for each row, 1 / speed times as long on an executor that has a speed."""
    time.sleep(rows * seconds / speed_here(speeds, 0))


class Waiting(Count):
    """A count whose update waits for each row."""

    def __init__(self, seconds: float, speeds: Sequence[float] = ()) -> None:
        self._seconds, self._speeds = seconds, speeds

    def update(self, states: pa.Array, groups: Groups, *values: pa.Array) -> pa.Array:
        """Wait, then count."""
        wait(groups.size, self._seconds, self._speeds)
        return super().update(states, groups, *values)
