"""The app words: counts as plain Spark has them, from every source and into every sink."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis
from apps.running import FIGURES, options
from click.testing import CliRunner
from pyspark.sql import SparkSession

from unskew.apps import Batch, Options, app, words
from unskew.apps.continuing import check_same_stream
from unskew.apps.word_counts import WordCounts
from unskew.apps.word_source import text_folder, word_source, words_of
from unskew.cli import main
from unskew.errors import BadParameter, NotVerified
from unskew.spark import RedisSink

OWN_FIGURES = {"node_spread", "offset_degree", "moves"}


def given(out: Path, **other: object) -> Options:
    return options(out, **{"source": "text", "balancer": "two-tier", "instances": 3, **other})


def test_the_text_that_comes_along_is_counted_file_by_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    seen: list[Batch] = []
    summary = app("words").run(spark, given(tmp_path), seen.append)
    assert summary.verified
    assert [batch.number for batch in seen] == [0, 1, 2]
    assert summary.as_dict().keys() >= FIGURES | OWN_FIGURES
    assert len(summary.extra["node_spread"]) == 3
    assert seen[0].balance.hot[0].key == "the"
    assert all(sum(batch.balance.loads) == batch.rows for batch in seen)
    assert all(sum(batch.balance.hash_loads) == batch.rows for batch in seen)
    assert "the 110" in summary.notes[-1]
    assert app("words").run(spark, given(tmp_path), seen.append).batches == []


def test_generated_words_are_skewed_and_go_on_where_they_stopped(
    spark: SparkSession, tmp_path: Path
) -> None:
    seen: list[Batch] = []
    asked = given(tmp_path, source="rate", rows=5000, batches=3)
    first = app("words").run(spark, asked, seen.append)
    second = app("words").run(spark, asked, seen.append)
    assert first.verified
    assert second.verified
    assert [batch.number for batch in seen] == list(range(6))
    assert first.rows_in == 15_000
    assert seen[-1].balance.hot[0].key == "word1"
    assert seen[-1].balance.hot[0].rows > 5000 / 4
    assert all(sum(batch.balance.hash_loads) == batch.rows for batch in seen)


def test_words_are_letters_and_digits_in_small_letters(spark: SparkSession) -> None:
    lines = spark.createDataFrame([("It's 10 o'clock: É-é!",), ("",), ("...",)], "value string")
    assert [row[0] for row in words_of(lines).collect()] == ["it's", "10", "o'clock", "é", "é"]


def test_counts_in_redis_are_checked_too(
    spark: SparkSession, tmp_path: Path, redis_url: str
) -> None:
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    client.flushdb()
    asked = given(tmp_path, source="rate", rows=3000, sink=redis_url)
    assert app("words").run(spark, asked, lambda _: None).verified
    client.hincrby("words:count", "word1", 1)
    with pytest.raises(NotVerified, match="2 words have other counts than plain Spark's"):
        words._verify(
            word_source(spark, asked),
            WordCounts(redis_url, tmp_path).found(spark),
            asked.batches,
        )
    with pytest.raises(BadParameter, match="has a run with sink="):
        app("words").run(spark, given(tmp_path, source="rate", rows=3000), lambda _: None)
    # A Redis that has lost it all gets it again, out of the state.
    client.flushdb()
    again = app("words").run(spark, asked, lambda _: None)
    assert again.verified
    assert "Redis had lost counts" in again.notes[0]
    client.close()


def test_a_second_run_into_the_same_redis_takes_another_name(
    spark: SparkSession, tmp_path: Path, redis_url: str
) -> None:
    client: Any = redis.Redis.from_url(redis_url)
    client.flushdb()
    client.hset("words:version", mapping={"query": "another", "done": 4})
    asked = given(tmp_path, source="rate", rows=300, batches=1, sink=redis_url)
    with pytest.raises(BadParameter, match=r"is of query another.*--sink-name of unskew run"):
        app("words").run(spark, asked, lambda _: None)
    named = replace(asked, sink_name="second")
    summary = app("words").run(spark, named, lambda _: None)
    assert summary.verified
    assert not any("lost" in note for note in summary.notes)
    assert client.exists("second:count")
    assert not client.exists("words:count")
    client.delete("words:version")
    with pytest.raises(BadParameter, match="has a run with sink-name='second'"):
        app("words").run(spark, asked, lambda _: None)
    client.close()


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({}, {"sink_name": "words"}),
        ({"sink_name": "words"}, {}),
        ({}, {"shards": 32}),
        ({"shards": 32}, {}),
    ],
    ids=["the name it has", "no name", "the shards it has", "no shards"],
)
def test_what_means_the_same_goes_on(
    tmp_path: Path, first: dict[str, Any], then: dict[str, Any]
) -> None:
    (tmp_path / "offsets").mkdir()
    sink = "redis://host:6379/0"
    check_same_stream("words", given(tmp_path, sink=sink, **first), tmp_path)
    (tmp_path / "offsets" / "0").touch()
    check_same_stream("words", given(tmp_path, sink=sink, **then), tmp_path)
    with pytest.raises(BadParameter, match="sink-name='words', which cannot go on with 'other'"):
        check_same_stream("words", given(tmp_path, sink=sink, sink_name="other"), tmp_path)


def test_a_run_that_noted_neither_name_nor_shards_goes_on(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    asked = given(tmp_path, sink="redis://host:6379/0")
    check_same_stream("words", asked, tmp_path)
    noted = json.loads((tmp_path / "run.json").read_text())
    del noted["sink-name"]
    (tmp_path / "run.json").write_text(json.dumps({**noted, "shards": 7}))
    (tmp_path / "offsets" / "0").touch()
    check_same_stream("words", asked, tmp_path)


def test_a_topic_is_counted_into_redis(
    spark: SparkSession, tmp_path: Path, kafka: str, redis_url: str
) -> None:
    client = redis.Redis.from_url(redis_url)
    client.flushdb()
    client.close()
    topic = f"test-{uuid4().hex[:8]}"
    lines = ["the cat and the dog", "the end"] * 300

    def send() -> None:
        rows = spark.createDataFrame([(line,) for line in lines], "value string")
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", kafka)
        writer.option("topic", topic).save()

    asked = given(tmp_path, source=f"kafka://{kafka}/{topic}", rows=250, sink=redis_url)
    for times in (1, 2):
        send()
        summary = app("words").run(spark, asked, lambda _: None)
        assert summary.verified
        assert len(summary.batches) >= 3
        wanted = Counter(word for line in lines for word in line.split())
        found = RedisSink(redis_url, "word", name="words").read("count")
        assert found == {word: str(times * number) for word, number in wanted.items()}


def test_the_command_writes_what_words_adds(
    shared: None, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("a rose is a rose\n")
    arguments = ["run", "words", "--source", f"files:{tmp_path / 'texts'}", "--instances", "2"]
    done = CliRunner().invoke(main, [*arguments, "--verify", "--json", "-"])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary["rows_in"] == 5
    assert summary["rows_out"] == 3
    assert summary.keys() >= FIGURES | OWN_FIGURES


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--source", "kafka://nowhere"], "kafka://host:port/topic"),
        (["--source", "files:nowhere"], "there is no folder"),
        (["--key", "a"], "words takes no --key"),
        (["--sink", "redis://me:s3cret@host:s3cret/0"], "redis://host:port/db"),
        (["--jars", "here.jar"], "--source is text; leave it out"),
        (
            [
                "--source",
                "kafka://host:9092/topic",
                "--jars",
                "local:/a.jar, https://host/a.jar, none.jar,",
            ],
            "there is no file 'none.jar', which --jars names",
        ),
        (["--sink-name", "mine"], "name the Redis with --sink"),
        (["--sink-name", "redis://me:s3cret@host:1/0"], "'redis://***@host:1/0'"),
        (["--source", "redis://me:s3cret@host:1/0"], "text, rate, files:DIR or kafka://host"),
        (["redis://me:s3cret@host:1/0"], "redis://***@host:1/0"),
        (["--out", "/dev/null/x"], "cannot make the folder /dev/null/x of --out"),
    ],
)
def test_what_is_wrong_is_told_before_spark_starts(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(main, ["run", "words", *arguments])
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())
    assert "s3cret" not in done.output


def test_other_apps_take_no_sink_and_do_not_show_it() -> None:
    done = CliRunner().invoke(main, ["run", "rides", "--sink", "redis://me:s3cret@host/0"])
    assert done.exit_code == 2
    assert "rides takes no --sink" in done.output
    assert "s3cret" not in done.output


@pytest.mark.parametrize(
    ("first", "second"), [("trending", "words"), ("words", "trending")], ids=lambda name: str(name)
)
def test_a_folder_with_a_run_of_another_app_stays_as_it_is(
    tmp_path: Path, first: str, second: str
) -> None:
    places = {"trending": tmp_path / "checkpoint", "words": tmp_path / "checkpoint" / "spark"}
    asked = given(tmp_path, source="rate")
    check_same_stream(first, asked, places[first])
    (places[first] / "offsets").mkdir(parents=True)
    (places[first] / "offsets" / "0").write_text("")
    with pytest.raises(BadParameter, match=f"has a run with app='{first}'"):
        check_same_stream(second, asked, places[second])
    check_same_stream(first, asked, places[first])


def test_a_folder_without_texts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match=r"no file that ends in \.txt"):
        text_folder(f"files:{tmp_path}")


def test_help_tells_what_words_adds() -> None:
    told = CliRunner().invoke(main, ["run", "--help"]).output
    assert all(figure in told for figure in OWN_FIGURES)
    assert "words" in CliRunner().invoke(main, ["run", "--list"]).output


def test_a_password_is_in_no_representation_and_no_file(
    spark: SparkSession, tmp_path: Path, redis_url: str
) -> None:
    client: Any = redis.Redis.from_url(redis_url)
    client.flushdb()
    client.execute_command("ACL", "SETUSER", "me", "on", ">s3cret", "~*", "+@all")
    try:
        url = redis_url.replace("redis://", "redis://me:s3cret@")
        asked = given(tmp_path, source="rate", rows=500, batches=1, sink=url)
        summary = app("words").run(spark, asked, lambda _: None)
    finally:
        client.execute_command("ACL", "DELUSER", "me")
        client.close()
    assert summary.verified
    assert "s3cret" not in repr(asked) + json.dumps(summary.as_dict()) + "".join(summary.notes)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert (tmp_path / "run.json") in written
    assert not any(b"s3cret" in path.read_bytes() for path in written)
