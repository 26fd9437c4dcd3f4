from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from apps.running import FIGURES, options
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from unskew.apps import Batch, app, trending
from unskew.cli import main
from unskew.errors import BadParameter, MissingInput, NotVerified, UnknownColumn


def test_a_run_is_balanced_verified_and_goes_on_where_it_stopped(
    spark: SparkSession, tmp_path: Path
) -> None:
    seen: list[Batch] = []
    first = app("trending").run(spark, options(tmp_path), seen.append)

    assert first.verified
    assert [batch.number for batch in seen] == [0, 1]
    assert first.rows_in == 8000
    assert all(sum(batch.balance.loads) == batch.rows == 4000 for batch in seen)
    assert first.imbalance < 0.1 < first.hash_imbalance
    assert 1 <= first.replication_factor < 1.5
    assert seen[0].balance.hot[0].instances > 1
    assert first.as_dict().keys() >= FIGURES

    second = app("trending").run(spark, options(tmp_path, batches=1), seen.append)

    # All rows of both runs are compared with plain Spark's.
    assert second.verified
    assert second.rows_in == 4000
    assert [batch.number for batch in seen] == [0, 1, 2]

    with pytest.raises(BadParameter, match="a run with rows=4000, which cannot go on with 500"):
        app("trending").run(spark, options(tmp_path, rows=500), seen.append)


def write_clicks(folder: Path, number: int, rows: int = 1000) -> None:
    """Write a file over the same minute as all others, with keys, times and values missing."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{number}.json"
    lines = [
        {
            "user.name": None if i % 10 == 3 else "hot" if i % 2 == 0 else f"u{i % 50}",
            "at": f"2024-01-01T00:00:{i % 60:02}Z",
            "ms": None if i % 7 == 0 else i % 100,
        }
        for i in range(rows)
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    # Spark reads the oldest first.
    os.utime(file, (number + 1, number + 1))


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    folder = tmp_path / "clicks [1]"
    for number in range(3):
        write_clicks(folder, number)
    (folder / "notes.md").write_text("not for Spark")
    return folder


CLICKS = {"key": "user.name", "time": "at", "value": "ms"}


def test_files_are_a_stream_too_in_any_order_and_with_gaps(
    spark: SparkSession, clicks: Path, tmp_path: Path
) -> None:
    given = options(tmp_path / "out", source=f"files:{clicks}", rows=7, **CLICKS)
    first = app("trending").run(spark, given, lambda batch: None)

    assert first.verified
    assert first.rows_in == 3000
    assert len(first.batches) == 3
    assert max(hot.instances for batch in first.batches for hot in batch.balance.hot) <= 4

    write_clicks(clicks, 3)
    # Where the files are and what is taken of them must be the same; how many rows, they say.
    again = options(
        tmp_path / "out", source=f"files:{os.path.relpath(clicks)}", rows=8, seed=5, **CLICKS
    )
    second = app("trending").run(spark, again, lambda batch: None)
    assert second.verified
    assert second.rows_in == 1000

    third = app("trending").run(spark, again, lambda batch: None)
    assert third.verified
    assert (third.rows_in, third.rows_out, third.batches) == (0, 0, [])
    with pytest.raises(BadParameter, match="a run with value='ms', which cannot go on with None"):
        app("trending").run(spark, replace(again, value=None), lambda batch: None)


@pytest.mark.parametrize(
    ("other", "error", "message"),
    [
        ({"source": "kafka"}, BadParameter, "must be rate or files:DIR, not 'kafka'"),
        ({"source": "files:nowhere"}, MissingInput, "there is no folder .*nowhere"),
        ({"key": None}, BadParameter, "name the key with --key; .* has at, ms, user.name"),
        ({"key": "usr"}, UnknownColumn, "no column 'usr', only at, ms, user.name"),
        ({"time": "ms"}, BadParameter, "column 'ms' is bigint, which is no timestamp"),
    ],
)
def test_a_source_that_cannot_be_read_is_named(
    spark: SparkSession,
    clicks: Path,
    tmp_path: Path,
    other: dict[str, str | None],
    error: type[Exception],
    message: str,
) -> None:
    given = {"source": f"files:{clicks}", **CLICKS, **other}
    with pytest.raises(error, match=message):
        app("trending").run(spark, options(tmp_path / "out", **given), lambda batch: None)


def test_a_wrong_result_is_not_verified(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = trending._final

    def off_by_one(session: SparkSession, trends: Path) -> DataFrame:
        return real(session, trends).withColumn("posts", F.col("posts") + 1)

    monkeypatch.setattr(trending, "_final", off_by_one)
    with pytest.raises(NotVerified, match="differ from what plain Spark computes"):
        app("trending").run(spark, options(tmp_path, batches=1, rows=500), lambda batch: None)


@pytest.mark.usefixtures("shared")
def test_the_command_writes_json_and_a_report(tmp_path: Path) -> None:
    arguments = ["--rows", "2000", "--batches", "1", "--instances", "3", "--grouping", "pd-stream"]
    out = tmp_path / "out"
    result = CliRunner().invoke(
        main, ["run", *arguments, "--verify", "--out", str(out), "--json", "-"]
    )

    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary.keys() >= FIGURES
    assert summary["strategy"] == "pd-stream"
    assert summary["verified"] is True
    report = (out / "report.html").read_text(encoding="utf-8")
    assert "Imbalance of each batch" in report
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", report)


@pytest.mark.usefixtures("shared")
def test_the_command_shows_every_batch_and_the_trends() -> None:
    result = CliRunner().invoke(main, ["run", "--rows", "2000", "--batches", "1"])

    assert result.exit_code == 0, result.output
    assert "batch 0:" in result.output
    assert "of them in the second half" in result.output
    assert "under Spark's hash" in result.output
    assert "times fewer rows." in result.output


def test_apps_and_groupings_that_are_not_there_are_refused_before_spark_starts() -> None:
    for arguments, message in (
        (["run", "nonsense"], "there is no app 'nonsense'; choose one of trending"),
        (["run", "--grouping", "nonsense"], "nonsense"),
        (["run", "--balancer", "static"], "trending takes no --balancer, and was given 'static'"),
    ):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 2
        assert message in result.output

    assert "trending:" in CliRunner().invoke(main, ["run", "--list"]).output
