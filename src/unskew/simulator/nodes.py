"""Where instances run: nodes with a speed that may change, and the network between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.errors import BadParameter
from unskew.parameters import number, whole_number


class Nodes:
    """Nodes of given speeds; instance i of a stage runs on node i modulo their number.

    Where cores are given, instances are dealt to the nodes in turn, but to none that has as many of
    them as cores until all have; so nodes of more cores have more instances.

    Parameters
    ----------
    count : int, default 1
        Number of nodes.
    speeds : list of float, optional
        Speed of each node, above 0; work of s seconds takes s / speed. All 1 unless given.
    changes : list of (float, list of float), optional
        Times in seconds, in order, and the speeds from then on.
    cores : list of int, optional
        Cores of each node. An instance has one to itself; a node with more instances of all stages
        than cores is not slower for it here, but its load is told in cores.

    Examples
    --------
    >>> nodes = Nodes(2, speeds=[1.0, 0.5], changes=[(60.0, [1.0, 1.0])])
    >>> nodes.of(5).tolist()
    [0, 1, 0, 1, 0]
    >>> Nodes(3, cores=[2, 1, 1]).of(6).tolist()
    [0, 1, 2, 0, 0, 1]
    """

    def __init__(
        self,
        count: int = 1,
        *,
        speeds: Sequence[float] | None = None,
        changes: Sequence[tuple[float, Sequence[float]]] = (),
        cores: Sequence[int] | None = None,
    ) -> None:
        self.count = whole_number("nodes", count, least=1, most=2**20)
        first = np.ones(self.count) if speeds is None else speeds
        schedule = [(0.0, first), *changes]
        self.starts = np.array([start for start, _ in schedule], dtype=np.float64)
        self.speeds = np.array([self._checked(row) for _, row in schedule])
        if np.any(np.diff(self.starts) <= 0):
            raise BadParameter(f"changes of speed must be in order of time, after 0: {changes!r}")

        self.cores: NDArray[np.int64] | None = None
        if cores is not None:
            if len(cores) != self.count:
                raise BadParameter(f"there are {self.count} nodes, but cores of {len(cores)}")
            each = [whole_number("cores", core, least=1, most=2**20) for core in cores]
            self.cores = np.array(each, dtype=np.int64)

    def _checked(self, speeds: Sequence[float] | NDArray[np.float64]) -> list[float]:
        if len(speeds) != self.count:
            raise BadParameter(
                f"there are {self.count} nodes, but {len(speeds)} speeds: {speeds!r}"
            )
        return [number("speed", float(speed), above=0) for speed in speeds]

    def speeds_at(self, now: float) -> NDArray[np.float64]:
        """Return the speed of each node at a time."""
        row: NDArray[np.float64] = self.speeds[np.searchsorted(self.starts, now, side="right") - 1]
        return row

    def of(self, instances: int) -> NDArray[np.int32]:
        """Return the node of each instance."""
        if self.cores is None:
            return (np.arange(instances) % self.count).astype(np.int32)
        turns = np.arange(int(self.cores.max()))
        once = np.concatenate([np.flatnonzero(self.cores > turn) for turn in turns])
        return np.resize(once, instances).astype(np.int32)


@dataclass(frozen=True)
class Network:
    """What a hop from one instance to the next costs in time.

    Parameters
    ----------
    local : float, default 0
        Seconds of a hop that stays on its node.
    latency : float, default 0
        Seconds of a hop to another node, whatever the size of the tuple.
    tuple_bytes : float, default 0
        Size of a tuple.
    bandwidth : float, default infinite
        Bytes a second between nodes.
    is_shared : bool, default False
        Whether tuples wait for each other: those that leave a node share its bandwidth, and so do
        those that come to one. Else each travels as if it were alone.
    handling : float, default 0
        Seconds of work that a tuple from another node is to the instance that takes it, beside
        that of the stage: to unpack it.

    Examples
    --------
    >>> Network(latency=0.001, tuple_bytes=1000, bandwidth=1e6).remote
    0.002
    """

    local: float = 0.0
    latency: float = 0.0
    tuple_bytes: float = 0.0
    bandwidth: float = float("inf")
    is_shared: bool = False
    handling: float = 0.0

    def __post_init__(self) -> None:
        """Check that no hop goes back in time, and that staying is not slower than leaving."""
        for name in ("local", "latency", "tuple_bytes", "handling"):
            number(name, getattr(self, name), least=0)
        if not self.bandwidth > 0:
            raise BadParameter(f"bandwidth must be above 0, not {self.bandwidth}")
        if self.remote < self.local:
            raise BadParameter(f"a local hop must not take longer than a remote one: {self}")

    @property
    def remote(self) -> float:
        """Seconds of a hop to another node, if nothing is in the way."""
        return self.latency + self.sending

    @property
    def sending(self) -> float:
        """Seconds that the link of a node is busy with a tuple."""
        return self.tuple_bytes / self.bandwidth
