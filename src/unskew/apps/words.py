"""Words: how often each word of a text occurs, counted on nodes that two tiers keep even."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew.apps.base import App, Options, Summary, Watch
from unskew.apps.continuing import check_same_stream
from unskew.apps.following import Enough, committed, wait
from unskew.apps.word_counts import NAME, WordCounts
from unskew.apps.word_log import WordLog
from unskew.apps.word_source import TEXT, WordSource, word_source
from unskew.errors import NotVerified
from unskew.spark import BatchReport, Pipeline, kafka_package
from unskew.spark.kafka import SCHEME

SHARDS = 1024
"""As many as there may be instances, so that a run goes on with any number of them."""


_LOST = "Redis had lost counts of earlier runs; they were written again, out of the state"


class Words(App):
    """Words and how often they came, as Parquet or in Redis."""

    name = "words"
    title = "words of a text, of files or of Kafka, counted into Parquet or Redis"
    takes = frozenset({"source", "balancer", "sink", "sink-name", "jars"})
    rows = 100_000
    results = "words"
    balancer = "two-tier"
    source = TEXT

    def settings(self, options: Options) -> dict[str, str]:
        """Return what the session has to be started with: instances stay, Kafka can be read."""
        kept = {"spark.locality.wait": "30s", "spark.shuffle.reduceLocality.enabled": "false"}
        if not options.source.startswith(f"{SCHEME}:"):
            return kept
        if options.jars:
            return {**kept, "spark.jars": options.jars}
        return {**kept, "spark.jars.packages": kafka_package()}

    def run(self, spark: SparkSession, options: Options, watch: Watch) -> Summary:
        """Run to the end, and tell of every batch."""
        source = word_source(spark, options)
        checkpoint = options.out / "checkpoint"
        offsets = checkpoint / "spark"
        counts = WordCounts(options.sink, options.out / self.results, options.sink_name or NAME)
        counts.check_query(checkpoint)
        check_same_stream(self.name, options, offsets)
        was_lost = committed(offsets) > 0 and counts.refill(spark, checkpoint)
        pipeline = Pipeline(
            source.stream(),
            instances=options.instances,
            shards=SHARDS,
            balancer=options.balancer,
        ).count("word", name="words")
        last = committed(offsets) + options.batches - 1

        def before(number: int) -> None:
            if source.is_endless and number > last:
                raise Enough

        log = WordLog(options.instances, pipeline.stages[0].balancer, counts, watch)
        trigger: dict[str, Any] = {} if source.is_endless else {"availableNow": True}
        begin = time.perf_counter()
        query = pipeline.start(counts, checkpoint, before=before, watch=log.note, **trigger)
        wait(query)
        seconds = time.perf_counter() - begin
        verified = None
        if options.verify:
            _verify(source, counts.found(spark), committed(offsets))
            verified = True
        return log.summary(
            self,
            options,
            seconds=seconds,
            verified=verified,
            notes=[*([_LOST] if was_lost else []), *_told(log, spark, counts)],
            extra=_figures(log),
        )


def _figures(log: WordLog) -> dict[str, Any]:
    return {
        "node_spread": log.spreads,
        "offset_degree": log.offset_degree,
        "moves": sum(_moves(log.reports)),
    }


def _moves(reports: Sequence[BatchReport]) -> list[int]:
    return [sum(report.moves) + sum(report.hot_moves) for report in reports]


def _told(log: WordLog, spark: SparkSession, counts: WordCounts) -> Iterator[str]:
    if len(log.nodes) > 1:
        spreads = ", ".join(f"{each:.2f}" for each in log.spreads)
        number = len(log.nodes)
        yield f"busy time of the busiest of {number} nodes less the idlest, in means: {spreads}"
    moves = ", ".join(map(str, _moves(log.reports)))
    yield f"shards and words that moved before each batch: {moves}"
    top = counts.found(spark).orderBy(F.desc("count"), "word").limit(10).collect()
    told = ", ".join(f"{row['word']} {row['count']:,}" for row in top)
    yield f"most frequent, in {counts.where}: {told}"


def _verify(source: WordSource, found: DataFrame, batches: int) -> None:
    """Count all words at once by plain Spark, and compare."""
    wanted = source.so_far(batches).groupBy("word").count()
    wrong = found.exceptAll(wanted).unionAll(wanted.exceptAll(found))
    number = wrong.count()
    if number:
        raise NotVerified(
            f"{number:,} words have other counts than plain Spark's, such as {wrong.first()}; "
            f"report it, with the folder that --out names"
        )
