"""The simulator: the real groupings and balancers at any scale."""

from unskew.simulator.arrivals import Arrivals, Bursty, Hourly, Poisson, Ramp, Steady, Trace
from unskew.simulator.engine import simulate
from unskew.simulator.joining import Join, JoinResult
from unskew.simulator.key_columns import KeyColumns
from unskew.simulator.latencies import Latencies
from unskew.simulator.merge import Merge, MergeResult
from unskew.simulator.nodes import Network, Nodes
from unskew.simulator.results import Result, StageResult
from unskew.simulator.saturation import Saturation, saturation
from unskew.simulator.service import Constant, Exponential, PerKey, Service
from unskew.simulator.stage import Stage

__all__ = [
    "Arrivals",
    "Bursty",
    "Constant",
    "Exponential",
    "Hourly",
    "Join",
    "JoinResult",
    "KeyColumns",
    "Latencies",
    "Merge",
    "MergeResult",
    "Network",
    "Nodes",
    "PerKey",
    "Poisson",
    "Ramp",
    "Result",
    "Saturation",
    "Service",
    "Stage",
    "StageResult",
    "Steady",
    "Trace",
    "saturation",
    "simulate",
]
