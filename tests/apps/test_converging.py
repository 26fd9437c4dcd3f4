"""How even instances were used, and after how many batches: what `bayes` tells of a run."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.sql.types import StructType

from unskew.apps.converging import convergence, spread_of
from unskew.balance import Static
from unskew.operators.interval_join import IntervalJoin
from unskew.operators.task_report import TaskReport
from unskew.spark import BatchReport, Speeds
from unskew.spark.batch_report import batch_report
from unskew.spark.stages import Stage
from unskew.state import Manifest
from unskew.state.versions import version_of

NODE = {"name": "here", "cpu": 0.5, "memory": 0.25}


def reported(number: int, *stages: Sequence[float]) -> BatchReport:
    """Return the report of a batch in which the instances of stages were busy for so long."""
    tasks = [
        TaskReport(stage, instance, rows={}, keys={}, busy=busy, node=NODE, seconds=9.0)
        for stage, times in enumerate(stages)
        for instance, busy in enumerate(times)
    ]
    facts = {
        "seconds": 9.0,
        "tasks": [task.to_json() for task in tasks],
        "merges": [],
        "moves": [0] * len(stages),
    }
    specs = [
        Stage(f"stage {place}", IntervalJoin(0, 0), [], StructType(), len(times), 8, Static())
        for place, times in enumerate(stages)
    ]
    manifest = Manifest(version_of(number), [{} for _ in stages], facts=facts)
    return batch_report(manifest, specs, 9.0, 0.0)


def test_the_spread_is_in_parts_of_the_busiest_instance_of_the_first_stage() -> None:
    assert spread_of(reported(0, [2.0, 1.0, 4.0])) == pytest.approx(0.75)
    assert spread_of(reported(0, [3.0, 3.0], [1.0, 9.0])) == 0.0
    assert spread_of(reported(0, [0.0, 0.0])) == 0.0


EVEN, UNEVEN = [4.0, 3.6], [4.0, 1.0]

CASES: dict[str, tuple[str, Speeds | None, list[int | None]]] = {
    # batches that are even (e) and not (u), from number 3 on; speeds; batches that it took
    "no batches": ("", None, []),
    "even from the first batch on": ("ee", None, [0]),
    "even after two batches": ("uuee", None, [2]),
    "never even": ("uuu", None, [None]),
    "speeds that do not change": ("uue", Speeds((1, 0.3)), [2]),
    "again after a change": ("ueuue", Speeds((1, 0.3), {5: (0.3, 1)}), [1, 2]),
    "not after a change": ("ueuuu", Speeds((1, 0.3), {5: (0.3, 1)}), [1, None]),
    "after a change what was before does not count": (
        "uueee",
        Speeds((1, 0.3), {5: (0.3, 1)}),
        [None, 0],
    ),
    "changes before the run and after it do not count": (
        "ue",
        Speeds((1, 0.3), {3: (1, 1), 2: (0.5, 1), 5: (0.3, 1)}),
        [1],
    ),
    "two changes": ("eueue", Speeds((1, 0.3), {4: (0.3, 1), 6: (1, 0.3)}), [0, 1, 1]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_convergence_is_told_from_the_first_batch_and_from_each_change(
    case: tuple[str, Speeds | None, list[int | None]],
) -> None:
    batches, speeds, wanted = case
    reports = [
        reported(number, EVEN if each == "e" else UNEVEN)
        for number, each in enumerate(batches, start=3)
    ]
    assert convergence(reports, speeds) == wanted


def test_a_batch_that_is_even_enough_is_for_the_caller_to_say() -> None:
    reports = [reported(0, [4.0, 2.0]), reported(1, [4.0, 3.0])]
    assert convergence(reports, None, even=0.6) == [0]
    assert convergence(reports, None, even=0.3) == [1]
    # A spread of as much is not below it.
    assert convergence(reports, None, even=0.25) == [None]
