"""Aggregates on Spark: equal to plain Python and to Spark's own, in batches and in streams."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from decimal import Decimal
from math import ceil
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew.aggregates import Aggregate, Reduction, collect, distinct, quantiles, top
from unskew.errors import BadParameter, UnhashableKey, UnknownColumn, UnskewError
from unskew.keys import hash_keys
from unskew.spark import explain, profile
from unskew.spark.aggregating import aggregate


def count() -> Aggregate:
    """Return an aggregate of a user: defined here, so that Spark's workers get it by value."""

    class Count(Reduction):
        numbers: ClassVar = {"rows": (np.add, 0)}
        result_type = pa.int64()

        def of_rows(self, *values: Any) -> Any:
            return np.ones(values[0].size, dtype=np.int64)

        def result(self, *numbers: Any) -> Any:
            return numbers[0]

    return Count()


def zipf(number: int) -> list[tuple[int, int, float]]:
    rng = np.random.default_rng(5)
    keys, values = rng.zipf(1.4, number) % 200, rng.integers(0, 400, number)
    numbers = rng.lognormal(0, 3, number).tolist()
    return list(zip(keys.tolist(), values.tolist(), numbers, strict=True))


def test_all_built_ins_agree_with_plain_python(spark: SparkSession) -> None:
    data = zipf(20_000)
    df = spark.createDataFrame(data, "k long, v long, x double").repartition(3)
    found = aggregate(
        df,
        "k",
        {
            "middle": quantiles(0.5, 0.99).of("x"),
            "rows": F.count("*"),
            "values": distinct().of("v"),
            "frequent": top(3, counters=500).of("v"),
            "some": collect(5).of(F.col("v") + 1),
        },
        instances=4,
    )
    assert found.columns == ["k", "middle", "rows", "values", "frequent", "some"]
    exact = defaultdict(list)
    for key, value, number in data:
        exact[key].append((value, number))
    collected = found.collect()
    assert len(collected) == len(exact)
    for row in collected:
        values = [value for value, _ in exact[row.k]]
        numbers = sorted(number for _, number in exact[row.k])
        wanted = [numbers[ceil(q * len(numbers)) - 1] for q in (0.5, 0.99)]
        assert row.middle == pytest.approx(wanted, rel=0.010001)
        assert row.rows == len(values)
        assert row["values"] == pytest.approx(len(set(values)), abs=1)
        ranked = sorted(Counter(values).items(), key=lambda item: (-item[1], item[0]))
        assert [tuple(entry) for entry in row.frequent] == [(v, n, 0) for v, n in ranked[:3]]
        least = sorted((value + 1 for value in values), key=lambda v: int(hash_keys([v])[0]))
        assert row.some == least[:5]


KEYS: dict[str, list[Any]] = {
    "string": ["a", "", None, "ä", "a "],
    "boolean": [True, False, None],
    "byte": [1, -1, None],
    "double": [0.0, -0.0, float("nan"), None, 1.5],
    "decimal(38,4)": [Decimal("1.5"), Decimal("-1.5"), None, Decimal(10**30)],
    "date": [dt.date(2024, 1, 1), None],
    "timestamp": [dt.datetime(2024, 1, 1), dt.datetime(1960, 1, 1), None],
    "timestamp_ntz": [dt.datetime(2024, 1, 1), None],
    "binary": [b"a", b"", None],
    "array<string>": [["a"], [], [None], None, ["a", None]],
    "struct<a:array<double>,b:struct<c:string>>": [
        ([0.0], ("x",)),
        ([-0.0], ("x",)),
        (None, ("x",)),
        ([], (None,)),
        ([], None),
        None,
    ],
}


def test_keys_of_every_type_are_grouped_as_spark_groups_them(spark: SparkSession) -> None:
    schema = ", ".join(f"`{kind}` {kind}" for kind in KEYS)
    rows = [tuple(values[i % len(values)] for values in KEYS.values()) for i in range(120)]
    df = spark.createDataFrame(rows, schema).withColumn("one", F.lit(1)).cache()
    names = [F.col(f"`{kind}`") for kind in KEYS]
    for keys in [names, [names[3]], names[-2:]]:
        found = aggregate(
            df, keys, {"ours": count().of("one"), "theirs": F.count("*")}, instances=2
        )
        assert found.drop("ours", "theirs").schema == df.select(*keys).schema
        collected = found.collect()
        assert sum(row.theirs for row in collected) == 120
        assert [row.ours for row in collected] == [row.theirs for row in collected]
    df.unpersist()


def test_names_may_be_odd_and_keys_expressions(spark: SparkSession) -> None:
    df = spark.range(10).select(F.col("id").alias("a.b `c`"), F.struct("id").alias("value0"))
    keys: list[str | Column] = [(F.col("`a.b ``c```") % 2).alias("odd key"), "value0.id"]
    found = aggregate(df, keys, {"result 1": count().of("value0.id"), "state": F.count("*")})
    assert found.columns == ["odd key", "id", "result 1", "state"]
    assert sorted(map(tuple, found.collect()))[:2] == [(0, 0, 1, 1), (0, 2, 1, 1)]


