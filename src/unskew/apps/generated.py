"""Generated streams: rows that are functions of their number, which Spark counts up for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf

NUMBER = "number"


def numbers(spark: SparkSession, rows: int) -> DataFrame:
    """Return an endless stream of the numbers from 0 up, so many in a batch."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    source = source.option("numPartitions", spark.sparkContext.defaultParallelism)
    return source.load().select(F.col("value").alias(NUMBER))


def first_numbers(spark: SparkSession, rows: int) -> DataFrame:
    """Return the first numbers of that stream, as a batch."""
    return spark.range(rows).withColumnRenamed("id", NUMBER)


def rows_of(make: Callable[[NDArray[np.int64]], pa.StructArray], kind: str) -> Column:
    """Return the rows of the numbers, as a struct.

    Parameters
    ----------
    make : callable
        Makes the rows of some numbers.
    kind : str
        Their columns as Spark writes them.
    """

    def made(number: pa.Array) -> pa.Array:
        return make(number.to_numpy())

    # PySpark's own types know no functions with annotations.
    udf: Any = arrow_udf
    struct: Column = udf(made, kind)(NUMBER)
    return struct
