"""Plans that take a while, thought of beside the running batches."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Thread

from pyspark import cloudpickle

from unskew.balance import Balancer, Plan, Report
from unskew.balance.base import Thought
from unskew.beside import Beside
from unskew.errors import ProcessFailed

log = logging.getLogger("unskew.pipeline")

_pickled: Callable[[object], bytes] = cloudpickle.dumps
"""By value where it has to be: the balancer may be one of the user's script."""

_WATCH_SECONDS = 1.0
"""Between two looks whether the query is over."""


class Planner:
    """Ask a joint balancer; its plans are in force when they are ready.

    Beside the batches it thinks in a process of its own, as METIS lets nobody else have the
    interpreter for a second at a time. That process starts with the first thought, and is there
    until the query is over, or the driver. If it fails or is killed the plans stay as they are,
    and the next period thinks again.

    Parameters
    ----------
    beside : bool
        Whether to think beside the batches that follow, which go on with the plans that there are;
        otherwise the next batch waits.
    """

    def __init__(self, *, beside: bool) -> None:
        self._beside = Beside() if beside else None
        self._thought: Future[list[Plan]] | None = None
        self._is_over: Callable[[], bool] | None = None
        self._watcher: Thread | None = None

    @property
    def process(self) -> int | None:
        """Return the id of the process that thinks, if there is one."""
        return None if self._beside is None else self._beside.process

    def until(self, is_over: Callable[[], bool]) -> None:
        """Name what says whether the query is over: then nothing is left behind."""
        self._is_over = is_over

    def next_plans(
        self, balancer: Balancer, plans: Sequence[Plan], reports: Sequence[Report]
    ) -> list[Plan]:
        """Return the plans of the next batch: those in force, or better ones that are ready."""
        if self._beside is None or not balancer.thinks_beside:
            return balancer.next_plans(plans, reports)
        following = list(plans)
        if self._thought is not None and self._thought.done():
            following, self._thought = self._ready(plans, self._thought), None
        thought = balancer.think(following, reports)
        is_over = self._is_over is not None and self._is_over()
        if thought is not None and self._thought is None and not is_over:
            self._thought = Future()
            # A driver that ends does not wait for it.
            arguments = (self._beside, thought, self._thought)
            Thread(target=_think, args=arguments, daemon=True, name="unskew-plans").start()
            self._watch()
        return following

    def close(self) -> None:
        """End the process that thinks."""
        if self._beside is not None:
            self._beside.close()

    def _ready(self, plans: Sequence[Plan], thought: Future[list[Plan]]) -> list[Plan]:
        """Return what was thought of, unless that failed or there are other instances by now."""
        error = thought.exception()
        if error is not None:
            log.warning("no new plans, the next period thinks again: %s", error)
            return list(plans)
        better = thought.result()
        fits = all(a.instances == b.instances for a, b in zip(plans, better, strict=True))
        return better if fits else list(plans)

    def _watch(self) -> None:
        """See from time to time whether the query was stopped by somebody else, or has failed."""
        if self._is_over is not None and (self._watcher is None or not self._watcher.is_alive()):
            self._watcher = Thread(target=self._close_after, daemon=True, name="unskew-watch")
            self._watcher.start()

    def _close_after(self) -> None:
        assert self._is_over is not None
        while not self._is_over():
            time.sleep(_WATCH_SECONDS)
        self.close()


def _think(beside: Beside, thought: Thought, told: Future[list[Plan]]) -> None:
    try:
        told.set_result(beside.call(_pickled(thought)))
    except ProcessFailed as error:
        told.set_exception(error)
    except Exception as error:
        told.set_exception(ProcessFailed(f"what is to be thought cannot be sent: {error}"))
