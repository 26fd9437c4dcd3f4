"""What is told of the balance of each batch."""

from __future__ import annotations

import pytest
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew.aggregates import count
from unskew.errors import BadParameter
from unskew.spark import Balance, aggregate


def test_the_balance_is_that_of_the_rows(spark: SparkSession) -> None:
    df = spark.range(3000).select(
        F.when(F.col("id") % 3 == 0, "hot")
        .otherwise(F.concat(F.lit("k"), F.col("id") % 40))
        .alias("a"),
        F.when(F.col("id") % 5 != 0, "b, c").alias("b"),
        F.timestamp_seconds(F.col("id") % 100).alias("time"),
    )
    window = F.window("time", "20 seconds")
    observation = Observation()
    query = aggregate(
        df, ["a", "b"], {"n": count()}, window=window, instances=4, observe=observation
    )
    states = len(query.collect())
    balance = Balance.of(observation.get)

    assert sum(balance.loads) == sum(balance.hash_loads) == 3000
    assert balance.partials >= states
    assert max(hot.instances for hot in balance.hot) <= 4
    # Spark would send by window and keys.
    homes = df.groupBy(F.pmod(F.hash(window, "a", "b"), F.lit(4))).count().collect()
    assert sorted(balance.hash_loads) == sorted(row["count"] for row in homes)
    by_key = {hot.key: hot.rows for hot in balance.hot}
    # Small parts of a key may not be told of.
    assert 100 < by_key["hot, null"] <= 200
    assert 400 < by_key["hot, b, c"] <= 800


def test_too_many_instances_are_refused(spark: SparkSession) -> None:
    df = spark.range(3)
    with pytest.raises(BadParameter, match="at most 1,024 instances"):
        aggregate(df, "id", {"n": count()}, instances=2000, observe="balance")
