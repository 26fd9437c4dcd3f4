"""The decision on a version: all that a repeated batch must not decide anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unskew.balance import Plan


@dataclass(frozen=True)
class Decision:
    """What shall be done, written before it is.

    Attributes
    ----------
    plans : sequence of Plan
        Of each stage.
    watermark : int
        In microseconds: state up to it expires.
    base : int
        The version that this one goes on from.
    balancers : sequence of mapping
        Of each stage the name of its balancer and what it remembered, as JSON.
    """

    plans: Sequence[Plan]
    watermark: int
    base: int
    balancers: Sequence[Mapping[str, Any]]

    def to_json(self) -> dict[str, Any]:
        """Return what JSON knows."""
        return {
            "plans": [plan.to_json() for plan in self.plans],
            "watermark": self.watermark,
            "base": self.base,
            "balancers": [dict(each) for each in self.balancers],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Decision:
        """Return what `to_json` wrote."""
        return cls(
            plans=[Plan.from_json(plan) for plan in data["plans"]],
            watermark=data["watermark"],
            base=data["base"],
            balancers=data["balancers"],
        )
