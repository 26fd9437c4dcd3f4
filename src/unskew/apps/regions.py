"""Regions: posts counted by region, then by hashtag, where most hashtags belong to a region."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew.aggregates import Reduction, count
from unskew.aggregates.base import Groups
from unskew.apps.base import App, Options, Series, Summary, Watch
from unskew.apps.continuing import check_same_stream
from unskew.apps.following import Enough, committed, wait
from unskew.apps.generated import first_numbers, numbers, rows_of
from unskew.apps.log import Log
from unskew.balance import Balancer, Locality, balancer
from unskew.errors import NotVerified
from unskew.spark import Balance, BatchReport, HotRows, Pipeline
from unskew.workloads import Regions

BATCHES_PER_WEEK = 8
"""A week is so many batches: then other hashtags belong to a region."""

PERIOD = 2
"""Batches between two plans of the balancer locality."""

SHARDS = 1024
"""As many as there may be instances, so that a run goes on with any number of them."""

HOTTEST = 10
"""Hashtags of each batch that are told of."""

TEXT = 200
"""Letters of a post."""

_POST = "region string, hashtag string, text string"


class Letters(Reduction):
    """How many letters there are in all."""

    numbers = {"letters": (np.add, 0)}  # noqa: RUF012
    result_type = pa.int64()

    def update(self, states: pa.Array, groups: Groups, *values: pa.Array) -> pa.Array:
        """Count the letters of texts, without making Python's strings of them."""
        return super().update(states, groups, pc.utf8_length(values[0]).cast(pa.int64()))

    def of_rows(self, *values: NDArray[Any]) -> NDArray[Any]:
        """Return the letters of each row."""
        return values[0]

    def result(self, *numbers: NDArray[Any]) -> NDArray[Any]:
        """Return their sum."""
        return numbers[0]


class TrendsByRegion(App):
    """Posts of every region, then of every hashtag, as Parquet."""

    name = "regions"
    title = "posts counted by region and then by hashtag, which live together where they can"
    takes = frozenset({"balancer", "stable"})
    rows = 50_000
    results = "hashtags"
    balancer = "locality"

    def _balancer(self, name: str) -> Balancer:
        # Runs are short, so that plans have to come soon.
        return Locality(period=PERIOD) if name == Locality.name else balancer(name)

    def run(self, spark: SparkSession, options: Options, watch: Watch) -> Summary:
        """Run to the end, and tell of every batch."""
        posts = _Posts(spark, options)
        checkpoint = options.out / "checkpoint"
        offsets = checkpoint / "spark"
        check_same_stream(self.name, options, offsets)
        found = options.out / self.results
        # Spark reads an empty folder, and none that is missing.
        found.mkdir(parents=True, exist_ok=True)
        counted = (
            Pipeline(
                posts.rows(numbers(spark, options.rows)),
                instances=options.instances,
                shards=SHARDS,
                balancer=self._balancer(options.balancer),
            )
            .aggregate("region", {"posts_of_region": count()}, mode="rows", name="regions")
            .aggregate("hashtag", {"posts": count(), "letters": Letters().of("text")})
        )
        last = committed(offsets) + options.batches - 1

        def before(number: int) -> None:
            if number > last:
                raise Enough

        log = _Log(posts, watch)
        begin = time.perf_counter()
        wait(counted.start(found, checkpoint, before=before, watch=log.note))
        seconds = time.perf_counter() - begin
        verified = None
        if options.verify:
            _verify(posts, spark.read.parquet(f"file:{found}"), last + 1)
            verified = True
        return log.summary(
            self,
            options,
            seconds=seconds,
            verified=verified,
            notes=list(_told(log.reports, options.instances)),
            extra=_figures(log.reports, options.instances),
            series=_series(log.reports, options.instances),
            outcome=_outcome(log.reports, options.instances),
        )


class _Posts:
    """The posts, as functions of their number."""

    def __init__(self, spark: SparkSession, options: Options) -> None:
        self.spark, self.options = spark, options
        per_week = BATCHES_PER_WEEK * options.rows
        self.made = Regions(per_week, stable=options.stable, seed=options.seed)

    def rows(self, tuples: DataFrame) -> DataFrame:
        """Return region, hashtag and text."""
        made = self.made

        def make(numbers: NDArray[np.int64]) -> pa.StructArray:
            rows = made.rows(numbers)
            # Letters that cannot be guessed, or a compressed exchange would not be one.
            chance = np.random.default_rng(int(numbers[0]) if numbers.size else 0)
            letters = chance.integers(97, 123, (numbers.size, TEXT), dtype=np.uint8)
            texts = pa.array(letters.view(f"S{TEXT}").ravel().astype(str), pa.string())
            columns = [*rows.flatten(), texts]
            return pa.StructArray.from_arrays(columns, ["region", "hashtag", "text"])

        return tuples.select(rows_of(make, _POST).alias("made")).select("made.*")


