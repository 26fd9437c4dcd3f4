"""Redis as a sink: each version once, down or not, and no password in what it says."""

from __future__ import annotations

import itertools
import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, StringType, StructType
from services import end, free_port, start_redis

from unskew.errors import BadParameter, LostVersions, SinkDown
from unskew.spark import Output, Pipeline, RedisSink, read_state
from unskew.spark.redis_sink import _text
from unskew.spark.redis_url import redis_address
from unskew.spark.sinks import check_apart
from unskew.state.resharding import reshard
from unskew.state.versions import INITIAL, Kind, version_of

NO_SPARK = cast(SparkSession, None)
"""Of the rows that this sink reads itself."""

SCHEMA = StructType().add("word", "string").add("count", "long")


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    """Yield a client of a Redis that is empty."""
    made = redis.Redis.from_url(redis_url, decode_responses=True)
    made.flushdb()
    yield made
    made.close()


def output(
    folder: Path,
    spark: SparkSession,
    counts: Mapping[Any, int],
    query: str = "a",
    before: int = -1,
) -> Output:
    path = folder / f"{len(list(folder.iterdir()))}.parquet"
    columns = {"word": pa.array(list(counts), pa.string()), "count": list(counts.values())}
    pq.write_table(pa.table(columns), path)
    return Output(spark, [path], SCHEMA, query, before)


def test_values_are_those_of_the_newest_version(
    spark: SparkSession, tmp_path: Path, client: Any, redis_url: str
) -> None:
    sink = RedisSink(redis_url, "word", name="w")
    many = {f"word {number}": number for number in range(120_000)}
    sink.write(output(tmp_path, spark, {**many, "the": 1}), 0)
    sink.write(output(tmp_path, spark, {"the": 5}), 4)
    assert sink.read("count") == {**{key: str(n) for key, n in many.items()}, "the": "5"}
    assert client.hgetall("w:version") == {"query": "a", "done": "4"}


@pytest.mark.parametrize("version", [0, 4], ids=["an older version", "the same version"])
def test_a_version_that_comes_again_changes_nothing(
    spark: SparkSession, tmp_path: Path, client: Any, redis_url: str, version: int
) -> None:
    sink = RedisSink(redis_url, "word")
    sink.write(output(tmp_path, spark, {"the": 1, "a": 1}), 0)
    sink.write(output(tmp_path, spark, {"the": 7}), 4)
    sink.write(output(tmp_path, spark, {"the": 2, "new": 3}), version)
    assert sink.read("count") == {"the": "7", "a": "1"}
    assert client.hget("unskew:version", "done") == "4"


def test_half_a_version_is_written_again(
    spark: SparkSession, tmp_path: Path, client: Any, redis_url: str
) -> None:
    sink = RedisSink(redis_url, "word")
    client.hset("unskew:version", mapping={"query": "a", "done": 0})
    client.hset("unskew:count", mapping={"the": 7})
    sink.write(output(tmp_path, spark, {"the": 7, "a": 2}), 4)
    assert sink.read("count") == {"the": "7", "a": "2"}


def test_a_version_of_which_a_part_was_refused_is_not_done(
    spark: SparkSession, tmp_path: Path, client: Any, redis_url: str
) -> None:
    sink = RedisSink(redis_url, "word")
    client.set("unskew:count", "no hash")
    counted = output(tmp_path, spark, {"the": 1})
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        sink.write(counted, 0)
    client.delete("unskew:count")
    sink.write(counted, 0)
    assert sink.read("count") == {"the": "1"}


def test_sinks_with_the_same_name_in_the_same_redis_are_one(redis_url: str) -> None:
    check_apart([RedisSink(redis_url, "word"), RedisSink(redis_url, "word", name="other")])
    with pytest.raises(BadParameter, match="cannot share the sink"):
        check_apart([RedisSink(redis_url, "word"), RedisSink(redis_url, "tag")])


def test_two_sinks_of_a_query_count_their_versions_apart(
    tmp_path: Path, client: Any, redis_url: str
) -> None:
    one, two = (RedisSink(redis_url, "word", name=name) for name in ("one", "two"))
    batch, settled, flushed = (
        version_of(1),
        version_of(1, Kind.SETTLED),
        version_of(1, Kind.FLUSHED),
    )
    versions = [(version_of(0), INITIAL), (batch, 0), (settled, batch), (flushed, settled)]
    for version, before in versions:
        rows = output(tmp_path, NO_SPARK, {"the": version}, before=before)
        # The other one was down, and the next start delivers to both.
        for sink in (one, one, two):
            sink.write(rows, version)
    assert one.read("count") == two.read("count") == {"the": str(flushed)}
    following = output(tmp_path, NO_SPARK, {"the": 9}, before=flushed)
    client.hset("two:version", "done", settled)
    one.write(following, version_of(2))
    with pytest.raises(LostVersions, match=f"nothing after version {settled} of this query"):
        two.write(following, version_of(2))


