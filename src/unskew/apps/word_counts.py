"""Where counts of words go, and how they are read back."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew import hash_keys
from unskew.spark import Output, RedisSink, Sink, read_state
from unskew.spark.sinks import ParquetSink

NAME = "words"
"""In Redis the counts are in the hash ``words:count``."""

_FOUND = "word string, count long"


class WordCounts(Sink):
    """Counts in a folder of Parquet files, or in Redis; remembers the words of the last version.

    A pipeline tells of hashes, and people want to see words.

    Parameters
    ----------
    url : str or None
        Of a Redis.
    folder : Path
        For Parquet files, where no Redis is named.
    name : str, default "words"
        What names in Redis begin with.
    """

    def __init__(self, url: str | None, folder: Path, name: str = NAME) -> None:
        self._folder = folder
        self._redis = None if url is None else RedisSink(url, "word", name=name)
        self._sink = self._redis or ParquetSink(folder)
        self._words = pa.array([], pa.string())
        self._hashes: NDArray[np.uint64] = np.array([], dtype=np.uint64)

    @property
    def where(self) -> str:
        """What the counts are in, without a password."""
        return str(self._folder) if self._redis is None else self._redis.address

    @property
    def words(self) -> int:
        """Different words of the last version."""
        return len(self._words)

    def write(self, output: Output, version: int) -> None:
        """Hand a version on."""
        self._sink.write(output, version)
        tables = [pq.read_table(file, columns=["word"]).column("word") for file in output.files]
        self._words = pa.chunked_array(tables, pa.string()).combine_chunks()
        self._hashes = hash_keys(self._words)

    def check_query(self, checkpoint: str | os.PathLike[str]) -> None:
        """Refuse a Redis with counts of another run, by the pipeline's checkpoint of this one."""
        self._sink.check_query(checkpoint)

    def refill(self, spark: SparkSession, checkpoint: Path) -> bool:
        """Write all counts of an earlier run again, if Redis has lost some; return whether it had.

        Parameters
        ----------
        spark : SparkSession
            To read the state with.
        checkpoint : Path
            Of the pipeline.
        """
        if self._redis is None:
            return False
        kept = read_state(spark, checkpoint)
        if not kept.columns:
            return False
        # A word that is split has a part of its count on each of its instances.
        counts = kept.groupBy("word").agg(F.sum("state_count").alias("count"))
        return self._redis.refill(counts, checkpoint)

    def word(self, key: int) -> str:
        """Return the word of a hash, of the last version."""
        places = np.flatnonzero(self._hashes == np.uint64(key))
        return str(self._words[int(places[0])].as_py()) if places.size else f"{key:016x}"

    def found(self, spark: SparkSession) -> DataFrame:
        """Return all counts."""
        if self._redis is not None:
            counts = self._redis.read("count")
            table = {"word": list(counts), "count": list(map(int, counts.values()))}
            schema = pa.schema([("word", pa.string()), ("count", pa.int64())])
            return spark.createDataFrame(pa.table(table, schema))
        if not self._folder.is_dir():
            return spark.createDataFrame([], _FOUND)
        rows = spark.read.parquet(f"file:{self._folder}")
        return rows.groupBy("word").agg(F.max_by("count", "version").alias("count"))
