"""Words from a real Kafka into a real Redis, on a cluster of three executors on this machine.

Needs what `make services` starts. Spread: a skewed topic, counted in ten batches under `static` and
under `two-tier`, by a count that is delay-bound (a word waits and does not compute); how much
longer the busiest node was busy than the idlest, in means, and whether Redis has the exact counts.
Asked: at most half of the spread of `static` in the last three batches. Throughput: words a minute
from the topic to Redis by `unskew run words`, start and end of the query among them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import numpy as np
import redis
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from waiting import Waiting

from unskew.apps import Options, Summary, app
from unskew.apps.session import spark_session
from unskew.apps.word_counts import WordCounts
from unskew.apps.word_log import WordLog
from unskew.apps.word_source import words_of
from unskew.spark import Pipeline, Topic
from unskew.workloads import Zipf

sys.path.append(str(Path(__file__).parents[1] / "tools"))

from services import addresses

MASTER, INSTANCES = "local-cluster[3,2,1024]", 6
EXPONENT, VOCABULARY = 1.4, 10_000
LINE = 20
"""Words of a message."""
BATCHES, DELAY = 10, 50e-6
"""Of the spread: batches, and how long a word waits."""


def needed() -> dict[str, Any]:
    """Return where the services are, or end with the reason why they are not there."""
    found = addresses()
    for name in ("redis", "kafka", "jars"):
        if name not in found:
            why = found["missing"].get({"jars": "connector"}.get(name, name), "run make services")
            raise SystemExit(f"bench_words needs {name}: {why}")
    return found


def options(services: dict[str, Any], out: Path, topic: str, **other: Any) -> Options:
    """Return what a run from the topic to Redis is asked for."""
    given: dict[str, Any] = {
        "key": None,
        "time": None,
        "value": None,
        "grouping": "frugal",
        "seed": 0,
        "balancer": "two-tier",
        "instances": INSTANCES,
        "batches": 1,
        "verify": True,
        "source": f"kafka://{services['kafka']}/{topic}",
        "sink": services["redis"],
        "jars": ",".join(services["jars"]),
        "out": out,
    }
    return Options(**{**given, **other})


def fill(spark: SparkSession, servers: str, topic: str, lines: int) -> dict[str, int]:
    """Write lines of skewed words to a topic; return how often it has each."""
    ranks = Zipf(EXPONENT, VOCABULARY, lines * LINE).ranks(0, lines * LINE)
    words = np.char.add("word", ranks.astype(str)).reshape(lines, LINE)
    texts = [" ".join(line) for line in words.tolist()]
    for start in range(0, lines, 50_000):
        rows = spark.createDataFrame(
            [(text,) for text in texts[start : start + 50_000]], "value string"
        )
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", servers)
        writer.option("topic", topic).save()
    found, times = np.unique(words, return_counts=True)
    return dict(zip(found.tolist(), times.tolist(), strict=True))


def empty(services: dict[str, Any]) -> None:
    """Remove what Redis has."""
    redis.Redis.from_url(services["redis"]).flushdb()


def run(spark: SparkSession, services: dict[str, Any], given: Options) -> Summary:
    """Run the app into an empty Redis."""
    empty(services)
    return app("words").run(spark, given, lambda batch: None)


def spread(spark: SparkSession, services: dict[str, Any], scratch: Path, scale: float) -> None:
    """Print how evenly busy the nodes are."""
    topic, lines = f"spread-{uuid4().hex[:8]}", int(5_000 * scale)
    exact = fill(spark, services["kafka"], topic, BATCHES * lines)
    print(
        f"\n{BATCHES * lines * LINE:,} words of Zipf {EXPONENT} in {BATCHES} batches, "
        f"{DELAY * 1e6:.0f} us a word, {MASTER}\n"
    )
    print("| balancer | spread of busy time in each batch | last three | moves | verified |")
    print("| --- | --- | ---: | ---: | --- |")
    last: dict[str, float] = {}
    for balancer in ("static", "two-tier"):
        empty(services)
        messages = Topic.of(f"kafka://{services['kafka']}/{topic}").stream(spark, lines + 3)
        words = words_of(messages.select(F.col("value").cast("string")))
        pipeline = Pipeline(words, instances=INSTANCES, balancer=balancer)
        pipeline = pipeline.aggregate("word", {"count": Waiting(DELAY).of("word")})
        counts = WordCounts(services["redis"], scratch)
        log = WordLog(INSTANCES, pipeline.stages[0].balancer, counts, lambda batch: None)
        query = pipeline.start(counts, scratch / balancer, watch=log.note, availableNow=True)
        query.awaitTermination()
        found = {row["word"]: row["count"] for row in counts.found(spark).collect()}
        verified = found == exact
        last[balancer] = median(log.spreads[-3:])
        told = ", ".join(f"{each:.2f}" for each in log.spreads)
        moves = sum(sum(each.moves) + sum(each.hot_moves) for each in log.reports)
        print(f"| {balancer} | {told} | {last[balancer]:.2f} | {moves} | {verified} |", flush=True)
    part = last["two-tier"] / last["static"]
    print(f"\ntwo-tier has {part:.2f} of the spread of static (asked: 0.5 at most)")


def throughput(spark: SparkSession, services: dict[str, Any], scratch: Path, scale: float) -> None:
    """Print how many words a minute go from Kafka to Redis."""
    topic, lines = f"throughput-{uuid4().hex[:8]}", int(200_000 * scale)
    fill(spark, services["kafka"], topic, lines)
    given = options(services, scratch / "throughput", topic, rows=lines // 4)
    begin = time.perf_counter()
    summary = run(spark, services, given)
    took = time.perf_counter() - begin
    print(f"\n{summary.rows_in:,} words in {len(summary.batches)} batches, {MASTER}\n")
    print("| seconds of each batch | query, s | words a minute | with the check, s | verified |")
    print("| --- | ---: | ---: | ---: | --- |")
    told = ", ".join(f"{batch.seconds:.1f}" for batch in summary.batches)
    a_minute = 60 * summary.rows_in / summary.seconds
    print(
        f"| {told} | {summary.seconds:.1f} | {a_minute:,.0f} | {took:.1f} | {summary.verified} |",
        flush=True,
    )


PARTS = {"spread": spread, "throughput": throughput}


def main() -> None:
    """Print the tables that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(PARTS))
    parser.add_argument("--scale", type=float, default=1.0, help="part of the words to use")
    given = parser.parse_args()
    services = needed()
    print(f"Spark reads Kafka with {', '.join(services['artifacts'])}")
    with TemporaryDirectory() as folder:
        asked = options(services, Path(folder), "none", rows=1)
        settings = {
            **app("words").settings(asked),
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(sys.path),
        }
        with spark_session(MASTER, Path(folder), settings) as spark:
            spark.range(1).select(F.col("id")).collect()
            for name, part in PARTS.items():
                if given.only in (None, name):
                    part(spark, services, Path(folder), given.scale)


if __name__ == "__main__":
    main()
