"""A stage that feeds several others, and steps between stages: what plain Spark gives."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from spark.balancers import Restless, Wandering

from unskew.aggregates import collect, count
from unskew.balance import Locality
from unskew.errors import BadParameter, WrongCheckpoint
from unskew.operators.parting import MOST_FOLLOWERS
from unskew.spark import BatchReport, MemorySink, Output, Pipeline, Settings, read_state
from unskew.spark.stages import delay_before
from unskew.state import Checkpoint
from unskew.state.resharding import reshard
from unskew.state.versions import INITIAL, Kind, version_of

FILES, ROWS = 4, 600
SCHEMA = "region string, tag string, device long, reach long, time timestamp"
BALANCERS = [Locality(period=1, pays=0), Restless(), Wandering()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return posts whose tags and devices are mostly those of their region; one region is hot."""
    path = tmp_path_factory.mktemp("branches")
    chance = np.random.default_rng(5)
    for number in range(FILES):
        regions = chance.integers(0, 20, ROWS)
        regions[chance.random(ROWS) < 0.3] = 0
        owners = np.where(chance.random(ROWS) < 0.9, regions, chance.integers(0, 20, ROWS))
        rows = {
            "region": pa.array([f"region {region}" for region in regions]),
            "tag": pa.array([None if owner == 7 else f"#{owner}" for owner in owners]),
            "device": pa.array(owners * 3 + chance.integers(0, 3, ROWS)),
            "reach": pa.array(chance.integers(0, 1000, ROWS)),
            "time": pa.array(
                (number * ROWS + np.arange(ROWS)) * 10_000_000, pa.timestamp("us", "UTC")
            ),
        }
        pq.write_table(pa.table(rows), path / f"{number}.parquet")
        os.utime(path / f"{number}.parquet", (number + 1, number + 1))
    return path


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder))


def branched(df: DataFrame, **options: Any) -> Pipeline:
    """Return posts by region, and of these by tag and by device, and by tag once more."""
    options = {"instances": 3, "shards": 12, **options}
    return (
        Pipeline(df, **options)
        .aggregate("region", {"posts": count()}, mode="rows", name="regions")
        .aggregate("tag", {"n": count(), "all": collect(9999).of("reach")}, name="tags")
        .aggregate("device", {"n": count()}, mode="rows", name="devices", after="regions")
        .count("tag", name="tags of devices", after="devices")
    )


def finish(made: Pipeline, sinks: Any, checkpoint: Path, **options: Any) -> list[BatchReport]:
    reports: list[BatchReport] = []
    settings = Settings(plan_beside=False)
    query = made.start(
        sinks, checkpoint, watch=reports.append, settings=settings, availableNow=True, **options
    )
    query.awaitTermination()
    return [report for report in reports if report.kind == "batch"]


def by_tag(folder: Path, files: int) -> dict[str | None, list[int]]:
    found: dict[str | None, list[int]] = {}
    for number in range(files):
        table = pq.read_table(folder / f"{number}.parquet")
        for tag, reach in zip(table["tag"].to_pylist(), table["reach"].to_pylist(), strict=True):
            found.setdefault(tag, []).append(reach)
    return found


def check(folder: Path, tags: dict[int, list[Any]], counts: dict[int, list[Any]]) -> None:
    """Compare every version of both ends with what all rows up to it say."""
    assert sorted(tags) == sorted(counts) == [version_of(batch) for batch in range(FILES)]
    for number, version in enumerate(sorted(tags)):
        wanted = by_tag(folder, number + 1)
        table = pq.read_table(folder / f"{number}.parquet")
        changed = set(table["tag"].to_pylist())
        assert {row["tag"]: Counter(row["all"]) for row in tags[version]} == {
            tag: Counter(wanted[tag]) for tag in changed
        }
        assert {row["tag"]: row["n"] for row in tags[version]} == {
            tag: len(wanted[tag]) for tag in changed
        }
        assert Counter({row["tag"]: row["count"] for row in counts[version]}) == Counter(
            {tag: len(wanted[tag]) for tag in changed}
        )
        assert len(counts[version]) == len(changed)


