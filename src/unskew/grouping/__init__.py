"""Groupings: decide, tuple by tuple, which instance a key goes to."""

from unskew.grouping.base import Grouping, Snapshot, grouping, groupings, register
from unskew.grouping.bounded_ring import BoundedRing
from unskew.grouping.cardinality_aware import CardinalityAware
from unskew.grouping.d_choices import DChoices
from unskew.grouping.dagreedy import DAGreedy
from unskew.grouping.dalton import Dalton
from unskew.grouping.frugal import Frugal
from unskew.grouping.key import Key
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
    TwoChoices,
    PartialKey,
    CardinalityAware,
    DChoices,
    WChoices,
    DAGreedy,
    Dalton,
    RandomChoices,
    BoundedRing,
    PdStream,
    Frugal,
):
    register(_grouping)

__all__ = [
    "BoundedRing",
    "CardinalityAware",
    "DAGreedy",
    "DChoices",
    "Dalton",
    "Frugal",
    "Grouping",
    "Key",
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
