"""Aggregates: states that are updated, merged and finished, group by group."""

from unskew.aggregates.base import Aggregate, Applied, Groups
from unskew.aggregates.counting import Count, count
from unskew.aggregates.frequent import Top, top
from unskew.aggregates.hyperloglog import Distinct, distinct
from unskew.aggregates.log_histogram import Quantiles, quantiles
from unskew.aggregates.reduction import Reduction
from unskew.aggregates.sample import Collect, collect

__all__ = [
    "Aggregate",
    "Applied",
    "Collect",
    "Count",
    "Distinct",
    "Groups",
    "Quantiles",
    "Reduction",
    "Top",
    "collect",
    "count",
    "distinct",
    "quantiles",
    "top",
]
