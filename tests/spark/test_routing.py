from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import unskew
from unskew.balance import Plan
from unskew.errors import (
    BadParameter,
    BadPlan,
    NotReplayable,
    UnhashableKey,
    UnknownColumn,
    UnknownGrouping,
    UnsupportedSpark,
)
from unskew.grouping import Frugal, base
from unskew.keys import hash_keys
from unskew.operators.base import STORED
from unskew.spark import compiled, explain, profile, repartition
from unskew.spark.routing import Way, route_to_all
from unskew.spark.versions import check_session
from unskew.state.runs import HASH

ROWS = 6000


@pytest.fixture(scope="module")
def tweets(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of Parquet files: every third row has the tag "hot", the others 200 tags."""
    path = str(tmp_path_factory.mktemp("tweets") / "data")
    tag = F.when(F.col("id") % 3 == 0, "hot").otherwise(F.concat(F.lit("t"), F.col("id") % 200))
    spark.range(0, ROWS, 1, 3).withColumn("tag", tag).write.parquet(path)
    return path


def multiset(df: DataFrame) -> Counter[str]:
    return Counter(str(row) for row in df.collect())


def loads(df: DataFrame) -> list[int]:
    return [
        row["count"]
        for row in df.groupBy(F.spark_partition_id().alias("p")).count().orderBy("p").collect()
    ]


@pytest.mark.parametrize("name", unskew.groupings())
def test_every_grouping_returns_the_rows_it_was_given(
    spark: SparkSession, tweets: str, name: str
) -> None:
    df = spark.read.parquet(tweets)
    sent = repartition(df, 7, "tag", grouping=name, instance_column="instance")
    assert sent.rdd.getNumPartitions() == 7
    found = sent.withColumn("partition", F.spark_partition_id()).collect()
    assert Counter((row["id"], row["tag"]) for row in found) == Counter(
        (row["id"], row["tag"]) for row in df.collect()
    )
    assert all(row["instance"] == row["partition"] for row in found)


@pytest.mark.parametrize("name", ["frugal", "pd-stream", "key"])
@pytest.mark.parametrize("shuffled", [False, True], ids=["files", "after a shuffle"])
def test_a_stream_returns_the_rows_it_was_given(
    spark: SparkSession, tweets: str, tmp_path: Path, name: str, shuffled: bool
) -> None:
    stream = spark.readStream.schema("id long, tag string").parquet(tweets)
    sent = repartition(stream.repartition(2) if shuffled else stream, 4, "tag", grouping=name)
    query = (
        sent.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    written = spark.read.parquet(str(tmp_path / "out"))
    assert multiset(written) == multiset(spark.read.parquet(tweets))


@pytest.mark.parametrize("shuffled", [False, True], ids=["files", "after a shuffle"])
@pytest.mark.parametrize("compiled", [False, True], ids=["online", "compiled"])
def test_a_hot_key_is_split_and_the_loads_are_even(
    spark: SparkSession, tweets: str, shuffled: bool, compiled: bool
) -> None:
    df = spark.read.parquet(tweets)
    df = df.repartition(3) if shuffled else df
    plan = profile(df, "tag", instances=4) if compiled else None
    sent = repartition(df, 4, "tag", plan=plan)
    assert multiset(sent) == multiset(df)
    assert max(loads(sent)) < 1.1 * ROWS / 4
    assert max(loads(df.repartition(4, "tag"))) > 1.4 * ROWS / 4
    assert ("PythonUDF" in plan_text(sent)) != compiled


def plan_text(df: DataFrame) -> str:
    text: str = df._jdf.queryExecution().optimizedPlan().toString()
    return text.replace("ArrowEvalPython", "PythonUDF")


def test_compiled_routing_is_what_the_plan_says(spark: SparkSession, tweets: str) -> None:
    df = spark.read.parquet(tweets)
    found = df.select("id", "tag", F.xxhash64("tag").alias("hash")).collect()
    hot = {row["hash"] % 2**64: (3, 1, 1) for row in found if row["tag"] in {"hot", "t1", "t5"}}
    plan = Plan(np.arange(16, dtype=np.int32) % 5, 5, hot=hot)
    sent = repartition(df, 5, "tag", plan=plan, instance_column="i")
    homes = {row["tag"]: set() for row in found}  # type: dict[str, set[int]]
    for row in sent.collect():
        homes[row["tag"]].add(row["i"])
    for row in found:
        assert homes[row["tag"]] == plan.instances_of(row["hash"] % 2**64)
    counts = Counter(row["i"] for row in sent.where("tag = 'hot'").collect())
    assert counts[1] / counts[3] == pytest.approx(2, rel=0.2)


def test_several_hot_keys_in_one_shard_are_told_apart(spark: SparkSession, tweets: str) -> None:
    df = spark.read.parquet(tweets)
    rows = df.select("tag", F.xxhash64("tag").alias("hash")).distinct().limit(9).collect()
    hot = {row["hash"] % 2**64: (number % 5,) for number, row in enumerate(rows)}
    sent = repartition(df, 5, "tag", plan=Plan(np.array([2, 4]), 5, hot=hot), instance_column="i")
    where = {row["tag"]: row["i"] for row in sent.collect()}
    assert [where[row["tag"]] for row in rows] == [number % 5 for number in range(9)]


def test_rows_that_are_all_alike_are_balanced_after_a_shuffle(spark: SparkSession) -> None:
    ones = spark.range(4000).select(F.lit("one").alias("word")).repartition(2)
    plan = profile(ones, "word", instances=4)
    assert plan.varied == []
    sent = repartition(ones, 4, "word", plan=plan)
    assert max(loads(sent)) < 1.1 * 1000
    assert max(loads(repartition(ones, 4, "word"))) < 1.1 * 1000


# Made when asked for: a Column needs a session.
KEYS: dict[str, Callable[[], tuple[str | Column, ...]]] = {
    "a name": lambda: ("text",),
    "a column": lambda: (F.col("text"),),
    "an expression": lambda: (F.upper("text"),),
    "several": lambda: ("text", F.col("amount")),
    "a decimal": lambda: ("amount",),
    "a struct": lambda: ("nested",),
    "a field of a struct": lambda: ("nested.list",),
    "an array": lambda: (F.col("nested.list"),),
    "a name with a dot": lambda: ("`a.b`",),
}


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("shuffled", [False, True], ids=["rows in order", "after a shuffle"])
def test_keys_of_any_kind_with_nulls_beside_columns_of_any_kind(
    spark: SparkSession, keys: Callable[[], tuple[str | Column, ...]], shuffled: bool
) -> None:
    data: list[tuple[Any, ...]] = [
        (f"w{n % 5}", Decimal(n) / 7, ([n % 3, None], "x"), {"m": n}, n) for n in range(200)
    ]
    data += [(None, None, None, None, None)] * 20
    schema = (
        "text string, amount decimal(20, 4), nested struct<list: array<int>, s: string>, "
        "map map<string, int>, `a.b` int"
    )
    df = spark.createDataFrame(data, schema).withColumn("variant", F.parse_json(F.lit("[1]")))
    df = df.repartition(2) if shuffled else df
    sent = repartition(df, 3, *keys())
    assert sent.schema == df.schema
    assert multiset(sent) == multiset(df)


def test_a_column_named_like_ours_is_left_alone(spark: SparkSession) -> None:
    df = spark.range(50).withColumn("Unskew_Instance", F.lit("mine"))
    sent = repartition(df, 3, "id")
    assert sent.columns == ["id", "Unskew_Instance"]
    assert {row["Unskew_Instance"] for row in sent.collect()} == {"mine"}


def test_sources_do_not_pile_onto_one_instance(spark: SparkSession) -> None:
    df = spark.range(0, 64, 1, 64).withColumn("k", F.lit("same"))
    assert max(loads(repartition(df, 8, "k", grouping="shuffle"))) <= 16


def test_columns_of_equal_name_pass_where_the_order_is_known(spark: SparkSession) -> None:
    df = spark.range(20).select("id", F.col("id").alias("x"), F.lit(1).alias("x"))
    assert multiset(repartition(df, 3, "id")) == multiset(df)
    with pytest.raises(BadParameter, match="several columns are named 'x'"):
        repartition(df.repartition(2), 3, "id")


class OwnGrouping(Frugal):
    name = "own, never registered in a worker"


def test_a_grouping_of_the_users_own_reaches_the_workers(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(base._registry, OwnGrouping.name, OwnGrouping)
    assert repartition(spark.range(20), 3, "id", grouping=OwnGrouping.name).count() == 20


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        pytest.param({"keys": ("nope",)}, UnknownColumn, "'nope'.*'id', 'm'", id="unknown column"),
        pytest.param({"keys": ("s.nope",)}, UnknownColumn, "s.nope", id="unknown field"),
        pytest.param(
            {"keys": lambda: (F.col("nope"),)}, UnknownColumn, "nope", id="unknown Column"
        ),
        pytest.param({"keys": ()}, BadParameter, "at least one key.*'id'", id="no key"),
        pytest.param({"keys": (3,)}, BadParameter, "not 3", id="a number as key"),
        pytest.param({"keys": ("*",)}, BadParameter, "stands for 3 columns", id="a star"),
        pytest.param({"keys": ("m",)}, UnhashableKey, "map<string,int>", id="a map"),
        pytest.param(
            {"keys": lambda: (F.array("m"),)}, UnhashableKey, "a map", id="a map in an array"
        ),
        pytest.param({"instances": 0}, BadParameter, "from 1", id="no instances"),
        pytest.param({"instances": 2.5}, BadParameter, "2.5", id="half an instance"),
        pytest.param({"grouping": "best"}, UnknownGrouping, "'best'.*frugal", id="grouping"),
        pytest.param(
            {"max_imbalance": -1}, BadParameter, "max_imbalance", id="a parameter's value"
        ),
        pytest.param({"speed": 1}, BadParameter, "'speed'", id="unknown parameter"),
        pytest.param({"source": 1}, BadParameter, "source", id="a source"),
        pytest.param({"instance_column": "ID"}, BadParameter, "'ID'", id="a column that exists"),
        pytest.param({"plan": Plan.even(8, 5)}, BadPlan, "5 instances, not for 4", id="a plan"),
        pytest.param({"plan": "plan.json"}, BadParameter, "not str", id="no plan"),
        pytest.param(
            {"plan": Plan.even(8, 4), "grouping": "key"}, BadParameter, "leave", id="both"
        ),
    ],
)
def test_what_does_not_fit_is_told_at_the_call(
    spark: SparkSession, call: dict[str, Any], error: type[Exception], said: str
) -> None:
    df = spark.range(3).withColumn("m", F.create_map(F.lit("a"), F.lit(1)))
    df = df.withColumn("s", F.struct("id"))
    given = {"instances": 4, "keys": ("id",), **call}
    keys = given.pop("keys")
    with pytest.raises(error, match=said):
        repartition(df, given.pop("instances"), *(keys() if callable(keys) else keys), **given)


def test_a_profile_of_other_keys_is_refused(spark: SparkSession) -> None:
    df = spark.range(100).withColumn("other", F.col("id"))
    found = profile(df, "id", instances=4)
    with pytest.raises(BadPlan, match=r"keys id \(bigint\), not of other \(bigint\)"):
        repartition(df, 4, "other", plan=found)
    with pytest.raises(BadPlan, match=r"not of id \(string\)"):
        repartition(df.withColumn("id", F.col("id").cast("string")), 4, "id", plan=found)


@pytest.mark.parametrize("name", ["enabled", "enableFullRetryOnMismatch"])
def test_sessions_without_checksums_are_refused(spark: SparkSession, name: str) -> None:
    setting = f"spark.sql.shuffle.orderIndependentChecksum.{name}"
    spark.conf.set(setting, "false")
    try:
        with pytest.raises(NotReplayable, match=f"{name} is false.*set it to true"):
            repartition(spark.range(3), 2, "id")
    finally:
        spark.conf.unset(setting)


def test_old_sessions_are_refused() -> None:
    with pytest.raises(UnsupportedSpark, match=r"4\.2 or newer, the session runs 4\.1\.3"):
        check_session("4.1.3")


def test_explain_tells_every_step_and_why(spark: SparkSession, tweets: str) -> None:
    df = spark.read.parquet(tweets)
    first = repartition(df, 4, "tag")
    second = repartition(first, 3, "id", plan=Plan.even(8, 3)).groupBy("tag").count()
    later, earlier = explain(second).notes
    assert earlier.title == "repartition by tag to 4 instances"
    assert earlier.facts["routing"].startswith("online: frugal")
    assert earlier.facts["order"] == "as the rows come"
    assert later.facts["routing"].startswith("compiled")
    assert "RepartitionByExpression upstream" in later.facts["why"]
    assert "online: frugal" in str(explain(second))
    assert str(explain(df)).startswith("unskew did nothing")


def test_a_note_costs_nothing_to_run(spark: SparkSession) -> None:
    sent = repartition(spark.range(9), 3, "id", plan=Plan.even(8, 3))
    assert "unskew note" not in plan_text(sent)
    assert "unskew note" in json.dumps(str(sent._jdf.queryExecution().analyzed()))


def test_rows_of_a_join_go_to_all_that_may_have_partners(spark: SparkSession) -> None:
    keys = hash_keys(pa.array(range(50)))
    hot = {int(keys[0]): (0, 2, 2), int(keys[7]): (1,), int(keys[30]): (0, 1, 2, 3, 4)}
    plan = Plan(np.arange(16, dtype=np.int32) % 5, 5, hot=hot)
    hashed = F.xxhash64(F.col("id") % 50).alias(HASH)
    rows = spark.range(1000).select("id", hashed, F.lit(True).alias(STORED))
    way = Way(compiled.instance(plan, F.col(HASH), F.col("id")), "", "")
    copies, way = route_to_all(rows, plan, way)
    found = copies.select("id", way.instance.alias("instance"), STORED).collect()
    numbers = np.arange(1000)
    places, instances, is_kept = plan.route_to_all(keys[numbers % 50], numbers)
    wanted = zip(places.tolist(), instances.tolist(), is_kept.tolist(), strict=True)
    assert sorted(map(tuple, found)) == sorted(wanted)
    assert len(found) > 1000
