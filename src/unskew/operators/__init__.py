"""Operators: steps that keep state for each key, vectorised on Arrow."""

from unskew.operators.aggregation import Aggregation
from unskew.operators.base import Changes, Operator
from unskew.operators.per_key import PerKey

__all__ = ["Aggregation", "Changes", "Operator", "PerKey"]
