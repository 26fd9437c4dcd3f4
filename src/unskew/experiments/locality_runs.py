"""Locality-aware routing, Figures 13 and 14: half an hour of stable posts, with plans or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from unskew.balance import Locality, Plan
from unskew.experiments.base import Answers, Axis, Figure, Row, Sizes, Task
from unskew.experiments.locality_chain import (
    KEY_BYTES,
    PAIRS,
    Keys,
    hashed,
    measured,
    pairs_of,
    planned,
    posts_of,
)
from unskew.experiments.locality_topology import FAST, SLOW, TUPLE_BYTES, counts, throughput
from unskew.experiments.ls_stream_rows import lines
from unskew.simulator import KeyColumns, Steady, simulate
from unskew.simulator.key_states import KeyStates

SERIES = WITH, WITHOUT = ("reconfigured", "hash-based")

MINUTES, STEP, EVERY = 30, 2, 10
"""Of a run, from one point of a line to the next, and from plan to plan."""

PADDINGS = (4_000, 8_000, 12_000)
NODES = 6

PADDING, GIGABITS = 4_000, SLOW
"""Of Figure 14."""

STATES = (100, 1_000, 10_000, 100_000)
"""Bytes of the state of a key, for what pays."""

SHARE = 0.9
"""Rate of the runs at a fixed rate, as a part of what hash-based holds."""

SAMPLE = 100_000
"""Pairs that each instance counts in those."""

THROUGHPUT, LATENCY = "throughput, tuples/s", "latency, ms"
TIMES = "throughput after the first plan, in those of hash-based"
LOCALITY = "locality after the first plan, %"
MOVED, PAUSE = "keys moved by the plan", "ms that an instance stands still for it"
WOULD_MOVE = "keys that a plan would move"


@dataclass(frozen=True)
class HalfHour:
    """What came of half an hour.

    Attributes
    ----------
    minutes : tuple of float
        End of each slice.
    found : dict of str to tuple of float
        Tuples a second in each slice, of each series.
    locality : float
        After the first plan.
    moved, pauses : tuple of int and of float
        Keys that each plan moved, and seconds that the instance with most of their state needs.
    """

    minutes: tuple[float, ...]
    found: dict[str, tuple[float, ...]]
    locality: float
    moved: tuple[int, ...]
    pauses: tuple[float, ...]

    def after(self, series: str) -> float:
        """Return the mean tuples a second since the first plan."""
        own = zip(self.minutes, self.found[series], strict=True)
        return fmean(each for minute, each in own if minute > EVERY)


@dataclass(frozen=True)
class Stable(Task):
    """Measure the throughput of each slice of half an hour, at its limit.

    Attributes
    ----------
    nodes, padding : int
        How many, and bytes.
    gigabits : float
        Of the network.
    messages : int
        Posts that stand for those of a slice.
    """

    nodes: int
    padding: int
    gigabits: float
    messages: int

    @property
    def label(self) -> str:
        """What the progress bar calls it."""
        return f"{self.nodes} nodes, {self.padding // 1000} kB, {self.gigabits:g} Gb/s"

    def run(self, seed: int) -> HalfHour:
        """Measure."""
        slices = stable_slices(self.messages, seed)
        plans = plain = hashed(self.nodes)
        states = [KeyStates(0.0, KEY_BYTES) for _ in plans]
        found: dict[str, list[float]] = {name: [] for name in SERIES}
        moved, pauses, near = [], [], []
        since: list[Keys] = []
        for number, keys in enumerate(slices):
            pause = 0.0
            if number and number % (EVERY // STEP) == 0:
                seen = pairs_of(_all(since))
                row = float(TUPLE_BYTES + self.padding)
                later = planned(plans, seen, row_bytes=row)
                count, pause = self._move(states, plans, later)
                moved.append(count)
                pauses.append(pause)
                plans, since = later, []
            for name, own in ((WITH, plans), (WITHOUT, plain)):
                rate = throughput(KeyColumns(*keys), own, self.padding, self.gigabits)
                found[name].append(rate * (1 - (pause if name == WITH else 0.0) / (60 * STEP)))
            if moved:
                near.append(measured(plans, keys).locality)
            since.append(keys)
            for state, own_keys in zip(states, keys, strict=True):
                state.add(own_keys)
        return HalfHour(
            tuple(float(minute) for minute in range(STEP, MINUTES + 1, STEP)),
            {name: tuple(rates) for name, rates in found.items()},
            fmean(near),
            tuple(moved),
            tuple(pauses),
        )

    def _move(
        self, states: Sequence[KeyStates], before: Sequence[Plan], after: Sequence[Plan]
    ) -> tuple[int, float]:
        """Return the keys that move, and the seconds that this takes the slowest instance."""
        flows = sum(
            (state.moved(*each) for state, *each in zip(states, before, after, strict=True)),
            start=np.zeros((self.nodes, self.nodes)),
        )
        most = max(flows.sum(axis=0).max(), flows.sum(axis=1).max())
        return round(flows.sum() / KEY_BYTES), float(most / (self.gigabits * 1e9 / 8))


@dataclass(frozen=True)
class Paying(Task):
    """Count the keys that plans would move if the state of each had so many bytes.

    Answers by the minute and the bytes: at the first plan, and at the second after the first.
    """

    messages: int

    @property
    def label(self) -> str:
        """What the progress bar calls it."""
        return "what pays"

    def run(self, seed: int) -> dict[tuple[int, int], int]:
        """Measure."""
        slices, plans = stable_slices(self.messages, seed), hashed(NODES)
        found = {}
        for number in (1, 2):
            end = number * EVERY // STEP
            pairs = pairs_of(_all(slices[end - EVERY // STEP : end]))
            row_bytes = float(TUPLE_BYTES + PADDING)
            for size in STATES:
                other = planned(plans, pairs, row_bytes=row_bytes, key_bytes=size)
                moved = (new.rehomed(old) for old, new in zip(plans, other, strict=True))
                found[number * EVERY, size] = sum(each.keys.size for each in moved)
            plans = planned(plans, pairs, row_bytes=row_bytes)
        return found


@dataclass(frozen=True)
class Live(Task):
    """Measure latency at a rate that hash-based holds, with plans made while tuples flow.

    Answers with the mean latency of each slice, in seconds.
    """

    series: str
    padding: int
    gigabits: float
    messages: int

    @property
    def label(self) -> str:
        """What the progress bar calls it."""
        return f"latency, {self.series}, {self.padding // 1000} kB, {self.gigabits:g} Gb/s"

    def run(self, seed: int) -> list[float]:
        """Measure."""
        slices, plans = stable_slices(self.messages, seed), hashed(NODES)
        first = KeyColumns(*slices[0])
        rate = SHARE * throughput(first, plans, self.padding, self.gigabits)
        keys = _all(slices)
        balancer = Locality(period=1, pairs=SAMPLE, keys=PAIRS) if self.series == WITH else None
        stages = counts(
            *(plans, self.padding, self.gigabits),
            balancer=balancer,
            key_bytes=KEY_BYTES,
            move_seconds_per_byte=8e-9 / self.gigabits,
        )
        seconds = keys[0].size / rate
        result = simulate(
            *(KeyColumns(*keys), Steady(rate), stages),
            sources=NODES,
            control=seconds * EVERY / MINUTES,
            keep_trace=True,
            seed=seed,
        )
        assert result.trace is not None
        born, left = result.trace[np.argsort(result.trace[:, 0], kind="stable")].T
        return [float(each.mean()) for each in np.array_split(left - born, MINUTES // STEP)]


def stable_slices(messages: int, seed: int) -> list[Keys]:
    """Return the posts of each slice of half an hour."""
    slices = MINUTES // STEP
    posts = posts_of(messages * (EVERY // STEP), seed, stable=True)
    return [posts.draw(each * messages, (each + 1) * messages) for each in range(slices)]


def _all(slices: Sequence[Keys]) -> Keys:
    regions, tags = (np.concatenate(column) for column in zip(*slices, strict=True))
    return regions, tags


def _over_time(sizes: Sizes) -> list[Task]:
    return [
        Stable(NODES, padding, gigabits, sizes.simulated)
        for gigabits in (FAST, SLOW)
        for padding in PADDINGS
    ]


def _latencies(sizes: Sizes) -> list[Task]:
    return [
        Live(name, PADDING, gigabits, sizes.simulated)
        for gigabits in (FAST, SLOW)
        for name in SERIES
    ]


def _figure_13(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    rows = []
    ratios = {}
    for task in _over_time(sizes):
        assert isinstance(task, Stable)
        got: HalfHour = answers[task]
        panel = f"{task.gigabits:g} Gb/s, padding {task.padding // 1000} kB"
        own = {name: dict(zip(got.minutes, got.found[name], strict=True)) for name in SERIES}
        rows += lines(
            seed, "13", f"{panel}, minute {{x:g}}, {{series}}", THROUGHPUT, own, panel=panel
        )
        ratios[panel] = got.after(WITH) / got.after(WITHOUT)
        rows += [
            Row(seed, "13", panel, TIMES, None, ratios[panel], series=WITH),
            Row(seed, "13", panel, LOCALITY, None, 100 * got.locality, series=WITH),
        ]
        for number, (moved, pause) in enumerate(zip(got.moved, got.pauses, strict=True), 1):
            case = f"{panel}, minute {number * EVERY}"
            rows += [
                Row(seed, "13", case, MOVED, None, moved, series=WITH),
                Row(seed, "13", case, PAUSE, None, 1000 * pause, series=WITH),
            ]
    rows.append(Row(seed, "13", "the most of all", TIMES, 2.0, max(ratios.values()), series=WITH))
    for (minute, size), count in answers[Paying(sizes.simulated)].items():
        case = f"padding {PADDING // 1000} kB, minute {minute}, {size / 1000:g} kB of state a key"
        rows.append(Row(seed, "13", case, WOULD_MOVE, None, count, series=WITH))
    for task in _latencies(sizes):
        assert isinstance(task, Live)
        times = range(STEP, MINUTES + 1, STEP)
        line = {float(x): 1000 * y for x, y in zip(times, answers[task], strict=True)}
        case = f"{task.gigabits:g} Gb/s, padding {PADDING // 1000} kB, minute {{x:g}}, {{series}}"
        rows += lines(seed, "13", case, LATENCY, {task.series: line})
    return rows


def _over_nodes(sizes: Sizes) -> list[Task]:
    return [Stable(n, PADDING, GIGABITS, sizes.simulated) for n in sizes.counts if n > 1]


def _figure_14(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    found: dict[int, HalfHour] = {}
    for task in _over_nodes(sizes):
        assert isinstance(task, Stable)
        found[task.nodes] = answers[task]
    own = {name: {float(n): got.after(name) for n, got in found.items()} for name in SERIES}
    ratios = {WITH: {float(n): got.after(WITH) / got.after(WITHOUT) for n, got in found.items()}}
    near = {WITH: {float(n): 100 * got.locality for n, got in found.items()}}
    return [
        *lines(seed, "14", "{x:g} nodes, {series}", THROUGHPUT, own),
        *lines(seed, "14", "{x:g} nodes", TIMES, ratios),
        *lines(seed, "14", "{x:g} nodes", LOCALITY, near),
    ]


_DATA = (
    "Posts are generated, alike all the time, in place of the pictures of Flickr. Each point is a "
    "run of its own at its limit, with the plan that was in force then, of posts that stand for "
    "those of two minutes; the time that a plan makes instances stand still is taken off. The work "
    "of a tuple is that of Figure 7."
)

FIGURES = (
    Figure(
        number="13",
        title="Throughput over time",
        x=Axis("minute"),
        y=Axis("tuples/s"),
        series=SERIES,
        tasks=lambda sizes: [*_over_time(sizes), Paying(sizes.simulated), *_latencies(sizes)],
        rows=_figure_13,
        metric=THROUGHPUT,
        remark=f"{NODES} nodes, a plan every {EVERY} minutes. Latencies, in the table, are at "
        f"{100 * SHARE:g} % of what hash-based holds, with plans made while tuples flow, of the "
        f"{SAMPLE:,} pairs that each instance counts. {_DATA}",
    ),
    Figure(
        number="14",
        title="Throughput over nodes, with plans or without",
        x=Axis("nodes"),
        y=Axis("tuples/s"),
        series=SERIES,
        tasks=_over_nodes,
        rows=_figure_14,
        metric=THROUGHPUT,
        remark=f"Padding of {PADDING // 1000} kB, {GIGABITS:g} Gb/s, means after the first plan. "
        f"{_DATA}",
    ),
)
