"""The app bayes: counters as plain Spark has them, on executors that differ in speed."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from apps.running import FIGURES, options
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from unskew.apps import Batch, app, bayes
from unskew.apps.naive_bayes import NaiveBayes
from unskew.cli import main
from unskew.errors import NotVerified
from unskew.spark import Speeds

OWN_FIGURES = {
    *("utilisation_spread", "utilisation_spreads", "convergence", "virtual_workers"),
    *("virtual_workers_wanted", "migrations", "migrated_bytes", "slowed_by"),
    *("accuracy", "majority"),
}


def test_a_run_with_changing_speeds_is_verified_and_goes_on_where_it_stopped(
    spark: SparkSession, tmp_path: Path
) -> None:
    seen: list[Batch] = []
    # In local mode instances have the speeds.
    speeds = Speeds((1, 1, 0.3), {3: (0.3, 1, 1)})
    given = options(
        tmp_path, balancer="consistent", instances=3, batches=6, rows=400, speeds=speeds
    )
    first = app("bayes").run(spark, given, seen.append)
    assert first.verified
    assert [batch.number for batch in seen] == list(range(6))
    assert first.rows_in == 6 * 400 * 8
    assert first.as_dict().keys() == FIGURES | OWN_FIGURES
    assert first.extra["virtual_workers"] == 300
    assert first.extra["slowed_by"] == "delay"
    assert first.extra["migrations"] > 10
    spreads = first.extra["utilisation_spreads"]
    # At first all have as many rows, and the slow one takes three times as long.
    assert spreads[0] > 0.5
    assert min(spreads[1:3]) < 0.5 * spreads[0]
    assert len(first.extra["convergence"]) == 2
    # Shards have left the slow one, and then those of the other one have.
    assert seen[2].balance.loads[2] < 0.7 * seen[2].balance.loads[0]
    assert seen[5].balance.loads[0] < 0.7 * seen[5].balance.loads[2]
    hottest = seen[5].balance.hot[0]
    assert hottest.key == "v0 in letter"
    assert hottest.rows == pytest.approx(0.32 * 400 * 8, rel=0.1)
    assert hottest.instances == 3
    assert all(sum(batch.balance.loads) == batch.rows for batch in seen)
    assert first.extra["accuracy"] > first.extra["majority"] + 0.2

    second = app("bayes").run(spark, options(tmp_path, balancer="static", rows=400), seen.append)
    assert second.verified
    assert [batch.number for batch in seen[6:]] == [6, 7]
    assert second.extra["slowed_by"] is None
    assert sorted(path.name for path in (tmp_path / "classified").glob("batch=*")) == [
        f"batch={number}" for number in range(8)
    ]


def test_results_that_are_wrong_are_found(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(tmp_path, balancer="static", instances=2, batches=1, rows=100, verify=False)
    app("bayes").run(spark, given, lambda _: None)
    counts = {("v0", "letter"): 5}
    other = bayes._Second(spark, given)
    with pytest.raises(NotVerified, match=r"1 counters .* such as \('v0', 'letter'\): 5, not 6"):
        bayes._verify(counts, {("v0", "letter"): 6}, other)
    other.classify(NaiveBayes.of({("v0", "letter"): 5, ("v1", "offer"): 5}))
    wanted = {("v0", "offer"): 9, ("v1", "letter"): 2}
    with pytest.raises(NotVerified, match="examples have another class"):
        bayes._verify(wanted, wanted, other)


COUNTS = st.dictionaries(
    st.tuples(st.sampled_from("abcd"), st.sampled_from("xyz")), st.integers(1, 50), min_size=1
)


@given(counts=COUNTS, examples=st.lists(st.lists(st.sampled_from("abcde"), max_size=5)))
def test_a_model_gives_the_class_of_the_largest_product(
    counts: dict[tuple[str, str], int], examples: list[list[str]]
) -> None:
    found = NaiveBayes.of(counts).classify(pa.array(examples, pa.list_(pa.string()))).to_pylist()
    classes = sorted({name for _, name in counts})
    values = {value for value, _ in counts}
    totals = {name: sum(n for (_, own), n in counts.items() if own == name) for name in classes}
    for example, name in zip(examples, found, strict=True):
        products = {}
        for each in classes:
            product = totals[each] / sum(totals.values())
            for value in example:
                product *= (counts.get((value, each), 0) + 1) / (totals[each] + len(values))
            products[each] = product
        assert products[name] >= max(products.values()) * (1 - 1e-9)


@pytest.mark.usefixtures("shared")
def test_the_command_takes_speeds(tmp_path: Path) -> None:
    given = ["run", "bayes", "--speeds", "1,0.5", "--instances", "2", "--shards", "50"]
    given += ["--batches", "2", "--rows", "200", "--verify", "--json", "-"]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["verified"] is True
    assert told["slowed_by"] == "delay"
    assert told["virtual_workers"] == 50


def test_a_run_with_too_few_shards_tells_the_option_that_makes_more() -> None:
    figures = {"utilisation_spreads": [0.5], "convergence": [None], "accuracy": 0, "majority": 0}
    shards = {"virtual_workers": 6, "virtual_workers_wanted": 123}
    told = list(bayes._told({**figures, **shards}))
    assert "6 shards are too few for these speeds: run it with --shards 123, in another" in told[2]
    assert not any(
        "--shards" in each
        for each in bayes._told({**figures, **shards} | {"virtual_workers_wanted": 0})
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["bayes", "--change", "5:1,1"], "--change 5:1,1 changes --speeds"),
        (["bayes", "--speeds", "1,2"], "a speed must be above 0 and at most 1, not 2"),
        (["bayes", "--speeds", "1,fast"], "speeds are numbers with commas"),
        (["bayes", "--speeds", "1,1,1", "--instances", "2"], "--speeds has 3 numbers, and there"),
        (["bayes", "--speeds", "1,1", "--change", "1,1"], "a change of speeds is written"),
        (["bayes", "--speeds", "1,1", "--change", "5:1"], "there are 2 speeds at first, and 1"),
        (["regions", "--speeds", "1,1"], "regions takes no --speeds"),
        (["regions", "--shards", "9"], "regions takes no --shards"),
        (["bayes", "--shards", "3"], "--shards 3 is fewer than there are instances"),
    ],
)
def test_what_makes_no_sense_is_refused(given: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["run", *given])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_help_tells_what_bayes_adds() -> None:
    told = CliRunner().invoke(main, ["run", "--help"]).output
    assert all(figure in told for figure in OWN_FIGURES)
    assert "bayes" in CliRunner().invoke(main, ["run", "--list"]).output
