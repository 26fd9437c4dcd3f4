"""The report: what one interval or batch measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unskew.balance.key_pairs import KeyPairs


@dataclass(frozen=True)
class NodeLoads:
    """Where the instances of a stage ran, and how busy it was there.

    Attributes
    ----------
    names : tuple of str
        Of each node.
    of_instance : array of int32
        Node of each instance.
    cpu, memory : array of float64
        Part of each node's cores that was busy, and of its memory that was in use, whoever did it.
    network, disk : array of float64, optional
        Part of what its network and its disks can carry that was in use, where it was measured.
    cores : array of float64, optional
        Cores of each node that its instances can use, where they are known.
    """

    names: tuple[str, ...]
    of_instance: NDArray[np.int32]
    cpu: NDArray[np.float64]
    memory: NDArray[np.float64]
    network: NDArray[np.float64] | None = None
    disk: NDArray[np.float64] | None = None
    cores: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Report:
    """What a balancer gets to see.

    Attributes
    ----------
    seconds : float
        Length of the interval.
    rows : array of int64
        Tuples of each shard.
    busy : array of float64
        Seconds of service that the tuples of each shard asked for.
    state_bytes : array of float64
        State of each shard, as far as known.
    utilisation : array of float64
        Part of the interval that each instance was busy.
    queues : array of int64
        Tuples that wait at each instance at the end of the interval.
    hot : mapping of int to float, default none
        Seconds of service of the keys that asked for most, by the hash of the key; they are in
        `busy`, too, unless the plan has the key among its hot ones. Where there is `work` they are
        at the mean speed, as that is.
    can_split : bool, default False
        Whether a key may be on several instances at once.
    nodes : NodeLoads, optional
        Where the instances ran.
    keys : array of int64, optional
        Distinct keys of each shard, where they were counted.
    work : array of float64, optional
        Seconds of service that each shard would have asked for at the mean speed of all instances,
        where that is known: `busy` without what a slow or fast instance makes of it.
    stored : array of int64, optional
        Tuples that each shard keeps at the end of the interval, where an operator keeps them.
    watermark, latest : int, optional
        Event times in microseconds, where an operator keeps tuples: up to the one they have
        expired, and with the other the last that are kept now will have.
    pairs : mapping of int to KeyPairs, default none
        By the number of a stage that follows: the pairs of keys that tuples had most often, here
        and there, where they were counted.
    row_bytes, key_bytes : float, default 0
        Mean size of a tuple that goes on to the next stage, and of the state of a key.
    """

    seconds: float
    rows: NDArray[np.int64]
    busy: NDArray[np.float64]
    state_bytes: NDArray[np.float64]
    utilisation: NDArray[np.float64]
    queues: NDArray[np.int64]
    hot: Mapping[int, float] = field(default_factory=dict)
    can_split: bool = False
    nodes: NodeLoads | None = None
    keys: NDArray[np.int64] | None = None
    work: NDArray[np.float64] | None = None
    stored: NDArray[np.int64] | None = None
    watermark: int | None = None
    latest: int | None = None
    pairs: Mapping[int, KeyPairs] = field(default_factory=dict)
    row_bytes: float = 0.0
    key_bytes: float = 0.0

    @property
    def asked(self) -> NDArray[np.float64]:
        """Seconds of service of each shard, at the mean speed where that is known.

        Examples
        --------
        >>> none, two = np.zeros(1), np.array([2.0])
        >>> Report(1.0, none, two, none, none, none).asked.tolist()
        [2.0]
        >>> Report(1.0, none, two, none, none, none, work=np.array([5.0])).asked.tolist()
        [5.0]
        """
        return (self.busy if self.work is None else self.work).astype(np.float64)
