"""The simulator: the real groupings and balancers at any scale."""

from unskew.simulator.arrivals import Arrivals, Bursty, Poisson, Steady, Trace
from unskew.simulator.engine import Result, StageResult, simulate
from unskew.simulator.latencies import Latencies
from unskew.simulator.merge import Merge, MergeResult
from unskew.simulator.nodes import Network, Nodes
from unskew.simulator.saturation import Saturation, saturation
from unskew.simulator.service import Constant, Exponential, PerKey, Service
from unskew.simulator.stage import Stage

__all__ = [
    "Arrivals",
    "Bursty",
    "Constant",
    "Exponential",
    "Latencies",
    "Merge",
    "MergeResult",
    "Network",
    "Nodes",
    "PerKey",
    "Poisson",
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
