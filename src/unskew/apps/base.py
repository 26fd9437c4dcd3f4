"""The contract of an app: a job on Spark that shows what balance is worth, and checks itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import SparkSession

from unskew.spark import Balance, Speeds


@dataclass(frozen=True)
class Options:
    """What a run was asked for.

    Attributes
    ----------
    source : str
        "rate" for a generated stream, or "files:DIR"; some apps know others.
    key, time, value : str or None
        Columns of the files: the key, the event time and the number that is aggregated.
    grouping : str
        Sends the rows, where an app has no state that moves.
    balancer : str
        Moves the state, where it can.
    instances : int
        Of the balanced stage.
    batches, rows : int
        How many batches, and rows in each; of files each is a batch, and all are read.
    out : Path
        Folder for what comes out, checkpoint included.
    seed : int
        Of the stream and the grouping.
    verify : bool
        Compute everything again with plain Spark, and compare.
    stable : bool, default False
        Whether what belongs together in a generated stream stays the same.
    speeds : Speeds, optional
        Of executors, some of which are slowed.
    shards : int or None, default None
        Of the balanced stage, where an app can be told; as many as its balancer needs by default.
    sink : str or None, default None
        URL of a Redis for what comes out, instead of Parquet files; it may have a password.
    sink_name : str or None, default None
        What names in that Redis begin with, if not with what the app calls them.
    jars : str or None, default None
        Files of the connector to Kafka, with commas between them; Spark fetches it by default.
    """

    source: str
    key: str | None
    time: str | None
    value: str | None
    grouping: str
    balancer: str
    instances: int
    batches: int
    rows: int
    out: Path
    seed: int
    verify: bool
    stable: bool = False
    speeds: Speeds | None = None
    shards: int | None = None
    sink: str | None = field(default=None, repr=False)
    sink_name: str | None = None
    jars: str | None = None


@dataclass(frozen=True)
class Batch:
    """What one batch did.

    Attributes
    ----------
    number : int
        From 0 up.
    rows : int
        That came in.
    keys : int
        Keys and windows that had rows.
    seconds : float
        It took.
    balance : Balance
        How its rows were spread, or what else the app balances.
    """

    number: int
    rows: int
    keys: int
    seconds: float
    balance: Balance

    @property
    def rows_per_second(self) -> float:
        """Rows over seconds."""
        return self.rows / self.seconds

    @property
    def replication_factor(self) -> float:
        """Instances that a key of a window had on average."""
        return self.balance.partials / self.keys if self.keys else 1.0


@dataclass(frozen=True)
class Series:
    """A figure of every batch that an app is about, beside what it would be by hash.

    Attributes
    ----------
    title, measure : str
        Of its chart, and of the chart's axis.
    ours, hashed : sequence of float
        Of each batch.
    """

    title: str
    measure: str
    ours: Sequence[float]
    hashed: Sequence[float]


@dataclass(frozen=True)
class Summary:
    """What a run did; `as_dict` is what `--json` writes.

    `balanced` says what the loads of the batches are: rows, or what else the app balances. Where an
    app is about something else than balance, `series` are its charts and `outcome` its last word.
    """

    app: str
    strategy: str
    rows_in: int
    rows_out: int
    batches: Sequence[Batch]
    seconds: float
    verified: bool | None
    notes: Sequence[str] = ()
    balanced: str = "rows"
    series: Sequence[Series] = ()
    outcome: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def imbalance(self) -> float:
        """Of all batches: the sum of the largest loads over that of the means, less 1."""
        return _together([batch.balance.loads for batch in self.batches])

    @property
    def hash_imbalance(self) -> float:
        """The same had the rows been sent by Spark's hash of the key."""
        return _together([batch.balance.hash_loads for batch in self.batches])

    @property
    def gain(self) -> float:
        """How many times less load the busiest instances have than they would by that hash."""
        busiest = sum(max(batch.balance.loads) for batch in self.batches)
        hashed = sum(max(batch.balance.hash_loads) for batch in self.batches)
        return hashed / busiest if busiest else 1.0

    @property
    def replication_factor(self) -> float:
        """Instances that a key of a window had in a batch, on average."""
        keys = sum(batch.keys for batch in self.batches)
        return sum(batch.balance.partials for batch in self.batches) / keys if keys else 1.0

    def as_dict(self) -> dict[str, Any]:
        """Return the figures by name."""
        return {
            "app": self.app,
            "strategy": self.strategy,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "batches": len(self.batches),
            "seconds": self.seconds,
            "rows_per_second": self.rows_in / self.seconds if self.seconds else 0.0,
            "balanced": self.balanced,
            "imbalance": self.imbalance,
            "hash_imbalance": self.hash_imbalance,
            "replication_factor": self.replication_factor,
            "verified": self.verified,
            **self.extra,
        }


def _together(loads: Sequence[Sequence[int]]) -> float:
    means = sum(sum(each) / len(each) for each in loads)
    return sum(max(each) for each in loads) / means - 1 if means else 0.0


Watch = Callable[[Batch], None]
"""Called after every batch."""


class App(ABC):
    """A job that `unskew run` finds by its name.

    Attributes
    ----------
    name, title : str
        What it is called, and what it does, in a line.
    takes : frozenset of str
        Options that not every app has, of those that it has.
    rows : int
        In a batch, unless told otherwise.
    results : str
        Folder in `Options.out` with what comes out.
    balancer : str
        Moves its state, unless told otherwise.
    source : str
        Where its rows come from, unless told otherwise.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    takes: ClassVar[frozenset[str]]
    rows: ClassVar[int]
    results: ClassVar[str]
    balancer: ClassVar[str] = "ls-stream"
    source: ClassVar[str] = "rate"

    def strategy(self, options: Options) -> str:
        """Return the name of what balances it: the balancer, or a grouping."""
        return options.balancer

    def settings(self, options: Options) -> dict[str, str]:
        """Return what the session has to be started with."""
        del options
        return {}

    @abstractmethod
    def run(self, spark: SparkSession, options: Options, watch: Watch) -> Summary:
        """Run to the end, and tell of every batch."""
