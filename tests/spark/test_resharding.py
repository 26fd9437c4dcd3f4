"""A pipeline on Spark that goes on with another number of shards."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew.balance import Balancer, Plan, Report
from unskew.errors import WrongCheckpoint
from unskew.spark import MemorySink, Pipeline, read_state
from unskew.state.inspecting import choose, inspect_state
from unskew.state.resharding import reshard


class Splitting(Balancer):
    """Have the hottest key on all instances."""

    name = "splitting"

    def next_plan(self, plan: Plan, report: Report) -> Plan:
        hottest = max(report.hot, key=lambda key: report.hot[key])
        hot = {hottest: tuple(range(plan.instances))}
        return Plan(plan.assignment, plan.instances, plan.epoch + 1, hot)


def test_a_pipeline_goes_on_with_other_shards_once_hot_keys_are_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    sink = MemorySink()

    def batch(
        *, instances: int, shards: int = 8, balancer: str | Balancer, state: Path | None = None
    ) -> None:
        """Run the pipeline on one more file, in which one user has half of the rows."""
        names = F.when(F.col("id") % 2 == 0, "hot").otherwise(F.concat(F.lit("user "), "id"))
        rows = spark.range(100).select(names.alias("user"))
        rows.coalesce(1).write.mode("append").parquet(str(source))
        stream = spark.readStream.schema("user string").parquet(str(source))
        pipeline = Pipeline(stream, instances=instances, shards=shards, balancer=balancer)
        started = pipeline.count("user").start(
            sink, tmp_path / "checkpoint", state=state, availableNow=True
        )
        started.awaitTermination()

    batch(instances=2, balancer=Splitting())
    batch(instances=2, balancer=Splitting())
    found = inspect_state(choose(tmp_path / "checkpoint"))
    assert found.plan is not None
    assert [(each.key, each.rows) for each in found.plan.hot] == [("hot", 50)]
    assert [(each.rows, each.rows_out) for each in found.batches] == [(100, 51), (100, 51)]
    with pytest.raises(WrongCheckpoint, match="has hot keys in its plan"):
        reshard(tmp_path / "checkpoint", 5, tmp_path / "new")

    # As the error says.
    batch(instances=3, balancer="static")
    done = reshard(tmp_path / "checkpoint", 5, tmp_path / "new")
    assert (done.batch, done.rows) == (2, 51)
    batch(instances=2, shards=5, balancer="greedy", state=tmp_path / "new")

    wanted = {"hot": 200, **{f"user {number}": 4 for number in range(1, 100, 2)}}
    assert {row["user"]: row["count"] for row in sink.rows()} == wanted
    assert len(sink.rows()) == 4 * 51
    kept = read_state(spark, tmp_path / "new").collect()
    assert {row["user"]: row["state_count"] for row in kept} == wanted
    assert [each.kind for each in inspect_state(choose(tmp_path / "new")).batches] == [
        *("re-sharded", "batch"),
    ]
