"""Readings of a machine: what it counts of itself, and what it does not."""

from __future__ import annotations

from collections import namedtuple
from time import process_time
from types import SimpleNamespace
from typing import Any, NoReturn

import psutil
import pytest

from unskew.operators.task_report import TaskReport
from unskew.spark import readings
from unskew.spark.readings import in_use, last_readings, reading


def ended(machine: str, told: dict[str, float], **more: Any) -> TaskReport:
    return TaskReport(0, 0, node={"name": f"{machine}:1", "ended": told, **more})


def test_readings_of_this_machine_grow() -> None:
    first = reading()
    begin = process_time()
    # The system counts in hundredths of a second.
    while process_time() - begin < 0.1:
        sum(range(10_000))
    second = reading()
    assert second["at"] > first["at"]
    assert second["cpu"] >= first["cpu"] + 0.05
    assert all(second[name] >= value for name, value in first.items() if "speed" not in name)
    assert last_readings([ended("a", first), ended("a", second)]) == {"a": second}


def test_cpu_is_in_seconds_of_one_core_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = namedtuple("times", ["user", "system", "idle", "iowait"])
    monkeypatch.setattr(psutil, "cpu_times", lambda: times(30.0, 10.0, 500.0, 60.0))
    for cores in (4, 16):
        monkeypatch.setattr(psutil, "cpu_count", lambda cores=cores: cores)
        assert reading()["cpu"] == 40.0


@pytest.mark.parametrize(
    ("counter", "error", "kind"),
    [
        ("disk_io_counters", NotImplementedError("no diskstats"), "disk"),
        ("disk_io_counters", PermissionError("/proc/diskstats"), "disk"),
        ("net_io_counters", FileNotFoundError("/proc/net/dev"), "network"),
        ("net_if_stats", PermissionError("/sys/class/net"), "network"),
    ],
)
def test_a_counter_that_is_missing_is_left_out(
    counter: str, error: Exception, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(**asked: Any) -> NoReturn:
        raise error

    monkeypatch.setattr(psutil, counter, missing)
    found = reading()
    assert found["cpu"] > 0
    assert not any(kind in name for name in found)


def test_bytes_of_a_card_count_by_the_speed_it_has_whenever_it_tells_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read(at: float, got: int, speed: int) -> dict[str, float]:
        card = SimpleNamespace(bytes_recv=got, bytes_sent=7)
        known = {"eth 0": SimpleNamespace(flags="up", speed=speed)}
        monkeypatch.setattr(psutil, "net_io_counters", lambda pernic: {"eth 0": card})
        monkeypatch.setattr(psutil, "net_if_stats", lambda: known)
        monkeypatch.setattr(readings, "monotonic", lambda: at)
        return reading()

    began = read(5.0, 10**12, speed=0)
    told = ended("a", read(7.0, 10**12 + 125_000_000, speed=1000), began=began)
    # Half of a gigabit a second, for two.
    assert in_use([told], {}, interval=2.0)["a"]["network"] == pytest.approx(0.5)


def test_readings_of_cards_in_seconds_are_still_read() -> None:
    began = {"at": 1.0, "cpu": 1.0, "network e in": 3.0}
    told = ended("a", {"at": 3.0, "cpu": 1.0, "network e in": 3.5}, began=began)
    assert in_use([told], {}, interval=2.0)["a"]["network"] == pytest.approx(0.25)
