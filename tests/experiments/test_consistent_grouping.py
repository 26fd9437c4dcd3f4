"""The experiments of Consistent Grouping: what they measure, and what they say of it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from unskew.experiments import (
    consistent_grouping_days,
    consistent_grouping_runs,
    consistent_grouping_storm,
)
from unskew.experiments.base import Figure, Row, Sizes
from unskew.experiments.consistent_grouping import EXPERIMENT
from unskew.experiments.consistent_grouping_days import (
    BACK,
    DELAY,
    MOVES,
    QUEUE,
    SETTLED,
    SHARDS,
    SPREAD,
    WORST,
)
from unskew.experiments.consistent_grouping_findings import findings
from unskew.experiments.consistent_grouping_runs import (
    BAND,
    CHANGING,
    OURS,
    PUBLISHED,
    SLICES,
    UNLIKE,
    Follow,
    capacities,
    settling,
    went_back,
)
from unskew.experiments.consistent_grouping_schemes import IMBALANCE, MEMORY
from unskew.experiments.consistent_grouping_storm import TIMES, Storm

TINY = Sizes("tiny", 4000, 20_000, 4000, (0.8, 2.0), ())


def run(*figures: str) -> list[Row]:
    """Return the rows of figures, all if none is named, of shorter runs than a report has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consistent_grouping_runs, "LOOKS", 200)
        patch.setattr(consistent_grouping_days, "EACH", (5, 100))
        patch.setattr(consistent_grouping_storm, "DELAYS", (0.1, 1.0))
        patch.setattr(consistent_grouping_storm, "CONTROLS", 20)
        return EXPERIMENT.run(TINY, seed=1, figures=EXPERIMENT.choose(figures))


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return run()


def test_all_figures_that_have_numbers_are_there() -> None:
    numbers = [figure.number for figure in EXPERIMENT.figures]

    assert numbers == ["4", *map(str, range(6, 16))]


@pytest.mark.parametrize("figure", EXPERIMENT.figures, ids=lambda figure: figure.number)
def test_a_figure_has_axes_series_and_rows_that_are_drawn(figure: Figure, rows: list[Row]) -> None:
    own = [row for row in rows if row.figure == figure.number]
    drawn = [row for row in own if row.metric == figure.metric]

    assert figure.title
    assert figure.remark
    assert {row.series for row in drawn} == set(figure.series)
    assert all(row.case and row.seed == 1 and math.isfinite(row.ours) for row in own)


def test_the_same_seed_gives_the_same_rows(rows: list[Row]) -> None:
    assert run("10", "15") == [row for row in rows if row.figure in ("10", "15")]


def test_porc_keeps_its_bound_on_every_workload(rows: list[Row]) -> None:
    own = [row for row in rows if row.metric == IMBALANCE and row.series == "random-choices"]

    assert {row.figure for row in own} == {"4", "7"}
    for row in own:
        bound = float(row.note.removeprefix("at most ").removesuffix(" is promised"))
        assert row.ours <= bound + 1e-5


