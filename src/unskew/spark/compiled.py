"""A plan as one native column expression: no Python in the path.

Every row costs one array look-up by its shard. Shards with hot keys hold a negative number there,
and only their rows are compared with the hot keys. The tables are texts that the optimizer turns,
once, into literal arrays: thousands of literals made one by one would take seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from unskew.balance import Plan


def instance(plan: Plan, hashed: Column, turn: Column) -> Column:
    """Return the instance of each row as an integer column.

    Parameters
    ----------
    plan : Plan
        Where shards and hot keys are.
    hashed : Column
        Hash of the key, as ``xxhash64`` makes it.
    turn : Column
        A whole number by which a row of a hot key chooses among the key's instances.
    """
    hot = sorted(plan.hot)
    homes = plan.hashed_shard_of(np.array(hot, dtype=np.uint64)).tolist()
    by_shard: dict[int, list[int]] = {}
    for key, shard in zip(hot, homes, strict=True):
        by_shard.setdefault(shard, []).append(key)
    table = plan.assignment.tolist()
    for place, shard in enumerate(by_shard):
        table[shard] = -1 - place
    found = F.get(_array(table, "int"), F.pmod(hashed, F.lit(plan.shards)).cast("int"))
    if not hot:
        return found
    number = -1 - found
    otherwise = F.get(_array((plan.assignment[shard] for shard in by_shard), "int"), number)
    # Nearly always one level: as many as there are hot keys in one shard.
    for level in range(max(map(len, by_shard.values()))):
        # A shard with fewer hot keys has its first one again, which was compared before.
        keys = [held[level if level < len(held) else 0] for held in by_shard.values()]
        turns = [plan.hot[key] for key in keys]
        starts = list(accumulate((len(part) for part in turns), initial=0))[:-1]
        flat = _array((copy for part in turns for copy in part), "int")
        chosen = F.get(_array(starts, "int"), number) + F.pmod(
            turn, F.get(_array(map(len, turns), "int"), number)
        ).cast("int")
        is_key = hashed == F.get(_array(map(_signed, keys), "bigint"), number)
        otherwise = F.when(is_key, F.get(flat, chosen)).otherwise(otherwise)
    return F.when(found >= 0, found).otherwise(otherwise)


def holders(plan: Plan, hashed: Column) -> Column:
    """Return all instances that may have state of each row's key: none but for hot keys."""
    hot = sorted(plan.hot)
    shards = set(plan.hashed_shard_of(np.array(hot, dtype=np.uint64)).tolist())
    texts = (",".join(map(str, sorted(plan.holders_of(key)))) for key in hot)
    instances = F.transform(
        F.split(F.lit(";".join(texts)), ";"), lambda text: F.split(text, ",").cast("array<int>")
    )
    # Counted from 1, and 0 for a key that is not there.
    place = F.array_position(_array(map(_signed, hot), "bigint"), hashed).cast("int") - 1
    none = _array((), "int")
    is_near = F.pmod(hashed, F.lit(plan.shards)).isin(sorted(shards))
    return F.when(is_near, F.coalesce(F.get(instances, place), none)).otherwise(none)


def _signed(key: int) -> int:
    """Return a hash as Spark has it."""
    return key - 2**64 if key >= 2**63 else key


def _array(values: Iterable[int], kind: str) -> Column:
    """Return a literal array of whole numbers."""
    values = list(values)
    if not values:
        return F.array().cast(f"array<{kind}>")
    return F.split(F.lit(",".join(map(str, values))), ",").cast(f"array<{kind}>")
