"""Kill an executor during the reduce, again and again, and count the rows that came out.

Run as a script, in a process of its own: a cluster of three executors needs its own session. Prints
one line of JSON for each case: rows lost, rows doubled, and the error if the job failed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew.spark import profile, repartition
from unskew.spark.replay import Order

ROWS, INSTANCES = 300_000, 9
CASES = [
    case
    for case in product(("online", "compiled", "careless"), (False, True), (True, False))
    # Careless and without a shuffle is the same as online.
    if case[:2] != ("careless", False)
]
CHECKSUMS = [
    f"spark.sql.shuffle.orderIndependentChecksum.{name}"
    # Either alone is enough for Spark to look at them.
    for name in ("enabled", "enableFullRetryOnMismatch")
]


def main() -> None:
    with TemporaryDirectory() as scratch:
        spark = session(scratch)
        for way, shuffled, checked in CASES:
            if len(sys.argv) > 1 and way not in sys.argv[1:]:
                continue
            for setting in CHECKSUMS:
                spark.conf.set(setting, str(checked).lower())
            df = spark.range(0, ROWS, 1, 12).withColumn(
                "key", F.when(F.col("id") % 3 == 0, 0).otherwise(F.col("id") % 1000)
            )
            df = df.repartition(6, "id") if shuffled else df
            # Round the refusal, to see what it is for; careless is a router that does not ask for
            # the order of its rows.
            replaced: dict[str, Any] = {"check_checksums": lambda _: None}
            if way == "careless":
                replaced["order_of"] = lambda _: Order(True, "assumed")
            with patch.multiple("unskew.spark.routing", **replaced):
                plan = profile(df, "key", instances=INSTANCES) if way == "compiled" else None
                sent = repartition(df, INSTANCES, "key", plan=plan)
            case = {"way": way, "shuffled": shuffled, "checked": checked}
            print(json.dumps({**case, **run(spark, sent, scratch)}), flush=True)
        application = spark.sparkContext.applicationId
        spark.stop()
    # Where the workers of a local cluster keep what their executors print.
    home = Path(os.environ.get("SPARK_HOME", str(Path(pyspark.__file__).parent)))
    rmtree(home / "work" / application, ignore_errors=True)


def session(scratch: str) -> SparkSession:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.master("local-cluster[3,1,1024]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.deploy.maxExecutorRetries", "-1")
        .config("spark.executor.memory", "1g")
        .config("spark.local.dir", scratch)
        .config("spark.log.level", "OFF")
        # Many small fetches over the network, in random order, as on a real cluster.
        .config("spark.reducer.maxBlocksInFlightPerAddress", "2")
        .config("spark.shuffle.readHostLocalDisk", "false")
        .config("spark.shuffle.io.maxRetries", "1")
        .config("spark.shuffle.io.retryWait", "1s")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.warehouse.dir", f"{scratch}/warehouse")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def run(spark: SparkSession, sent: DataFrame, scratch: str) -> dict[str, object]:
    """Run the job, kill an executor when the first reduce tasks are done, and compare rows."""
    done = Path(scratch) / f"done-{time.monotonic_ns()}"
    done.mkdir()
    where = str(done)

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(0.4)
            yield batch.select(["id"])
        context = TaskContext.get()
        assert context is not None
        Path(where, f"{context.partitionId()}-{context.taskAttemptId()}").touch()

    killed: list[int] = []

    def kill() -> None:
        deadline = time.monotonic() + 120
        while len(list(done.iterdir())) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        pid = executors(spark)[0]
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    killer = Thread(target=kill)
    killer.start()
    try:
        found = sent.mapInArrow(slow, "id long").toArrow().column("id").to_numpy()
    except (PySparkException, Py4JJavaError) as error:
        return {"error": str(error), "killed": len(killed)}
    finally:
        killer.join()
    times = np.bincount(found, minlength=ROWS)
    return {
        "lost": int((times == 0).sum()),
        "doubled": int((times[times > 1] - 1).sum()),
        "killed": len(killed),
    }


def executors(spark: SparkSession) -> list[int]:
    """Return the process ids of the executors that the driver's JVM has started."""
    jvm = spark._jvm
    assert jvm is not None
    driver = int(jvm.java.lang.ProcessHandle.current().pid())
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_text()
            except OSError:
                continue
            if int(status[1]) == driver and "CoarseGrainedExecutorBackend" in command:
                found.append(int(entry.name))
    return sorted(found)


if __name__ == "__main__":
    main()
