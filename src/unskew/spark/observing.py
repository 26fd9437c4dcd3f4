"""The balance of each batch, measured by Spark as the partial states go by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from unskew.metrics import imbalance

TOP = 8
"""Partial states that are told of, for each instance: room for all that are an eighth of a load."""

MOST_INSTANCES = 1024
"""Each costs an expression for every partial state."""


@dataclass(frozen=True)
class HotRows:
    """A key of many rows.

    Attributes
    ----------
    key : str
        As text.
    rows, instances : int
        In how many rows, on how many instances, of its largest partial states.
    """

    key: str
    rows: int
    instances: int


@dataclass(frozen=True)
class Balance:
    """How the rows of a batch were spread.

    Attributes
    ----------
    loads : list of int
        Rows of each instance.
    hash_loads : list of int
        Rows that each would have had by Spark's own hash of the keys.
    partials : int
        Partial states: one for each key, window and instance that had rows of it.
    hot : list of HotRows
        The keys of the largest partial states, most rows first.
    """

    loads: list[int]
    hash_loads: list[int]
    partials: int
    hot: list[HotRows]

    @property
    def imbalance(self) -> float:
        """How far the busiest instance is above the mean."""
        return _imbalance(self.loads)

    @property
    def hash_imbalance(self) -> float:
        """The same under Spark's own hash."""
        return _imbalance(self.hash_loads)

    @classmethod
    def of(cls, observed: Any) -> Balance:
        """Return the balance that a query observed, ``progress.observedMetrics[name]``."""
        hot: dict[tuple[str | None, ...], list[tuple[int, int]]] = {}
        for state in observed["hot"] or []:
            hot.setdefault(tuple(state["key"]), []).append((state["rows"], state["instance"]))
        rows = [
            HotRows(_text(key), sum(size for size, _ in each), len({place for _, place in each}))
            for key, each in hot.items()
        ]
        return cls(
            loads=list(observed["loads"]),
            hash_loads=list(observed["hash_loads"]),
            partials=observed["partials"],
            hot=sorted(rows, key=lambda key: key.rows, reverse=True),
        )


def _imbalance(loads: Sequence[int]) -> float:
    return imbalance(loads) if sum(loads) else 0.0


def _text(key: tuple[str | None, ...]) -> str:
    return ", ".join("null" if part is None else part for part in key)


def balance_metrics(
    keys: Sequence[Column],
    windows: Sequence[Column],
    instances: int,
    rows: Column,
    instance: Column,
) -> list[Column]:
    """Return what `Balance.of` reads, as aggregates over partial states.

    Parameters
    ----------
    keys, windows : list of Column
        The keys, and the window if there is one, by both of which Spark would send the rows.
    instances : int
        Number of instances.
    rows, instance : Column
        Rows in the partial state, and where it was made.
    """
    named = F.array(*(key.cast("string") for key in keys))
    state = F.struct(named.alias("key"), rows.alias("rows"), instance.alias("instance"))
    home = F.pmod(F.hash(*windows, *keys), F.lit(instances))
    return [
        _by_instance(instance, rows, instances).alias("loads"),
        _by_instance(home, rows, instances).alias("hash_loads"),
        F.count(F.lit(1)).alias("partials"),
        F.max_by(state, rows, TOP * instances).alias("hot"),
    ]


def _by_instance(instance: Column, rows: Column, instances: int) -> Column:
    own = (F.sum(F.when(instance == i, rows)) for i in range(instances))
    return F.array(*(F.coalesce(each, F.lit(0)) for each in own))
