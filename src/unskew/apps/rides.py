"""Rides: orders joined with the taxis nearby, on streams whose hot spots move."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew import hash_keys
from unskew.apps.base import App, Options, Summary, Watch
from unskew.apps.continuing import check_same_stream
from unskew.apps.following import Enough, all_offsets, committed, wait, watermarks
from unskew.apps.generated import NUMBER, first_numbers, numbers, rows_of
from unskew.apps.log import Log
from unskew.errors import NotVerified
from unskew.spark import Balance, BatchReport, HotRows, join
from unskew.workloads import Rides
from unskew.workloads.base import MOST
from unskew.workloads.rides import ORDER_EVERY

NEARBY = "5 minutes"
"""How long ago a taxi may have been in the cell of an order."""

_NEARBY_MS = 300_000
_CELL = 2**40
"""More than there are milliseconds in a run."""

PARTNERS = 2
"""Batches before a batch whose rows may have partners in it, in the busiest hour, too."""

LATENESS = "2 minutes"
"""How far reports may be behind the newest before they are late."""

BATCHES_PER_HOUR = 6
"""A batch is ten minutes of event time, on average of the day: a taxi is nearby for half of it."""

SHARDS = 1024
"""As many as there may be instances, so that a run goes on with any number of them."""

HOTTEST = 10
"""Cells of each batch that are told of."""

_ORDER = "order bigint, time timestamp, x double, y double, cell bigint"
_TRACK = "taxi bigint, time timestamp, x double, y double, cell bigint"
_PAIR = (
    "cell bigint, order bigint, time timestamp, x double, y double, "
    "taxi bigint, seen timestamp, taxi_x double, taxi_y double, version bigint"
)
VERSION = "version"
"""Of the pipeline, by which its Parquet files are in folders."""


class NearbyTaxis(App):
    """Every order with the taxis that were in its cell in the last minutes, as Parquet."""

    name = "rides"
    title = "orders joined with the taxis nearby in the last minutes, as hot spots move"
    takes = frozenset({"balancer"})
    # With fewer, pairs take next to no time beside rows, and a balancer cannot see them.
    rows = 120_000
    results = "pairs"

    def run(self, spark: SparkSession, options: Options, watch: Watch) -> Summary:
        """Run to the end, and tell of every batch."""
        stream = _Rides(spark, options)
        checkpoint = options.out / "checkpoint"
        offsets = checkpoint / "spark"
        check_same_stream(self.name, options, offsets)
        pairs = options.out / self.results
        # Spark reads an empty folder, and none that is missing.
        pairs.mkdir(parents=True, exist_ok=True)
        joined = join(
            stream.orders(numbers(spark, options.rows)).withWatermark("time", LATENESS),
            stream.tracks(numbers(spark, options.rows)).withWatermark("seen", LATENESS),
            on="cell",
            within=(NEARBY, 0),
            how="left",
            instances=options.instances,
            shards=SHARDS,
            balancer=options.balancer,
        )
        first = committed(offsets)
        last = first + options.batches - 1

        def before(number: int) -> None:
            if number > last:
                raise Enough

        log = _Log(stream, watch)
        begin = time.perf_counter()
        with all_offsets(spark):
            query = joined.start(pairs, checkpoint, before=before, watch=log.note)
        wait(query)
        seconds = time.perf_counter() - begin
        found = spark.read.schema(_PAIR).parquet(f"file:{pairs}")
        verified = None
        if options.verify:
            _verify(stream, found, watermarks(offsets, last + 1))
            verified = True
        return log.summary(
            self,
            options,
            seconds=seconds,
            verified=verified,
            notes=[*_nearby(found), _moved(log.reports)],
            balanced="pairs",
            extra=_figures(log.reports),
        )


class _Rides:
    """The orders and the tracks, as functions of the number of a tuple."""

    def __init__(self, spark: SparkSession, options: Options) -> None:
        self.spark, self.options = spark, options
        per_hour = BATCHES_PER_HOUR * options.rows
        self.rides = Rides(MOST, per_hour=per_hour, seed=options.seed)

    def orders(self, tuples: DataFrame) -> DataFrame:
        """Return order, time, x, y and cell, and what else there is of the tuples."""
        own = tuples.where(F.col(NUMBER) % ORDER_EVERY == 0)
        made = rows_of(self.rides.orders, _ORDER).alias("made")
        return own.select("*", made).select(*_others(tuples), "made.*")

    def tracks(self, tuples: DataFrame) -> DataFrame:
        """Return taxi, seen, taxi_x, taxi_y and cell, and what else there is of the tuples."""
        own = tuples.where(F.col(NUMBER) % ORDER_EVERY != 0)
        made = rows_of(self.rides.tracks, _TRACK).alias("made")
        names = {"time": "seen", "x": "taxi_x", "y": "taxi_y"}
        return own.select("*", made).select(*_others(tuples), "made.*").withColumnsRenamed(names)

    def again(self, batches: int) -> DataFrame:
        """Return the tuples of the first batches, with the number of each one's batch."""
        rows = self.options.rows
        return first_numbers(self.spark, batches * rows).withColumn(
            "batch", F.floor(F.col(NUMBER) / rows).cast("int")
        )


def _others(tuples: DataFrame) -> list[str]:
    return [name for name in tuples.columns if name != NUMBER]


