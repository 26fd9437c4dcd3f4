"""The contract of every grouping, and the one registry that finds them by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from hashlib import sha256
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.errors import BadSnapshot, UnknownGrouping
from unskew.mixing import spread_seed
from unskew.parameters import check_parameters, key_hashes, whole_number

MAX_INSTANCES = 2**31 - 1
"""Instances are int32."""

FORMAT = 1
"""Version of the arrays in a snapshot; it grows when a grouping keeps its state in another way."""

Snapshot = dict[str, NDArray[Any]]
"""The local state of a policy as plain arrays, one per name."""


class Grouping(ABC):
    """Decide, tuple by tuple, which instance a key goes to.

    One object is the local view of one source. Its whole state is the arrays in `_state`, which
    the kernel of the grouping reads and writes: that makes `snapshot` a copy, the size of the
    router a sum, and every answer independent of how the stream is cut into calls.

    Kernels number the instances from `_first` on, as places: place 0 wins ties. Sources differ in
    their first place, so they do not all prefer the same instance.

    Parameters
    ----------
    instances : int
        Number of instances to route to, at least 1.
    seed : int, default 0
        Chooses the hash functions. Sources that feed the same instances share it: a key then has
        the same home at all of them.
    source : int, default 0
        Which source this is. Ties are broken, and random numbers drawn, differently for each, so
        that sources do not pile onto the same instance.
    """

    name: ClassVar[str]
    reference: ClassVar[str]
    _per_batch: ClassVar[tuple[str, ...]] = ("loads",)
    """The parts of the state that `begin_batch` sets back to zeros."""

    def __init__(self, instances: int, *, seed: int = 0, source: int = 0) -> None:
        self.instances = whole_number("instances", instances, least=1, most=MAX_INSTANCES)
        self.seed = whole_number("seed", seed, least=0, most=2**63 - 1)
        self.source = whole_number("source", source, least=0, most=2**31 - 1)
        self._first = 0
        self._loads = np.zeros(self.instances, dtype=np.int64)
        self._state: dict[str, NDArray[Any]] = {"loads": self._loads}

    def route(self, keys: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Return the instance of each tuple, in order.

        Parameters
        ----------
        keys : array of uint64
            Hashes of the keys, as `unskew.hash_keys` or Spark's `xxhash64` make them.
        """
        keys = key_hashes("route", keys)
        chosen = np.empty(keys.size, dtype=np.int32)
        self._route(keys, chosen)
        if self._first:
            chosen += np.int32(self._first)
            chosen[chosen >= self.instances] -= np.int32(self.instances)
        return chosen

    @abstractmethod
    def _route(self, keys: NDArray[np.uint64], chosen: NDArray[np.int32]) -> None:
        """Run the kernel: write the place of each tuple into `chosen`."""

    @property
    def loads(self) -> NDArray[np.int64]:
        """Tuples sent to each instance by this source since the start or `begin_batch`."""
        return np.roll(self._loads, self._first)

    @property
    @abstractmethod
    def fan_out(self) -> int:
        """The most instances that one key can ever reach from this source."""

    @property
    def hot_keys(self) -> int:
        """Keys that are treated as hot at this moment."""
        return 0

    @property
    def state_bytes(self) -> int:
        """Bytes of router state, whatever the number of keys."""
        return sum(array.nbytes for array in self._state.values())

    def begin_batch(self) -> None:
        """Start balancing afresh, with what is hot carried over.

        A micro-batch is finished when its slowest instance is: what earlier batches sent no
        longer counts as load, but what they taught about the keys does.
        """
        for name, array in self._state.items():
            if name.partition(".")[0] in self._per_batch:
                array[...] = 0

    @property
    def made_by(self) -> str:
        """The version of the state, the name and all parameters: what a snapshot belongs to."""
        own = ", ".join(f"{key}={value}" for key, value in vars(self).items() if key[0] != "_")
        return f"{FORMAT} {self.name} {own}"

    def snapshot(self) -> Snapshot:
        """Return the whole state as plain arrays; `restore` continues from it exactly.

        Beside the state there are `made_by`, the text of that name, and a checksum over all.
        """
        copies = {name: array.copy() for name, array in self._state.items()}
        copies["made_by"] = np.frombuffer(self.made_by.encode(), dtype=np.uint8)
        return {**copies, "checksum": _checksum(copies)}

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot.

        Parameters
        ----------
        snapshot : dict of array
            What `snapshot` of a grouping of the same name and parameters returned.
        """
        arrays = {name: np.asarray(array) for name, array in snapshot.items()}
        made_by = arrays.get("made_by", np.empty(0)).tobytes().decode(errors="replace")
        if made_by != self.made_by:
            raise BadSnapshot(
                f"a snapshot of {made_by or 'something else'!r} cannot be restored into "
                f"{self.made_by!r}; make the grouping with the same parameters"
            )
        checksum = arrays.pop("checksum", np.empty(0))
        if not np.array_equal(checksum, _checksum(arrays)):
            raise BadSnapshot(
                f"the snapshot of {self.made_by!r} is damaged, its checksum does not fit; restore "
                f"an older one, or begin anew"
            )
        for name, array in self._state.items():
            array[...] = arrays[name]

    def _keep(self, prefix: str, arrays: NamedTuple) -> None:
        """Make the arrays of a part, such as a sketch, part of the state."""
        for name, array in arrays._asdict().items():
            self._state[f"{prefix}.{name}"] = array

    @property
    def _key_seed(self) -> np.uint64:
        """The seed of the hash functions, the same at every source."""
        return spread_seed(self.seed)

    @property
    def _chance_seed(self) -> np.uint64:
        """The seed of random numbers, another one at every source."""
        return spread_seed(self.source) ^ ~spread_seed(self.seed)

    def _counters(self, given: int | None, each: int) -> int:
        """Return the counters of a sketch: as given, or `each` for an instance, 64 at the least."""
        own = max(64, each * self.instances) if given is None else given
        return whole_number("counters", own, least=1, most=2**28)

    def _place_of_source(self) -> int:
        """Return the first place of this source; sources 0, 1, 2, ... are spread evenly."""
        # The golden ratio: however many sources there are, no two are close.
        return int(self.source * 0.6180339887498949 % 1.0 * self.instances)

    def __repr__(self) -> str:
        """Return the constructor call without the parameters of the single grouping."""
        return f"{type(self).__name__}({self.instances}, seed={self.seed}, source={self.source})"


_registry: dict[str, type[Grouping]] = {}


def _checksum(arrays: Snapshot) -> NDArray[np.uint8]:
    """Return a digest of the names, types, shapes and contents of arrays."""
    digest = sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return np.frombuffer(digest.digest(), dtype=np.uint8)


def register(cls: type[Grouping]) -> None:
    """Add a grouping to the registry under its `name`, in place of one of that name."""
    _registry[cls.name] = cls


def groupings() -> dict[str, type[Grouping]]:
    """Return every registered grouping by name, in the order of registration."""
    return dict(_registry)


def grouping(name: str, instances: int, **parameters: Any) -> Grouping:
    """Make a grouping by name.

    Parameters
    ----------
    name : str
        One of `groupings()`.
    instances : int
        Number of instances to route to.
    **parameters
        What the grouping of that name takes: `seed` and `source` always, and its own.

    Examples
    --------
    >>> import numpy as np, unskew
    >>> router = unskew.grouping("partial-key", instances=4)
    >>> router.route(np.array([7, 7, 7, 7], dtype=np.uint64)).size
    4
    """
    try:
        cls = _registry[name]
    except KeyError:
        raise UnknownGrouping(
            f"there is no grouping {name!r}; choose one of {', '.join(_registry)}"
        ) from None
    check_parameters(name, cls, parameters, others=("instances",))
    return cls(instances, **parameters)
