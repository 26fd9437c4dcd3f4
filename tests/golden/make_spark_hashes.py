"""Write spark_hashes.json: what real Spark's ``xxhash64`` makes of every type of key.

Run it with PySpark and Java on the machine: ``python tests/golden/make_spark_hashes.py``. The
tests need neither: they rebuild the same columns and compare with the file.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

GOLDEN = Path(__file__).with_name("spark_hashes.json")

INTS = [0, 1, -1, 7, 100, -128, 127, None]
WIDE = [0, 1, -1, 2**31 - 1, -(2**31), 123_456_789, None, 42]
LONGS = [0, 1, -1, 2**63 - 1, -(2**63), 2**32, None, 42]
FLOATS = [0.0, -0.0, 1.5, -1e30, float("nan"), float("inf"), None, 3.0e-40]
TIMES = [0, 1, -1, 1_700_000_000_000_999, -1_001, 1_999, None, -1_999]
TEXTS = ["", "a", "grüße", "東京都", "exactly8", "x" * 31, None, "ab" * 50 + "ÿ"]
UNSCALED = ["0", "1", "-1", "127", "128", "-128", None, "-129"]
BIG = ["0", "255", "256", "-32769", "9" * 20, "-" + "9" * 36, None, "1" + "0" * 19]
NANS = [0x7FF8000000000001, 0xFFF8000000000000, 0x7FF0000000000001, 0xFFFFFFFFFFFFFFFF] * 2
STRUCTS = [
    {"a": 1, "b": "x"},
    {"a": None, "b": "x"},
    {"a": 1, "b": None},
    {"a": None, "b": None},
    None,
    {"a": -7, "b": ""},
    {"a": 1, "b": "x" * 40},
    {"a": 0, "b": "é"},
]
LISTS = [[1, 2], [], None, [None], [1, None, 2], [3], [0] * 9, [2, 1]]


def arrow_table() -> pa.Table:
    """Return columns of types that Spark takes from Arrow as they are."""

    def decimals(texts: list[str | None], kind: pa.DataType) -> pa.Array:
        return pa.array([None if t is None else Decimal(t) for t in texts], kind)

    nested = [None if x is None else {"s": s, "l": x} for s, x in zip(STRUCTS, LISTS, strict=True)]
    words = [[str(i)] * i for i in range(8)]
    seconds = [0, 1, -1, 1_700_000_000, None, -86_400, 59, 3_600]
    return pa.table(
        {
            "bool": pa.array([True, False, None, True] * 2),
            "int8": pa.array(INTS, pa.int8()),
            "int16": pa.array(INTS, pa.int16()),
            "int32": pa.array(WIDE, pa.int32()),
            "int64": pa.array(LONGS, pa.int64()),
            "float": pa.array(FLOATS, pa.float32()),
            "double": pa.array(FLOATS, pa.float64()),
            "nan": pa.array(np.array(NANS, dtype=np.uint64).view(np.float64)),
            "string": pa.array(TEXTS, pa.string()),
            "large_string": pa.array(TEXTS, pa.large_string()),
            "dictionary": pa.array(TEXTS).dictionary_encode(),
            "binary": pa.array([None if t is None else t.encode() for t in TEXTS], pa.binary()),
            "fixed": pa.array([bytes(range(i, i + 5)) for i in range(7)] + [None], pa.binary(5)),
            "date": pa.array([0, 1, -1, None, 19_000, -19_000, 1_000, -1], pa.date32()),
            "timestamp_us": pa.array(TIMES, pa.timestamp("us")),
            "timestamp_utc": pa.array(TIMES, pa.timestamp("us", "UTC")),
            "timestamp_ns": pa.array(TIMES, pa.timestamp("ns")),
            "timestamp_ms": pa.array(seconds, pa.timestamp("ms")),
            "timestamp_s": pa.array(seconds, pa.timestamp("s")),
            "duration_us": pa.array(TIMES, pa.duration("us")),
            "duration_s": pa.array(seconds, pa.duration("s")),
            "time_us": pa.array([0, 1, 999_999, 86_399_999_999, None, 5, 6, 7], pa.time64("us")),
            "decimal_9_2": decimals(UNSCALED, pa.decimal128(9, 2)),
            "decimal_18_0": decimals(UNSCALED, pa.decimal128(18, 0)),
            "decimal_19_0": decimals(UNSCALED, pa.decimal128(19, 0)),
            "decimal_38_2": decimals(BIG, pa.decimal128(38, 2)),
            "decimal32": decimals(UNSCALED, pa.decimal32(7, 2)),
            "decimal64": decimals(UNSCALED, pa.decimal64(17, 2)),
            "decimal256": decimals(BIG, pa.decimal256(38, 0)),
            "null": pa.nulls(8),
            "struct": pa.array(STRUCTS, pa.struct([("a", pa.int32()), ("b", pa.string())])),
            "list": pa.array(LISTS, pa.list_(pa.int64())),
            "large_list": pa.array(LISTS, pa.large_list(pa.int32())),
            "fixed_list": pa.array([[i, None] for i in range(7)] + [None], pa.list_(pa.int8(), 2)),
            "list_of_strings": pa.array(words),
            "list_of_lists": pa.array(
                [[x, None, x] for x in LISTS], pa.list_(pa.list_(pa.int16()))
            ),
            "list_of_structs": pa.array([STRUCTS[i:] for i in range(8)]),
            "nested": pa.array(nested),
            "list_of_nested": pa.array([nested[i:] + nested[:i] for i in range(8)]),
        }
    )


def parquet_table() -> pa.Table:
    """Return columns of types that Spark takes from Parquet only, and widens."""
    return pa.table(
        {
            "uint8": pa.array([0, 1, 255, 128, None, 7, 8, 9], pa.uint8()),
            "uint16": pa.array([0, 1, 65_535, 32_768, None, 7, 8, 9], pa.uint16()),
            "uint32": pa.array([0, 1, 2**32 - 1, 2**31, None, 7, 8, 9], pa.uint32()),
            "uint64": pa.array([0, 1, 2**64 - 1, 2**63, None, 7, 255, 256], pa.uint64()),
            "date64": pa.array([dt.date(2020, 1, i + 1) for i in range(8)], pa.date64()),
        }
    )


def python_columns() -> dict[str, list[Any]]:
    """Return Python values, to which Spark's ``createDataFrame`` gives the type."""
    return {
        "py_bool": [True, False, None],
        "py_int": [1, -(2**40), None],
        "py_float": [1.5, float("nan"), -0.0],
        "py_str": ["a", None, "é" * 40],
        "py_bytes": [b"", b"\xff\x00", None],
        "py_decimal": [Decimal("1.5"), Decimal("-12345678901234567890.25"), None],
        "py_date": [dt.date(2024, 2, 29), None, dt.date(1900, 1, 1)],
        "py_datetime": [dt.datetime(2024, 2, 29, 1, 2, 3, 4), None, dt.datetime(1960, 1, 1)],
        "py_timedelta": [dt.timedelta(days=-1, microseconds=5), dt.timedelta(0), None],
        "py_time": [dt.time(1, 2, 3, 4), None, dt.time(23, 59, 59, 999_999)],
        "py_list": [[1, None], [], [2**40]],
        "py_decimals": [[Decimal("1")], [Decimal("2.5"), None], None],
    }


