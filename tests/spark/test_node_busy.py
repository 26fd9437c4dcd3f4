"""Busy time of nodes with the other pipelines of a session."""

from __future__ import annotations

import pytest

from unskew.spark import node_busy


class Clock:
    """A time that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock, where nothing has happened yet."""
    made = Clock()
    monkeypatch.setattr(node_busy, "_past", node_busy._past.__class__(maxlen=10))
    monkeypatch.setattr(node_busy, "_last", {})
    monkeypatch.setattr(node_busy, "_running", {})
    monkeypatch.setattr(node_busy, "monotonic", made)
    return made


def test_of_others_counts_what_was_in_the_interval(clock: Clock) -> None:
    node_busy.note("one", 4.0, {"a:1": 2.0, "a:2": 1.0})
    node_busy.note("two", 1.0, {"a:1": 0.5})
    assert node_busy.elsewhere("two", 8.0) == pytest.approx({"a:1": 2.0, "a:2": 1.0})
    clock.now = 102.0
    # Half of what was from 96 to 100 is after 98.
    assert node_busy.elsewhere("two", 4.0) == pytest.approx({"a:1": 1.0, "a:2": 0.5})
    assert node_busy.elsewhere("one", 4.0) == pytest.approx({"a:1": 0.5})
    clock.now = 110.0
    assert node_busy.elsewhere("three", 5.0) == {}


def test_a_batch_that_is_still_running_counts_as_the_one_before_it(clock: Clock) -> None:
    node_busy.note("one", 4.0, {"a:1": 2.0})
    clock.now = 110.0
    with node_busy.running("one"):
        clock.now = 113.0
        # Half a core for the three seconds since it began, and not for the time without a batch.
        assert node_busy.elsewhere("two", 5.0) == pytest.approx({"a:1": 1.5})
        assert node_busy.elsewhere("two", 2.0) == pytest.approx({"a:1": 1.0})
        assert node_busy.elsewhere("one", 5.0) == {}
        node_busy.note("one", 3.0, {"a:1": 0.3})
        # Now that it has ended, what it did counts, and that alone.
        assert node_busy.elsewhere("two", 5.0) == pytest.approx({"a:1": 0.3})
    assert node_busy.elsewhere("two", 5.0) == pytest.approx({"a:1": 0.3})


def test_a_batch_that_failed_and_a_pipeline_that_was_closed_run_no_more(clock: Clock) -> None:
    node_busy.note("one", 4.0, {"a:1": 2.0})
    clock.now = 110.0
    with pytest.raises(ValueError, match="lost"), node_busy.running("one"):
        raise ValueError("lost")
    clock.now = 112.0
    assert node_busy.elsewhere("two", 2.0) == {}
    node_busy.forget("one")
    with node_busy.running("one"):
        clock.now = 114.0
        assert node_busy.elsewhere("two", 2.0) == {}
    # What it did is known nevertheless.
    assert node_busy.elsewhere("two", 16.0) == pytest.approx({"a:1": 1.0})


def test_of_a_first_batch_nothing_is_known_before_it_ends(clock: Clock) -> None:
    with node_busy.running("one"):
        clock.now = 105.0
        assert node_busy.elsewhere("two", 5.0) == {}
