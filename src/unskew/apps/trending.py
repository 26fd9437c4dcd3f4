"""Trending hashtags: windowed trends by Python aggregates, of a stream whose hot keys change."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.streaming.query import StreamingQuery

from unskew.aggregates import Reduction, count, quantiles
from unskew.apps.base import App, Batch, Options, Summary, Watch
from unskew.apps.continuing import check_same_stream
from unskew.apps.files import file_stream
from unskew.errors import BadParameter, UnskewError
from unskew.spark import Balance, aggregate, explain
from unskew.workloads import Posts

WINDOW_SECONDS = 20
BATCH_SECONDS = 10
"""Event time of a batch: a window takes two of them."""

QUANTILES = (0.5, 0.99)
ERROR = 0.01
OBSERVED = "balance"
_ENOUGH = "all batches that were asked for are done"


class Rise(Reduction):
    """Part of the posts that came in the second half of the window: above a half is rising."""

    numbers: ClassVar = {"late": (np.add, 0), "all": (np.add, 0)}

    def of_rows(self, *values: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        """Return 1 for a late post, and 1 for any."""
        (late,) = values
        return late.astype(np.int64), np.ones(late.size, dtype=np.int64)

    def result(self, *numbers: NDArray[Any]) -> NDArray[Any]:
        """Return the part."""
        late, every = numbers
        part: NDArray[np.float64] = late / every
        return part


class Trending(App):
    """Posts, rise and reach of each hashtag in each window, as Parquet and as a table."""

    name = "trending"
    title = "hashtags of a stream whose hot keys change: posts, rise and reach in each window"

    def run(self, spark: SparkSession, options: Options, watch: Watch) -> Summary:
        """Run to the end, and tell of every batch."""
        stream = _Posts(spark, options)
        check_same_stream(self.name, options)
        trends = options.out / "trends"
        balanced = aggregate(
            stream.rows().withWatermark("time", f"{WINDOW_SECONDS} seconds"),
            "hashtag",
            _aggregates(),
            window=_window(),
            instances=options.instances,
            grouping=options.grouping,
            seed=options.seed,
            observe=OBSERVED,
        )
        first = _committed(options.out / "checkpoint")
        last = first + options.batches - 1 if stream.endless else None

        def keep(rows: DataFrame, number: int) -> None:
            # Nothing of a batch has run yet when Spark calls this, and one that fails is not
            # committed: an endless stream stops here and goes on here the next time.
            if last is not None and number > last:
                raise RuntimeError(_ENOUGH)
            rows.write.mode("overwrite").parquet(str(trends / f"batch={number}"))

        writer = balanced.writeStream.outputMode("update").foreachBatch(keep)
        writer = writer.option("checkpointLocation", str(options.out / "checkpoint"))
        if not stream.endless:
            writer = writer.trigger(availableNow=True)
        begin = time.perf_counter()
        with _quiet_end():
            batches = _follow(writer.start(), watch)
        seconds = time.perf_counter() - begin
        if not batches:
            raise BadParameter(f"there are no new rows in {options.source}")
        final = _final(spark, trends)
        rows_in = sum(batch.rows for batch in batches)
        verified = None
        if options.verify:
            _verify(stream.again(rows_in + first * options.rows), final)
            verified = True
        return Summary(
            app=self.name,
            strategy=options.grouping,
            rows_in=rows_in,
            rows_out=final.count(),
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
            return self.files.stream().select(*self._columns())
        numbers = (
            self.spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", self.options.rows)
            .option("numPartitions", self.spark.sparkContext.defaultParallelism)
            .load()
        )
        return self._posts(numbers.select(F.col("value").alias("number")))

    def again(self, rows: int) -> DataFrame:
        """Return the first rows of the stream as a batch."""
        if not self.endless:
            return self.files.batch().select(*self._columns())
        return self._posts(self.spark.range(rows).withColumnRenamed("id", "number"))

    def _columns(self) -> list[Column]:
        options = self.options
        value = F.lit(1) if options.value is None else F.col(options.value)
        return [
            self.files.time.alias("time"),
            F.col(str(options.key)).cast("string").alias("hashtag"),
            value.cast("double").alias("reach"),
        ]

    def _posts(self, numbers: DataFrame) -> DataFrame:
        posts = Posts(seed=self.options.seed)

        def make(number: pa.Array) -> pa.Array:
            return posts.rows(number.to_numpy())

        # PySpark's own types know no functions with annotations.
        udf: Any = arrow_udf
        made = udf(make, "hashtag string, reach bigint")("number").alias("post")
        # Event time follows from the number of a post, so that a second run has the same windows.
        seconds = F.col("number") * (BATCH_SECONDS / self.options.rows)
        when = F.timestamp_millis((1000 * seconds).cast("long")).alias("time")
        return numbers.select(when, made).select("time", "post.*")


def _window() -> Column:
    return F.window("time", f"{WINDOW_SECONDS} seconds")


def _late() -> Column:
    """Return whether a post is in the second half of its window."""
    milliseconds = 1000 * WINDOW_SECONDS
    return F.pmod(F.unix_millis("time"), F.lit(milliseconds)) >= milliseconds // 2


def _aggregates() -> dict[str, Any]:
    return {
        "posts": count(),
        "rise": Rise().of(_late()),
        "reach": quantiles(*QUANTILES, error=ERROR).of("reach"),
    }


@contextmanager
def _quiet_end() -> Iterator[None]:
    """Keep py4j from logging the error that ends an endless stream."""
    logger = logging.getLogger("py4j.clientserver")

    def is_news(record: logging.LogRecord) -> bool:
        return not (record.exc_info and _ENOUGH in str(record.exc_info[1]))

    logger.addFilter(is_news)
    try:
        yield
    finally:
        logger.removeFilter(is_news)


def _committed(checkpoint: Path) -> int:
    """Return how many batches earlier runs have committed."""
    commits = checkpoint / "commits"
    numbers = [int(path.name) for path in commits.glob("[0-9]*")] if commits.is_dir() else []
    return max(numbers, default=-1) + 1


def _follow(query: StreamingQuery, watch: Watch) -> list[Batch]:
    """Tell of the batches as they end, until the query does."""
    batches: list[Batch] = []
    try:
        while True:
            active = query.isActive
            for progress in query.recentProgress:
                seen = batches[-1].number if batches else -1
                if progress.numInputRows and progress.batchId > seen:
                    batches.append(_batch(progress))
                    watch(batches[-1])
            if not active:
                break
            with suppress(StreamingQueryException):
                query.awaitTermination(1)
        failure = query.exception()
        if failure is not None and _ENOUGH not in str(failure):
            raise failure
    finally:
        query.stop()
    return batches


def _batch(progress: Any) -> Batch:
    return Batch(
        number=progress.batchId,
        rows=progress.numInputRows,
        keys=progress.stateOperators[0].numRowsUpdated,
        seconds=progress.batchDuration / 1000,
        balance=Balance.of(progress.observedMetrics[OBSERVED]),
    )


def _final(spark: SparkSession, trends: Path) -> DataFrame:
    """Return the last state of each hashtag in each window."""
    updates = spark.read.parquet(str(trends))
    latest = F.max_by(F.struct("posts", "rise", "reach"), "batch").alias("latest")
    return updates.groupBy("window", "hashtag").agg(latest).select("window", "hashtag", "latest.*")


def _verify(rows: DataFrame, final: DataFrame) -> None:
    """Compute the trends with Spark's own aggregates, and compare every row."""
    ranks = [F.ceil(F.lit(q) * F.count(F.lit(1))).cast("int") for q in QUANTILES]
    ordered = F.array_sort(F.collect_list("reach"))
    exact = rows.groupBy(_window().alias("window"), "hashtag").agg(
        F.count(F.lit(1)).alias("all_posts"),
        F.avg(_late().cast("int")).alias("exact_rise"),
        F.array(*(F.element_at(ordered, rank) for rank in ranks)).alias("exact_reach"),
    )
    both = exact.join(final, ["window", "hashtag"], "full_outer")
    near = [
        F.abs(F.col("reach")[i] - F.col("exact_reach")[i])
        <= ERROR * (1 + 1e-9) * F.abs(F.col("exact_reach")[i])
        for i in range(len(QUANTILES))
    ]
    same = (F.col("posts") == F.col("all_posts")) & (
        F.abs(F.col("rise") - F.col("exact_rise")) < 1e-9
    )
    for each in near:
        same = same & each
    wrong = both.filter(~F.coalesce(same, F.lit(False)))
    number = wrong.count()
    if number:
        raise NotVerified(
            f"{number:,} of the windows and hashtags differ from what plain Spark computes, such "
            f"as {wrong.first()}; keep the output folder and report it"
        )


class NotVerified(UnskewError, AssertionError):
    """The results are not those of plain Spark."""


def _top(final: DataFrame) -> list[str]:
    """Return the hashtags with most posts in the last window, a line each."""
    last = final.agg(F.max("window.start")).first()
    assert last is not None
    rows = (
        final.filter(F.col("window.start") == last[0]).orderBy(F.desc("posts"), "hashtag").take(5)
    )
    return [
        f"{row.hashtag}: {row.posts:,} posts, {row.rise:.0%} of them in the second half, reach "
        f"{row.reach[0]:,.0f} (median), {row.reach[1]:,.0f} (99 %)"
        for row in rows
    ]
