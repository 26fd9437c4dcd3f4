"""The state of every key of a stage: what moves when a plan has keys elsewhere."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.balance import Plan
from unskew.tally import KeyIndex


class KeyStates:
    """Know how large the state of each key is, wherever it lives.

    Parameters
    ----------
    row_bytes, key_bytes : float
        State that a key gains with each tuple, and that it has from its first on.

    Examples
    --------
    >>> states = KeyStates(row_bytes=1.0, key_bytes=10.0)
    >>> states.add(np.array([6, 7, 6], dtype=np.uint64))
    >>> plan = Plan.even(shards=4, instances=2)
    >>> states.of_shards(plan).tolist(), states.mean
    ([0.0, 0.0, 12.0, 11.0], 11.5)
    >>> states.moved(plan, plan.move({3: 0})).tolist()
    [[0.0, 0.0], [11.0, 0.0]]
    """

    def __init__(self, row_bytes: float, key_bytes: float) -> None:
        self._row_bytes, self._key_bytes = row_bytes, key_bytes
        self._index = KeyIndex()
        self._keys = np.empty(0, dtype=np.uint64)

    def add(self, keys: NDArray[np.uint64]) -> None:
        """Count tuples of these keys."""
        ids = self._index.ids(keys)
        if len(self._index) > self._keys.size:
            self._keys = np.resize(self._keys, 2 * len(self._index))
        self._keys[ids] = keys

    @property
    def keys(self) -> NDArray[np.uint64]:
        """Those that have come."""
        return self._keys[: len(self._index)]

    @property
    def sizes(self) -> NDArray[np.float64]:
        """Bytes of each of them."""
        return self._key_bytes + self._row_bytes * self._index.counts.astype(np.float64)

    @property
    def mean(self) -> float:
        """Bytes of a key, 0 if there are none."""
        return float(self.sizes.mean()) if len(self._index) else 0.0

    def of_shards(self, plan: Plan) -> NDArray[np.float64]:
        """Return the bytes of each shard."""
        sizes: NDArray[np.float64] = np.zeros(plan.shards)
        np.add.at(sizes, plan.shard_of(self.keys), self.sizes)
        return sizes

    def moved(self, before: Plan, after: Plan) -> NDArray[np.float64]:
        """Return the bytes that go from each instance, in rows, to each other one, in columns."""
        flows = np.zeros((before.instances, after.instances))
        old, new = (plan.assignment[plan.shard_of(self.keys)] for plan in (before, after))
        away = old != new
        np.add.at(flows, (old[away], new[away]), self.sizes[away])
        return flows
