"""Files as a stream: every file of a folder is a batch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew.apps.base import Options
from unskew.errors import BadParameter, MissingInput, UnknownColumn

FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".txt": "text"}


@dataclass(frozen=True)
class FileStream:
    """A folder of files of one format.

    Attributes
    ----------
    time : Column
        Event time: a column of the files, or when each was written.
    """

    spark: SparkSession
    folder: Path
    format: str
    time: Column

    def batch(self) -> DataFrame:
        """Return all files at once."""
        reader = self.spark.read.format(self.format)
        if self.format == "csv":
            reader = reader.option("header", True).option("inferSchema", True)
        return reader.load(str(self.folder))

    def stream(self) -> DataFrame:
        """Return the files one after the other."""
        reader = self.spark.readStream.format(self.format).schema(self.batch().schema)
        if self.format == "csv":
            reader = reader.option("header", True)
        return reader.option("maxFilesPerTrigger", 1).load(str(self.folder))


def file_stream(spark: SparkSession, options: Options) -> FileStream:
    """Return the stream of ``files:DIR``, once it is sure that it can be read."""
    kind, _, name = options.source.partition(":")
    if kind != "files" or not name:
        raise BadParameter(
            f"--source must be rate or files:DIR, not {options.source!r}; for example "
            f"files:/data/clicks"
        )
    folder = Path(name)
    if not folder.is_dir():
        raise MissingInput(f"there is no folder {folder}; name one with the files of the stream")
    formats = {FORMATS[path.suffix] for path in folder.iterdir() if path.suffix in FORMATS}
    if len(formats) != 1:
        found = "files of several formats" if formats else "no file that can be read"
        raise BadParameter(
            f"{folder} has {found}; put files of one kind there: {', '.join(FORMATS)}"
        )
    time = F.col(options.time) if options.time else F.col("_metadata.file_modification_time")
    made = FileStream(spark, folder, formats.pop(), time)
    columns = made.batch().columns
    if options.key is None:
        raise BadParameter(f"name the key with --key; {folder} has {', '.join(columns)}")
    for column in (options.key, options.time, options.value):
        if column is not None and column not in columns:
            raise UnknownColumn(f"{folder} has no column {column!r}, only {', '.join(columns)}")
    return made