def several() -> list[tuple[str, ...]]:
    """Return names of columns of `arrow_table` that are hashed together."""
    return [
        ("string", "int64"),
        ("int64", "string"),
        ("null", "int32", "null"),
        ("double", "bool", "date", "decimal_38_2", "binary"),
        ("struct", "list", "timestamp_us", "list_of_structs"),
    ]


def main() -> None:
    """Ask Spark and write the file."""
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", TZ="UTC")
    from pyspark.sql import DataFrame, SparkSession

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
        .getOrCreate()
    )
    hashes: dict[str, list[str]] = {}

    def ask(frame: DataFrame, *columns: str) -> None:
        rows = frame.selectExpr(f"xxhash64({', '.join(f'`{c}`' for c in columns)})").collect()
        hashes[", ".join(columns)] = [str(row[0] % 2**64) for row in rows]

    frame = spark.createDataFrame(arrow_table())
    for names in [(name,) for name in frame.columns] + several():
        ask(frame, *names)
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(parquet_table(), f"{folder}/keys.parquet")
        frame = spark.read.parquet(f"{folder}/keys.parquet")
        for name in frame.columns:
            ask(frame, name)
    for name, values in python_columns().items():
        ask(spark.createDataFrame([(value,) for value in values], [name]), name)
    GOLDEN.write_text(json.dumps({"spark": spark.version, "hashes": hashes}, indent=1) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
