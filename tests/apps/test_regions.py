"""The app regions: counts as plain Spark has them, while keys go where others are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from apps.running import FIGURES, options
from click.testing import CliRunner
from pyspark.sql import SparkSession

from unskew.apps import Batch, app, regions
from unskew.apps.report import run_report
from unskew.cli import main
from unskew.errors import NotVerified

OWN_FIGURES = {"locality", "shuffle_bytes", "hash_shuffle_bytes", "moves"}


def test_a_run_is_verified_and_goes_on_where_it_stopped(
    spark: SparkSession, tmp_path: Path
) -> None:
    seen: list[Batch] = []
    given = options(tmp_path, balancer="locality", instances=3, batches=5, rows=4000, stable=True)
    first = app("regions").run(spark, given, seen.append)
    assert first.verified
    assert [batch.number for batch in seen] == [0, 1, 2, 3, 4]
    assert first.rows_in == 20_000
    assert first.as_dict().keys() >= FIGURES | OWN_FIGURES
    # Two batches by hash, then by a plan that may take one more.
    assert first.extra["locality"] > 0.34
    assert first.extra["moves"] > 100
    assert 0 < first.extra["shuffle_bytes"] < first.extra["hash_shuffle_bytes"]
    assert all(sum(batch.balance.loads) == batch.rows for batch in seen)
    stays, sent = first.series
    assert stays.hashed == pytest.approx([100 / 3] * 5)
    assert stays.ours[-1] > max(34, *stays.ours[:2])
    assert sum(sent.ours) == pytest.approx(first.extra["shuffle_bytes"] / 1e6)
    assert sent.ours[-1] < sent.hashed[-1]
    assert first.outcome is not None
    assert "of the rows stayed on their instance" in first.outcome
    page = run_report(first)
    assert "rows that stay, %" in page
    assert page.index(stays.title) < page.index("Imbalance of each batch")
    second = app("regions").run(spark, replace(given, batches=2), seen.append)
    assert second.verified
    assert [batch.number for batch in seen[5:]] == [5, 6]
    # It begins with the plan that the first run ended with.
    assert second.extra["locality"] > first.extra["locality"]


def test_results_that_are_wrong_are_found(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(tmp_path, balancer="static", instances=2, batches=1, rows=500)
    monkeypatch.setattr(regions, "TEXT", 7)
    app("regions").run(spark, given, lambda _: None)
    monkeypatch.setattr(regions, "TEXT", 8)
    with pytest.raises(NotVerified, match="other counts than plain Spark's"):
        app("regions").run(spark, given, lambda _: None)


def test_other_apps_take_no_stable() -> None:
    result = CliRunner().invoke(main, ["run", "rides", "--stable"])
    assert result.exit_code == 2
    assert "rides takes no --stable" in result.output


def test_help_tells_what_regions_adds() -> None:
    told = CliRunner().invoke(main, ["run", "--help"]).output
    assert all(figure in told for figure in OWN_FIGURES)
    assert "regions" in CliRunner().invoke(main, ["run", "--list"]).output
