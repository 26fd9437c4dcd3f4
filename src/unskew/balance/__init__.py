"""Balancers: from a plan and a report, the next plan."""

from typing import Any

from unskew.balance.base import Balancer
from unskew.balance.consistent import Consistent
from unskew.balance.fastjoin import FastJoin
from unskew.balance.greedy import Greedy
from unskew.balance.key_pairs import KeyPairs
from unskew.balance.locality import Locality
from unskew.balance.ls_stream import LsStream
from unskew.balance.placed import Placed
from unskew.balance.plan import Plan
from unskew.balance.report import NodeLoads, Report
from unskew.balance.static import Static
from unskew.balance.two_tier import TwoTier
from unskew.errors import BadParameter, UnknownBalancer
from unskew.parameters import check_parameters

BALANCERS: dict[str, type[Balancer]] = {
    each.name: each for each in (Static, Greedy, LsStream, FastJoin, Locality, Consistent, TwoTier)
}
"""By name."""


def balancer(given: str | Balancer, **parameters: Any) -> Balancer:
    """Return a balancer by its name; one that is made already is returned as it is.

    Examples
    --------
    >>> balancer("greedy", threshold=0.2).name
    'greedy'
    """
    if isinstance(given, Balancer):
        if parameters:
            raise BadParameter(f"{given.name} is made already; leave {', '.join(parameters)} away")
        return given
    if given not in BALANCERS:
        raise UnknownBalancer(
            f"there is no balancer {given!r}; choose one of {', '.join(BALANCERS)}"
        )
    check_parameters(given, BALANCERS[given], parameters)
    return BALANCERS[given](**parameters)


__all__ = [
    "BALANCERS",
    "Balancer",
    "Consistent",
    "FastJoin",
    "Greedy",
    "KeyPairs",
    "Locality",
    "LsStream",
    "NodeLoads",
    "Placed",
    "Plan",
    "Report",
    "Static",
    "TwoTier",
    "balancer",
]
