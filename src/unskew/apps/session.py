"""A Spark session for the apps, that keeps to this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from unskew.errors import FailedRun, UnsupportedSpark

JAVA = 17
"""The oldest Java that Spark 4 runs on."""


@contextmanager
def spark_session(
    master: str, scratch: Path, settings: Mapping[str, str] = MappingProxyType({})
) -> Iterator[SparkSession]:
    """Yield a session, and stop it.

    On a local master everything listens on the loopback address alone, and Python workers are this
    Python. Where there may be several executors, instances of pipelines stay on theirs.

    Parameters
    ----------
    master : str
        As Spark takes it: ``local[4]``, ``local-cluster[3,1,1024]``, ``spark://host:7077``, ...
    scratch : Path
        Folder for Spark's own temporary files.
    settings : mapping of str to str, default none
        More of Spark's.
    """
    _check_java()
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
    for name, value in settings.items():
        builder = builder.config(name, value)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config(
            "spark.local.dir", str(scratch / "local")
        )
    if not re.match(r"local($|\[)", master):
        builder = builder.config("spark.locality.wait", "30s").config(
            "spark.shuffle.reduceLocality.enabled", "false"
        )
    try:
        spark = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise UnsupportedSpark(
            f"Spark does not start with master {master!r}: {_reason(error)}; local[*] runs on this "
            f"machine"
        ) from error
    try:
        yield spark
    except (PySparkException, Py4JError) as error:
        raise FailedRun(
            f"Spark stopped the job: {_reason(error)}; what was done is kept in --out, and the "
            f"same command goes on from there"
        ) from error
    finally:
        spark.stop()


def _reason(error: Exception) -> str:
    """Return the line of an error that says most: Spark's are pages long."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if re.match(r"(Caused by: )?[\w.]+(Error|Exception):", line)]
    # The last cause is the first thing that went wrong.
    return (causes or lines or [type(error).__name__])[-1 if causes else 0]


def _check_java() -> None:
    """Refuse a machine without a Java that Spark runs on, before Spark fails at length."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    wanted = (
        f"install version {JAVA} or newer (Debian, Ubuntu: apt-get install "
        f"openjdk-{JAVA}-jre-headless) or set JAVA_HOME to one"
    )
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on the path"
        raise UnsupportedSpark(f"there is no Java {where}; {wanted}")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    if found and int(found[1]) < JAVA:
        raise UnsupportedSpark(f"{java} is Java {found[1]}, too old for Spark; {wanted}")
