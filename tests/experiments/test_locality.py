from __future__ import annotations

import math

import numpy as np
import pytest

from unskew.experiments import Figure, Row, Sizes, experiment
from unskew.experiments.locality import EXPERIMENT
from unskew.experiments.locality_chain import (
    Measured,
    hashed,
    measured,
    pairs_of,
    planned,
    posts_of,
    week_of,
)
from unskew.experiments.locality_findings import findings
from unskew.experiments.locality_runs import STATES, WITH, WITHOUT, Live, Paying, Stable
from unskew.experiments.locality_runs import TIMES as FASTER
from unskew.experiments.locality_synthetic import SECOND_NODE
from unskew.experiments.locality_topology import (
    BYTE,
    FIRST,
    HANDLING,
    SECOND,
    SERIES,
    Synthetic,
    counts,
    throughput,
)
from unskew.experiments.locality_weeks import (
    AWAY,
    BEHIND,
    EXPECTED,
    LAST,
    MEAN,
    OURS,
    TIMES,
    WEEKS,
    Kept,
    Often,
    Weeks,
)
from unskew.simulator import KeyColumns

AWARE, HASH, WORST = SERIES
TINY = Sizes("tiny", 0, WEEKS * 4_000, 3_000, (), (1, 2, 6))
PER_WEEK = 60_000


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return EXPERIMENT.run(TINY, seed=1)


def test_all_figures_are_there() -> None:
    assert experiment("locality") is EXPERIMENT
    assert [figure.number for figure in EXPERIMENT.figures] == [*map(str, range(7, 15))]


@pytest.mark.parametrize("figure", EXPERIMENT.figures, ids=lambda figure: figure.number)
def test_a_figure_has_axes_series_and_rows_that_are_drawn(figure: Figure, rows: list[Row]) -> None:
    own = [row for row in rows if row.figure == figure.number]
    drawn = [row for row in own if row.metric == figure.metric]

    assert figure.title
    assert figure.remark
    assert {row.series for row in drawn} == set(figure.series)
    assert all(row.case and row.seed == 1 and math.isfinite(row.ours) for row in own)
    assert len({(row.case, row.metric) for row in own}) == len(own)


def test_the_same_seed_gives_the_same_rows(rows: list[Row]) -> None:
    figures = EXPERIMENT.choose(["8", "12", "14"])
    again = EXPERIMENT.run(TINY, seed=1, figures=figures)

    assert again == [row for row in rows if row.figure in ("8", "12", "14")]


def test_the_paper_s_numbers_are_in_their_places(rows: list[Row]) -> None:
    stated = {(row.figure, row.metric, row.series): row.paper for row in rows if row.paper}
    assert stated["11", MEAN, "hash"] == 16.6
    assert stated["11", MEAN, "online"] == 50.0
    assert stated["11", EXPECTED, "online"] == 75.0
    assert stated["11", LAST, "offline"] == 40.0
    assert sorted(set(stated.values())) == [
        2.0,
        12.0,
        16.6,
        22.0,
        25.0,
        40.0,
        49.0,
        50.0,
        75.0,
        90.0,
    ]


def limit(nodes: int, padding: int, away: float) -> float:
    """Return what the work of the busiest instance allows, if all have the same."""
    return nodes / max(FIRST, SECOND + away * (HANDLING + BYTE * padding))


@pytest.mark.parametrize(
    ("nodes", "padding", "percent"), [(1, 20_000, 60), (2, 0, 100), (4, 12_000, 80), (6, 8_000, 60)]
)
def test_throughput_is_that_of_the_busier_count(nodes: int, padding: int, percent: int) -> None:
    found = {name: Synthetic(name, nodes, padding, percent, 30_000).run(0) for name in SERIES}
    away = 1 - percent / 100
    others = (nodes - 1) / nodes
    # In the worst case a tuple whose keys are of two nodes stays if the second is the next one.
    worst = percent / 100 + away * (nodes - 2) / max(nodes - 1, 1)
    parts = {AWARE: away, HASH: others, WORST: worst} if nodes > 1 else dict.fromkeys(SERIES, 0.0)
    for name, part in parts.items():
        assert found[name] == pytest.approx(limit(nodes, padding, part), rel=0.07), name


def test_what_fixes_the_service_times_comes_out() -> None:
    assert 600_000 < limit(6, 0, 0.0) < 700_000
    assert limit(6, 0, 1.0) / limit(6, 0, 0.0) == pytest.approx(1 - 0.22)
    assert limit(6, 12_000, 0.1) / limit(6, 12_000, 0.2) == pytest.approx(1.25)
    assert limit(6, 12_000, 0.1) == pytest.approx(limit(6, 12_000, 0.0))
    # This does not fix them: a second node does not help the largest tuples.
    assert limit(2, 20_000, 0.4) < limit(1, 20_000, 0.0) < limit(2, 8_000, 0.4)


def test_a_slow_network_is_what_limits() -> None:
    keys = posts_of(PER_WEEK, seed=0, stable=True).draw(0, 20_000)
    plans = hashed(6)
    fast, slow = (throughput(KeyColumns(*keys), plans, 12_000, each) for each in (10.0, 1.0))
    _, second = counts(plans, 12_000, 1.0)
    got = measured(plans, keys)
    # Six nodes, of which each sends its part of what leaves.
    assert slow < 6 / (second.network.sending * (1 - got.locality))
    assert slow > 0.7 * 6 / (second.network.sending * (1 - got.locality))
    assert slow < 0.5 * fast


