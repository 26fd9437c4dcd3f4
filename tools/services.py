"""Start and stop a Redis and a Kafka on this machine, for development and tests.

Run as a script: ``services.py start`` and ``services.py stop``, or ``make services`` and
``make services-stop``. All that is fetched, and all data, is in build/services; the addresses are
in build/services/services.json, with the reason for what could not be had. They listen on free
ports of the loopback address alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

FOLDER = Path(__file__).parents[1] / "build" / "services"
ADDRESSES = FOLDER / "services.json"
DATA = FOLDER / "data"

KAFKA = "org.apache.kafka:kafka_2.13:4.0.0"

CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0,"
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1,"
    "org.apache.kafka:kafka-clients:3.9.1,"
    "org.apache.commons:commons-pool2:2.12.0"
)
"""What Spark 4.3 reads Kafka with where Maven has none of its own version: the newest it has."""

SECONDS = 60
"""How long a service may take to listen."""


_started: dict[int, subprocess.Popen[bytes]] = {}
"""Processes of this one, which has to wait for their end."""


class CannotHave(Exception):
    """A service could not be fetched or started."""


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["start", "stop"])
    parser.add_argument(
        "--connector",
        metavar="GROUP:NAME:VERSION,...",
        help="other artifacts for Spark to read Kafka with than those of its own version",
    )
    given = parser.parse_args()
    if given.action == "stop":
        stop()
        return
    found = start(given.connector)
    for name in ("redis", "kafka"):
        if name in found:
            print(f"{name}: {found[name]}")
    if "jars" in found:
        print(f"connector: {', '.join(found['artifacts'])}, for --jars {','.join(found['jars'])}")
    for name, reason in found["missing"].items():
        print(f"services: no {name}: {reason}", file=sys.stderr)


def addresses() -> dict[str, Any]:
    """Return what was started, and why others were not; nothing if `start` has not run."""
    if not ADDRESSES.exists():
        return {"missing": {}, "pids": {}}
    found: dict[str, Any] = json.loads(ADDRESSES.read_text())
    return found


def start(connector: str | None = None) -> dict[str, Any]:
    """Start what can be had, unless it is running; return where it is."""
    found = addresses()
    steps: dict[str, Callable[[], dict[str, Any]]] = {
        "connector": lambda: fetch_connector(connector)
    }
    if found["pids"].keys() < {"redis", "kafka"} or not all(
        map(_is_running, found["pids"].values())
    ):
        stop()
        DATA.mkdir(parents=True)
        found = {"missing": {}, "pids": {}}
        steps = {
            "redis": lambda: start_redis(DATA / "redis", free_port()),
            "kafka": lambda: start_kafka(DATA / "kafka"),
            **steps,
        }
    for name in ("jars", "artifacts"):
        found.pop(name, None)
    found["missing"].pop("connector", None)
    for name, step in steps.items():
        try:
            told = step()
            found["pids"].update(told.pop("pids", {}))
            found.update(told)
        except CannotHave as error:
            found["missing"][name] = str(error)
        # What is running can be stopped, whatever comes next.
        ADDRESSES.write_text(json.dumps(found, indent=1))
    return found


def stop() -> None:
    """Stop what `start` has started, and remove its data; what was fetched stays."""
    for pid in addresses()["pids"].values():
        end(pid)
    ADDRESSES.unlink(missing_ok=True)
    shutil.rmtree(DATA, ignore_errors=True)


def start_redis(folder: Path, port: int, *options: str) -> dict[str, Any]:
    """Start a Redis that keeps what it has acknowledged in a folder, with more options."""
    if shutil.which("redis-server") is None:
        _install("redis-server")
    folder.mkdir(parents=True, exist_ok=True)
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    command += ["--appendonly", "yes", "--save", "", *options]
    process = _launch(command, folder / "log")
    _wait(process, port, folder / "log")
    return {"redis": f"redis://127.0.0.1:{port}/0", "pids": {"redis": process.pid}}


def start_kafka(folder: Path) -> dict[str, Any]:
    """Start a Kafka of one node, which is its own controller."""
    if shutil.which("java") is None:
        raise CannotHave("there is no java; install version 17 or newer")
    jars = _fetch([KAFKA], FOLDER / KAFKA.replace(":", "-"), alone=False)
    folder.mkdir(parents=True, exist_ok=True)
    port, control = free_port(), free_port()
    settings = folder / "server.properties"
    settings.write_text(
        "process.roles=broker,controller\n"
        "node.id=1\n"
        f"controller.quorum.voters=1@127.0.0.1:{control}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}\n"
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n"
        "controller.listener.names=CONTROLLER\n"
        f"log.dirs={folder / 'logs'}\n"
        # A topic begins with its first message.
        "num.partitions=3\n"
        "offsets.topic.replication.factor=1\n"
        "transaction.state.log.replication.factor=1\n"
        "transaction.state.log.min.isr=1\n"
        "share.coordinator.state.topic.replication.factor=1\n"
        "share.coordinator.state.topic.min.isr=1\n"
    )
    java = ["java", "-Xmx512m", "-cp", os.pathsep.join(map(str, jars))]
    _run(
        [*java, "kafka.tools.StorageTool", "format", "-t", _cluster(), "-c", str(settings)],
        "Kafka's log directory cannot be formatted",
    )
    process = _launch([*java, "kafka.Kafka", str(settings)], folder / "log")
    _wait(process, port, folder / "log")
    return {"kafka": f"127.0.0.1:{port}", "pids": {"kafka": process.pid}}


def fetch_connector(given: str | None) -> dict[str, Any]:
    """Fetch what Spark reads Kafka with, in Spark's own version unless others are named.

    Where Maven has none of that version, an earlier one is taken.
    """
    from unskew.spark.kafka import kafka_package

    if given:
        return _connector(given, alone=True)
    try:
        return _connector(kafka_package(), alone=False)
    except CannotHave as error:
        print(f"services: {error}; taking an earlier one", file=sys.stderr)
        return _connector(CONNECTOR, alone=True)


def _connector(given: str, *, alone: bool) -> dict[str, Any]:
    artifacts = given.split(",")
    name = "connector-" + "-".join(each.rpartition(":")[2] for each in artifacts)
    jars = _fetch(artifacts, FOLDER / name, alone=alone)
    # Spark has these itself.
    own = ("hadoop", "jsr305", "lz4", "scala", "slf4j", "snappy", "zstd")
    needed = [str(jar) for jar in jars if not jar.name.startswith(own)]
    return {"jars": needed, "artifacts": artifacts}


def free_port() -> int:
    """Return a port of the loopback address that nobody listens on."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
    return port


