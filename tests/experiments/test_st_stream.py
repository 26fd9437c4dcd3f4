from __future__ import annotations

import math

import numpy as np
import pytest

from unskew.experiments import Figure, Row, Sizes, experiment
from unskew.experiments.st_stream import EXPERIMENT
from unskew.experiments.st_stream_figures import (
    LOWER,
    NORMAL,
    SETTLED_AT,
    SPREAD,
    settled_at,
)
from unskew.experiments.st_stream_findings import findings
from unskew.experiments.st_stream_topology import (
    CORES,
    LOADS,
    OURS,
    RATE,
    SAME,
    SETTLED,
    STORM,
    Run,
    Words,
    first_plans,
    slots_of_nodes,
)
from unskew.metrics import balance_degree, utilisation_spread

SHORT = int(310 * RATE)
TINY = Sizes("tiny", 0, 0, SHORT, (), ())


@pytest.fixture(scope="module", params=[0, 1, 2])
def runs(request: pytest.FixtureRequest) -> tuple[Run, Run]:
    return Words(STORM, SHORT).run(request.param), Words(OURS, SHORT).run(request.param)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return EXPERIMENT.run(TINY, seed=1)


def test_the_loads_before_are_the_paper_s(runs: tuple[Run, Run]) -> None:
    before = runs[0].loads.mean(axis=0)

    assert before.tolist() == pytest.approx(LOADS, abs=0.02)
    assert LOADS[0] == 0.1125
    assert LOADS[-1] == 0.885
    assert balance_degree(LOADS) == pytest.approx(1.738, abs=0.001)


def test_all_nodes_are_between_30_and_60_percent_within_240_s(runs: tuple[Run, Run]) -> None:
    _, ours = runs
    low, high = NORMAL

    assert settled_at(ours) <= SETTLED
    assert 100 * ours.loads[ours.is_settled].min() >= low
    assert 100 * ours.loads[ours.is_settled].max() <= high
    assert 100 * utilisation_spread(ours.settled(ours.loads)) <= 21
    assert settled_at(runs[0]) > SETTLED


def test_latency_is_lower_by_what_the_paper_says_or_more(runs: tuple[Run, Run]) -> None:
    storm, ours = (float(run.settled(run.latency)) for run in runs)

    assert 1000 * storm == pytest.approx(17.0, abs=1.0)
    assert 1 - ours / storm >= 0.176


def test_few_shards_move_and_then_all_is_at_rest(runs: tuple[Run, Run]) -> None:
    _, ours = runs
    first, *others = ours.done

    assert 0 < ours.moves <= 20
    assert first.within
    assert first.between
    assert len(first.split) == 1
    assert not any(each.within or each.between or each.split for each in others)
    # Words of full slots are no denser than others any more.
    assert np.nanmax(first.offsets[1]) > 1.2
    assert np.nanmax(others[-1].offsets[1]) == pytest.approx(1.0)


def test_nodes_of_four_cores_have_four_slots() -> None:
    assert [own.size for own in slots_of_nodes()] == list(CORES)
    split, count = first_plans(0)
    assert split.instances == count.instances == sum(CORES)


def test_all_figures_are_there() -> None:
    assert experiment("st-stream") is EXPERIMENT
    assert [figure.number for figure in EXPERIMENT.figures] == [*map(str, range(10, 18))]


@pytest.mark.parametrize("figure", EXPERIMENT.figures, ids=lambda figure: figure.number)
def test_a_figure_has_axes_series_and_rows_that_are_drawn(figure: Figure, rows: list[Row]) -> None:
    own = [row for row in rows if row.figure == figure.number]
    drawn = [row for row in own if row.metric == figure.metric]

    assert figure.title
    assert figure.remark
    assert {row.series for row in drawn} == set(figure.series)
    assert all(row.case and row.seed == 1 and math.isfinite(row.ours) for row in own)
    assert len({(row.case, row.metric) for row in own}) == len(own)


def test_the_paper_s_numbers_of_figure_12_are_beside_ours(rows: list[Row]) -> None:
    before, after = (row for row in rows if row.figure == "12" and row.metric == SPREAD)

    assert before.paper == utilisation_spread([11.25, 88.5])
    assert after.paper == pytest.approx(utilisation_spread([35.6, 57.0]))
    assert before.ours == pytest.approx(77.25, abs=2)
    assert after.ours < 21.4


def test_the_same_seed_gives_the_same_rows(rows: list[Row]) -> None:
    again = EXPERIMENT.run(TINY, seed=1, figures=EXPERIMENT.choose(["12", "17"]))

    assert again == [row for row in rows if row.figure in ("12", "17")]


def test_findings_are_made_of_the_rows(rows: list[Row]) -> None:
    texts = findings(rows)

    lower = {row.case: row.ours for row in rows if row.metric == LOWER}
    (since,) = (row.ours for row in rows if row.metric == SETTLED_AT)
    assert f"since second {since:g}; the paper says 240." in texts[0]
    assert f"{lower[f'{SAME} work']:.1f} % lower with {SAME} work (paper 17.6 %)" in texts[2]
    assert any(text.startswith("Figure 13: ") for text in texts)
    assert findings([]) == []