def test_windows_in_a_batch(spark: SparkSession) -> None:
    df = spark.range(14).selectExpr("timestamp_seconds(id * 100) time", "id % 2 key")
    for window, copies in [
        (F.window("time", "10 minutes"), 1),
        (F.window("time", "10 minutes", "5 minutes"), 2),
    ]:
        found = aggregate(df, "key", {"rows": count().of("key")}, window=window, instances=2)
        assert found.columns == ["window", "key", "rows"]
        theirs = df.groupBy(window, "key").agg(F.count("key").alias("rows"))
        assert sorted(found.collect(), key=str) == sorted(theirs.collect(), key=str)
        assert sum(row.rows for row in found.collect()) == 14 * copies


def test_spark_keeps_its_own_aggregates(spark: SparkSession) -> None:
    df = spark.range(100).withColumn("k", F.col("id") % 3)
    asked = {"n": F.count("*"), "total": F.sum("id")}
    found = aggregate(df, "k", asked)
    assert "Python" not in plan_of(found)
    assert "Arrow" not in plan_of(found)
    assert plan_of(found).count("Exchange") == 1
    theirs = df.groupBy("k").agg(*(column.alias(name) for name, column in asked.items()))
    assert sorted(found.collect()) == sorted(theirs.collect())


def test_rows_may_stay_where_they_are(spark: SparkSession) -> None:
    df = spark.range(100).withColumn("k", F.col("id") % 3)
    found = aggregate(df, "k", {"rows": count().of("id")}, grouping=None)
    assert plan_of(found).count("Exchange") == 1
    assert sorted(map(tuple, found.collect())) == [(0, 34), (1, 33), (2, 33)]


@pytest.mark.parametrize("windowed", [False, True])
def test_a_profile_sends_the_rows_without_python(spark: SparkSession, windowed: bool) -> None:
    df = spark.range(1000).select(
        "id",
        F.when(F.col("id") < 600, 0).otherwise(F.col("id") % 7).alias("k"),
        F.timestamp_seconds("id").alias("time"),
    )
    window = F.window("time", "5 minutes") if windowed else None
    plan = profile(df, "k", instances=3)
    found = aggregate(
        df,
        "k",
        {"rows": count().of("id"), "again": F.count("*")},
        instances=3,
        window=window,
        plan=plan,
    )
    assert len(plan.plan.hot) == 1
    assert "compiled: plan of epoch 0 with 1 hot keys, no Python" in str(explain(found))
    # The states are made after the exchange, in Python; before it there is none.
    _, exchange, below = plan_of(found).partition("REPARTITION_BY_NUM")
    assert exchange
    assert "Python" not in below.partition("Exchange")[0]
    collected = found.collect()
    assert sum(row.rows for row in collected) == 1000
    assert [row.rows for row in collected] == [row.again for row in collected]


def test_the_grouping_and_its_parameters_reach_the_exchange(spark: SparkSession) -> None:
    df = spark.range(100).withColumn("k", F.lit(1))
    asked = {"rows": count().of("id")}
    text = str(explain(aggregate(df, "k", asked, instances=3, grouping="two-choices")))
    assert "repartition by k to 3 instances" in text
    assert "two-choices" in text
    with pytest.raises(BadParameter, match="max_imbalance"):
        aggregate(df, "k", asked, max_imbalance=-1)
    with pytest.raises(BadParameter, match="no parameter 'speed'"):
        aggregate(df, "k", asked, speed=1)
    with pytest.raises(BadParameter, match="instances, a cannot be used without a grouping"):
        aggregate(df, "k", asked, instances=2, grouping=None, a=1)


def test_a_note_says_who_does_what_and_costs_nothing(spark: SparkSession) -> None:
    df = spark.range(9).withColumn("k", F.lit(1))
    found = aggregate(df, "k", {"n": F.count("*"), "q": quantiles(0.5).of("id")}, instances=2)
    plans = found._jdf.queryExecution()
    analyzed = str(plans.analyzed().toString())
    for text in [
        "unskew note",
        "aggregate by k",
        "n: combined before Spark's exchange",
        "q = quantiles(0.5, error=0.01): partial states in Python",
        "sent by frugal, which splits hot keys",
        "the input is read twice",
    ]:
        assert text in analyzed
    assert "unskew note" not in str(plans.optimizedPlan().toString())


def plan_of(df: DataFrame) -> str:
    return str(df._jdf.queryExecution().executedPlan().toString())


NO_COLUMN: Any = quantiles(0.5)
ONE: Any = {"q": quantiles(0.5).of("v")}


