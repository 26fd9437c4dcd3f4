"""Garbage collection in Spark's Python workers, without what was imported once and stays."""

from __future__ import annotations

import gc
from functools import cache

from pyspark import TaskContext


def spare_what_is_loaded() -> None:
    """Leave all that a worker has by now out of its later garbage collections.

    A worker of Spark collects garbage after every task, and the modules of numba, Arrow and unskew
    are about 180,000 objects: 0.1 s of a core, in which the next task of the worker waits. Memory
    is given back as before; only cycles that are garbage already stay. Outside of a task, as in a
    driver, nothing is done.
    """
    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    """Do it once: what is frozen later would be the garbage of tasks."""
    gc.freeze()
