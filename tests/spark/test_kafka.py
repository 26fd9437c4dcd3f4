"""Kafka as a source: what names a topic, and what comes out of a real one."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pyspark
import pytest
from pyspark.sql import SparkSession

from unskew.errors import BadParameter
from unskew.spark import Topic, kafka_package


def test_the_package_is_of_the_version_of_spark() -> None:
    assert kafka_package().endswith(f"spark-sql-kafka-0-10_2.13:{pyspark.__version__}")


@pytest.mark.parametrize(
    "url",
    [
        *("kafka://host/topic", "kafka://host:x/topic", "kafka://a:1,/t", "kafka://,/t"),
        *("kafka://a b:1/t", "kafka://host:1/.."),
        *("kafka://host:1", "kafka:///topic", "files:x", "kafka://me:secret@host:1/topic"),
        *("kafka://host:1/topic?password=secret", "kafka://host:1/a/b", "kafka://[host/topic"),
    ],
)
def test_what_is_no_topic_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(BadParameter, match="kafka://host:port/topic") as caught:
        Topic.of(url)
    assert "secret" not in str(caught.value)


def test_several_servers_may_be_named() -> None:
    assert Topic.of("kafka://a:1,b:2/t") == Topic("a:1,b:2", "t")


def test_a_real_topic_is_read_to_its_end_and_once(
    spark: SparkSession, tmp_path: Path, kafka: str
) -> None:
    topic = Topic(kafka, f"test-{uuid4().hex[:8]}")
    rows = spark.range(500).selectExpr("cast(id as string) as value")
    writer = rows.write.format("kafka").option("kafka.bootstrap.servers", kafka)
    writer.option("topic", topic.name).save()
    sizes: list[int] = []
    query = (
        topic.stream(spark, 200)
        .writeStream.foreachBatch(lambda batch, number: sizes.append(batch.count()))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sum(sizes) == 500
    assert max(sizes) <= 200
    # Which partition has how many is the producer's choice.
    everything = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka)
    sent = everything.option("subscribe", topic.name).load().groupBy("partition").count()
    until = {str(number): 0 for number in range(3)}
    until |= {str(row["partition"]): min(3, row["count"]) for row in sent.collect()}
    assert topic.messages(spark, until).count() == sum(until.values()) > 0
