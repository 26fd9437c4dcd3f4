"""The README says what the experiment says: its figures are measured again."""

from __future__ import annotations

from pathlib import Path

import pytest

from unskew.experiments.pd_stream import FULL
from unskew.experiments.pd_stream_topology import Outcome, Simulate

README = Path(__file__).parents[2] / "README.md"
SERIES = ("w-choices", "pd-stream", "frugal")


def stated(start: str) -> dict[str, str]:
    """Return the cells of a row of the table by the heading of their columns."""
    lines = README.read_text(encoding="utf-8").splitlines()
    rows = {cells[0]: cells[1:] for cells in map(_cells, lines) if cells}
    headings = rows["128 instances"]
    return dict(zip(headings, rows[start], strict=True))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []


@pytest.fixture(scope="module", params=["ddos", "hashtags"])
def measured(request: pytest.FixtureRequest) -> tuple[str, dict[str, Outcome]]:
    task = Simulate(request.param, FULL.simulated, 128, FULL.seeds, series=SERIES)
    return request.param, task.run(seed=0)


def test_the_readme_has_the_throughput_of_the_experiment(
    measured: tuple[str, dict[str, Outcome]],
) -> None:
    source, outcomes = measured
    row = stated(f"{source}: tuples/s held")

    for name in SERIES:
        assert float(row[name].replace(",", "")) == pytest.approx(outcomes[name].limit, rel=0.01)


def test_the_readme_has_the_latency_of_the_experiment(
    measured: tuple[str, dict[str, Outcome]],
) -> None:
    source, outcomes = measured
    row = stated(f"{source}: latency in ms at 85 % of what pd-stream holds")

    assert row["w-choices"] == "grows"
    assert outcomes["w-choices"].note
    for name in ("pd-stream", "frugal"):
        assert not outcomes[name].note
        assert float(row[name]) == pytest.approx(1000 * outcomes[name].latency, rel=0.01)


def test_pd_stream_is_ahead_of_w_choices_and_frugal_of_both(
    measured: tuple[str, dict[str, Outcome]],
) -> None:
    _, outcomes = measured
    others, pd, frugal = (outcomes[name] for name in SERIES)

    assert others.limit < pd.limit < frugal.limit
    assert others.latency > pd.latency > frugal.latency