@pytest.mark.parametrize(
    ("value", "text"),
    [(date(2026, 1, 2), "2026-01-02"), (Decimal("1.50"), "1.50"), (True, "true"), (None, "null")],
)
def test_a_value_is_kept_as_its_text(value: object, text: str) -> None:
    assert _text(value) == text


def test_an_address_of_version_6_keeps_its_brackets() -> None:
    assert redis_address("redis://[::1]:6379/0") == "redis://[::1]:6379/0"


def test_what_another_query_has_counted_is_refused(
    spark: SparkSession, tmp_path: Path, client: Any, redis_url: str
) -> None:
    sink = RedisSink(redis_url, "word")
    sink.write(output(tmp_path, spark, {"the": 1}), 8)
    with pytest.raises(BadParameter, match=r"is of query a; go on with .* take another name"):
        sink.write(output(tmp_path, spark, {"the": 2}, query="b"), 12)
    assert sink.read("count") == {"the": "1"}


def test_several_keys_are_an_array_and_several_values_several_hashes(
    spark: SparkSession, tmp_path: Path, client: Any, redis_url: str
) -> None:
    path = tmp_path / "rows.parquet"
    rows = {"a": ["x", "y"], "b": [1, 2], "n": [3, 4], "top": [["p"], ["q", "ü"]]}
    pq.write_table(pa.table(rows), path)
    schema = StructType().add("a", "string").add("b", "long").add("n", "long")
    schema = schema.add("top", ArrayType(StringType()))
    sink = RedisSink(redis_url, ["a", "b"])
    sink.write(Output(spark, [path], schema), 0)
    assert sink.read("n") == {'["x", 1]': "3", '["y", 2]': "4"}
    assert json.loads(sink.read("top")['["y", 2]']) == ["q", "ü"]


def test_null_is_no_key(spark: SparkSession, tmp_path: Path, client: Any, redis_url: str) -> None:
    with pytest.raises(BadParameter, match="column 'word' has null"):
        RedisSink(redis_url, "word").write(output(tmp_path, spark, {None: 1}), 0)
    with pytest.raises(BadParameter, match="keys= has 'key', and what comes out has word, count"):
        RedisSink(redis_url, "key").write(output(tmp_path, spark, {"a": 1}), 0)


def test_no_column_is_written_over_the_note_of_what_is_done(
    spark: SparkSession, client: Any, redis_url: str
) -> None:
    schema = StructType().add("word", "string").add("version", "long")
    with pytest.raises(BadParameter, match=r"'version' comes out, .* give the column another name"):
        RedisSink(redis_url, "word").write(Output(spark, [], schema), 0)


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:se#cret@localhost:6379/0",
        "redis://me:se/cret@localhost:6379/0",
        "redis://me:secret@localhost:secret/0",
        "redis://me:secret@localhost/secret",
        "redis://me:secret@localhost/0?secret=1",
        "rediss://me:secret@localhost/0?ssl_cert_reqs=secret",
        "rediss://me:secret@localhost/0?secret",
        "redis://me:secret@localhost/0?ssl_ca_certs=secret",
        "https://me:secret@localhost/0",
        "redis://",
    ],
)
def test_a_url_that_is_wrong_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(BadParameter, match=r"redis://host:port/db") as caught:
        RedisSink(url, "word")
    assert "cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_password_is_used_and_told_nowhere(
    spark: SparkSession, tmp_path: Path, client: Any, redis_url: str, caplog: Any
) -> None:
    client.execute_command("ACL", "SETUSER", "me", "on", ">s3cret", "~*", "+@all")
    try:
        url = redis_url.replace("redis://", "redis://me:s3cret@")
        sink = RedisSink(url, "word")
        with caplog.at_level(logging.DEBUG):
            sink.write(output(tmp_path, spark, {"the": 1}), 0)
            wrong = RedisSink(redis_url.replace("redis://", "redis://me:wr0ng@"), "word")
            with pytest.raises(BadParameter, match="refuses the user or the password") as caught:
                wrong.write(output(tmp_path, spark, {"the": 1}), 4)
        assert sink.read("count") == {"the": "1"}
        for told in (repr(sink), repr(wrong), str(caught.value), caplog.text):
            assert "s3cret" not in told
            assert "wr0ng" not in told
    finally:
        client.execute_command("ACL", "DELUSER", "me")