@pytest.mark.parametrize(
    ("keys", "aggregates", "parameters", "error", "message"),
    [
        pytest.param("z", ONE, {}, UnknownColumn, "no column 'z'", id="unknown key"),
        pytest.param(
            "k", {"q": quantiles(0.5).of("z")}, {}, UnknownColumn, "column 'z'", id="unknown value"
        ),
        pytest.param([], ONE, {}, BadParameter, "at least one key", id="no keys"),
        pytest.param("m", ONE, {}, UnhashableKey, "a map", id="map as key"),
        pytest.param("y", ONE, {}, BadParameter, "'y' has the type interval year", id="interval"),
        pytest.param("k", {}, {}, BadParameter, "at least one name and aggregate", id="none"),
        pytest.param(
            "k", {"q": NO_COLUMN}, {}, BadParameter, r"\.of\(\"column\"\)", id="no column"
        ),
        pytest.param("k", {"q": "sum"}, {}, BadParameter, "not 'sum'", id="no aggregate"),
        pytest.param("k", {"q": NO_COLUMN.of(3)}, {}, BadParameter, "not 3", id="no name"),
        pytest.param("k", {"K": NO_COLUMN.of("v")}, {}, BadParameter, "named 'k'", id="name taken"),
        pytest.param(
            "k", {"q": NO_COLUMN.of("k", "v")}, {}, BadParameter, "one column, not 2", id="two"
        ),
        pytest.param(
            "k", {"q": NO_COLUMN.of("t")}, {}, BadParameter, "numbers, not timestamp", id="type"
        ),
        pytest.param(
            "k",
            ONE,
            {"window": F.col},
            BadParameter,
            "window must be a window of time",
            id="no Column",
        ),
        pytest.param("k", ONE, {"window": "t"}, BadParameter, "must be a window of time", id="str"),
        pytest.param("k", ONE, {"window": "session"}, BadParameter, "session", id="session"),
        pytest.param("k", ONE, {"instances": 0}, BadParameter, "instances must", id="instances"),
    ],
)
def test_what_does_not_fit_is_named_at_once(
    spark: SparkSession,
    keys: Any,
    aggregates: Any,
    parameters: dict[str, Any],
    error: type[UnskewError],
    message: str,
) -> None:
    df = spark.range(1).selectExpr(
        "id k", "id v", "map(1, 2) m", "make_ym_interval(1) y", "timestamp_seconds(id) t"
    )
    if parameters.get("window") == "session":
        parameters = {"window": F.session_window("t", "1 minute")}
    with pytest.raises(error, match=message):
        aggregate(df, keys, aggregates, **parameters)


def test_what_spark_does_alone_takes_no_options_of_ours(spark: SparkSession) -> None:
    df = spark.range(9).withColumn("k", F.lit(1))
    with pytest.raises(UnskewError, match="nonsense"):
        aggregate(df, "k", {"n": F.count("*")}, grouping="nonsense")
    with pytest.raises(BadParameter, match="observe='x' tells of rows that a grouping sent"):
        aggregate(df, "k", {"n": F.count("*")}, observe="x")


def test_session_windows_are_refused_as_keys_too(spark: SparkSession) -> None:
    df = spark.range(9).withColumn("time", F.timestamp_seconds("id"))
    with pytest.raises(BadParameter, match="session windows cannot be split"):
        aggregate(df, F.session_window("time", "5 seconds"), {"q": quantiles(0.5).of("id")})


def test_something_else_than_a_data_frame(spark: SparkSession) -> None:
    table: Any = pa.table({"k": [1]})
    with pytest.raises(BadParameter, match="not Table"):
        aggregate(table, "k", ONE)


def faulty(**methods: Any) -> Aggregate:
    """Return `count` with other methods."""
    made = count()
    for name, method in methods.items():
        setattr(made, name, method)
    return made


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        pytest.param(
            {"update": lambda states, groups, values: 1 / 0},
            "update of the aggregate Count() of 'bad' raised ZeroDivisionError",
            id="raises",
        ),
        pytest.param(
            {"finish": lambda states: pa.array([1.5] * len(states))},
            "finish of the aggregate Count() of 'bad' must return int64, its result_type, not",
            id="type",
        ),
        pytest.param(
            {"merge": lambda states, groups, others: others[:0]},
            "merge of the aggregate Count() of 'bad' must return one element for each of",
            id="length",
        ),
    ],
)
def test_what_an_aggregate_does_wrong_is_named(
    spark: SparkSession, methods: dict[str, Any], message: str
) -> None:
    df = spark.range(10)
    with pytest.raises(PySparkException) as error:
        aggregate(df, "id", {"bad": faulty(**methods).of("id")}, instances=2).collect()
    assert message in str(error.value)


def test_types_that_spark_does_not_have_are_refused(spark: SparkSession) -> None:
    odd = faulty(result_type=pa.dense_union([pa.field("a", pa.int32())]))
    with pytest.raises(BadParameter, match=r"Spark has no type for dense_union.* Count\(\) of 'x'"):
        aggregate(spark.range(1), "id", {"x": odd.of("id")})
