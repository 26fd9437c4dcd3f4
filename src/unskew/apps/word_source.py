"""Where words come from: a text that comes along, files, Kafka, or generated ones."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from importlib.resources import files
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew.apps.base import Options
from unskew.apps.files import escaped, folder_of
from unskew.apps.generated import first_numbers, numbers, rows_of
from unskew.errors import BadParameter, MissingInput
from unskew.spark.kafka import SCHEME, Topic
from unskew.workloads import Zipf

TEXT = "text"
"""Names the text that comes along."""

EXPONENT, VOCABULARY = 1.4, 100_000
"""Of generated words: a third of all are one word."""

_LONGEST = 2**40


class WordSource(ABC):
    """A stream of words, and the same words as a batch, to check.

    Attributes
    ----------
    is_endless : bool
        Whether there are always more.
    """

    is_endless: ClassVar[bool] = False

    @abstractmethod
    def stream(self) -> DataFrame:
        """Return the words one after the other, in the column ``word``."""

    @abstractmethod
    def so_far(self, batches: int) -> DataFrame:
        """Return the words that so many batches have had."""


def word_source(spark: SparkSession, options: Options) -> WordSource:
    """Return the source that a run was asked for."""
    if options.source == "rate":
        return _Generated(spark, options)
    if options.source.startswith(f"{SCHEME}:"):
        return _Messages(spark, options)
    return _Lines(spark, text_folder(options.source))


def text_folder(source: str) -> Path:
    """Return the folder of text files that a source names."""
    if source == TEXT:
        return Path(str(files("unskew.apps") / "texts"))
    folder = folder_of(source)
    if not folder.is_dir():
        raise MissingInput(f"there is no folder {folder}; name one with the files of the stream")
    if not any(folder.glob("*.txt")):
        raise BadParameter(f"{folder} has no file that ends in .txt; put the texts there")
    return folder


def words_of(lines: DataFrame) -> DataFrame:
    """Return the words of the column ``value``: letters and digits, in small letters."""
    found = F.explode(F.split(F.lower("value"), r"[^\p{L}\p{N}']+"))
    return lines.select(found.alias("word")).where("word != ''")


class _Lines(WordSource):
    """Files of text, one a batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, escaped(folder)

    def stream(self) -> DataFrame:
        reader = self._spark.readStream.option("maxFilesPerTrigger", 1)
        return words_of(reader.option("pathGlobFilter", "*.txt").text(self._folder))

    def so_far(self, batches: int) -> DataFrame:
        del batches
        return words_of(self._spark.read.option("pathGlobFilter", "*.txt").text(self._folder))


class _Messages(WordSource):
    """The messages of a topic, each a text."""

    def __init__(self, spark: SparkSession, options: Options) -> None:
        self._spark, self._rows = spark, options.rows
        self._topic = Topic.of(options.source)
        self._offsets = options.out / "checkpoint" / "spark" / "offsets"

    def stream(self) -> DataFrame:
        messages = self._topic.stream(self._spark, self._rows)
        return words_of(messages.select(F.col("value").cast("string")))

    def so_far(self, batches: int) -> DataFrame:
        # Spark's own note of how far a batch goes: a line for itself, then one for the source.
        note = (self._offsets / str(batches - 1)).read_text().splitlines()
        until = json.loads(note[2])[self._topic.name]
        messages = self._topic.messages(self._spark, until)
        return words_of(messages.select(F.col("value").cast("string")))


class _Generated(WordSource):
    """Words by the law of Zipf, as functions of their number."""

    is_endless = True

    def __init__(self, spark: SparkSession, options: Options) -> None:
        self._spark, self._rows = spark, options.rows
        self._words = Zipf(EXPONENT, VOCABULARY, _LONGEST, seed=options.seed)

    def stream(self) -> DataFrame:
        return self.of(numbers(self._spark, self._rows))

    def so_far(self, batches: int) -> DataFrame:
        return self.of(first_numbers(self._spark, batches * self._rows))

    def of(self, tuples: DataFrame) -> DataFrame:
        drawn = self._words

        def make(number: NDArray[np.int64]) -> pa.StructArray:
            texts = pa.array([], pa.string())
            if number.size:
                first = int(number.min())
                ranks = drawn.ranks(first, int(number.max()) + 1)[number - first]
                texts = pa.array(np.char.add("word", ranks.astype(str)), pa.string())
            return pa.StructArray.from_arrays([texts], ["word"])

        return tuples.select(rows_of(make, "word string").alias("made")).select("made.*")
