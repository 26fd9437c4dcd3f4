"""State of a pipeline as a DataFrame."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from unskew.state import Checkpoint
from unskew.state.inspecting import choose
from unskew.state.reading import rows_of


def read_state(
    spark: SparkSession,
    checkpoint: str | os.PathLike[str],
    *,
    stage: int = 0,
    batch: int | None = None,
) -> DataFrame:
    """Return the state that a pipeline keeps: the keys, and what it knows of each.

    Reads what was committed last, beside a running query or without one; executors read the shards
    that they are given, so that no machine needs room for all. A key that is split has a row for
    each of its parts; where nothing is kept there are no columns.

    Parameters
    ----------
    spark : SparkSession
        To read with.
    checkpoint : path
        As of ``Pipeline.start``, or its ``state``.
    stage : int, default 0
        Which stage.
    batch : int, optional
        After which of the batches that are kept; the newest by default.
    """
    chosen = choose(Path(checkpoint), batch=batch, stage=stage)
    manifest, where = chosen.manifest, str(chosen.store.folder)
    shards = sorted(manifest.stages[stage])
    first = rows_of(chosen.store, manifest, stage, shards[:1])
    schema = next((rows.schema for rows in first), None)
    if schema is None:
        return spark.createDataFrame([], StructType([]))

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        again = Checkpoint(Path(where))
        kept = again.manifest(manifest.version)
        assert kept is not None
        for numbers in batches:
            yield from rows_of(again, kept, stage, numbers.column(0).to_pylist())

    tasks = max(1, min(len(shards), 2 * spark.sparkContext.defaultParallelism))
    numbers = spark.createDataFrame([(shard,) for shard in shards], "shard long")
    return numbers.repartition(tasks, "shard").mapInArrow(read, from_arrow_schema(schema))