def test_a_redis_that_is_down_is_waited_for_and_then_an_error(
    spark: SparkSession, tmp_path: Path, redis_url: str
) -> None:
    port = free_port()
    sink = RedisSink(f"redis://127.0.0.1:{port}/0", "word", patience=0.3)
    rows = output(tmp_path, spark, {"the": 1})
    with pytest.raises(SinkDown, match=rf"127.0.0.1:{port}/0 has not answered for 0.3 s"):
        sink.write(rows, 0)
    started = start_redis(tmp_path / "redis", port)
    try:
        sink.write(rows, 0)
        assert sink.read("count") == {"the": "1"}
    finally:
        end(started["pids"]["redis"])


def test_a_redis_that_has_lost_what_it_acknowledged_is_refused(
    tmp_path: Path, redis_url: str
) -> None:
    folder, port = tmp_path / "redis", free_port()
    (tmp_path / "rows").mkdir()
    sink = RedisSink(f"redis://127.0.0.1:{port}/0", "word")
    started = start_redis(folder, port)
    try:
        sink.write(output(tmp_path / "rows", NO_SPARK, {"the": 1, "a": 1}), 0)
        sink.write(output(tmp_path / "rows", NO_SPARK, {"the": 2}, before=0), 4)
        end(started["pids"]["redis"])
        shutil.rmtree(folder)
        started = start_redis(folder, port)
        following = output(tmp_path / "rows", NO_SPARK, {"the": 3}, before=4)
        with pytest.raises(LostVersions, match=r"has none of this query, and .* up to version 4"):
            sink.write(following, 8)
        empty = Output(NO_SPARK, [], SCHEMA, "a", before=4)
        with pytest.raises(LostVersions, match=r"RedisSink\.refill"):
            sink.write(empty, 8)
        assert sink.read("count") == {}
        # As one that was copied from time to time and has lost the end.
        sink.write(output(tmp_path / "rows", NO_SPARK, {"the": 1, "a": 1}), 0)
        with pytest.raises(LostVersions, match="has nothing after version 0 of this query"):
            sink.write(following, 8)
        assert sink.read("count") == {"the": "1", "a": "1"}
    finally:
        end(started["pids"]["redis"])


class Losing(RedisSink):
    """Writes to a Redis that loses something once, before the second half of a version."""

    def __init__(self, url: str, lose: Callable[[], object]) -> None:
        super().__init__(url, "word")
        self.lose = lose

    def _chunks(self, batches: Any) -> Iterator[tuple[str, list[Any]]]:
        for number, chunk in enumerate(super()._chunks(batches)):
            if number == 1:
                self.lose, lose = bool, self.lose
                lose()
            yield chunk


def _acknowledged(client: Any) -> None:
    """Have all as it was before the version, as one that is behind and takes the place has it."""
    client.flushdb()
    client.hset("unskew:version", mapping={"query": "a", "done": 0})


def _a_connection(client: Any) -> None:
    client.client_kill_filter(_type="normal", skipme=True)


def _both(client: Any) -> None:
    _acknowledged(client)
    _a_connection(client)


def _its_scripts(client: Any) -> None:
    """Forget scripts after it was asked whether it has them."""
    client.script_flush()

    def load(sent: Any) -> None:
        client.script_flush()
        patched.undo()

    patched = pytest.MonkeyPatch()
    patched.setattr("redis.client.Pipeline.load_scripts", load)


