"""St-Stream, Figures 10 to 17: nodes, slots, latency and densities, before balancing and after."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.stats import gaussian_kde

from unskew.experiments.base import Answers, Axis, Figure, Row, Sizes, Task
from unskew.experiments.st_stream_topology import (
    NAMES,
    OURS,
    RANDOM,
    SERIES,
    SERVICES,
    SETTLED,
    STORM,
    Run,
    Words,
    slots_of_nodes,
)
from unskew.metrics import balance_degree, utilisation_spread

CPU = "CPU, %"
SPREAD = "distance of the highest and the lowest node, points"
SETTLED_AT = "all nodes from 30 to 60 % since, s"
CHANGE = "change of CPU, points"
SLOTS = "distance of the highest and the lowest slot of the node, points"
LATENCY = "latency, ms"
LOWER = "latency lower by, %"
DENSITY = "density"
PEAK = "density is highest at CPU, %"
DEGREE = "highest over mean of the nodes"
RECOVERY = "highest over mean, after in those before, %"
OFFSET = "highest offset degree of a node"
MOVED = "shards that moved"
SPLIT_KEYS = "words that were split"

BEFORE = {"S1": 11.25, "S2": 21.2, "S7": 88.5}
AFTER = {"S1": 35.6, "S2": 40.0, "S6": 54.0, "S7": 57.0}
CHANGES = {"S1": 24.375, "S5": 3.75}
"""What the paper states of Figures 12 and 13."""

NORMAL = (30.0, 60.0)
"""What the paper calls normal."""

TRENDS = ("highest", "mean", "lowest")
GRID = np.arange(0.0, 101.0, 2.0)
"""Loads at which densities are drawn."""


def _run(answers: Answers, sizes: Sizes, series: str, service: str = RANDOM) -> Run:
    run: Run = answers[Words(series, sizes.simulated, service)]
    return run


def _both(sizes: Sizes) -> list[Task]:
    return [Words(series, sizes.simulated) for series in SERIES]


def _over_time(seed: int, figure: str, run: Run) -> list[Row]:
    return [
        Row(seed, figure, f"{name}, second {time:g}", CPU, None, 100 * load, "", "", time, name)
        for name, line in zip(NAMES, run.loads.T, strict=True)
        for time, load in zip(run.times.tolist(), line.tolist(), strict=True)
    ]


def _figure_10(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    run = _run(answers, sizes, STORM)
    spread = 100 * utilisation_spread(run.loads.mean(axis=0))
    note = "the paper says about 70 here, and 77.25 with Figure 12"
    return [
        *_over_time(seed, "10", run),
        Row(seed, "10", "means of all the time", SPREAD, 70.0, spread, note),
    ]


def _figure_11(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    run = _run(answers, sizes, OURS)
    late = 100 * run.loads[run.is_settled]
    where = f"of any node and slice after {SETTLED:g} s"
    return [
        *_over_time(seed, "11", run),
        Row(seed, "11", f"lowest {where}", "lowest CPU, %", 40.0, float(late.min())),
        Row(seed, "11", f"highest {where}", "highest CPU, %", 60.0, float(late.max())),
        Row(seed, "11", "from the first second on", SETTLED_AT, SETTLED, settled_at(run)),
    ]


def settled_at(run: Run) -> float:
    """Return the start of the first slice since which all nodes are normal."""
    low, high = NORMAL
    normal = np.all((100 * run.loads >= low) & (100 * run.loads <= high), axis=1)
    wrong = np.flatnonzero(~normal)
    return 0.0 if not wrong.size else float(run.times[wrong[-1]])


def _figure_12(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    rows = []
    for series, stated, spread in ((STORM, BEFORE, 77.25), (OURS, AFTER, 21.4)):
        run = _run(answers, sizes, series)
        loads = 100 * run.settled(run.loads)
        rows += _by_node(seed, "12", CPU, series, loads, stated)
        case = f"{series}, after {SETTLED:g} s"
        rows.append(Row(seed, "12", case, SPREAD, spread, utilisation_spread(loads), series=series))
    return rows


def _by_node(
    seed: int,
    figure: str,
    metric: str,
    series: str,
    values: NDArray[np.float64],
    stated: Mapping[str, float],
) -> list[Row]:
    return [
        Row(
            *(seed, figure, f"{name}, {series}", metric, stated.get(name), value),
            *("", "", float(number), series),
        )
        for number, (name, value) in enumerate(zip(NAMES, values.tolist(), strict=True), 1)
    ]


def _figure_13(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    runs = {series: _run(answers, sizes, series) for series in SERIES}
    before, after = (100 * run.settled(run.loads) for run in runs.values())
    rows = _by_node(seed, "13", CHANGE, OURS, np.abs(after - before), CHANGES)
    for series, run in runs.items():
        slots = 100 * run.settled(run.slots)
        spreads = [utilisation_spread(slots[own]) for own in slots_of_nodes()]
        rows += _by_node(seed, "13", SLOTS, series, np.array(spreads), {})
    return rows


def _latencies(sizes: Sizes) -> list[Task]:
    return [Words(series, sizes.simulated, service) for service in SERVICES for series in SERIES]


def _figure_14(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    rows = []
    for service in SERVICES:
        means = {}
        for series, paper in ((STORM, 17.0), (OURS, 14.0)):
            run = _run(answers, sizes, series, service)
            means[series] = 1000 * float(run.settled(run.latency))
            rows += [
                Row(
                    *(seed, "14", f"{series}, {service} work, second {time:g}", LATENCY, None),
                    *(1000 * latency, "", f"{service} work", time, series),
                )
                for time, latency in zip(run.times.tolist(), run.latency.tolist(), strict=True)
            ]
            case = f"{series}, {service} work, after {SETTLED:g} s"
            note = "fixes what a word takes beside service and queues" if series == STORM else ""
            rows.append(
                Row(seed, "14", case, "mean latency, ms", paper, means[series], note, series=series)
            )
        lower = 100 * (1 - means[OURS] / means[STORM])
        rows.append(Row(seed, "14", f"{service} work", LOWER, 17.6, lower, series=OURS))
    return rows


def _densities(figure: str, series: str, answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    run = _run(answers, sizes, series)
    rows, peaks = [], []
    for name, samples in zip(NAMES, 100 * run.loads[run.is_settled].T, strict=True):
        density = gaussian_kde(samples)
        rows += [
            Row(seed, figure, f"{name}, {x:g} %", DENSITY, None, float(y), "", "", float(x), name)
            for x, y in zip(GRID, density(GRID), strict=True)
        ]
        fine = np.arange(0.0, 100.0, 0.1)
        peaks.append(float(fine[density(fine).argmax()]))
        rows.append(Row(seed, figure, name, PEAK, None, peaks[-1], series=name))
    if series == OURS:
        rows += [
            Row(seed, figure, "lowest of all nodes", PEAK, 40.0, min(peaks)),
            Row(seed, figure, "highest of all nodes", PEAK, 60.0, max(peaks)),
        ]
    return rows


def _figure_15(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    return _densities("15", STORM, answers, sizes, seed)


def _figure_16(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    return _densities("16", OURS, answers, sizes, seed)


def _figure_17(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    run = _run(answers, sizes, OURS)
    lines = (run.loads.max(axis=1), run.loads.mean(axis=1), run.loads.min(axis=1))
    rows = [
        Row(seed, "17", f"{name}, second {time:g}", CPU, None, 100 * load, "", "", time, name)
        for name, line in zip(TRENDS, lines, strict=True)
        for time, load in zip(run.times.tolist(), line.tolist(), strict=True)
    ]
    degrees = {
        series: balance_degree(each.settled(each.loads))
        for series in SERIES
        for each in [_run(answers, sizes, series)]
    }
    recovery = 100 * degrees[OURS] / degrees[STORM]
    first, last = run.done[0], run.done[-1]
    moved = sum(len(each.within) + len(each.between) for each in run.done)
    split = sum(len(each.split) for each in run.done)
    return [
        *rows,
        Row(seed, "17", "storm", DEGREE, 1.738, degrees[STORM], "fixes the loads of S3 to S6"),
        Row(seed, "17", "two-tier", DEGREE, 1.4401, degrees[OURS]),
        Row(seed, "17", "two-tier", RECOVERY, 82.86, recovery),
        *(
            Row(seed, "17", when, OFFSET, None, float(np.nanmax(each.offsets[1])))
            for when, each in (("at the first look", first), ("at the last look", last))
        ),
        Row(seed, "17", "two-tier, both stages, all the time", MOVED, None, moved),
        Row(seed, "17", "two-tier, all the time", SPLIT_KEYS, None, split),
    ]


def _storm(sizes: Sizes) -> list[Task]:
    return [Words(STORM, sizes.simulated)]


def _ours(sizes: Sizes) -> list[Task]:
    return [Words(OURS, sizes.simulated)]


_DATA = (
    "3,500 words a second, split and counted on seven nodes of four and two cores; loads of S1, S2 "
    "and S7 before balancing are the paper's, others ours. The balancer looks every 60 s."
)
_TIME, _NODE, _LOAD = Axis("second"), Axis("node"), Axis("CPU, %")

FIGURES = (
    Figure(
        *("10", "CPU of the nodes before balancing", _TIME, _LOAD, NAMES, _storm, _figure_10, CPU),
        remark=_DATA,
    ),
    Figure(
        *("11", "CPU of the nodes with balancing", _TIME, _LOAD, NAMES, _ours, _figure_11, CPU),
        remark=_DATA,
    ),
    Figure(
        *("12", "CPU of each node, before and after", _NODE, _LOAD, SERIES, _both, _figure_12),
        *(CPU, f"Means after {SETTLED:g} s. {_DATA}"),
    ),
    Figure(
        *("13", "Slots of each node, before and after", _NODE, Axis("points"), SERIES, _both),
        *(_figure_13, SLOTS, f"Slots of the stage that counts, means after {SETTLED:g} s. {_DATA}"),
    ),
    Figure(
        *("14", "Latency", _TIME, Axis("ms"), SERIES, _latencies, _figure_14, LATENCY),
        remark=f"The work of words is exponentially distributed, or the same for all. {_DATA}",
    ),
    Figure(
        *("15", "Density of the loads before balancing", _LOAD, Axis("density"), NAMES, _storm),
        *(_figure_15, DENSITY, f"Of slices of 10 s after {SETTLED:g} s. {_DATA}"),
    ),
    Figure(
        *("16", "Density of the loads with balancing", _LOAD, Axis("density"), NAMES, _ours),
        *(_figure_16, DENSITY, f"Of slices of 10 s after {SETTLED:g} s. {_DATA}"),
    ),
    Figure(
        *("17", "Trend of the cluster, and recovery", _TIME, _LOAD, TRENDS, _both, _figure_17, CPU),
        remark=f"The paper's balance degree is not defined; ours is highest over mean. {_DATA}",
    ),
)
