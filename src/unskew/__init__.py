"""unskew keeps skewed streams balanced on Spark."""

from unskew.grouping import Grouping, grouping, groupings
from unskew.keys import hash_keys

__version__ = "0.1.0"

__all__ = ["Grouping", "__version__", "grouping", "groupings", "hash_keys"]
