"""Groups of ContRand: two neighbours have each key, and one of them keeps a row."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew.spark.contrand import MEMBERS, deal

KEYS, ROWS = 50, 40


@pytest.mark.parametrize(
    ("instances", "shards", "groups"),
    [
        pytest.param(4, 200, {(0, 1), (2, 3)}, id="groups that share nothing"),
        pytest.param(3, 150, {(0, 1), (1, 2), (0, 2)}, id="every two of an odd number"),
        pytest.param(1, 50, {(0,)}, id="one that is alone"),
    ],
)
def test_a_key_is_on_two_neighbours_that_keep_half_of_it_each(
    spark: SparkSession, instances: int, shards: int, groups: set[tuple[int, ...]]
) -> None:
    key = F.pmod("id", F.lit(KEYS)).alias("key")
    rows = spark.range(KEYS * ROWS).select("id", key, F.xxhash64("id").alias("row"))
    dealt = deal(rows, F.xxhash64("key"), F.col("row"))
    instance = F.pmod(F.pmod(dealt.hashed, F.lit(shards)), F.lit(instances)).alias("instance")
    copies = dealt.rows.select("id", "key", dealt.stored.alias("stored"), instance)

    by_row = copies.groupBy("id").agg(F.count("*"), F.count_if("stored")).collect()
    assert {tuple(row)[1:] for row in by_row} == {(MEMBERS, 1)}
    found = copies.groupBy("key").agg(F.array_sort(F.collect_set("instance"))).collect()
    assert {tuple(row[1]) for row in found} == groups
    kept = copies.where("stored").groupBy("instance").count().collect()
    mean = KEYS * ROWS / instances
    assert all(0.6 * mean < row["count"] < 1.4 * mean for row in kept)
    assert len(kept) == instances
