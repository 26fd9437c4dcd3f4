"""What workers say of themselves, busy or idle, in the order in which they said it first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NEVER = -1


class Signals:
    """Two queues, first come first served, in which a worker is once at the most.

    The newest signal of a worker replaces its older one: one that goes on saying the same keeps its
    place, one that says the other thing goes to the end of the other queue, and one that says
    nothing leaves.

    Examples
    --------
    >>> signals = Signals()
    >>> signals.hear(busy=[2, 0], idle=[1], now=0, instances=3)
    >>> signals.hear(busy=[0, 1, 2], idle=[], now=1, instances=3)
    >>> signals.busy, signals.idle
    ([2, 0, 1], [])
    >>> signals.quiet([0, 1])       # neither was ever busy but in the last interval
    [0, 1]
    """

    def __init__(self) -> None:
        self.busy: list[int] = []
        self.idle: list[int] = []
        self._last_busy = np.empty(0, dtype=np.int64)

    def hear(self, busy: Iterable[int], idle: Iterable[int], now: int, instances: int) -> None:
        """Take the signals of an interval, of workers that are none any more no longer.

        Parameters
        ----------
        busy, idle : iterable of int
            Who says what.
        now : int
            Number of the interval.
        instances : int
            How many workers there are.
        """
        if self._last_busy.size != instances:
            self.busy, self.idle = [], []
            self._last_busy = np.full(instances, _NEVER, dtype=np.int64)
        said = {"busy": list(busy), "idle": list(idle)}
        self.busy = _in_turn(self.busy, said["busy"])
        self.idle = _in_turn(self.idle, said["idle"])
        self._last_busy[said["busy"]] = now

    def quiet(self, workers: Iterable[int]) -> list[int]:
        """Return workers in the order of their last busy signals, the oldest first."""
        return sorted(workers, key=lambda worker: (self._last_busy[worker], worker))

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return the queues and the last signals as arrays."""
        return {
            "busy": np.array(self.busy, dtype=np.int64),
            "idle": np.array(self.idle, dtype=np.int64),
            "last_busy": self._last_busy.copy(),
        }

    def restore(self, snapshot: dict[str, NDArray[Any]]) -> None:
        """Continue from a snapshot."""
        self.busy = snapshot["busy"].astype(np.int64).tolist()
        self.idle = snapshot["idle"].astype(np.int64).tolist()
        self._last_busy = snapshot["last_busy"].astype(np.int64)


def _in_turn(queue: list[int], said: list[int]) -> list[int]:
    """Return those who still say so in their order, then those who say so now."""
    stay = [worker for worker in queue if worker in said]
    return stay + [worker for worker in said if worker not in stay]
