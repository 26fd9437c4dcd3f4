"""Locality-aware routing, Figures 7 to 9: tuples of given locality and size on 1 to 6 nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from unskew.experiments.base import Answers, Axis, Figure, Row, Sizes, Task
from unskew.experiments.locality_topology import (
    BYTE,
    FAST,
    FIRST,
    HANDLING,
    KEYS,
    SECOND,
    SERIES,
    Synthetic,
)
from unskew.experiments.ls_stream_rows import higher, lines, lower

AWARE, HASH, WORST = SERIES

THROUGHPUT = "throughput, tuples/s"
GAIN = "most that 10 points of locality bring, %"
FLAT = "locality from which there is no further gain, %"
COST = "throughput lower through the network, %"
AHEAD = "locality-aware over hash-based"
SECOND_NODE = "throughput of two nodes higher than of one, %"

PADDINGS, WIDE_PADDINGS = (0, 8_000, 20_000), (0, 4_000, 8_000, 12_000, 16_000, 20_000)
"""Bytes, of the panels of Figure 7 and of the lines of Figure 9."""

ENDS, LOCALITIES = (60, 100), tuple(range(60, 101, 5))
"""Percent, of the panels of Figure 7 and of the lines of Figure 8."""

PADDING, LOCALITY = 12_000, 80
"""Of Figures 8 and 9."""

NODES = (2, 4, 6)
"""Panels of Figures 8 and 9."""

NEAR = 0.01
"""Points of a line are the same if they differ by at most this part."""

Settings = Sequence[tuple[int, int, int]]
"""Nodes, bytes of padding, and percent of locality."""


def _tasks(settings: Callable[[Sizes], Settings]) -> Callable[[Sizes], list[Task]]:
    def tasks(sizes: Sizes) -> list[Task]:
        return [
            Synthetic(series, *setting, sizes.simulated)
            for setting in settings(sizes)
            for series in SERIES
        ]

    return tasks


def _found(answers: Answers, sizes: Sizes, setting: tuple[int, int, int]) -> dict[str, float]:
    return {name: answers[Synthetic(name, *setting, sizes.simulated)] for name in SERIES}


def _over_nodes(sizes: Sizes) -> Settings:
    return [(n, each, part) for part in ENDS for each in PADDINGS for n in sizes.counts]


def _over_locality(sizes: Sizes) -> Settings:
    return [(n, PADDING, part) for n in NODES for part in LOCALITIES]


def _over_padding(sizes: Sizes) -> Settings:
    return [(n, each, LOCALITY) for n in NODES for each in WIDE_PADDINGS]


def _by_series(
    answers: Answers, sizes: Sizes, settings: dict[float, tuple[int, int, int]]
) -> dict[str, dict[float, float]]:
    found = {x: _found(answers, sizes, setting) for x, setting in settings.items()}
    return {name: {x: own[name] for x, own in found.items()} for name in SERIES}


def _figure_7(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    rows = []
    for part in ENDS:
        for padding in PADDINGS:
            panel = f"locality {part} %, padding {padding // 1000} kB"
            own = _by_series(answers, sizes, {n: (n, padding, part) for n in sizes.counts})
            case = f"{panel}, {{x:g}} nodes, {{series}}"
            rows += lines(seed, "7", case, THROUGHPUT, own, panel=panel)
            if {1, 2} <= set(sizes.counts) and part == ENDS[0]:
                more = {AWARE: {2.0: higher(own[AWARE][2], own[AWARE][1])}}
                rows += lines(seed, "7", f"{panel}, {{series}}", SECOND_NODE, more)
    most = max(sizes.counts)
    plain = _found(answers, sizes, (most, 0, 100))
    for name, paper in ((WORST, 22.0), (HASH, None)):
        case = f"locality 100 %, no padding, {most} nodes, {name}"
        rows.append(
            Row(seed, "7", case, COST, paper, lower(plain[name], plain[AWARE]), series=name)
        )
    return rows


def _figure_8(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    rows = []
    for n in NODES:
        panel = f"{n} nodes"
        own = _by_series(answers, sizes, {part: (n, PADDING, part) for part in LOCALITIES})
        rows += lines(seed, "8", f"{panel}, {{x:g}} %, {{series}}", THROUGHPUT, own, panel=panel)
        line = own[AWARE]
        gain = max(higher(line[each + 10], line[each]) for each in LOCALITIES if each <= 90)
        flat = min(each for each in LOCALITIES if line[each] >= (1 - NEAR) * line[100])
        rows += [
            Row(seed, "8", f"{panel}, {AWARE}", GAIN, 25.0, gain, series=AWARE),
            Row(seed, "8", f"{panel}, {AWARE}", FLAT, 90.0, flat, series=AWARE),
        ]
    return rows


def _figure_9(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    rows = []
    for n in NODES:
        panel = f"{n} nodes"
        settings = {each / 1000: (n, each, LOCALITY) for each in WIDE_PADDINGS}
        own = _by_series(answers, sizes, settings)
        rows += lines(seed, "9", f"{panel}, {{x:g}} kB, {{series}}", THROUGHPUT, own, panel=panel)
        ratios = {AWARE: {x: own[AWARE][x] / own[HASH][x] for x in settings}}
        rows += lines(seed, "9", f"{panel}, {{x:g}} kB", AHEAD, ratios)
    return rows


_MODEL = (
    f"On {FAST:g} Gb/s. {1e6 * FIRST:.2f} microseconds of work a tuple at the first count and "
    f"{1e6 * SECOND:.2f} at the second, {1e6 * HANDLING:.2f} more if it comes from another node, "
    f"with {1e9 * BYTE:.2f} for each kB of its padding: fixed from the axis of Figure 8, the 22 % "
    f"of Figure 7, and the 25 % and the 90 % of Figure 8, as the paper gives none. {KEYS} keys for "
    f"each node, where the paper has one, so that hashing is balanced."
)
_NODES = Axis("nodes")
_RATE = Axis("tuples/s")

FIGURES = (
    Figure(
        number="7",
        title="Throughput over nodes",
        x=_NODES,
        y=_RATE,
        series=SERIES,
        tasks=_tasks(_over_nodes),
        rows=_figure_7,
        metric=THROUGHPUT,
        remark=_MODEL,
    ),
    Figure(
        number="8",
        title="Throughput over locality",
        x=Axis("locality, %"),
        y=_RATE,
        series=SERIES,
        tasks=_tasks(_over_locality),
        rows=_figure_8,
        metric=THROUGHPUT,
        remark=f"Padding of {PADDING // 1000} kB. {_MODEL}",
    ),
    Figure(
        number="9",
        title="Throughput over the size of tuples",
        x=Axis("padding, kB"),
        y=_RATE,
        series=SERIES,
        tasks=_tasks(_over_padding),
        rows=_figure_9,
        metric=THROUGHPUT,
        remark=f"{LOCALITY} % of locality. {_MODEL}",
    ),
)
