"""Consistent Grouping without Spark: its bounds, its memory, and machines that are not alike.

Bound: the imbalance of random choices (PoRC) on every workload of the paper, asked at most
e + n / m; and the longest walk of a key over its choices, which ends after 100. Memory: the keys
that it keeps over those of partial-key (PKG), asked at most 1.1 with up to 100 bins. Changes: ten
workers whose speeds change twice, 100 shards each, asked a spread of utilisations below 0.1 within
5 % of the messages after each change, and no shard that goes back within ten intervals after that.
Chance: the spread that is left under a plan which fits the speeds from the start.
Shards: the same speeds with too few shards, which are divided. Batches: three machines of which one
has 30 % of the speed of the others, a batch each being one interval.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unskew.balance import Consistent, Plan, Report
from unskew.compare import compare
from unskew.experiments.consistent_grouping_runs import (
    CHANGING,
    LAG,
    LOAD,
    OURS,
    PUBLISHED,
    SLICES,
    SOURCES,
    UNLIKE,
    Follow,
)
from unskew.experiments.consistent_grouping_schemes import open_source
from unskew.grouping.choices import key_bits, scatter
from unskew.kernel import compiled
from unskew.mixing import counter_bits, spread_seed
from unskew.simulator import Constant, Stage, simulate
from unskew.workloads import dataset

E, TRIES = 0.01, 100
WORKLOADS = (*(f"zipf {each / 10:g}" for each in (1, 4, 8, 12, 16, 20)), "wikipedia", "twitter")
BINS = (10, 20, 50, 100, 200, 500, 1000)
DAY = 22_000_000
SEEDS = {SLICES: range(20), SLICES // 2: range(10)}
"""By the slices of a day. The parameters of ours were chosen with the first ten."""
OTHERS = (PUBLISHED, "key", "shuffle")


def bound(scale: float) -> None:
    """Print the imbalance of random choices, and how far its keys walk."""
    messages = int(4_000_000 * scale)
    print(f"\nRandom choices, e = {E}, {messages:,} messages: imbalance, and the longest walk\n")
    print(
        "| workload | bins | imbalance | asked at most | longest walk without an end | mean walk |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for source in WORKLOADS:
        keys = np.concatenate(list(open_source(source, messages, 0).batches()))
        for row in compare(open_source(source, messages, 0), (10, 100, 1000), ["random-choices"]):
            n = row.instances
            longest, mean = _walks(keys, n, spread_seed(0), E, 10_000)
            print(
                f"| {source} | {n} | {row.imbalance:.5f} | {E + n / messages:.5f} | {longest:,} "
                f"| {mean:.2f} |",
                flush=True,
            )
    print(f"\nThe walk of the grouping ends after {TRIES} choices, at the least loaded.")


@compiled
def _walks(
    keys: NDArray[np.uint64], bins: int, seed: np.uint64, e: float, tries: int
) -> tuple[int, float]:
    """Return the longest and the mean walk of the paper's algorithm, which has no end."""
    loads = np.zeros(bins, dtype=np.int64)
    longest, total = 0, 0
    for i in range(keys.size):
        bits = key_bits(keys[i], seed)
        room = (1.0 + e) / bins * (i + 1)
        place, walked = 0, 0
        for j in range(tries):
            place, walked = scatter(counter_bits(bits, np.uint64(j)), bins), j + 1
            if loads[place] < room:
                break
        loads[place] += 1
        longest, total = max(longest, walked), total + walked
    return longest, total / keys.size