def test_ours_follows_speeds_that_change_and_others_do_not() -> None:
    days = {
        name: Follow(name, 2_000_000, CHANGING, each=100).run(0)
        for name in (OURS, "key", "shuffle")
    }
    ours = days[OURS]

    # Five intervals after each change, and at last; chance alone makes a tenth here.
    assert max(ours.worst) < 0.2
    assert ours.spread[-30:].max() < 0.15
    assert ours.returned == 0
    assert ours.queues[-1] < 0.01 * min(days["key"].queues[-1], days["shuffle"].queues[-1])
    for name in ("key", "shuffle"):
        assert min(days[name].worst) > 1
        assert days[name].queues[-1] > 3 * days[name].queues[len(days[name].queues) // 4]
        assert days[name].moves == 0


def test_workers_are_balanced_soon_after_each_change_and_stay_so() -> None:
    day = Follow(OURS, 22_000_000, CHANGING, each=100).run(2)

    assert len(day.spread) == SLICES
    assert all(each is not None and each < 0.05 for each in day.settled)
    assert max(day.worst) < BAND
    assert day.returned == 0


def test_too_few_shards_swing_as_published_and_are_divided_by_ours() -> None:
    published = Follow(PUBLISHED, 1_000_000, UNLIKE, each=5).run(0)
    ours = Follow(OURS, 1_000_000, UNLIKE, each=5, can_grow=True).run(0)

    assert (published.shards, ours.shards) == (50, 200)
    assert published.returned > 20
    assert ours.returned == 0
    assert ours.spread[20:].mean() < 0.5 * published.spread[20:].mean()


def test_a_cluster_keeps_its_capacity_when_it_changes() -> None:
    nodes = Follow(OURS, 22_000_000, CHANGING).nodes()

    assert nodes.speeds.sum(axis=1) == pytest.approx([22.0] * 3)
    assert (nodes.speeds[:, 0] / nodes.speeds[:, -1]).tolist() == pytest.approx([5.0, 4.0, 10.0])
    assert (capacities(4, (2, 3.0)) == [3, 3, 1, 1]).all()


@pytest.mark.parametrize(
    ("plans", "count"),
    [
        pytest.param([[0], [1], [0]], 1, id="there and back"),
        pytest.param([[0], [1], [2], [0]], 1, id="back over another"),
        pytest.param([[0], [1], [2], [3]], 0, id="on and on"),
        pytest.param([[0], [1], [1], [1], [0]], 0, id="back after a while"),
        pytest.param([[0], [1], [1, 1], [0, 0]], 0, id="divided between"),
    ],
)
def test_moves_that_go_back_are_counted(plans: list[list[int]], count: int) -> None:
    assert went_back([np.array(plan, dtype=np.int32) for plan in plans], within=2) == count


def test_slow_workers_hold_key_grouping_back_and_not_ours() -> None:
    held = Storm(100_000, 0.5, slow=2).run(0)
    # Two of 24 at 30 %: 22.6 workers of 2,000 tuples/s each.
    most = 22.6 * 2000

    assert 0.85 * most < held["consistent"].limit < most
    assert held["shuffle"].limit == pytest.approx(24 * 0.3 * 2000, rel=0.01)
    assert held["key"].limit < 0.5 * held["consistent"].limit
    assert held["consistent"].latency < held["key"].latency


def test_findings_are_made_of_the_rows(rows: list[Row]) -> None:
    texts = findings(rows)

    assert any(text.startswith("PoRC: the largest imbalance of 10 cases") for text in texts)
    assert any("Figure 7: PoRC keeps as many keys as PKG times" in text for text in texts)
    assert sum(f", {OURS}: messages from the begin" in text for text in texts) == 2
    assert findings([Row(0, "15", "c", TIMES, 3.44, 2.0)])[0].endswith("the other way round.")
    assert findings([Row(0, "8", "c", MEMORY, None, 1.0)]) == []


def test_a_day_that_never_settles_is_said_to(rows: list[Row]) -> None:
    def row(metric: str, ours: float) -> Row:
        return Row(0, "13", "c", metric, None, ours, series=OURS)

    first, second = (f" ({name})" for name in ("first", "second"))
    told = [row(WORST + first, 0.05), row(WORST + second, 0.3), row(BACK, 4), row(SHARDS, 90)]
    [text] = findings([row(SETTLED + first, 0.7), *told])
    assert "below 0.1: 0.7 %, never; from 5 % on it is at most 0.050, 0.300; 4 shards" in text

    # With as few messages as here nothing does, and key grouping never would.
    own = {each.metric for each in rows if each.figure == "13" and each.series == "key"}
    assert {SPREAD, QUEUE, DELAY, MOVES, BACK, SHARDS} < own
    assert sum(metric.startswith(WORST) for metric in own) == 3
    assert not any(metric.startswith(SETTLED) for metric in own)


@pytest.mark.parametrize(
    ("spread", "settled", "worst"),
    [
        pytest.param([0.0] * 10, [0.0, 0.0], [0.0, 0.0], id="even all day"),
        pytest.param([1, 0.2, *[0.05] * 8], [0.2, 0.0], [1.0, 0.05], id="even after a while"),
        pytest.param(
            [1, 0, 0.2, 0, 0, 0.1, 0, 0, 0, 0], [0.3, 0.1], [1.0, 0.1], id="uneven once more"
        ),
        pytest.param(
            [1, 0, 0, 0, 0.2, 0, 0, 0, 0, 0], [None, 0.0], [1.0, 0.0], id="uneven when it changes"
        ),
        pytest.param([*[0.0] * 9, 0.3], [0.0, None], [0.0, 0.3], id="uneven at the end"),
        pytest.param([1.0] * 10, [None, None], [1.0, 1.0], id="never even"),
    ],
)
def test_when_a_cluster_has_settled(
    spread: list[float], settled: list[float | None], worst: list[float]
) -> None:
    # Ten slices, of which each of two clusters has five.
    found = settling(np.arange(1, 11) / 10, np.array(spread, dtype=np.float64), [0.0, 0.5])
    assert found == {"settled": [each and pytest.approx(each) for each in settled], "worst": worst}
