"""Kafka as a source: Spark's own connector, in the version of Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NamedTuple, Self
from urllib.parse import urlsplit

import pyspark
from pyspark.sql import DataFrame, SparkSession

from unskew.errors import BadParameter
from unskew.parameters import whole_number

SCHEME = "kafka"

_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_SERVERS = re.compile(r"((\[[0-9A-Fa-f:.]+\]|[^\s:,@\[\]]+):\d{1,5}(,|$))+(?<!,)")
"""Names that Kafka has for topics."""

_CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"


def kafka_package(version: str | None = None) -> str:
    """Return the package that Spark reads Kafka with, for ``spark.jars.packages``.

    Parameters
    ----------
    version : str, optional
        Of Spark; that of PySpark by default. The connector calls into Spark, and must be of it.

    Examples
    --------
    >>> kafka_package("4.3.0")
    'org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0'
    """
    return f"{_CONNECTOR}:{version or pyspark.__version__}"


class Topic(NamedTuple):
    """A topic of Kafka.

    A query stops where messages are gone that it has not read (``failOnDataLoss``): it would count
    less than there was, and nobody would know. Offsets are Spark's own, in its checkpoint.

    Attributes
    ----------
    servers : str
        To ask first, as ``host:port,host:port``.
    name : str
        Of the topic.

    Examples
    --------
    >>> Topic.of("kafka://localhost:9092/words")
    Topic(servers='localhost:9092', name='words')
    """

    servers: str
    name: str

    @classmethod
    def of(cls, url: str) -> Self:
        """Return the topic that ``kafka://host:port/topic`` names."""
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = urlsplit("")
        name = parts.path.strip("/")
        is_right = _SERVERS.fullmatch(parts.netloc) and _NAME.fullmatch(name)
        if parts.scheme != SCHEME or not is_right or parts.query or parts.fragment:
            raise BadParameter(
                "a topic of Kafka is kafka://host:port/topic, or kafka://host:port,host:port/topic"
            )
        return cls(parts.netloc, name)

    def stream(self, spark: SparkSession, rows: int) -> DataFrame:
        """Return the messages from the first on, with about so many in a batch."""
        whole_number("rows", rows, least=1, most=2**31 - 1)
        source = spark.readStream.format("kafka").options(**self._options())
        source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", rows)
        return source.load()

    def messages(self, spark: SparkSession, until: Mapping[str, int]) -> DataFrame:
        """Return the messages of each partition up to an offset, as a batch."""
        ends = json.dumps({self.name: dict(until)})
        source = spark.read.format("kafka").options(**self._options())
        return source.option("startingOffsets", "earliest").option("endingOffsets", ends).load()

    def _options(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": self.name,
            "failOnDataLoss": "true",
        }