def test_plans_over_weeks_are_as_the_paper_says() -> None:
    found = Weeks(PER_WEEK).run(0)

    def mean(name: str, weeks: slice) -> float:
        return float(np.mean([each.locality for each in found[name][weeks]]))

    later = slice(1, None)
    assert mean("hash", later) == pytest.approx(1 / 6, abs=0.03)
    assert found["online"][0] == found["hash"][0]
    assert found["online"][1] == found["offline"][1]
    # Old plans decay, and nobody is as good as one who knows.
    assert mean("offline", slice(-3, None)) < mean("offline", slice(1, 2)) - 0.05
    assert mean("offline", slice(-3, None)) < mean("online", slice(-3, None)) - 0.05
    assert mean("hash", later) + 0.25 < mean("online", later) < mean("oracle", later) - 0.1
    assert mean("expected", later) == pytest.approx(mean("oracle", later), abs=0.03)
    assert max(each.imbalance for each in found["oracle"]) < 0.08


def test_counts_that_fade_follow_a_week_and_those_of_a_moment_do_not() -> None:
    def mean(plans: int, *, fades: bool) -> float:
        return float(np.mean([each.locality for each in Often(PER_WEEK, plans, fades).run(0)]))

    assert mean(14, fades=True) > mean(1, fades=True) + 0.05
    assert mean(14, fades=True) > mean(14, fades=False) + 0.05


def test_more_pairs_are_better() -> None:
    got = Kept(PER_WEEK).run(0)

    six = [got.found[6, part][0].locality for part in (1e-3, 1e-2, 1e-1, 1.0)]
    assert six == sorted(six)
    assert six[-1] > 3 * got.plain[6].locality
    # On so few posts a tree of racks and a plan without one do not differ.
    assert max(got.racks.away, got.found[6, 1.0][1].away) < 0.7 * got.plain[6].away


def test_a_week_is_the_sum_of_its_parts() -> None:
    posts = posts_of(1000, seed=3)
    whole = week_of(posts, 2)
    parts = [week_of(posts, 2, part=(each, 7)) for each in range(7)]
    for place in (0, 1):
        assert np.concatenate([part[place] for part in parts]).tolist() == whole[place].tolist()
    assert whole[0].tolist() == posts.draw(2000, 3000)[0].tolist()


def test_posts_that_leave_their_rack_are_counted() -> None:
    keys = np.arange(6, dtype=np.uint64)
    plans = hashed(6)
    assert measured(plans, (keys, keys)) == Measured(1.0, (0.0, 0.0), 0.0)
    # From 0 to 1, which is near, and so on; from 2 to 3 and from 5 to 0 posts leave.
    got = measured(plans, (keys, (keys + np.uint64(1)) % np.uint64(6)))
    assert (got.locality, got.imbalance) == (0.0, 0.0)
    assert got.away == pytest.approx(1 / 3)


def test_a_plan_pays_where_states_are_small() -> None:
    pairs = pairs_of(posts_of(PER_WEEK, seed=0).draw(0, 5000))
    plans = hashed(6)
    assert planned(plans, pairs, key_bytes=100.0) != plans
    assert planned(plans, pairs, key_bytes=1e6) == plans


def test_plans_raise_throughput_at_once() -> None:
    got = Stable(6, 4_000, 1.0, 10_000).run(0)

    before, after = got.found[WITH][:5], got.found[WITH][5:]
    assert before == got.found[WITHOUT][:5]
    assert min(after) > 1.5 * max(before)
    assert got.after(WITH) == pytest.approx(np.mean(after))
    assert len(got.moved) == len(got.pauses) == 2
    assert 0 < got.pauses[0] < 0.1


def test_latency_falls_with_the_first_plan_that_is_made_as_tuples_flow() -> None:
    found = {name: Live(name, 4_000, 1.0, 3_000).run(0) for name in (WITH, WITHOUT)}

    # The fifth slice ends with the first plan.
    assert found[WITH][:4] == found[WITHOUT][:4]
    assert max(found[WITH][6:]) < 0.7 * min(found[WITHOUT][6:])


def test_findings_are_made_of_the_rows() -> None:
    given = [
        Row(0, "7", "locality 60 %, padding 20 kB, locality-aware", SECOND_NODE, None, -12.7),
        Row(0, "11", "28 plans a week, counts that fade", BEHIND, None, 2.5, x=28, series=OURS),
        Row(0, "12", "0.1 % of 9 pairs", TIMES, 2.0, 2.4),
        Row(0, "12", "two racks of three, tree", AWAY, None, 20.0),
        Row(0, "13", "1 Gb/s, padding 4 kB", FASTER, None, 3.2),
        Row(0, "13", "the most of all", FASTER, 2.0, 3.2),
    ]
    texts = findings(given)

    assert "by -13 % (padding 20 kB)" in texts[0]
    assert "Within 3 points from 28 plans a week on, one every 6 hours" in texts[1]
    assert "2.40 times the locality of hash" in texts[2]
    assert "20.0 % (tree)" in texts[3]
    assert "3.20 (1 Gb/s, padding 4 kB)" in texts[4]
    assert texts[5].startswith("Figure 13: 1 of 1 numbers differ")
    assert len(texts) == 6


def test_findings_say_it_where_none_is_close() -> None:
    (text,) = findings(
        [Row(0, "11", "28 plans a week, counts that fade", BEHIND, None, 9.0, x=28, series=OURS)]
    )
    assert "None is within 3 points" in text


def test_what_a_plan_would_move_falls_with_the_states() -> None:
    found = Paying(5_000).run(0)

    for minute in (10, 20):
        moved = [found[minute, size] for size in STATES]
        assert moved == sorted(moved, reverse=True)
    # There is less to gain for the second plan, as nothing changes.
    assert found[10, STATES[0]] > found[20, STATES[0]]
    assert found[10, STATES[-1]] == found[20, STATES[-1]] == 0