def end(pid: int) -> None:
    """End a process that was started here, by force if it takes too long."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if _is_running(pid):
            os.kill(pid, number)
        deadline = time.monotonic() + 10
        while _is_running(pid) and time.monotonic() < deadline:
            time.sleep(0.05)


def _is_running(pid: int) -> bool:
    """Return whether a process is one of ours and has not ended."""
    if pid in _started and _started[pid].poll() is not None:
        return False
    try:
        told = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"redis-server" in told or b"kafka.Kafka" in told


def _fetch(artifacts: Sequence[str], folder: Path, *, alone: bool) -> list[Path]:
    """Return the jars of artifacts, with all that they need unless they are wanted alone."""
    if not folder.exists():
        if shutil.which("mvn") is None:
            _install("maven")
        hidden = folder.with_name(f".{folder.name}-{uuid4().hex[:8]}")
        hidden.mkdir(parents=True)
        try:
            (hidden / "pom.xml").write_text(_pom(artifacts, alone=alone))
            goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
            into = f"-DoutputDirectory={hidden}"
            _run(
                ["mvn", "-q", "-B", "-U", "-f", str(hidden / "pom.xml"), *goal, into],
                f"Maven cannot fetch {', '.join(artifacts)}",
            )
            hidden.rename(folder)
        finally:
            shutil.rmtree(hidden, ignore_errors=True)
    return sorted(folder.glob("*.jar"))


def _pom(artifacts: Sequence[str], *, alone: bool) -> str:
    exclusion = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    without = f"<exclusions>{exclusion}</exclusions>" if alone else ""
    wanted = []
    for artifact in artifacts:
        group, name, version = artifact.split(":")
        wanted.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
            f"<version>{version}</version>{without}</dependency>"
        )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>unskew</groupId>"
        "<artifactId>services</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{''.join(wanted)}</dependencies></project>\n"
    )


def _install(package: str) -> None:
    """Install a package of Debian, without the service that may come with it."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise CannotHave(f"{package} is not installed (Debian, Ubuntu: apt-get install {package})")
    print(f"services: installing {package}", flush=True)
    quietly = {**os.environ, "RUNLEVEL": "1", "DEBIAN_FRONTEND": "noninteractive"}
    why = f"{package} cannot be installed"
    _run(["apt-get", "update", "-qq"], why, quietly)
    _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", package], why, quietly)


def _run(command: Sequence[str], why: str, env: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotHave(f"{why}: {error}") from error
    if done.returncode:
        lines = (done.stdout + done.stderr).splitlines()
        told = [line for line in lines if "ERROR" in line or line.startswith("E:")] or lines[-1:]
        raise CannotHave(f"{why}: {told[0] if told else f'it ended with {done.returncode}'}")


def _launch(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
    _started[process.pid] = process
    return process


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until a service listens."""
    deadline = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    process.kill()
    last = log.read_text(errors="replace").splitlines()[-1:]
    raise CannotHave(f"nothing listens on port {port}: {''.join(last)}")


def _cluster() -> str:
    """Return a cluster id: 22 letters of base64, as Kafka wants it."""
    return uuid4().hex[:22]


if __name__ == "__main__":
    main()
