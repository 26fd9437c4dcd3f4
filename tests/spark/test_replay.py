"""The order of rows: what we conclude from the plan, beside what Spark's own RDD says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew.spark.columns import row_hash
from unskew.spark.replay import order_of


@pytest.fixture(scope="module")
def files(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("files") / "data")
    spark.range(100).withColumn("k", F.col("id") % 7).write.parquet(path)
    return path


@pytest.fixture
def without_adaptive(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    yield
    spark.conf.unset("spark.sql.adaptive.enabled")


Made = Callable[[SparkSession, str], DataFrame]

SAME: dict[str, Made] = {
    "a range": lambda spark, _: spark.range(9),
    "rows of the driver": lambda spark, _: spark.createDataFrame([(1,), (2,)], "a int"),
    "an RDD": lambda spark, _: spark.createDataFrame(
        spark.sparkContext.parallelize([(1,), (2,)]), "a int"
    ),
    "files": lambda spark, path: spark.read.parquet(path),
    "a filter, a projection and an explode": lambda spark, path: (
        spark.read.parquet(path).where("id > 3").select(F.explode(F.array("id", "k")).alias("x"))
    ),
    "a union": lambda spark, path: spark.read.parquet(path).union(spark.read.parquet(path)),
    "a Python function over batches": lambda spark, path: spark.read.parquet(path).mapInArrow(
        lambda batches: batches, "id long, k long"
    ),
    "a view": lambda spark, path: spark.sql(f"with c as (select * from parquet.`{path}`) table c"),
    "a local checkpoint after a shuffle": lambda spark, _: (
        spark.range(9).groupBy("id").count().localCheckpoint()
    ),
}

OTHER: dict[str, tuple[Made, str]] = {
    "an aggregate": (
        lambda spark, path: spark.read.parquet(path).groupBy("k").count(),
        "Aggregate",
    ),
    "a repartition": (lambda spark, path: spark.read.parquet(path).repartition(3), "Repartition"),
    "a join": (
        lambda spark, path: spark.read.parquet(path).join(spark.range(20_000).hint("merge"), "id"),
        "Join",
    ),
    "a sort": (lambda spark, path: spark.read.parquet(path).orderBy("k"), "Sort"),
    "a distinct": (lambda spark, path: spark.read.parquet(path).distinct(), "Deduplicate"),
    "a semi join written as a subquery": (
        lambda spark, path: spark.sql(
            f"select * from parquet.`{path}` where id in (select /*+ merge */ id from "
            f"parquet.`{path}`)"
        ),
        "a subquery",
    ),
    "an RDD after a shuffle": (
        lambda spark, _: spark.createDataFrame(
            spark.sparkContext.parallelize([(1,), (2,)]).repartition(3), "a int"
        ),
        "an RDD that is UNORDERED",
    ),
    "a shuffle far up": (
        lambda spark, path: spark.read.parquet(path).repartition(3).where("k > 1").select("k"),
        "Repartition",
    ),
    "a cached shuffle": (lambda spark, _: spark.range(9).distinct().cache(), "Deduplicate"),
}


def level(df: DataFrame) -> str:
    rdd = df._jdf.queryExecution().toRdd()
    return str(rdd.outputDeterministicLevel().toString())


@pytest.mark.usefixtures("without_adaptive")
@pytest.mark.parametrize("made", SAME.values(), ids=SAME)
def test_the_order_is_known(spark: SparkSession, files: str, made: Made) -> None:
    df = made(spark, files)
    assert order_of(df).same
    assert level(df) == "DETERMINATE"


@pytest.mark.usefixtures("without_adaptive")
@pytest.mark.parametrize(("made", "named"), OTHER.values(), ids=OTHER)
def test_the_order_is_not_known(spark: SparkSession, files: str, made: Made, named: str) -> None:
    df = made(spark, files)
    found = order_of(df)
    assert not found.same
    assert named in found.reason
    # What is in memory counts as safe in Spark's eyes, until the memory is lost.
    assert level(df) == ("DETERMINATE" if df.is_cached else "UNORDERED")
    df.unpersist()


def test_no_job_runs_to_find_out(spark: SparkSession, files: str) -> None:
    df = spark.read.parquet(files).groupBy("k").count()
    tracker = spark.sparkContext.statusTracker()
    before = tracker.getJobIdsForGroup()
    order_of(df)
    assert tracker.getJobIdsForGroup() == before


def test_what_is_drawn_by_chance_is_not_taken_to_come_back(spark: SparkSession) -> None:
    assert "not deterministic" in order_of(spark.range(9).withColumn("r", F.rand())).reason


def test_a_database_may_answer_in_another_order(spark: SparkSession, tmp_path: Path) -> None:
    url = f"jdbc:derby:{tmp_path / 'db'};create=true"
    driver = "org.apache.derby.iapi.jdbc.AutoloadedDriver"
    rows = spark.range(5)
    rows.write.format("jdbc").options(url=url, dbtable="t", driver=driver).save()
    df = spark.read.format("jdbc").options(url=url, dbtable="t", driver=driver).load()
    assert "JDBCRelation" in order_of(df).reason


@pytest.mark.parametrize("source", ["rate", "rate-micro-batch"])
def test_streams_are_judged_like_batches(spark: SparkSession, files: str, source: str) -> None:
    rate = spark.readStream.format(source).option("rowsPerBatch", 5).load()
    late = rate.withWatermark("timestamp", "1 second").select("value")
    assert order_of(late).same
    assert order_of(spark.readStream.schema("id long").parquet(files)).same
    assert not order_of(late.repartition(2)).same


def test_a_batch_of_a_stream_is_asked_for_its_rdd(spark: SparkSession, files: str) -> None:
    found = []

    def look(batch: DataFrame, _: int) -> None:
        found.append(order_of(batch).same)

    for shuffled in (False, True):
        stream = spark.readStream.schema("id long").parquet(files)
        stream = stream.repartition(2) if shuffled else stream
        query = stream.writeStream.foreachBatch(look).trigger(availableNow=True).start()
        query.awaitTermination()
    assert found == [True, False]


def test_rows_that_differ_in_the_last_digit_have_other_hashes(spark: SparkSession) -> None:
    df = spark.sql(
        """
        SELECT named_struct('t', timestamp '2024-01-01 00:00:00.000001') AS s, 0.0D AS x
        UNION ALL SELECT named_struct('t', timestamp '2024-01-01 00:00:00.000002'), 0.0D
        UNION ALL SELECT named_struct('t', timestamp '2024-01-01 00:00:00.000002'), -0.0D
        """
    )
    assert df.select(row_hash(df).alias("h")).distinct().count() == 3
