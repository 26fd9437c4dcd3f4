"""Speeds of executors: a cluster of machines that are not alike, on one machine, for demos."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from unskew.errors import BadParameter
from unskew.parameters import number, whole_number
from unskew.spark.executor import executor


@dataclass(frozen=True)
class Speeds:
    """How fast each executor is, which may change at some batches.

    An instance on an executor of speed s waits (1 / s - 1) times as long as it was busy, so that
    it takes 1 / s times as long, and the wait counts as busy. Nobody tells the balancer.

    Executor i has speed i, counted from 0 and begun again after the last. In local mode there is
    but one executor: there instance i has it.

    Parameters
    ----------
    first : sequence of float, each above 0 and at most 1
        From the first batch on.
    changes : mapping of int to sequence of float, default none
        Speeds from a batch on, by its number.

    Examples
    --------
    >>> speeds = Speeds((1, 1, 0.3), {5: (0.3, 1, 1)})
    >>> speeds.at(4), speeds.at(5)
    ((1.0, 1.0, 0.3), (0.3, 1.0, 1.0))
    >>> Speeds.parsed("1,1,0.3", ["5:0.3,1,1"]) == speeds
    True
    """

    first: Sequence[float]
    changes: Mapping[int, Sequence[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the numbers."""
        object.__setattr__(self, "first", _checked(self.first))
        changes = {}
        for batch, given in sorted(self.changes.items()):
            changes[whole_number("the batch of a change", batch, least=1, most=2**62)] = _checked(
                given
            )
            if len(given) != len(self.first):
                raise BadParameter(
                    f"there are {len(self.first)} speeds at first, and {len(given)} from batch "
                    f"{batch} on; give one for each executor"
                )
        object.__setattr__(self, "changes", changes)

    @classmethod
    def parsed(cls, first: str, changes: Sequence[str] = ()) -> Speeds:
        """Return the speeds that are written as ``1,1,0.3`` and changes as ``5:0.3,1,1``."""
        found = {}
        for text in changes:
            batch, colon, speeds = text.partition(":")
            if not colon or not batch.strip().isdecimal():
                raise BadParameter(
                    f"a change of speeds is written BATCH:SPEED,SPEED,..., as in 5:0.3,1,1, not "
                    f"{text!r}"
                )
            if int(batch) in found:
                raise BadParameter(f"speeds change twice in batch {int(batch)}; give one change")
            found[int(batch)] = _read(speeds)
        return cls(_read(first), found)

    def at(self, batch: int) -> tuple[float, ...]:
        """Return the speeds of the executors in a batch."""
        found = self.first
        for start, speeds in self.changes.items():
            if start <= batch:
                found = speeds
        return tuple(found)


def speed_here(speeds: Sequence[float], instance: int) -> float:
    """Return the speed of a task: that of its executor, in local mode that of its instance."""
    if len(speeds) == 0:
        return 1.0
    number = executor().number
    return speeds[(instance if number is None else number) % len(speeds)]


def _read(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(each) for each in text.split(","))
    except ValueError as error:
        raise BadParameter(
            f"speeds are numbers with commas between them, as in 1,1,0.3, not {text!r}"
        ) from error


def _checked(speeds: Sequence[float]) -> tuple[float, ...]:
    if len(speeds) == 0:
        raise BadParameter("speeds need a number for each executor, as in 1,1,0.3, not none")
    return tuple(float(number("a speed", each, above=0, most=1)) for each in speeds)
