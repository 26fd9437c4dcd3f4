"""Balancers: from a plan and a report, the next plan."""

from unskew.balance.base import Balancer
from unskew.balance.greedy import Greedy
from unskew.balance.plan import Plan
from unskew.balance.report import Report

__all__ = ["Balancer", "Greedy", "Plan", "Report"]
