"""A Spark session for the apps, that keeps to this machine."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from unskew.errors import UnsupportedSpark


@contextmanager
def spark_session(master: str, scratch: Path) -> Iterator[SparkSession]:
    """Yield a session, and stop it.

    On a local master everything listens on the loopback address alone, and Python workers are this
    Python.

    Parameters
    ----------
    master : str
        As Spark takes it: ``local[4]``, ``local-cluster[3,1,1024]``, ``spark://host:7077``, ...
    scratch : Path
        Folder for Spark's own temporary files.
    """
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise UnsupportedSpark(
            "there is no Java; install version 17 or newer (Debian, Ubuntu: apt-get install "
            "openjdk-17-jre-headless) or set JAVA_HOME"
        )
    builder = (
        SparkSession.builder.master(master)
        .appName("unskew")
        # What goes wrong comes as an exception; the log would say it again, at length.
        .config("spark.log.level", "OFF")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={scratch}")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config(
            "spark.local.dir", str(scratch / "local")
        )
    try:
        spark = builder.getOrCreate()
    except PySparkException as error:
        raise UnsupportedSpark(f"Spark does not start with master {master!r}: {error}") from error
    try:
        yield spark
    finally:
        spark.stop()