@pytest.mark.parametrize("balancer", BALANCERS, ids=lambda each: getattr(each, "name", each))
def test_both_ends_get_what_a_batch_gives_whatever_moves(
    spark: SparkSession, folder: Path, tmp_path: Path, balancer: Any
) -> None:
    sinks = {"tags": MemorySink(), "tags of devices": MemorySink()}
    reports = finish(branched(stream(spark, folder), balancer=balancer), sinks, tmp_path)
    check(folder, sinks["tags"].versions, sinks["tags of devices"].versions)
    assert all(len(report.locality) == 3 for report in reports)
    # Devices are counted in rows, whose keys are whole: no hop is taken to them.
    assert {report.locality[1] for report in reports} == {0.0}
    assert all(report.locality[0] > 0.1 for report in reports)
    assert all(report.rows == ROWS and len(report.bytes_shuffled) == 4 for report in reports)
    assert [report.rows_out for report in reports] == [
        sum(len(sink.versions[version_of(batch)]) for sink in sinks.values())
        for batch in range(FILES)
    ]
    if isinstance(balancer, Locality):
        assert all(report.locality[0] > 0.8 for report in reports[1:])
        pairs = reports[-1].reports[0].pairs
        assert set(pairs) == {1}
        assert pairs[1].counts.sum() == ROWS
    total = {tag: len(all_) for tag, all_ in by_tag(folder, FILES).items()}
    for stage, name in ((1, "state_n"), (3, "state_count")):
        kept: Counter[str | None] = Counter()
        for row in read_state(spark, tmp_path, stage=stage).collect():
            kept[row["tag"]] += row[name]
        assert kept == total


