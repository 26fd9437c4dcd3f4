"""ContRand: a few instances share the keys of a group, and each tuple is kept by one of them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.grouping.base import Grouping
from unskew.grouping.choices import home_of, key_bits, scatter
from unskew.kernel import kernel
from unskew.mixing import counter_bits
from unskew.parameters import key_hashes, whole_number


class ContRand(Grouping):
    """Send a tuple to a random member of the group of instances that its key has.

    A key is on at most `members` instances, and each of them gets an equal part of it: hot keys
    overload a group instead of an instance, by as many times less as it has members. In a join the
    tuple is kept where it is sent, and has to look for its partners at all `members_of` its key.
    O(1) a tuple.

    Parameters
    ----------
    instances, seed, source
        As of `Grouping`; each source draws other members.
    members : int, default 2
        Instances of a group, at least 1. There are ceil(instances / members) groups, of sizes that
        differ by at most one; a group gets keys in proportion to its size.

    Examples
    --------
    >>> router = ContRand(6)
    >>> router.members_of(np.array([9], dtype=np.uint64)).tolist()
    [[1, 4]]
    >>> router.route(np.full(6, 9, dtype=np.uint64)).tolist()
    [4, 4, 1, 1, 4, 4]

    References
    ----------
    LS-Stream, Section VI, baseline BiStream-ContRand (Lin et al., SIGMOD 2015).
    """

    name: ClassVar[str] = "contrand"
    reference: ClassVar[str] = "BiStream-ContRand: Lin et al., SIGMOD 2015; LS-Stream, baseline"

    def __init__(self, instances: int, *, seed: int = 0, source: int = 0, members: int = 2) -> None:
        super().__init__(instances, seed=seed, source=source)
        self.members = whole_number("members", members, least=1, most=2**31 - 1)
        self._groups = -(-self.instances // self.members)
        self._state["drawn"] = self._drawn = np.zeros(1, dtype=np.int64)

    @property
    def fan_out(self) -> int:
        """The largest group."""
        return -(-self.instances // self._groups)

    def members_of(self, keys: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Return the instances of each key, a row each, with -1 where a group has fewer."""
        keys = key_hashes("members_of", keys)
        found = np.full((keys.size, self.fan_out), -1, dtype=np.int32)
        _members(keys, found, self.instances, self._groups, self._key_seed)
        return found

    def _route(self, keys: NDArray[np.uint64], chosen: NDArray[np.int32]) -> None:
        _kernel(
            *(keys, chosen, self._loads, self._drawn),
            *(self._groups, self._key_seed, self._chance_seed),
        )


@kernel
def _group_of(key: np.uint64, instances: int, groups: int, seed: np.uint64) -> int:
    # Instances are dealt to groups in turn, so a home among all of them draws a group by its size.
    return home_of(key_bits(key, seed), instances) % groups


@kernel
def _kernel(
    keys: NDArray[np.uint64],
    chosen: NDArray[np.int32],
    loads: NDArray[np.int64],
    drawn: NDArray[np.int64],
    groups: int,
    seed: np.uint64,
    chance: np.uint64,
) -> None:
    for i in range(keys.size):
        group = _group_of(keys[i], loads.size, groups, seed)
        size = (loads.size - group + groups - 1) // groups
        drawn[0] += 1
        member = scatter(counter_bits(chance, np.uint64(drawn[0])), size)
        instance = group + member * groups
        loads[instance] += 1
        chosen[i] = instance


@kernel
def _members(
    keys: NDArray[np.uint64],
    found: NDArray[np.int32],
    instances: int,
    groups: int,
    seed: np.uint64,
) -> None:
    for i in range(keys.size):
        instance = _group_of(keys[i], instances, groups, seed)
        member = 0
        while instance < instances:
            found[i, member] = instance
            instance += groups
            member += 1
