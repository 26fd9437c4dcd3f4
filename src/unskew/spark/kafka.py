"""Kafka as a source: Spark's own connector, in the version of Spark."""

from __future__ import annotations

import pyspark

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