def test_two_hops_of_one_stage_are_planned_over_one_graph(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    made = (
        Pipeline(stream(spark, folder), instances=3, shards=12, balancer=Locality(period=1, pays=0))
        .aggregate("region", {"posts": count()}, mode="rows", name="regions")
        .count("tag", name="tags")
        .count("device", name="devices", after="regions")
    )
    sinks = {"tags": MemorySink(), "devices": MemorySink()}
    reports = finish(made, sinks, tmp_path)
    assert set(reports[-1].reports[0].pairs) == {1, 2}
    # By hash at first, then both live where their region does.
    assert max(reports[0].locality) < 0.6
    assert all(min(report.locality) > 0.8 for report in reports[1:])
    for name in ("tag", "device"):
        wanted = spark.read.schema(SCHEMA).parquet(str(folder)).groupBy(name).count().collect()
        told = {row[name]: row["count"] for row in sinks[f"{name}s"].rows()}
        assert told == dict(map(tuple, wanted))


def test_a_sink_that_fails_after_the_other_has_it_gets_the_same_rows_again(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    tags = MemorySink()
    given: list[tuple[int, list[Any]]] = []
    fails = True

    def other(rows: DataFrame, version: int) -> None:
        if fails and version == version_of(2):
            raise RuntimeError("the disk is full")
        given.append((version, rows.collect()))

    made = branched(stream(spark, folder), balancer=Wandering())
    with pytest.raises(StreamingQueryException, match="the disk is full"):
        finish(made, {"tags": tags, "tags of devices": other}, tmp_path)
    assert version_of(2) in tags.versions
    assert not Checkpoint(tmp_path / "unskew").is_done(version_of(2))
    before = tags.versions[version_of(2)]
    fails = False
    finish(made, {"tags": tags, "tags of devices": other}, tmp_path)
    assert Counter(map(str, tags.versions[version_of(2)])) == Counter(map(str, before))
    assert [version for version, _ in given] == [version_of(batch) for batch in range(FILES)]
    check(folder, tags.versions, dict(given))


def test_a_branched_checkpoint_can_be_given_other_shards(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    sinks = {"tags": MemorySink(), "tags of devices": MemorySink()}
    for number in range(FILES):
        path = source / f"{number}.parquet"
        path.write_bytes((folder / f"{number}.parquet").read_bytes())
        os.utime(path, (number + 1, number + 1))
        if number == 2:
            reshard(tmp_path / "checkpoint", 24, tmp_path / "state")
        state = tmp_path / "state" if number >= 2 else None
        shards = 24 if number >= 2 else 12
        made = branched(stream(spark, source), balancer="static", shards=shards)
        finish(made, sinks, tmp_path / "checkpoint", state=state)
    check(folder, sinks["tags"].versions, sinks["tags of devices"].versions)


def test_only_stages_of_its_own_path_delay_a_stage() -> None:
    # 0 feeds 1 and 3, 1 feeds 2.
    after, delays = (None, 0, 1, 0), (5, 7, 0, 11)
    stages: Any = [
        SimpleNamespace(after=before, operator=SimpleNamespace(delay=delay))
        for before, delay in zip(after, delays, strict=True)
    ]
    assert [delay_before(stages, number) for number in range(4)] == [0, 5, 12, 5]


class Noting(MemorySink):
    """Notes which version is said to come before each."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[int, int] = {}

    def write(self, output: Output, version: int) -> None:
        """Keep the rows, and the version before."""
        super().write(output, version)
        self.before[version] = output.before


def test_windows_of_two_branches_are_those_of_plain_spark(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    df = stream(spark, folder).withWatermark("time", "10 minutes")
    made = (
        Pipeline(df, instances=2, balancer="static")
        .aggregate("region", {"posts": count()}, mode="rows", name="regions")
        .count("region", window=F.window("time", "1 hour"), mode="append", name="hours")
        .count("tag", window=F.window("time", "20 minutes"), mode="append", after="regions")
    )
    sinks = {"hours": Noting(), "aggregate 2": Noting()}
    query = made.start(sinks, tmp_path, availableNow=True)
    query.awaitTermination()
    query.flush()
    versions = sorted(sinks["hours"].before)
    assert versions[-3:] == [version_of(FILES - 1, kind) for kind in Kind]
    for sink in sinks.values():
        assert sink.before == dict(zip(versions, [INITIAL, *versions], strict=False))
    plain = spark.read.schema(SCHEMA).parquet(str(folder))
    for name, key, length in (("hours", "region", "1 hour"), ("aggregate 2", "tag", "20 minutes")):
        wanted = plain.groupBy(F.window("time", length), key).count().collect()
        got = [(row["window"]["start"], row[key], row["count"]) for row in sinks[name].rows()]
        assert Counter(got) == Counter((row[0]["start"], row[1], row[2]) for row in wanted)


def test_what_does_not_fit_is_told_at_the_call(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    df = stream(spark, folder)
    made = branched(df)
    sink = MemorySink()
    with pytest.raises(BadParameter, match="ends in 2 stages, 'tags', 'tags of devices'"):
        made.start(sink, tmp_path)
    with pytest.raises(BadParameter, match="those given are for 'tags'"):
        made.start({"tags": sink}, tmp_path)
    with pytest.raises(BadParameter, match=r"those given are for .*'regions'"):
        made.start({"tags": "a", "tags of devices": "b", "regions": "c"}, tmp_path)
    with pytest.raises(BadParameter, match="cannot share the sink"):
        made.start({"tags": tmp_path / "a", "tags of devices": f"{tmp_path}/./a"}, tmp_path)
    with pytest.raises(BadParameter, match="cannot share the sink"):
        made.start({"tags": sink, "tags of devices": sink}, tmp_path)
    with pytest.raises(BadParameter, match="after='tag' is no stage; there are 'regions', "):
        made.count("device", after="tag")
    crowded = Pipeline(df).count("region", name="regions")
    for _ in range(MOST_FOLLOWERS):
        crowded = crowded.count("region", after="regions")
    with pytest.raises(BadParameter, match="'regions' feeds 62 stages already"):
        crowded.count("region", after="regions")
    with pytest.raises(BadParameter, match="let Spark do it"):
        Pipeline(df).apply(doubled, output="tag string")
    with pytest.raises(BadParameter, match="feeds 'tags' already"):
        made.apply(doubled, output="tag string", after="regions")


def test_stages_that_are_fed_by_others_are_another_checkpoint(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    start = Pipeline(stream(spark, folder), instances=2).aggregate(
        "region", {"posts": count()}, mode="rows", name="regions"
    )
    second = start.aggregate("tag", {"n": count()}, mode="rows", name="tags")
    finish(second.count("device", name="devices"), MemorySink(), tmp_path)
    with pytest.raises(WrongCheckpoint, match="'devices' has after 'regions'"):
        second.count("device", name="devices", after="regions").start(
            {"tags": MemorySink(), "devices": MemorySink()}, tmp_path
        )


def as_format_1(folder: Path) -> None:
    """Write the documents of a chain anew, as unskew did before a stage could feed several."""
    for path in [folder / "pipeline.json", *folder.glob("*/*.json")]:
        first, _, text = path.read_bytes().partition(b"\n")
        # A done marker is empty; others may have been rewritten before.
        if not text or json.loads(first)["format"] == 1:
            continue
        head, body = json.loads(first), json.loads(text)
        for stage in body.get("stages", ()) if head["unskew"] == "pipeline" else ():
            del stage["after"]
        if head["unskew"] == "manifest":
            del body["ends"]
            facts = body["facts"]
            facts["pairs"] = ["".join(each.values()) for each in facts["pairs"]]
            for task in facts["tasks"]:
                del task["came_out"]
                task["near"] = sum(task["near"].values())
                task["entries"] = [name for names in task["entries"].values() for name in names]
        text = json.dumps(body).encode()
        head |= {"format": 1, "checksum": crc32(text)}
        path.write_bytes(json.dumps(head).encode() + b"\n" + text)


def test_a_checkpoint_of_before_goes_on(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    sink = MemorySink()
    near: list[float] = []
    for number in range(FILES):
        path = source / f"{number}.parquet"
        path.write_bytes((folder / f"{number}.parquet").read_bytes())
        os.utime(path, (number + 1, number + 1))
        # What the last batch before has counted is what the plan is made of.
        made = (
            Pipeline(stream(spark, source), instances=3, balancer=Locality(period=1, pays=0))
            .aggregate("region", {"posts": count()}, mode="rows")
            .count("tag")
        )
        near += [report.locality[0] for report in finish(made, sink, tmp_path / "checkpoint")]
        as_format_1(tmp_path / "checkpoint" / "unskew")
    assert near[0] < 0.6
    assert min(near[1:]) > 0.8
    assert {row["tag"]: row["count"] for row in sink.rows()} == {
        tag: len(all_) for tag, all_ in by_tag(folder, FILES).items()
    }


def doubled(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Leave out half of the reaches, and have the others twice, in capitals."""
    kept = rows.filter(pc.equal(pc.bit_wise_and(rows["reach"], 1), 0))
    tags = pc.binary_join_element_wise(kept["tag"], "!", "")
    once = pa.record_batch({"region": kept["region"], "tag": tags, "reach": kept["reach"]})
    return pa.concat_batches([once, once])


def expected_of_doubled(folder: Path) -> dict[str | None, int]:
    found: Counter[str | None] = Counter()
    for tag, reaches in by_tag(folder, FILES).items():
        found[None if tag is None else f"{tag}!"] += 2 * sum(reach % 2 == 0 for reach in reaches)
    return dict(found)


@pytest.mark.parametrize("balancer", BALANCERS, ids=lambda each: getattr(each, "name", each))
def test_a_step_runs_where_the_rows_are_and_the_hop_is_taken_after_it(
    spark: SparkSession, folder: Path, tmp_path: Path, balancer: Any
) -> None:
    sink = MemorySink()
    made = (
        Pipeline(stream(spark, folder), instances=3, shards=12, balancer=balancer)
        .aggregate("region", {"posts": count()}, mode="rows")
        .apply(doubled, output="region string, tag string, reach int")
        .count("tag")
    )
    reports = finish(made, sink, tmp_path)
    assert {row["tag"]: row["count"] for row in sink.rows()} == expected_of_doubled(folder)
    assert all(report.locality[0] > 0.1 for report in reports)
    if isinstance(balancer, Locality):
        assert all(report.locality[0] > 0.8 for report in reports[1:])


def test_a_step_at_the_end_gives_the_sink_its_rows_also_of_keys_that_are_split(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    def named(rows: pa.RecordBatch) -> pa.RecordBatch:
        names = pc.utf8_upper(rows["region"])
        return pa.record_batch({"twice": pc.multiply(rows["count"], 2), "name": names})

    sink = MemorySink()
    made = Pipeline(stream(spark, folder), instances=3, balancer=Restless()).count("region")
    reports = finish(made.apply(named, output="name string, twice long"), sink, tmp_path)
    assert any(report.facts["merges"] for report in reports)
    wanted = spark.read.schema(SCHEMA).parquet(str(folder)).groupBy("region").count().collect()
    assert {row["name"]: row["twice"] for row in sink.rows()} == {
        row["region"].upper(): 2 * row["count"] for row in wanted
    }


def test_pairs_are_counted_only_of_keys_that_a_step_keeps(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    def without(rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.select(["tag"])

    made = (
        Pipeline(stream(spark, folder), instances=3, balancer=Locality(period=1))
        .aggregate("region", {"posts": count()}, mode="rows")
        .apply(without, output="tag string")
        .count("tag")
    )
    reports = finish(made, MemorySink(), tmp_path)
    assert all(report.reports[0].pairs == {} for report in reports)
    assert all(report.locality[0] > 0.1 for report in reports)
