"""Settings of a pipeline: how it keeps its state."""

from __future__ import annotations

from dataclasses import dataclass

from unskew.operators.task import MOST_BYTES
from unskew.parameters import number, whole_number
from unskew.spark.speeds import Speeds


@dataclass(frozen=True)
class Settings:
    """How a pipeline keeps its state.

    Attributes
    ----------
    kept : int, default 10, at least 2
        Versions of the state to keep, the newest.
    grace : float, default an hour
        Seconds before a file that nobody names is removed.
    clean_every : int, default 10
        Batches between two removals.
    most_bytes : int, default 128 MB
        Entries that a task holds in memory.
    cache : str, optional
        Folder on each machine for copies of state, where the checkpoint is far away.
    pin : bool, default True
        Whether to keep instances on their executors, where there are several.
    plan_beside : bool, default True
        Whether plans that take a while are thought of beside running batches, which go on with the
        plans that there are.
    speeds : Speeds, optional
        Slows executors, to show on one machine what balance is worth where machines differ.
    """

    kept: int = 10
    grace: float = 3600.0
    clean_every: int = 10
    most_bytes: int = MOST_BYTES
    cache: str | None = None
    pin: bool = True
    plan_beside: bool = True
    speeds: Speeds | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        whole_number("kept", self.kept, least=2, most=2**31)
        number("grace", self.grace, least=0)
        whole_number("clean_every", self.clean_every, least=1, most=2**31)
        whole_number("most_bytes", self.most_bytes, least=1, most=2**60)