@pytest.mark.parametrize(
    "lose",
    [_acknowledged, _a_connection, _both, _its_scripts],
    ids=["what it acknowledged", "a connection", "both", "scripts"],
)
def test_a_redis_that_loses_something_in_the_middle_of_a_version_gets_it_again(
    tmp_path: Path,
    client: Any,
    redis_url: str,
    lose: Callable[[Any], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("unskew.spark.redis_sink._PIPELINED", 1)
    client.hset("unskew:version", mapping={"query": "a", "done": 0})
    counts = {f"word {number}": number for number in range(3000)}
    sink = Losing(redis_url, lambda: lose(client))
    sink.write(output(tmp_path, NO_SPARK, counts, before=0), 4)
    assert sink.read("count") == {word: str(number) for word, number in counts.items()}
    assert client.hgetall("unskew:version") == {"query": "a", "done": "4"}


def test_a_redis_that_keeps_losing_what_it_was_given_is_given_up(
    tmp_path: Path, client: Any, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unskew.spark.redis_sink._PIPELINED", 1)
    sink = RedisSink(redis_url, "word", patience=0.3)
    chunks = sink._chunks

    def losing(batches: Any) -> Iterator[tuple[str, list[Any]]]:
        for chunk in chunks(batches):
            yield chunk
            client.flushdb()

    monkeypatch.setattr(sink, "_chunks", losing)
    with pytest.raises(SinkDown, match="has not kept what it was given"):
        sink.write(output(tmp_path, NO_SPARK, {str(n): n for n in range(3000)}), 0)
    assert client.hget("unskew:version", "done") is None


def test_an_attempt_that_was_given_up_does_not_disturb_the_next(
    tmp_path: Path, client: Any, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unskew.spark.redis_sink._PIPELINED", 1)
    sink, asked = RedisSink(redis_url, "word"), ["a", "0", "-1"]
    rows = output(tmp_path, NO_SPARK, {str(number): number for number in range(3000)})

    def killed() -> Iterator[tuple[str, list[Any]]]:
        yield from itertools.islice(sink._of_files(rows), 2)
        raise RuntimeError("killed")

    def meanwhile() -> Iterator[tuple[str, list[Any]]]:
        for chunk in sink._of_files(rows):
            yield chunk
            with pytest.raises(RuntimeError, match="killed"):
                sink._deliver(killed(), asked)

    assert sink._deliver(meanwhile(), asked)
    assert client.hgetall("unskew:version") == {"query": "a", "done": "0"}
    assert client.hlen("unskew:count") == 3000


def test_what_redis_has_lost_is_written_again_out_of_the_state(
    spark: SparkSession, tmp_path: Path, client: Any, redis_url: str
) -> None:
    texts, checkpoint = tmp_path / "texts", tmp_path / "checkpoint"
    texts.mkdir()
    lines = spark.readStream.text(str(texts)).withColumnRenamed("value", "word")
    counted = Pipeline(lines, instances=2, shards=4).count("word")
    sink = RedisSink(redis_url, "word")

    def run(text: str) -> None:
        (texts / f"{len(list(texts.iterdir()))}.txt").write_text(text)
        counted.start(sink, checkpoint, availableNow=True).awaitTermination()

    def kept() -> DataFrame:
        rows = read_state(spark, checkpoint)
        return rows.groupBy("word").agg(F.sum("state_count").alias("count"))

    run("a\nb\na\n")
    assert not sink.refill(kept(), checkpoint)
    client.flushdb()
    with pytest.raises(StreamingQueryException, match="has lost what it acknowledged"):
        run("a\nc\n")
    assert sink.read("count") == {}
    assert sink.refill(kept(), checkpoint)
    assert client.hget("unskew:version", "done") == "0"
    run("d\n")
    assert sink.read("count") == {"a": "3", "b": "1", "c": "1", "d": "1"}
    # As where the state of what came out has expired.
    client.flushdb()
    assert sink.refill(kept().limit(0), checkpoint)
    assert client.hgetall("unskew:version").keys() == {"query", "done"}


def test_a_query_that_failed_for_redis_delivers_at_the_next_start(
    spark: SparkSession, tmp_path: Path, client: Any, redis_url: str
) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("a\nb\na\n")
    lines = spark.readStream.text(str(tmp_path / "texts")).withColumnRenamed("value", "word")

    def run(sink: RedisSink, state: Path | None = None) -> Exception | None:
        counted = Pipeline(lines, instances=2).count("word")
        query = counted.start(sink, tmp_path / "checkpoint", state=state, availableNow=True)
        try:
            query.awaitTermination()
        except Exception as error:
            return error
        return None

    client.hset("other:version", mapping={"query": "another", "done": 0})
    with pytest.raises(BadParameter, match="is of query another"):
        run(RedisSink(redis_url, "word", name="other"))
    assert not (tmp_path / "checkpoint").exists()

    nobody = f"redis://me:s3cret@127.0.0.1:{free_port()}/0"
    failure = run(RedisSink(nobody, "word", patience=0))
    assert "has not answered" in str(failure)
    assert "s3cret" not in str(failure)
    assert run(RedisSink(redis_url, "word")) is None
    assert RedisSink(redis_url, "word").read("count") == {"a": "2", "b": "1"}

    # The same from a copy with other shards, which has to know what Redis was given before.
    (tmp_path / "texts" / "b.txt").write_text("a\nc\n")
    assert "has not answered" in str(run(RedisSink(nobody, "word", patience=0)))
    reshard(tmp_path / "checkpoint", 5, tmp_path / "state")
    assert run(RedisSink(redis_url, "word"), tmp_path / "state") is None
    assert RedisSink(redis_url, "word").read("count") == {"a": "3", "b": "1", "c": "1"}
