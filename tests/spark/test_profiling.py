from __future__ import annotations

import json
import sys
from pathlib import Path
from subprocess import run

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import unskew
from unskew.errors import BadInput, BadParameter, BadPlan, MissingPlan, UnknownColumn
from unskew.metrics import imbalance
from unskew.spark import Profile, profile, repartition

INSTANCES = 8


@pytest.fixture(scope="module")
def rides(spark: SparkSession) -> DataFrame:
    """Half of the rides are in Paris, a tenth in Rome, the others in 400 villages."""
    chance = F.col("id") % 10
    city = F.when(chance < 5, "Paris").when(chance < 6, "Rome")
    village = F.concat(F.lit("village "), F.col("id") % 400)
    return spark.range(0, 20_000, 1, 4).select("id", F.coalesce(city, village).alias("city"))


@pytest.fixture(scope="module")
def found(rides: DataFrame) -> Profile:
    return profile(rides, "city", instances=INSTANCES)


def test_hot_keys_are_named_with_share_and_instances(found: Profile) -> None:
    assert found.rows == 20_000
    paris, rome = found.hot
    assert (paris.key, rome.key) == ("Paris", "Rome")
    assert (paris.share, rome.share) == (0.5, 0.1)
    assert (paris.instances, rome.instances) == (4, 1)
    assert paris.hash == int(unskew.hash_keys(["Paris"])[0])


def test_the_expected_imbalance_is_what_comes_out(rides: DataFrame, found: Profile) -> None:
    def loads(df: DataFrame) -> list[int]:
        rows = df.groupBy(F.spark_partition_id()).count().collect()
        return [row["count"] for row in rows]

    hashed = loads(rides.repartition(INSTANCES, "city"))
    assert found.hash_imbalance == pytest.approx(imbalance(hashed + [0] * (8 - len(hashed))))
    assert found.imbalance < 0.05
    assert imbalance(loads(repartition(rides, INSTANCES, "city", plan=found))) < 0.1


def test_a_profile_prints_as_a_table(found: Profile) -> None:
    text = str(found)
    assert "Paris" in text
    assert "50.00%" in text
    assert text.startswith("city: 20,000 rows sampled, 8 instances")
    assert text.endswith("under Spark's hash partitioning")


def test_a_saved_profile_comes_back(found: Profile, tmp_path: Path) -> None:
    path = tmp_path / "rides.json"
    found.save(path)
    found.save(path)
    back = Profile.load(path)
    assert str(back) == str(found)
    assert back.hot == found.hot
    assert back.plan.to_json() == found.plan.to_json()
    assert [file.name for file in tmp_path.iterdir()] == ["rides.json"]


def test_a_save_that_fails_leaves_the_old_file(
    found: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rides.json"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        found.save(path)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param('{"unskew": "prof', "is no JSON", id="cut short"),
        pytest.param("[]", "not a profile", id="something else"),
        pytest.param('{"unskew": "profile", "format": 2}', "newer unskew", id="a later version"),
        pytest.param('{"unskew": "profile", "format": 1}', "damaged", id="parts missing"),
    ],
)
def test_a_broken_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "rides.json"
    path.write_text(text)
    with pytest.raises(BadPlan, match=said):
        Profile.load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingPlan, match=r"absent\.json"):
        Profile.load(tmp_path / "absent.json")


def test_a_sample_is_as_large_as_asked(rides: DataFrame) -> None:
    assert 1600 < profile(rides, "city", instances=4, sample=2000).rows < 2400
    assert 1600 < profile(rides, "city", instances=4, sample=0.1).rows < 2400
    one, other = (profile(rides, "city", instances=4, sample=0.1, seed=3) for _ in range(2))
    assert json.dumps(one.plan.to_json()) == json.dumps(other.plan.to_json())


def test_uniform_keys_have_no_hot_ones(spark: SparkSession) -> None:
    found = profile(spark.range(20_000), "id", instances=4)
    assert found.hot == []
    assert "none" in str(found)
    assert found.imbalance < 0.05


def test_keys_of_several_columns_and_nulls_are_readable(spark: SparkSession) -> None:
    df = spark.range(100).select(F.lit("a").alias("x"), F.lit(None).cast("int").alias("y"))
    assert profile(df, "x", F.col("y"), instances=4).hot[0].key == "a, null"


def test_rows_that_differ_may_be_told_apart_by_content(rides: DataFrame) -> None:
    shuffled = rides.repartition(2)
    assert profile(shuffled, "city", instances=8).varied == ["id", "city"]
    assert profile(shuffled.select("city"), "city", instances=8).varied == []
    assert profile(rides, "city", instances=8).varied == []


def test_what_does_not_fit_is_told_at_the_call(spark: SparkSession) -> None:
    df = spark.range(10)
    with pytest.raises(UnknownColumn, match="'nope'"):
        profile(df, "nope", instances=4)
    with pytest.raises(BadParameter, match="instances"):
        profile(df, "id", instances=0)
    with pytest.raises(BadParameter, match="sample"):
        profile(df, "id", instances=4, sample=0)
    with pytest.raises(BadParameter, match="sample"):
        profile(df, "id", instances=4, sample=10**9)
    with pytest.raises(BadInput, match="no rows"):
        profile(df.where("id < 0"), "id", instances=4)
    with pytest.raises(BadParameter, match=r"spark\.read instead"):
        profile(spark.readStream.format("rate").load(), "value", instances=4)


def test_without_pyspark_the_way_to_install_it_is_told() -> None:
    code = "import sys; sys.modules['pyspark'] = None; import unskew.spark"
    done = run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert 'pip install "unskew[spark]"' in done.stderr
