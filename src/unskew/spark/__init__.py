"""unskew on Spark: DataFrame in, balanced DataFrame out."""

from unskew.spark.versions import check_pyspark

check_pyspark()

from unskew.spark.aggregating import aggregate  # noqa: E402
from unskew.spark.explaining import Explanation, Note, explain  # noqa: E402
from unskew.spark.observing import Balance, HotRows  # noqa: E402
from unskew.spark.profiling import HotKey, Profile, profile  # noqa: E402
from unskew.spark.routing import repartition  # noqa: E402

__all__ = [
    "Balance",
    "Explanation",
    "HotKey",
    "HotRows",
    "Note",
    "Profile",
    "aggregate",
    "explain",
    "profile",
    "repartition",
]
