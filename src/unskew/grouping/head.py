"""What D-Choices and W-Choices share: the head, the keys whose share is above theta."""

from __future__ import annotations

import numpy as np

from unskew.grouping.base import Grouping
from unskew.kernel import kernel
from unskew.parameters import number
from unskew.sketches.space_saving import TOTAL, USED, Counters, new_counters


class HeadGrouping(Grouping):
    """A grouping that treats head keys, found by SpaceSaving, apart from the tail.

    A key belongs to the head when the tuples that it certainly had, its count less the error, are
    above theta of all; the count alone would make a head key of every newcomer to a full sketch.
    """

    def __init__(
        self,
        instances: int,
        *,
        seed: int = 0,
        source: int = 0,
        theta: float | None = None,
        counters: int | None = None,
    ) -> None:
        super().__init__(instances, seed=seed, source=source)
        self.theta = number("theta", 1 / (5 * self.instances) if theta is None else theta, above=0)
        self.counters = self._counters(counters, each=8)
        self._first = self._place_of_source()
        self._sketch = new_counters(self.counters)
        self._keep("sketch", self._sketch)

    @property
    def fan_out(self) -> int:
        """Every instance, for a head key."""
        return self.instances

    @property
    def hot_keys(self) -> int:
        """Keys in the head at this moment."""
        used = self._sketch.scalars[USED]
        certain = self._sketch.counts[:used] - self._sketch.errors[:used]
        return int(np.count_nonzero(certain > self.theta * self._sketch.scalars[TOTAL]))


@kernel
def in_head(sketch: Counters, slot: int, theta: float) -> bool:
    """Return whether the key of a slot belongs to the head."""
    certain = sketch.counts[slot] - sketch.errors[slot]
    return bool(certain > theta * sketch.scalars[TOTAL])
