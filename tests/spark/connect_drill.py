"""All of tier 1 on Spark Connect, run as a script: a server and a classic session do not mix.

Prints one line of JSON: what each call gave.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew.aggregates import Count
from unskew.errors import UnskewError
from unskew.spark import aggregate, explain, profile, repartition


def main() -> None:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with TemporaryDirectory() as scratch:
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.local.dir": scratch,
            "spark.log.level": "OFF",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": f"{scratch}/warehouse",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        given = " ".join(f"--conf {name}={value}" for name, value in settings.items())
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{given} pyspark-shell"
        spark = SparkSession.builder.remote("local[2]").getOrCreate()
        print(json.dumps(results(spark)), flush=True)
        spark.stop()


def results(spark: SparkSession) -> dict[str, Any]:
    df = spark.range(20_000).withColumn(
        "k", F.when(F.col("id") % 2 == 0, 0).otherwise(F.col("id") % 100)
    )
    found = profile(df, "k", instances=4)
    counted = aggregate(df, "k", {"n": Count().of("id"), "same": F.count("*")}, instances=4)
    return {
        "online": loads(repartition(df, 4, "k")),
        "compiled": loads(repartition(df, 4, "k", plan=found)),
        "counts": [[row.n, row.same] for row in counted.collect()],
        "streamed": streamed(spark),
        "explain": said(lambda: explain(counted)),
    }


def loads(df: DataFrame) -> list[int]:
    return [row["count"] for row in df.groupBy(F.spark_partition_id()).count().collect()]


def streamed(spark: SparkSession) -> int:
    """Return how many rows the windows of a stream have counted in its first batches."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 500).load()
    found = aggregate(
        rows.withColumn("k", F.col("value") % 7),
        "k",
        {"n": Count().of("value")},
        window=F.window("timestamp", "1000 days"),
        instances=2,
    )
    writer = found.writeStream.format("memory").queryName("counted").outputMode("complete")
    query = writer.start()
    deadline = time.monotonic() + 120
    total = 0
    while not total and time.monotonic() < deadline:
        time.sleep(0.5)
        total = spark.sql("SELECT coalesce(sum(n), 0) FROM counted").collect()[0][0]
    query.stop()
    return int(total)


def said(call: Callable[[], object]) -> str:
    try:
        return str(call())
    except UnskewError as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
