"""Groupings: decide, tuple by tuple, which instance a key goes to."""

import sys
from types import ModuleType
from typing import Any

from unskew.grouping.base import Grouping, Snapshot, grouping, groupings, register
from unskew.grouping.bounded_ring import BoundedRing
from unskew.grouping.cardinality_aware import CardinalityAware
from unskew.grouping.consistent import Consistent
from unskew.grouping.contrand import ContRand
from unskew.grouping.d_choices import DChoices
from unskew.grouping.dagreedy import DAGreedy
from unskew.grouping.dalton import Dalton
from unskew.grouping.frugal import Frugal
from unskew.grouping.key import Key
from unskew.grouping.local_or_shuffle import LocalOrShuffle
from unskew.grouping.partial_key import PartialKey
from unskew.grouping.pd_stream import PdStream
from unskew.grouping.random_choices import RandomChoices
from unskew.grouping.shuffle import Shuffle
from unskew.grouping.two_choices import TwoChoices
from unskew.grouping.w_choices import WChoices

# In the order of tables and charts: the plain ones, splitting by choices, by capacity, by
# popularity.
for _grouping in (
    Key,
    Shuffle,
    LocalOrShuffle,
    TwoChoices,
    PartialKey,
    CardinalityAware,
    ContRand,
    DChoices,
    WChoices,
    DAGreedy,
    Dalton,
    RandomChoices,
    BoundedRing,
    Consistent,
    PdStream,
    Frugal,
):
    register(_grouping)


class _Callable(ModuleType):
    """The package when it is called: `unskew.grouping(...)` makes a grouping.

    `unskew.grouping` is a function there, by contract, and the package here; whichever of the two
    an import statement has bound last, a call does the same.
    """

    def __call__(self, name: str, instances: int, **parameters: Any) -> Grouping:
        """Make a grouping by name."""
        return grouping(name, instances, **parameters)


sys.modules[__name__].__class__ = _Callable

__all__ = [
    "BoundedRing",
    "CardinalityAware",
    "Consistent",
    "ContRand",
    "DAGreedy",
    "DChoices",
    "Dalton",
    "Frugal",
    "Grouping",
    "Key",
    "LocalOrShuffle",
    "PartialKey",
    "PdStream",
    "RandomChoices",
    "Shuffle",
    "Snapshot",
    "TwoChoices",
    "WChoices",
    "grouping",
    "groupings",
    "register",
]
