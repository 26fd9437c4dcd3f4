"""What a worker has loaded is left out of garbage collections; a driver is left alone."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from unskew.spark import repartition
from unskew.spark.collecting import spare_what_is_loaded


def frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return how many objects the worker does not look at."""
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"objects": [gc.get_freeze_count()]})


def test_a_worker_looks_at_its_modules_no_more(spark: SparkSession) -> None:
    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_what_is_loaded()
        return frozen(batches)

    sent = repartition(spark.range(100), 2, "id")
    counts = [row["objects"] for row in sent.mapInArrow(told, "objects long").collect()]
    assert len(counts) == 2
    assert min(counts) > 50_000


def test_a_driver_is_left_alone() -> None:
    spare_what_is_loaded()
    assert gc.get_freeze_count() == 0
