"""State of a pipeline as a DataFrame."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from unskew.errors import BadParameter, WrongCheckpoint
from unskew.state import Checkpoint
from unskew.state.reading import folder_of, newest_version, rows_of


def read_state(
    spark: SparkSession,
    checkpoint: str | os.PathLike[str],
    *,
    stage: int = 0,
    version: int | None = None,
) -> DataFrame:
    """Return the state that a pipeline keeps: the keys, and what it knows of each.

    Reads what was committed last, beside a running query or without one; executors read the shards
    that they are given, so that no machine needs room for all.

    Parameters
    ----------
    spark : SparkSession
        To read with.
    checkpoint : path
        As of ``Pipeline.start``, or its ``state``.
    stage : int, default 0
        Which stage.
    version : int, optional
        Which version of those that are kept; the newest by default.
    """
    folder = folder_of(Path(checkpoint))
    store = Checkpoint(folder)
    specs = store.specs()
    if not 0 <= stage < len(specs):
        raise BadParameter(f"stage must be from 0 to {len(specs) - 1}, not {stage}")
    chosen = newest_version(store) if version is None else version
    manifest = store.manifest(chosen)
    if manifest is None:
        kept = ", ".join(map(str, store.versions()))
        raise WrongCheckpoint(f"{folder} does not keep version {chosen}, only {kept}")
    shards = sorted(manifest.stages[stage])
    schema = next((rows.schema for rows in rows_of(store, manifest, stage, shards[:1])), None)
    if schema is None:
        return spark.createDataFrame([], StructType([]))
    where = str(folder)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        again = Checkpoint(Path(where))
        kept = again.manifest(chosen)
        assert kept is not None
        for batch in batches:
            yield from rows_of(again, kept, stage, batch.column(0).to_pylist())

    numbers = spark.createDataFrame([(shard,) for shard in shards], "shard long")
    return numbers.repartition(max(1, min(len(shards), 64)), "shard").mapInArrow(
        read, from_arrow_schema(schema)
    )