class _Log(Log):
    """What the batches did, as the pipeline tells and as the stream is known to be.

    A pipeline tells of hashes and shards; which cells the rows of a batch are in, how many pairs
    they have, and where Spark's own hash would have sent them, is computed from the stream itself.
    """

    def __init__(self, stream: _Rides, watch: Watch) -> None:
        super().__init__(watch)
        self._rides = stream.rides
        self._rows, self._instances = stream.options.rows, stream.options.instances
        cells = np.arange(4**self._rides.order)
        self._hashes = hash_keys(pa.array(cells)).tolist()
        home = F.pmod(F.hash("id"), F.lit(self._instances)).alias("home")
        homes = stream.spark.range(cells.size).select("id", home).orderBy("id").collect()
        self._homes = np.array([row["home"] for row in homes])

    def note(self, report: BatchReport) -> None:
        """Take the report of a batch."""
        start = report.batch * self._rows
        cells = self._rides.places(np.arange(start, start + self._rows)).cell
        counts = np.bincount(cells, minlength=len(self._hashes))
        # A key that is split is told by each of its instances, every other one by one at most.
        told = Counter(key for task in report.facts["tasks"] for key, _ in task["hot"])
        instances = np.array([max(told[key], 1) for key in self._hashes])
        pairs = self._pairs(report.batch)
        hottest = np.argsort(-pairs, kind="stable")[:HOTTEST].tolist()
        balance = Balance(
            loads=[sum(task["pairs"].values()) for task in report.facts["tasks"]],
            hash_loads=np.bincount(self._homes, pairs, self._instances).astype(int).tolist(),
            partials=int(instances[counts > 0].sum()),
            hot=[
                HotRows(f"cell {cell}", int(counts[cell]), int(instances[cell])) for cell in hottest
            ],
        )
        self._add(report, self._rows, int(np.count_nonzero(counts)), balance)

    def _pairs(self, batch: int) -> NDArray[np.int64]:
        """Return the pairs of each cell whose later row is in a batch, or would be if not late."""
        numbers = np.arange(max(0, batch - PARTNERS) * self._rows, (batch + 1) * self._rows)
        places = self._rides.places(numbers)
        is_old = numbers < batch * self._rows
        is_order = numbers % ORDER_EVERY == 0
        # By cell and then by time: the partners of an order are next to each other.
        by = places.cell * _CELL + places.time

        def count(among: NDArray[np.bool_]) -> NDArray[Any]:
            orders, tracks = by[is_order & among], np.sort(by[~is_order & among])
            first = np.searchsorted(tracks, orders - _NEARBY_MS, "left")
            found = np.searchsorted(tracks, orders, "right") - first
            return np.bincount(places.cell[is_order & among], found, len(self._hashes))

        pairs: NDArray[np.int64] = (count(np.ones_like(is_old)) - count(is_old)).astype(np.int64)
        return pairs


def _figures(reports: Sequence[BatchReport]) -> dict[str, Any]:
    seconds = [report.seconds for report in reports]
    return {
        "migrations": sum(sum(report.moves) + sum(report.hot_moves) for report in reports),
        "migrated_bytes": sum(report.bytes_moved for report in reports),
        "late_rows": sum(report.late for report in reports),
        "latency_p95_ms": 1000 * float(np.percentile(seconds, 95)) if seconds else 0.0,
    }


def _verify(stream: _Rides, found: DataFrame, marks: Sequence[int]) -> None:
    """Join all rows at once by Spark's own join, and compare the pairs, each as often as it is.

    Rows up to the watermark of the batch before are late and have no partners, and an order without
    a taxi comes out when the watermark has passed it: both by the watermarks that Spark wrote down.
    """
    tuples = stream.again(len(marks))
    late = F.get(F.lit([0, *marks[:-1]]).cast("array<bigint>"), F.col("batch"))
    orders = stream.orders(tuples).where(F.unix_millis("time") > late).drop("batch")
    tracks = stream.tracks(tuples).where(F.unix_millis("seen") > late).drop("batch")
    earliest = F.col("time") - F.expr(f"interval {NEARBY}")
    nearby = (F.col("cell") == F.col("its_cell")) & F.col("seen").between(earliest, F.col("time"))
    joined = orders.join(tracks.withColumnRenamed("cell", "its_cell"), nearby, "left")
    is_over = F.col("taxi").isNotNull() | (F.unix_millis("time") <= marks[-1])
    names = [name for name in found.columns if name != VERSION]
    wanted = joined.where(is_over).select(*names, F.lit(-1).alias("times"))
    both = found.select(*names, F.lit(1).alias("times")).unionAll(wanted)
    wrong = both.groupBy(*names).agg(F.sum("times").alias("times")).where("times != 0")
    number = wrong.count()
    if number:
        raise NotVerified(
            f"{number:,} pairs are there more often, or less, than plain Spark joins them, such as "
            f"{wrong.first()}; report it, with the folder that --out names"
        )


def _nearby(found: DataFrame) -> Iterator[str]:
    """Yield what came out of the last batch that something came out of."""
    newest = found.agg(F.max(VERSION)).first()
    assert newest is not None
    orders = found.where(F.col(VERSION) == newest[0]).groupBy("order")
    told = (
        orders.agg(F.count("taxi").alias("reports"))
        .agg(F.count_if(F.col("reports") > 0), F.avg("reports"), F.count_if(F.col("reports") == 0))
        .first()
    )
    assert told is not None
    if newest[0] is not None:
        yield (
            f"last batch: {told[0]:,} orders with taxis nearby, {told[1]:,.0f} reports of them on "
            f"average; {told[2]:,} without any in the last {NEARBY}"
        )


def _moved(reports: Sequence[BatchReport]) -> str:
    figures = _figures(reports)
    return (
        f"{figures['migrations']:,} moves of shards and split keys, with "
        f"{figures['migrated_bytes']:,} bytes of state; {figures['late_rows']:,} rows came too late"
    )
