"""What all tests share: how hypothesis runs, and one Spark session, made when the first asks."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession
from services import CannotHave, addresses, end, free_port, start_redis

# No deadline, as first calls compile, and the same cases in CI.
settings.register_profile("unskew", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("unskew")

COMPILER = "-XX:TieredStopAtLevel=1"
"""No test runs for so long that code which is compiled better would pay."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield the session; it listens on the loopback address alone and leaves no files."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Workers find the modules of tests by the names that they have here.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    scratch = tmp_path_factory.mktemp("spark")
    made = (
        SparkSession.builder.master("local[2]")
        .appName("unskew tests")
        .config("spark.driver.bindAddress", "127.0.0.1")
        # What `make services` could fetch, for the tests that read Kafka.
        .config("spark.jars", ",".join(addresses().get("jars", ())))
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={scratch} {COMPILER}")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.log.level", "OFF")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    yield made
    made.stop()


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield where a Redis is that the tests have to themselves."""
    if shutil.which("redis-server") is None:
        pytest.skip("there is no redis-server; make services installs it")
    try:
        started = start_redis(tmp_path_factory.mktemp("redis"), free_port())
    except CannotHave as error:
        pytest.skip(f"no Redis: {error}")
    yield started["redis"]
    end(started["pids"]["redis"])


@pytest.fixture(scope="session")
def kafka() -> str:
    """Return where the Kafka is that `make services` has started, if Spark can read it."""
    found = addresses()
    for name, what in (("kafka", "kafka"), ("jars", "connector")):
        if name not in found:
            pytest.skip(f"no {what}: {found['missing'].get(what, 'make services was not run')}")
    return str(found["kafka"])


@pytest.fixture(autouse=True)
def _session_of_the_readme(request: pytest.FixtureRequest) -> None:
    """Start the session before the examples of the README, which ask for the active one."""
    if request.node.path.name == "README.md":
        request.getfixturevalue("spark")
