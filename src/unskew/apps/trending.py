"""Trending hashtags: windowed trends by Python aggregates, of a stream whose hot keys change."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew.aggregates import Reduction, count, quantiles
from unskew.apps.base import App, Options, Summary, Watch
from unskew.apps.continuing import check_same_stream
from unskew.apps.files import file_stream
from unskew.apps.following import OBSERVED, Enough, committed, follow
from unskew.apps.generated import NUMBER, first_numbers, numbers, rows_of
from unskew.errors import NotVerified
from unskew.spark import aggregate, explain
from unskew.workloads import Posts

WINDOW_SECONDS = 20
BATCH_SECONDS = 10
"""Event time of a batch: a window takes two of them."""

QUANTILES = (0.5, 0.99)
ERROR = 0.01


class Rise(Reduction):
    """Part of the posts that came in the second half of the window: above a half is rising."""

    numbers: ClassVar = {"second": (np.add, 0), "all": (np.add, 0)}

    def of_rows(self, *values: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        """Return 1 for a post of the second half, and 1 for any."""
        (second,) = values
        return second.astype(np.int64), np.ones(second.size, dtype=np.int64)

    def result(self, *numbers: NDArray[Any]) -> NDArray[Any]:
        """Return the part."""
        second, every = numbers
        part: NDArray[np.float64] = second / every
        return part


class Trending(App):
    """Posts, rise and reach of each hashtag in each window, as Parquet and as a table."""

    name = "trending"
    title = "hashtags of a stream whose hot keys change: posts, rise and reach in each window"
    takes = frozenset({"source", "key", "time", "value", "grouping"})
    rows = 200_000
    results = "trends"

    def strategy(self, options: Options) -> str:
        """Return the grouping."""
        return options.grouping

    def run(self, spark: SparkSession, options: Options, watch: Watch) -> Summary:
        """Run to the end, and tell of every batch."""
        stream = _Posts(spark, options)
        checkpoint = options.out / "checkpoint"
        check_same_stream(self.name, options, checkpoint)
        # A log of updates, a folder for each batch: of a window and hashtag the last one counts.
        trends = options.out / self.results
        balanced = aggregate(
            stream.rows(),
            "hashtag",
            _aggregates(),
            window=_window(),
            instances=options.instances,
            grouping=options.grouping,
            seed=options.seed,
            observe=OBSERVED,
        )
        first = committed(checkpoint)
        last = first + options.batches - 1 if stream.endless else None

        def keep(rows: DataFrame, number: int) -> None:
            # Nothing of a batch has run yet when Spark calls this, and one that fails is not
            # committed: an endless stream stops here and goes on here the next time.
            if last is not None and number > last:
                raise Enough
            rows.write.mode("overwrite").parquet(f"file:{trends}/batch={number}")

        writer = balanced.writeStream.outputMode("update").foreachBatch(keep)
        writer = writer.option("checkpointLocation", f"file:{checkpoint}")
        if not stream.endless:
            writer = writer.trigger(availableNow=True)
        begin = time.perf_counter()
        batches = follow(writer.start(), watch)
        seconds = time.perf_counter() - begin
        final = _final(spark, trends)
        rows_in = sum(batch.rows for batch in batches)
        rows_out = final.where(F.col("batch") >= first).count()
        verified = None
        if options.verify:
            _verify(stream.again(rows_in + first * options.rows), final)
            verified = True
        return Summary(
            app=self.name,
            strategy=options.grouping,
            rows_in=rows_in,
            rows_out=rows_out,
            batches=batches,
            seconds=seconds,
            verified=verified,
            notes=[str(explain(balanced)), *_top(final)],
        )


class _Posts:
    """The rows (time, hashtag, reach): generated, or read from files."""

    def __init__(self, spark: SparkSession, options: Options) -> None:
        self.spark, self.options = spark, options
        self.endless = options.source == "rate"
        if not self.endless:
            self.files = file_stream(spark, options)

    def rows(self) -> DataFrame:
        """Return the stream."""
        if not self.endless:
            # Files come in no order of time, and all of them count: no watermark.
            return self.files.stream().select(*self._columns())
        posts = self._posts(numbers(self.spark, self.options.rows))
        return posts.withWatermark("time", f"{WINDOW_SECONDS} seconds")

    def again(self, rows: int) -> DataFrame:
        """Return the first rows of the stream as a batch."""
        if not self.endless:
            return self.files.batch().select(*self._columns())
        return self._posts(first_numbers(self.spark, rows))

    def _columns(self) -> list[Column]:
        files = self.files
        return [
            files.time.alias("time"),
            files.key.cast("string").alias("hashtag"),
            files.value.cast("double").alias("reach"),
        ]

    def _posts(self, tuples: DataFrame) -> DataFrame:
        posts = Posts(seed=self.options.seed)
        made = rows_of(posts.rows, "hashtag string, reach bigint").alias("post")
        # Event time follows from the number of a post, so that a second run has the same windows.
        seconds = F.col(NUMBER) * (BATCH_SECONDS / self.options.rows)
        when = F.timestamp_millis((1000 * seconds).cast("long")).alias("time")
        return tuples.select(when, made).select("time", "post.*")


def _window() -> Column:
    return F.window("time", f"{WINDOW_SECONDS} seconds")


def _in_second_half() -> Column:
    """Return whether a post is in the second half of its window."""
    milliseconds = 1000 * WINDOW_SECONDS
    return F.pmod(F.unix_millis("time"), F.lit(milliseconds)) >= milliseconds // 2


def _aggregates() -> dict[str, Any]:
    return {
        "posts": count(),
        "rise": Rise().of(_in_second_half()),
        "reach": quantiles(*QUANTILES, error=ERROR).of("reach"),
    }


def _final(spark: SparkSession, trends: Path) -> DataFrame:
    """Return the last state of each hashtag in each window."""
    updates = spark.read.parquet(f"file:{trends}")
    latest = F.max_by(F.struct("posts", "rise", "reach", "batch"), "batch").alias("latest")
    return updates.groupBy("window", "hashtag").agg(latest).select("window", "hashtag", "latest.*")


def _verify(rows: DataFrame, final: DataFrame) -> None:
    """Compute the trends with Spark's own aggregates, and compare every row."""
    ranks = [F.ceil(F.lit(q) * F.count("reach")).cast("int") for q in QUANTILES]
    ordered = F.array_sort(F.collect_list("reach"))
    quantile = F.array(*(F.try_element_at(ordered, rank) for rank in ranks))
    exact = rows.groupBy(_window().alias("its_window"), F.col("hashtag").alias("its_tag")).agg(
        F.count(F.lit(1)).alias("all_posts"),
        F.avg(_in_second_half().cast("int")).alias("exact_rise"),
        F.when(F.count("reach") > 0, quantile).alias("exact_reach"),
    )
    same_key = F.col("window").eqNullSafe(F.col("its_window")) & F.col("hashtag").eqNullSafe(
        F.col("its_tag")
    )
    both = exact.join(final, same_key, "full_outer")
    same = (F.col("posts") == F.col("all_posts")) & (
        F.abs(F.col("rise") - F.col("exact_rise")) < 1e-9
    )
    for i in range(len(QUANTILES)):
        found, wanted = F.col("reach")[i], F.col("exact_reach")[i]
        near = F.abs(found - wanted) <= ERROR * (1 + 1e-9) * F.abs(wanted)
        same = same & (found.eqNullSafe(wanted) | near)
    wrong = both.filter(~F.coalesce(same, F.lit(False)))
    number = wrong.count()
    if number:
        raise NotVerified(
            f"{number:,} of the windows and hashtags differ from what plain Spark computes, such "
            f"as {wrong.first()}; report it, with the folder that --out names"
        )


def _top(final: DataFrame) -> list[str]:
    """Return the hashtags with most posts in the last window, a line each."""
    last = final.agg(F.max("window.start")).first()
    assert last is not None
    rows = (
        final.filter(F.col("window.start") == last[0]).orderBy(F.desc("posts"), "hashtag").take(5)
    )
    return [_told(row) for row in rows]


def _told(row: Any) -> str:
    # A hashtag of a file may have line breaks in it.
    tag = " ".join(str(row.hashtag).split())
    text = f"{tag}: {row.posts:,} posts, {row.rise:.0%} of them in the second half"
    if row.reach is None:
        return text
    return f"{text}, reach {row.reach[0]:,.0f} (median), {row.reach[1]:,.0f} (99 %)"
