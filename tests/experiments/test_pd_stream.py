from __future__ import annotations

import math

import pytest

from unskew.errors import BadParameter
from unskew.experiments import Figure, Row, Sizes, experiment
from unskew.experiments.pd_stream import EXPERIMENT
from unskew.experiments.pd_stream_findings import findings
from unskew.experiments.pd_stream_latency import IMBALANCE, MARGIN, OFFERED, PARTIALS
from unskew.experiments.pd_stream_tables import TABLE_II, TABLE_III
from unskew.experiments.pd_stream_topology import JOIN, Simulate

TINY = Sizes("tiny", 2000, 2000, 3000, (1.4, 2.0), (4, 8))


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return EXPERIMENT.run(TINY, seed=1)


def test_all_figures_and_tables_of_the_evaluation_are_there() -> None:
    numbers = {figure.number for figure in EXPERIMENT.figures}

    assert numbers == {"II", "III", "IV", "V", *map(str, range(4, 14))}


@pytest.mark.parametrize("figure", EXPERIMENT.figures, ids=lambda figure: figure.number)
def test_a_figure_has_axes_series_and_rows_that_are_drawn(figure: Figure, rows: list[Row]) -> None:
    own = [row for row in rows if row.figure == figure.number]
    drawn = [row for row in own if row.metric == figure.metric]

    assert figure.title
    assert figure.x.title
    assert figure.y.title
    assert len(figure.series) >= 2
    assert drawn
    assert {row.series for row in drawn} <= set(figure.series)
    assert all(row.case and row.seed == 1 and math.isfinite(row.ours) for row in own)


def test_simulated_and_routed_figures_draw_every_series(rows: list[Row]) -> None:
    for figure in EXPERIMENT.figures:
        if figure.number.isdigit():
            drawn = {row.series for row in rows if row.figure == figure.number}
            assert set(figure.series) <= drawn


def test_table_ii_is_the_paper_s_to_its_digits() -> None:
    got = EXPERIMENT.run(TINY, figures=EXPERIMENT.choose(["II"]))

    assert [row.paper for row in got] == list(TABLE_II)
    # The paper cuts digits off instead of rounding.
    assert [math.floor(100 * row.ours) / 100 for row in got] == [
        *(36.78, 13.53, 4.97, 1.83, 0.67, 0.24)
    ]


def test_table_iii_is_the_paper_s_within_its_digits_and_its_search_error() -> None:
    got = EXPERIMENT.run(TINY, figures=EXPERIMENT.choose(["iii"]))

    assert [row.paper for row in got] == list(TABLE_III)
    # Half of the last digit printed, and the 1e-4 at which the paper's search stops.
    assert max(abs(row.ours - (row.paper or 0)) for row in got) <= 0.05 + 0.01


def test_a_task_that_two_figures_need_runs_once() -> None:
    seen: list[str] = []

    EXPERIMENT.run(
        TINY,
        figures=EXPERIMENT.choose(["8", "10"]),
        progress=lambda label, done, total: seen.append(label),
    )

    assert seen == [
        *("zipf 1.4, 4 instances", "zipf 1.4, 8 instances"),
        *("zipf 2.0, 4 instances", "zipf 2.0, 8 instances", "done"),
    ]


def test_the_same_seed_gives_the_same_rows_but_for_times(rows: list[Row]) -> None:
    again = EXPERIMENT.run(TINY, seed=1)

    assert [r for r in rows if r.figure != "13"] == [r for r in again if r.figure != "13"]


def test_the_limit_of_the_join_is_that_of_its_busiest_instance() -> None:
    # Half of the hot key's 20.2 % on each of two instances.
    limit = Simulate("ddos", 20_000, 64).limit("partial-key", seed=0)

    assert limit.rate == pytest.approx(2 / JOIN / 0.202, rel=0.1)
    assert limit.result.offered_at["join"] > limit.result.offered_at["merge"]


def test_pd_stream_is_ahead_at_128_instances_and_frugal_ahead_of_it() -> None:
    got = Simulate("hashtags", 60_000, 128).run(seed=0)
    pd, others = got["pd-stream"], ("w-choices", "dagreedy", "partial-key", "dalton")

    assert all(pd.limit > got[name].limit for name in others)
    assert all(pd.latency < got[name].latency for name in others)
    assert got["frugal"].latency < pd.latency


def test_findings_are_made_of_the_rows() -> None:
    metric = "latency of pd-stream lower by, %"
    ahead = Row(0, "4", "c", metric, 27.16, 30.0, "", "ddos", 128, "w-choices")
    behind = Row(0, "4", "c", metric, None, -7.0, "", "ddos", 128, "frugal")
    window = Row(0, "6", "a, windows of 0.2 s", MARGIN, None, 2.5, "", "ddos", 128, "w-choices")
    first, second, third = findings([ahead, behind, window])

    assert "30.00 % lower than that of w-choices; the paper says 27.16 % lower" in first
    assert "7.00 % higher than that of frugal" in second
    assert "2.50 % with windows of 0.2 s" in third


def test_findings_name_what_is_far_from_the_paper_and_only_that() -> None:
    near = Row(0, "10", "near", "replication factor", 1.0, 1.1)
    far = Row(0, "11", "far", "replication factor", 1.0, 2.0, series="pd-stream")

    (text,) = findings([near, far])
    assert text.startswith("Figure 11: 1 of 1 numbers differ")
    assert "paper 1, ours 2" in text
    assert "splits more in 1 and less in 0 of them (pd-stream)" in text


def test_findings_say_what_holds_a_grouping_back() -> None:
    place = ("", "ddos (generated)", 128.0)
    margin = "throughput of pd-stream higher by, %"
    rows = [
        Row(0, "6", "c", margin, 20.0, 10.0, *place, "w-choices"),
        Row(0, "6", "c", margin, 50.0, 90.0, *place, "dagreedy"),
        *(
            Row(0, "6", "c", metric, None, value, *place, name)
            for name, partials, imbalance, join, merge in (
                ("pd-stream", 0.5, 0.001, 0.7, 1.0),
                ("w-choices", 0.6, 0.001, 0.6, 1.0),
                ("dagreedy", 0.5, 1.5, 1.0, 0.3),
            )
            for metric, value in (
                (PARTIALS, partials),
                (IMBALANCE, imbalance),
                (OFFERED.format("join"), join),
                (OFFERED.format("merge"), merge),
            )
        ),
    ]
    text = findings(rows)[-1]

    assert (
        "w-choices on ddos (generated) is held back by the merge (offered 1.00, the join 0.60)"
        in text
    )
    assert "0.600 partial states a tuple, 20 % more than pd-stream's 0.500" in text
    assert "dagreedy on ddos (generated) is held back by its join (offered 1.00" in text
    assert "imbalance is 1.50" in text


def test_unknown_names_say_what_there_is() -> None:
    with pytest.raises(BadParameter, match="no experiment 'x'; choose one of pd-stream, ls-stream"):
        experiment("x")
    with pytest.raises(BadParameter, match="no figure '99'; choose among II, III"):
        EXPERIMENT.choose(["99"])