def memory(scale: float) -> None:
    """Print the keys that random choices keep over those of partial-key."""
    messages = int(DAY * scale)
    names = ["key", "partial-key", "random-choices", "bounded-ring", "shuffle"]
    print(f"\nWikipedia (generated), {messages:,} messages: keys kept over those of partial-key\n")
    print("| bins | key | random-choices, asked at most 1.1 up to 100 | bounded-ring | shuffle |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for bins in BINS:
        rows = compare(open_source("wikipedia", messages, 0), [bins], names)
        kept = {row.grouping: row.memory_keys for row in rows}
        ratios = [kept[name] / kept["partial-key"] for name in names if name != "partial-key"]
        print(f"| {bins} | {' | '.join(f'{ratio:.3f}' for ratio in ratios)} |", flush=True)


def changes(scale: float) -> None:
    """Print how long workers whose speeds change take to be balanced again."""
    messages = int(DAY * scale)
    print(
        f"\n{messages:,} messages from {SOURCES} sources, {{3, 5}}, {{5, 4}}, {{2, 10}}, 100 "
        f"shards for each worker; the last source hears of a plan after {LAG:g} of an interval\n"
    )
    print(
        "| routed by | slices | seed | settled after, % of the messages | largest spread after 5 % "
        "| moves | back | largest queue | queue at the end |"
    )
    print(f"| --- |{' ---: |' * 8}")
    # Chance differs by seed, and with the tuples of an interval: one lucky run shows nothing.
    ours = [(OURS, slices, seed) for slices, seeds in SEEDS.items() for seed in seeds]
    for series, slices, seed in (*ours, *((name, SLICES, 0) for name in OTHERS)):
        day = Follow(series, messages, CHANGING, each=100, slices=slices).run(seed)
        settled = ", ".join(
            "never" if each is None else f"{100 * each:.1f}" for each in day.settled
        )
        worst = ", ".join(f"{each:.3f}" for each in day.worst)
        print(
            f"| {series} | {slices} | {seed} | {settled} | {worst} | {day.moves:,} "
            f"| {day.returned} | {day.queues.max():,.0f} | {day.queues[-1]:,.0f} |",
            flush=True,
        )


def chance(scale: float) -> None:
    """Print the spread under a plan that fits the last cluster as well as 1000 shards can."""
    messages = int(DAY * scale)
    cluster = CHANGING[-1]
    day = Follow(OURS, messages, (cluster,))
    speeds = day.nodes().speeds[0]
    exact = 1000 * speeds / speeds.sum()
    counts = exact.astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: 1000 - counts.sum()]] += 1
    work = LOAD * float(speeds.sum()) / day.arrivals().rate
    stage = Stage(
        *("count", 10, Constant(work), "random-choices"),
        plan=Plan(np.repeat(np.arange(10), counts).astype(np.int32), 10),
        nodes=day.nodes(),
    )
    print(f"\n{messages:,} messages from {SOURCES} sources, {cluster}, a plan that fits\n")
    print(
        "| seed | slices | mean spread | largest spread after 5 % |\n| ---: | ---: | ---: | ---: |"
    )
    for seed in (0, 2):
        stream = dataset("wikipedia", messages=messages, seed=seed)
        length = day.arrivals().times(messages - 1, messages, 0.0)[0][0]
        for slices in (SLICES, SLICES // 2):
            width = float(length) / slices
            result = simulate(
                stream, day.arrivals(), [stage], sources=SOURCES, seed=seed, width=width
            )
            spread = np.ptp(result.stages[0].came[:slices] * work / (speeds * width), axis=1)
            late = spread[slices // 20 :].max()
            print(f"| {seed} | {slices} | {spread.mean():.3f} | {late:.3f} |", flush=True)


def shards(scale: float) -> None:
    """Print what too few shards do, with and without making more."""
    messages = int(DAY * scale)
    print(f"\n{messages:,} messages from {SOURCES} sources, {{3, 5}}; 176 shards are needed\n")
    print(
        "| shards for each worker | routed by | shards in the end | mean spread, 2nd half | back |"
    )
    print("| ---: | --- | ---: | ---: | ---: |")
    for each in (5, 10, 20, 100):
        for series, can_grow in ((PUBLISHED, False), (OURS, False), (OURS, True)):
            day = Follow(series, messages, UNLIKE, each=each, can_grow=can_grow).run(0)
            name = series + (" with more shards" if can_grow else "")
            late = day.spread[len(day.spread) // 2 :].mean()
            print(f"| {each} | {name} | {day.shards} | {late:.3f} | {day.returned} |", flush=True)


def batches(scale: float) -> None:
    """Print how long batches take, over the best that is possible."""
    count = max(6, int(12 * scale))
    speeds = np.array([1.0, 1.0, 0.3])
    print("\nThree machines, one at 30 %, 48 shards: time of each batch over the best possible\n")
    print(f"| times measured within | {' | '.join(str(n + 1) for n in range(count))} |")
    print(f"| --- |{' ---: |' * count}")
    for noise in (0.0, 0.05, 0.1, 0.2):
        chance, plan, balancer = np.random.default_rng(0), Plan.even(48, 3), Consistent()
        took = []
        for _ in range(count):
            work = chance.poisson(1000, plan.shards).astype(np.float64)
            seen = speeds * (1 + noise * chance.uniform(-1, 1, 3))
            busy = work / seen[plan.assignment]
            times = np.bincount(plan.assignment, work, 3) / speeds
            took.append(times.max() / (work.sum() / speeds.sum()))
            none = np.zeros(plan.shards)
            report = Report(
                *(float(times.max()), work.astype(np.int64), busy, none, times / times.max()),
                queues=np.zeros(3, dtype=np.int64),
                work=work * busy.sum() / work.sum(),
            )
            plan = balancer.next_plan(plan, report)
        print(f"| {noise:.0%} | {' | '.join(f'{each:.2f}' for each in took)} |", flush=True)


PARTS: dict[str, Callable[[float], None]] = {
    "bound": bound,
    "memory": memory,
    "changes": changes,
    "chance": chance,
    "shards": shards,
    "batches": batches,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(PARTS))
    parser.add_argument("--scale", type=float, default=1.0, help="part of the messages to use")
    given = parser.parse_args()
    for name, part in PARTS.items():
        if given.only in (None, name):
            part(given.scale)