class _Log(Log):
    """What the batches did, as the pipeline tells and as the stream is known to be."""

    def __init__(self, posts: _Posts, watch: Watch) -> None:
        super().__init__(watch)
        self._posts = posts.made
        self._rows, self._instances = posts.options.rows, posts.options.instances
        self._spark = posts.spark

    def note(self, report: BatchReport) -> None:
        """Take the report of a batch."""
        start = report.batch * self._rows
        rows = self._posts.rows(np.arange(start, start + self._rows))
        counts = pc.value_counts(rows.field("hashtag"))
        tags, sizes = counts.field("values"), counts.field("counts").to_numpy()
        table = self._spark.createDataFrame(pa.table({"tag": tags}))
        home = F.pmod(F.hash("tag"), F.lit(self._instances)).alias("home")
        homes = np.array(table.select(home).toArrow().column("home"))
        hottest = np.argsort(-sizes, kind="stable")[:HOTTEST].tolist()
        balance = Balance(
            loads=report.loads[1].tolist(),
            hash_loads=np.bincount(homes, sizes, self._instances).astype(int).tolist(),
            partials=sizes.size,
            hot=[HotRows(tags[place].as_py(), int(sizes[place]), 1) for place in hottest],
        )
        self._add(report, self._rows, sizes.size, balance)


def _figures(reports: Sequence[BatchReport], instances: int) -> dict[str, Any]:
    rows = sum(report.rows for report in reports)
    near = sum(report.locality[0] * report.rows for report in reports)
    sent = sum(report.bytes_shuffled[1] for report in reports)
    far = max(1.0, rows - near)
    return {
        "locality": near / rows if rows else 0.0,
        "shuffle_bytes": sent,
        # By hash all but one in so many rows would have gone elsewhere.
        "hash_shuffle_bytes": round(sent / far * rows * (1 - 1 / instances)),
        "moves": sum(sum(report.moves) + sum(report.key_moves) for report in reports),
    }


def _series(reports: Sequence[BatchReport], instances: int) -> list[Series]:
    by_hash = [_figures([report], instances)["hash_shuffle_bytes"] / 1e6 for report in reports]
    return [
        Series(
            "Rows that stay on their instance between the two stages",
            "rows that stay, %",
            [100 * report.locality[0] for report in reports],
            [100 / instances] * len(reports),
        ),
        Series(
            "Bytes through the exchange between the two stages",
            "MB through the exchange",
            [report.bytes_shuffled[1] / 1e6 for report in reports],
            by_hash,
        ),
    ]


def _outcome(reports: Sequence[BatchReport], instances: int) -> str | None:
    if not reports:
        return None
    figures = _figures(reports, instances)
    part = figures["shuffle_bytes"] / max(figures["hash_shuffle_bytes"], 1)
    return (
        f"{figures['locality']:.0%} of the rows stayed on their instance, "
        f"{reports[-1].locality[0]:.0%} in the last batch, by hash {1 / instances:.0%}; {part:.0%} "
        f"of the bytes that hashing would send went through the exchange."
    )


def _told(reports: Sequence[BatchReport], instances: int) -> Iterator[str]:
    figures = _figures(reports, instances)
    parts = ", ".join(f"{report.locality[0]:.0%}" for report in reports)
    yield f"rows that stayed on their instance: {parts} (by hash {1 / instances:.0%})"
    yield (
        f"{figures['shuffle_bytes'] / 1e6:,.1f} MB through the second exchange, by hash it would "
        f"have been {figures['hash_shuffle_bytes'] / 1e6:,.1f} MB; {figures['moves']:,} keys and "
        f"shards moved"
    )


def _verify(posts: _Posts, found: DataFrame, batches: int) -> None:
    """Count all posts at once by plain Spark, and compare with the last that came out of each."""
    rows = posts.rows(first_numbers(posts.spark, batches * posts.options.rows))
    wanted = rows.groupBy("hashtag").agg(
        F.count("*").alias("posts"), F.sum(F.length("text")).alias("letters")
    )
    newest = found.groupBy("hashtag").agg(
        F.max_by(F.struct("posts", "letters"), "version").alias("last")
    )
    ours = newest.select("hashtag", "last.posts", "last.letters")
    wrong = ours.exceptAll(wanted).unionAll(wanted.exceptAll(ours))
    number = wrong.count()
    if number:
        raise NotVerified(
            f"{number:,} hashtags have other counts than plain Spark's, such as {wrong.first()}; "
            f"report it, with the folder that --out names"
        )
