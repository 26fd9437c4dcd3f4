"""Words from a real Kafka into a real Redis, on a cluster of three executors on this machine.

Needs what `make services` starts. Spread: a skewed topic, counted in ten batches by `static` and by
`two-tier`; how much longer the busiest node was busy than the idlest, in means, and whether Redis
has what plain Spark counts. Throughput: words a minute from the topic to Redis, start and end of
the query among them.
"""

from __future__ import annotations

import argparse
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

from unskew.apps import Options, Summary, app
from unskew.apps.session import spark_session
from unskew.workloads import Zipf

sys.path.append(str(Path(__file__).parents[1] / "tools"))

from services import addresses

MASTER, INSTANCES = "local-cluster[3,2,1024]", 6
EXPONENT, VOCABULARY = 1.4, 10_000
LINE = 20
"""Words of a message."""


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


def fill(spark: SparkSession, servers: str, topic: str, lines: int) -> None:
    """Write lines of skewed words to a topic."""
    ranks = Zipf(EXPONENT, VOCABULARY, lines * LINE).ranks(0, lines * LINE)
    words = np.char.add("word", ranks.astype(str)).reshape(lines, LINE)
    texts = [" ".join(line) for line in words.tolist()]
    for start in range(0, lines, 50_000):
        rows = spark.createDataFrame(
            [(text,) for text in texts[start : start + 50_000]], "value string"
        )
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", servers)
        writer.option("topic", topic).save()


def run(spark: SparkSession, services: dict[str, Any], given: Options) -> Summary:
    """Run the app into an empty Redis."""
    redis.Redis.from_url(services["redis"]).flushdb()
    return app("words").run(spark, given, lambda batch: None)


def spread(spark: SparkSession, services: dict[str, Any], scratch: Path, scale: float) -> None:
    """Print how evenly busy the nodes are."""
    topic, lines = f"spread-{uuid4().hex[:8]}", int(50_000 * scale)
    fill(spark, services["kafka"], topic, 10 * lines)
    print(f"\n{10 * lines * LINE:,} words of Zipf {EXPONENT} in ten batches, {MASTER}\n")
    print("| balancer | spread of busy time in each batch | last three | moves | verified |")
    print("| --- | --- | ---: | ---: | --- |")
    last: dict[str, float] = {}
    for balancer in ("static", "two-tier"):
        given = options(services, scratch / balancer, topic, balancer=balancer, rows=lines + 3)
        summary = run(spark, services, given)
        spreads, moves = summary.extra["node_spread"], summary.extra["moves"]
        last[balancer] = median(spreads[-3:])
        told = ", ".join(f"{each:.2f}" for each in spreads)
        print(
            f"| {balancer} | {told} | {last[balancer]:.2f} | {moves} | {summary.verified} |",
            flush=True,
        )
    print(f"\ntwo-tier has {last['two-tier'] / last['static']:.2f} of the spread of static")


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
        settings = app("words").settings(asked)
        with spark_session(MASTER, Path(folder), settings) as spark:
            spark.range(1).select(F.col("id")).collect()
            for name, part in PARTS.items():
                if given.only in (None, name):
                    part(spark, services, Path(folder), given.scale)


if __name__ == "__main__":
    main()
