"""Files as a stream: every file of a folder is a batch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from unskew.apps.base import Options
from unskew.errors import BadParameter, MissingInput, UnknownColumn

FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".txt": "text"}


@dataclass(frozen=True)
class FileStream:
    """The files of one format in a folder.

    Attributes
    ----------
    suffix : str
        Of the files that are read; others in the folder are left alone.
    key, time, value : Column
        Of the files; without a column of time it is when each file was written, and without a
        value it is 1.
    """

    spark: SparkSession
    folder: Path
    suffix: str
    key: Column
    time: Column
    value: Column

    def batch(self) -> DataFrame:
        """Return all files at once."""
        return _batch(self.spark, self.folder, self.suffix)

    def stream(self) -> DataFrame:
        """Return the files one after the other."""
        reader = self.spark.readStream.format(FORMATS[self.suffix]).schema(self.batch().schema)
        if self.suffix == ".csv":
            reader = reader.option("header", True)
        reader = reader.option("pathGlobFilter", f"*{self.suffix}")
        return reader.option("maxFilesPerTrigger", 1).load(escaped(self.folder))


def file_stream(spark: SparkSession, options: Options) -> FileStream:
    """Return the stream of ``files:DIR``, once it is sure that it can be read."""
    folder = folder_of(options.source)
    if not folder.is_dir():
        raise MissingInput(f"there is no folder {folder}; name one with the files of the stream")
    suffixes = {path.suffix for path in folder.iterdir() if path.is_file()} & FORMATS.keys()
    if len(suffixes) != 1:
        found = "files of several formats" if suffixes else "no file that can be read"
        raise BadParameter(
            f"{folder} has {found}; put files of one kind there: {', '.join(FORMATS)}"
        )
    suffix = suffixes.pop()
    fields = {field.name: field.dataType for field in _batch(spark, folder, suffix).schema}
    if options.key is None:
        raise BadParameter(f"name the key with --key; {folder} has {', '.join(fields)}")
    for column in (options.key, options.time, options.value):
        if column is not None and column not in fields:
            raise UnknownColumn(f"{folder} has no column {column!r}, only {', '.join(fields)}")
    time = F.col("_metadata.file_modification_time")
    if options.time is not None:
        time = _cast(options.time, fields[options.time], "timestamp", _TIMES)
    value = F.lit(1)
    if options.value is not None:
        value = _cast(options.value, fields[options.value], "double", _NUMBERS)
    return FileStream(spark, folder, suffix, _column(options.key), time, value)


def folder_of(source: str) -> Path:
    """Return the folder that ``files:DIR`` names."""
    kind, _, name = source.partition(":")
    if kind != "files" or not name:
        raise BadParameter(
            f"--source must be rate or files:DIR, not {source!r}; for example files:/data/clicks"
        )
    return Path(name).resolve()


_TIMES = (TimestampType, TimestampNTZType, DateType, StringType)
_NUMBERS = (NumericType, StringType, BooleanType)


def _cast(name: str, kind: DataType, wanted: str, known: tuple[type[DataType], ...]) -> Column:
    """Return a column with another type; texts that are none become null."""
    if not isinstance(kind, known):
        raise BadParameter(
            f"column {name!r} is {kind.simpleString()}, which is no {wanted}; name another column"
        )
    return _column(name).try_cast(wanted)


def _column(name: str) -> Column:
    """Return the column of just this name, dots and all."""
    return F.col("`" + name.replace("`", "``") + "`")


def _batch(spark: SparkSession, folder: Path, suffix: str) -> DataFrame:
    reader = spark.read.format(FORMATS[suffix]).option("pathGlobFilter", f"*{suffix}")
    if suffix == ".csv":
        reader = reader.option("header", True).option("inferSchema", True)
    return reader.load(escaped(folder))


def escaped(folder: Path) -> str:
    """Return a path that Spark does not take for a pattern."""
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", str(folder))
