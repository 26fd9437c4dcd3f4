"""The engine against queueing theory."""

from __future__ import annotations

import pytest

from unskew.simulator import Constant, Exponential, Poisson, Service, Stage, simulate
from unskew.workloads import Zipf

ENOUGH = {0.5: 3_000_000, 0.8: 8_000_000, 0.9: 24_000_000}
"""Tuples by utilisation: the fuller a queue, the longer its memory."""


def mean_time(rate: float, *services: Service) -> float:
    """Return the mean time of a tuple in a chain of single queues."""
    stages = [Stage(f"queue {i}", 1, service) for i, service in enumerate(services)]
    return simulate(Zipf(0.0, 10, ENOUGH[rate]), Poisson(rate), stages).latency.mean


@pytest.mark.parametrize("load", ENOUGH)
def test_exponential_service_waits_as_in_m_m_1(load: float) -> None:
    waiting = mean_time(load, Exponential(1.0)) - 1.0
    assert waiting == pytest.approx(load / (1 - load), rel=0.02)


@pytest.mark.parametrize("load", ENOUGH)
def test_constant_service_waits_as_in_m_d_1(load: float) -> None:
    waiting = mean_time(load, Constant(1.0)) - 1.0
    assert waiting == pytest.approx(load / (2 * (1 - load)), rel=0.02)


@pytest.mark.parametrize("load", ENOUGH)
def test_a_tandem_waits_as_jackson_says(load: float) -> None:
    waiting = mean_time(load, Exponential(1.0), Exponential(0.7)) - 1.7
    second = 0.7 * load
    assert waiting == pytest.approx(load / (1 - load) + 0.7 * second / (1 - second), rel=0.02)
