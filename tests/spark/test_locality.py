"""Locality on Spark: rows whose next key lives here stay, and all counts are those of a batch."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew.aggregates import collect, count
from unskew.balance import Locality
from unskew.errors import BadParameter
from unskew.spark import BatchReport, MemorySink, Pipeline, Settings, read_state

FILES, ROWS, REGIONS, INSTANCES = 5, 900, 30, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return posts of which all but a tenth have a hashtag of their region; those change once."""
    path = tmp_path_factory.mktemp("locality")
    chance = np.random.default_rng(3)
    for number in range(FILES):
        regions = chance.integers(0, REGIONS, ROWS)
        # From the fourth file on every hashtag is that of another region.
        owners = (regions + (7 if number >= 3 else 0)) % REGIONS
        strange = chance.random(ROWS) < 0.1
        owners[strange] = chance.integers(0, REGIONS, np.count_nonzero(strange))
        which_ones = chance.integers(0, 4, ROWS)
        tags = [f"#{owner}-{which}" for owner, which in zip(owners, which_ones, strict=True)]
        rows = {
            "region": pa.array([f"region {region}" for region in regions]),
            "tag": pa.array([None if tag == "#5-0" else tag for tag in tags]),
            "reach": pa.array(chance.integers(0, 1000, ROWS)),
        }
        pq.write_table(pa.table(rows), path / f"{number}.parquet")
        os.utime(path / f"{number}.parquet", (number + 1, number + 1))
    return path


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.readStream.schema("region string, tag string, reach long")
    return reader.option("maxFilesPerTrigger", 1).parquet(str(folder))


def pipeline(df: DataFrame, **options: Any) -> Pipeline:
    options = {"instances": INSTANCES, "shards": 12, **options}
    return (
        Pipeline(df, **options)
        .aggregate("region", {"posts": count()}, mode="rows")
        .aggregate(
            "tag",
            {
                "n": count(),
                "all": collect(10_000).of(
                    "reach",
                ),
            },
        )
    )


def run(made: Pipeline, checkpoint: Path, **settings: Any) -> tuple[MemorySink, list[BatchReport]]:
    sink, reports = MemorySink(), list[BatchReport]()
    query = made.start(
        sink,
        checkpoint,
        watch=reports.append,
        settings=Settings(plan_beside=False, **settings),
        availableNow=True,
    )
    query.awaitTermination()
    return sink, reports


def expected(folder: Path, files: int) -> dict[str | None, list[int]]:
    """Return the reaches of each hashtag, of the first files."""
    found: dict[str | None, list[int]] = {}
    for number in range(files):
        table = pq.read_table(folder / f"{number}.parquet")
        for tag, reach in zip(table["tag"].to_pylist(), table["reach"].to_pylist(), strict=True):
            found.setdefault(tag, []).append(reach)
    return found


def check_every_batch(folder: Path, versions: dict[int, list[Any]], first: int = 0) -> None:
    for number, version in enumerate(sorted(versions), start=first):
        wanted = expected(folder, number + 1)
        rows = pq.read_table(folder / f"{number}.parquet")["tag"].to_pylist()
        told = {row["tag"]: row for row in versions[version]}
        assert set(told) == set(rows)
        for tag, row in told.items():
            assert row["n"] == len(wanted[tag])
            assert Counter(row["all"]) == Counter(wanted[tag])


def test_keys_that_occur_together_live_together_and_nothing_is_lost(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    locality = Locality(period=1, pays=0)
    sink, reports = run(pipeline(stream(spark, folder), balancer=locality), tmp_path)
    check_every_batch(folder, sink.versions)
    near = [report.locality[0] for report in reports if report.kind == "batch"]
    # By hash at first; by plan from the second on; hashtags go elsewhere with the fourth.
    assert near[0] < 0.5
    assert min(near[1], near[2], near[4]) > 0.85
    assert near[3] < 0.6
    assert sum(map(sum, (report.key_moves for report in reports))) > 2 * REGIONS
    for report in reports[1:3]:
        for loads in report.loads:
            assert loads.max() < 1.2 * loads.mean()
    state = {row["tag"]: row["state_n"] for row in read_state(spark, tmp_path, stage=1).collect()}
    assert {tag: len(all_) for tag, all_ in expected(folder, FILES).items()} == state


def test_a_restart_goes_on_with_what_was_counted(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    found: dict[int, list[Any]] = {}
    near: list[float] = []
    for number in range(FILES):
        shutil.copy2(folder / f"{number}.parquet", source)
        # A plan every second batch: what the first of the two showed must be remembered.
        made = pipeline(stream(spark, source), balancer=Locality(period=2, pays=0))
        sink, reports = run(made, tmp_path / "checkpoint")
        found |= sink.versions
        near += [report.locality[0] for report in reports if report.kind == "batch"]
    check_every_batch(folder, found)
    assert max(near[:2]) < 0.5
    assert near[2] > 0.85


def test_plans_may_be_thought_of_beside_the_batches(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    sink = MemorySink()
    made = pipeline(stream(spark, folder), balancer=Locality(period=1, pays=0))
    made.start(sink, tmp_path, availableNow=True).awaitTermination()
    check_every_batch(folder, sink.versions)


def test_other_balancers_keep_near_what_happens_to_be(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    sink, reports = run(pipeline(stream(spark, folder), balancer="static"), tmp_path)
    check_every_batch(folder, sink.versions)
    assert all(0.1 < report.locality[0] < 0.6 for report in reports if report.kind == "batch")


def test_rows_come_out_with_what_is_known_of_their_key(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    sink = MemorySink()
    made = Pipeline(stream(spark, folder), instances=2).aggregate(
        "region", {"posts": count()}, mode="rows"
    )
    made.start(sink, tmp_path, availableNow=True).awaitTermination()
    seen: Counter[str] = Counter()
    for number, version in enumerate(sorted(sink.versions)):
        table = pq.read_table(folder / f"{number}.parquet")
        seen.update(table["region"].to_pylist())
        rows = [tuple(row.values()) for row in table.to_pylist()]
        wanted = Counter((*row, seen[row[0]]) for row in rows)
        assert Counter(map(tuple, sink.versions[version])) == wanted


def test_a_key_that_has_to_be_computed_takes_no_hop(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    made = (
        Pipeline(stream(spark, folder), instances=2, balancer="static")
        .aggregate("region", {"posts": count()}, mode="rows")
        .aggregate(F.upper("tag").alias("tag"), {"n": count()})
    )
    sink, reports = run(made, tmp_path)
    assert {report.locality[0] for report in reports} == {0.0}
    last = {row["tag"]: row["n"] for row in sink.rows()}
    assert last == {tag: len(all_) for tag, all_ in expected(folder, FILES).items()}


def test_windows_do_not_let_rows_through(spark: SparkSession, folder: Path) -> None:
    df = stream(spark, folder).withColumn("time", F.current_timestamp())
    with pytest.raises(BadParameter, match="has no window"):
        Pipeline(df).aggregate(
            "region", {"n": count()}, mode="rows", window=F.window("time", "1 hour")
        )
