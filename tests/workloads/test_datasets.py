"""The generated data sets have the statistics of the papers' tables."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from unskew.errors import BadParameter
from unskew.tally import KeyIndex
from unskew.workloads import DATASETS, Zipf, dataset
from unskew.workloads.datasets import fit


@pytest.mark.parametrize("name", DATASETS)
def test_at_full_length_the_statistics_are_those_of_the_table(name: str) -> None:
    table, workload = DATASETS[name], dataset(name)
    assert workload.messages == table.messages
    assert workload.expected_keys() == pytest.approx(table.keys_seen, rel=0.01)
    assert workload.p(1) == pytest.approx(table.p1, rel=0.01)
    assert workload.p(2) < workload.p(1)


def test_a_drawn_ddos_stream_has_them_too() -> None:
    index = KeyIndex()
    for batch in dataset("ddos").batches():
        index.ids(batch)
    assert len(index) == pytest.approx(2_400_000, rel=0.05)
    assert index.counts.max() / 12_000_000 == pytest.approx(0.202, rel=0.05)


@pytest.mark.parametrize("name", DATASETS)
def test_the_constants_are_what_the_fit_finds(name: str) -> None:
    table = DATASETS[name]
    law = fit(table.messages, table.keys_seen, table.p1)
    assert law.exponent == pytest.approx(table.law.exponent, rel=1e-5)
    assert law.keys == pytest.approx(table.law.keys, rel=1e-3)
    assert law.p1 == table.law.p1


def test_a_shorter_stream_is_the_beginning_of_the_long_one() -> None:
    short, long = dataset("wikipedia", messages=1000, seed=4), dataset("wikipedia", seed=4)
    assert short.messages == 1000
    assert (short.draw(0, 1000) == long.draw(0, 1000)).all()


def test_names_say_that_the_data_are_generated() -> None:
    workload = dataset("twitter", messages=10)
    assert workload.name == "twitter (generated)"
    assert "Consistent Grouping, Table I" in workload.description


def test_zipf_of_consistent_grouping_has_any_exponent() -> None:
    workload = dataset("zipf", exponent=0.1)
    assert (workload.exponent, workload.keys, workload.messages) == (0.1, 100_000, 10_000_000)
    assert dataset("zipf", messages=5).exponent == 1.0


def test_fit_recovers_a_pure_zipf_law() -> None:
    true = Zipf(1.1, 80_000, 1_000_000)
    law = fit(1_000_000, round(true.expected_keys()), true.p(1))
    assert law.exponent == pytest.approx(1.1, abs=1e-3)
    assert law.keys == pytest.approx(80_000, rel=0.01)
    assert law.p1 is None


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: dataset("reddit"), "no data set 'reddit'; choose one of ddos, .*zipf"),
        (lambda: dataset("ddos", exponent=1.0), "exponent = 1.0 is for 'zipf' only"),
        (lambda: dataset("ddos", messages=0), "messages must be from 1"),
        (lambda: fit(10, 11, 0.5), "keys_seen must be from 1 to messages = 10, not 11"),
        (lambda: fit(10, 5, 1.5), "p1 must be above 0 and below 1"),
        (
            lambda: fit(100, 99, 0.5),
            "no Zipf law .* 99 keys in 100 .* first key of 0.5; give fewer keys",
        ),
    ],
)
def test_errors_name_the_value_and_the_way_out(call: Callable[[], object], says: str) -> None:
    with pytest.raises(BadParameter, match=says):
        call()
