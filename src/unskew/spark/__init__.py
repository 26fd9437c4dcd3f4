"""unskew on Spark: balanced DataFrames, and pipelines whose state can move."""

from unskew.spark.versions import check_pyspark

check_pyspark()

from unskew.spark.aggregating import aggregate  # noqa: E402
from unskew.spark.batch_report import BatchReport  # noqa: E402
from unskew.spark.explaining import Explanation, Note, explain  # noqa: E402
from unskew.spark.joining import join  # noqa: E402
from unskew.spark.kafka import Topic, kafka_package  # noqa: E402
from unskew.spark.listening import PipelineListener  # noqa: E402
from unskew.spark.observing import Balance, HotRows  # noqa: E402
from unskew.spark.pipeline import Pipeline  # noqa: E402
from unskew.spark.pipeline_query import PipelineQuery  # noqa: E402
from unskew.spark.profiling import HotKey, Profile, profile  # noqa: E402
from unskew.spark.reading import read_state  # noqa: E402
from unskew.spark.redis_sink import RedisSink  # noqa: E402
from unskew.spark.routing import repartition  # noqa: E402
from unskew.spark.settings import Settings  # noqa: E402
from unskew.spark.sinks import MemorySink, Output, Sink  # noqa: E402
from unskew.spark.speeds import Speeds  # noqa: E402

__all__ = [
    "Balance",
    "BatchReport",
    "Explanation",
    "HotKey",
    "HotRows",
    "MemorySink",
    "Note",
    "Output",
    "Pipeline",
    "PipelineListener",
    "PipelineQuery",
    "Profile",
    "RedisSink",
    "Settings",
    "Sink",
    "Speeds",
    "Topic",
    "aggregate",
    "explain",
    "join",
    "kafka_package",
    "profile",
    "read_state",
    "repartition",
]
