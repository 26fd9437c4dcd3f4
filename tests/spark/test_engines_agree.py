"""One workload, one balancer, two engines: the pipeline on Spark and the simulator do the same."""

from __future__ import annotations

import os
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import SparkSession

import unskew
from unskew.balance import Balancer, Plan, Report
from unskew.simulator import Constant, Result, Stage, Trace, simulate
from unskew.spark import BatchReport, MemorySink, Pipeline
from unskew.state import Checkpoint
from unskew.state.versions import version_of
from unskew.workloads import Zipf
from unskew.workloads.base import Generated

BATCHES, ROWS = 4, 3000
INSTANCES, SHARDS = 3, 16
WORK = 1e-5
"""Seconds of a tuple in the simulator: all of a batch are done before the next one, a second on."""


class ByRows(Balancer):
    """Move the largest shards by their rows, as times differ; give one key a place of its own."""

    name = "by rows"

    def __init__(self, key: int) -> None:
        self.key = key
        self.seen: list[tuple[Plan, Report]] = []

    def next_plan(self, plan: Plan, report: Report) -> Plan:
        self.seen.append((plan, report))
        table = plan.assignment.copy()
        for _ in range(3):
            loads = np.bincount(table, report.rows, plan.instances)
            fits = np.flatnonzero((table == loads.argmax()) & (2 * report.rows <= np.ptp(loads)))
            if fits.size:
                table[fits[report.rows[fits].argmax()]] = loads.argmin()
        place = int(np.bincount(table, report.rows, plan.instances).argmin())
        return Plan(table, plan.instances, plan.epoch + 1, {self.key: (place,)})


class Users(Generated):
    """Users whose favourites are others in every batch, but for user 0, who always has a third."""

    name = description = "users"

    def __init__(self) -> None:
        super().__init__(BATCHES * ROWS)
        ranks = [Zipf(1.1, 300, ROWS, seed=batch).ranks(0, ROWS) + 9 * batch for batch in range(4)]
        numbers = np.where(np.arange(self.length) % 3 == 0, 0, np.concatenate(ranks))
        self.names = [f"user {number}" for number in numbers.tolist()]
        self.keys = unskew.hash_keys(self.names)

    def draw(self, start: int, stop: int) -> NDArray[np.uint64]:
        return self.keys[start:stop]

    def batch(self, number: int) -> list[str]:
        return self.names[number * ROWS : (number + 1) * ROWS]


def on_spark(
    spark: SparkSession, users: Users, folder: Path, balancer: ByRows
) -> tuple[list[BatchReport], list[Plan], list[Any], ByRows]:
    """Return reports and plans of all batches, what came out, and the balancer of the stage."""
    source = folder / "source"
    source.mkdir()
    for number in range(BATCHES):
        path = source / f"{number}.parquet"
        pq.write_table(pa.table({"user": users.batch(number)}), path)
        # Spark takes files by their age.
        os.utime(path, (1e9 + number, 1e9 + number))
    stream = spark.readStream.schema("user string").option("maxFilesPerTrigger", 1)
    reports: list[BatchReport] = []
    sink = MemorySink()
    pipeline = Pipeline(
        stream.parquet(str(source)), instances=INSTANCES, shards=SHARDS, balancer=balancer
    ).count("user")
    query = pipeline.start(sink, folder / "checkpoint", watch=reports.append, availableNow=True)
    query.awaitTermination()
    log = Checkpoint(folder / "checkpoint" / "unskew")
    plans = [log.decided(version_of(number)).plans[0] for number in range(BATCHES)]
    own = pipeline.stages[0].balancer
    assert isinstance(own, ByRows)
    return reports, plans, sink.rows(), own


def in_the_simulator(users: Users, balancer: ByRows) -> Result:
    """Send a batch each second, and look at the balance at the end of each."""
    within = (np.arange(ROWS) + 0.5) / (2 * ROWS)
    times = np.concatenate([number + within for number in range(BATCHES)])
    stage = Stage(
        *("count", INSTANCES, Constant(WORK), "key"),
        shards=SHARDS,
        balancer=balancer,
        can_split=True,
    )
    return simulate(users, Trace(times), [stage], control=1.0, width=1.0)


def test_both_engines_have_the_same_loads_and_the_same_moves(
    spark: SparkSession, tmp_path: Path
) -> None:
    users = Users()
    key = int(unskew.hash_keys(["user 0"])[0])
    simulated_policy = ByRows(key)
    reports, plans, rows, spark_policy = on_spark(spark, users, tmp_path, ByRows(key))
    (stage,) = in_the_simulator(users, simulated_policy).stages

    # The simulator does not look after the last batch.
    assert [plan for plan, _ in spark_policy.seen] == plans
    assert [plan for plan, _ in simulated_policy.seen] == plans[:-1]
    for (_, ours), (_, theirs) in zip(simulated_policy.seen, spark_policy.seen, strict=False):
        assert ours.rows.tolist() == theirs.rows.tolist()
        assert ours.can_split == theirs.can_split
        assert key in ours.hot.keys() & theirs.hot.keys()

    loads = np.rint(stage.busy / WORK).astype(np.int64)
    assert loads.tolist() == [report.loads[0].tolist() for report in reports]
    assert loads.sum(axis=1).tolist() == [ROWS] * BATCHES
    moves = [len(after.moves(before)) for before, after in pairwise(plans)]
    assert [sum(report.moves) for report in reports] == [0, *moves]
    assert stage.moves == sum(moves)
    # Something happened: shards moved each time, and the key had a place of its own.
    assert min(moves) >= 1
    assert [len(plan.hot) for plan in plans] == [0, 1, 1, 1]
    assert {row["user"]: row["count"] for row in rows} == Counter(users.names)
