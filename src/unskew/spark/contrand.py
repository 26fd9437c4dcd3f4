"""Groups of instances that share their keys, as BiStream-ContRand has them, for joins on Spark."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

MEMBERS = 2
"""Of a group, as `unskew.grouping.ContRand` has by default."""

_MEMBER = "unskew_member"


class Dealt(NamedTuple):
    """Rows that are dealt to the members of groups.

    Attributes
    ----------
    rows : DataFrame
        Each row once for every member.
    hashed : Column
        The hash that leads to the member's shard.
    stored : Column
        Whether the member keeps the row, or only looks for its partners.
    """

    rows: DataFrame
    hashed: Column
    stored: Column


def deal(rows: DataFrame, hashed: Column, turn: Column) -> Dealt:
    """Return each row once for every member of its key's group, of which one keeps it.

    A member has the hash of the key, but for the last bit. So the members of a group are two shards
    that follow each other and, where nothing has moved, two instances that do. If there is an even
    number of both, every instance is in one group.

    In this it is not `unskew.grouping.ContRand`, whose members are drawn. Here all follows from the
    row, so that a task that is run again sends it to the same places; the price is that rows that
    hold the same have the same member. And nothing depends on how many instances or shards there
    are, so that state is found after either has changed; the price is that of an odd number of
    instances each is in two groups, where ContRand has a group of one, and that an instance that is
    alone is both members.

    Parameters
    ----------
    rows : DataFrame
        With all columns that the others are made of.
    hashed : Column
        Hash of the key.
    turn : Column
        A whole number by which a row chooses the member that keeps it.
    """
    members = F.array(*(F.lit(member) for member in range(MEMBERS)))
    copies = rows.select("*", F.explode(members).alias(_MEMBER))
    member = F.col(_MEMBER)
    return Dealt(copies, hashed.bitwiseXOR(member), F.pmod(turn, F.lit(MEMBERS)) == member)
