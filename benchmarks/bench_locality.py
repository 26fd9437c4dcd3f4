"""Two keyed stages in a row, by hash and by locality, ratios within one run.

Exchange: keys that always come in pairs, six instances; how many rows stay, and the bytes that go
through the exchange between the stages, as Spark's own metrics count them. Padding: the same with
4 kB of random bytes in each row, which the second stage uses; how long a batch takes. Weeks: posts
whose hashtags change region every week, planned online, once, and by one who knows the week. Kept:
how much a few of the pairs are worth. Planning: how long a million pairs take to be cut, and for
how long a thread of the driver cannot run meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any

import numpy as np
from bench_pipeline import Parts, print_tables, stream, write_files
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from unskew.aggregates import count, distinct
from unskew.balance import Balancer, KeyPairs, Locality, Plan, Report, Static
from unskew.balance.base import Thought
from unskew.metrics import imbalance
from unskew.spark import BatchReport, Pipeline, Settings
from unskew.spark.planning import Planner
from unskew.workloads import Regions

INSTANCES, SHARDS, KEYS = 6, 96, 600
PADDING = 4096

Stream = tuple[NDArray[np.uint64], NDArray[np.uint64]]


def _write_pairs(folder: Path, rows: int, batches: int, padding: int) -> None:
    """Write rows of which each region has a hashtag of its own, and bytes nobody can compress."""

    def make(number: int) -> dict[str, Any]:
        chance = np.random.default_rng(number)
        drawn = chance.integers(0, KEYS, rows).astype(str)
        return {
            "region": np.char.add("region-", drawn).tolist(),
            "hashtag": np.char.add("#tag-", drawn).tolist(),
            "padding": [chance.bytes(padding) for _ in range(rows)],
        }

    # Groups of 64 MB: with one for all, a single task would read for both cores.
    write_files(folder, batches, make, group=(64 << 20) // padding)


def _run(
    spark: SparkSession, folder: Path, scratch: str, balancer: Balancer
) -> tuple[list[float], list[BatchReport]]:
    """Return the seconds and the reports of batches by region, then by hashtag."""
    reports: list[BatchReport] = []
    counted = (
        Pipeline(stream(spark, folder), instances=INSTANCES, shards=SHARDS, balancer=balancer)
        .aggregate("region", {"posts": count()}, mode="rows")
        .aggregate("hashtag", {"n": count(), "texts": distinct().of("padding")})
    )
    name = f"{folder.name}-{balancer.name}"
    query = counted.start(
        f"{scratch}/{name}-out",
        f"{scratch}/{name}",
        watch=reports.append,
        settings=Settings(plan_beside=False),
        availableNow=True,
    )
    query.awaitTermination()
    own = [report for report in reports if report.kind == "batch"]
    return [report.seconds for report in own], own


def exchange(spark: SparkSession, scratch: str, rows: int, batches: int) -> None:
    """Print what goes through the exchange between two stages."""
    folder = Path(scratch) / "pairs"
    _write_pairs(folder, rows, batches, 200)
    print(f"\n{rows:,} rows a batch, every key of the first stage with one of the second\n")
    print("| balancer | rows that stay | MB through the exchange | busiest over mean |")
    print("| --- | ---: | ---: | ---: |")
    for balancer in (Static(), Locality(period=1)):
        _, reports = _run(spark, folder, scratch, balancer)
        near = [f"{report.locality[0]:.1%}" for report in reports]
        sent = [f"{report.bytes_shuffled[1] / 1e6:.3f}" for report in reports]
        over = [max(1 + imbalance(loads) for loads in report.loads) for report in reports]
        told = (", ".join(near), ", ".join(sent), ", ".join(f"{each:.3f}" for each in over))
        print(f"| {balancer.name} | {' | '.join(told)} |", flush=True)


def padding(spark: SparkSession, scratch: str, rows: int, batches: int) -> None:
    """Print how long batches take whose rows are large."""
    folder = Path(scratch) / "padded"
    _write_pairs(folder, rows, batches, PADDING)
    print(f"\n{rows:,} rows a batch with {PADDING:,} random bytes each\n")
    print("| balancer | seconds of each batch | median from the third | rows/s |")
    print("| --- | --- | ---: | ---: |")
    taken: dict[str, float] = {}
    # The first run warms up, and does not count.
    for balancer in (Static(), Static(), Locality(period=1)):
        times, _ = _run(spark, folder, f"{scratch}/{len(taken)}-{balancer.name}", balancer)
        taken[balancer.name] = median(times[2:])
        told = ", ".join(f"{each:.2f}" for each in times)
        each = taken[balancer.name]
        print(f"| {balancer.name} | {told} | {each:.2f} | {rows / each:,.0f} |", flush=True)
    print(f"\nlocality is {taken['static'] / taken['locality']:.2f} times as fast")


def _pairs(drawn: Stream) -> KeyPairs:
    return KeyPairs(*drawn, np.ones(drawn[0].size, dtype=np.int64)).added_up()


def _reports(plans: list[Plan], drawn: Stream, pairs: KeyPairs) -> list[Report]:
    """Return what an engine would tell of some posts, of which these pairs were kept."""
    found = []
    for number, (plan, keys) in enumerate(zip(plans, drawn, strict=True)):
        rows = np.bincount(plan.shard_of(keys), minlength=plan.shards)
        none = np.zeros(plan.instances)
        found.append(
            Report(
                *(1.0, rows, rows.astype(np.float64), np.zeros(plan.shards)),
                *(none, none.astype(np.int64)),
                pairs={} if number else {1: pairs},
                row_bytes=100.0,
                key_bytes=100.0,
            )
        )
    return found


def _locality(plans: list[Plan], drawn: Stream) -> float:
    places = [plan.assignment[plan.shard_of(keys)] for plan, keys in zip(plans, drawn, strict=True)]
    return float(np.mean(places[0] == places[1]))


def _even() -> list[Plan]:
    return [Plan.even(SHARDS, INSTANCES), Plan.even(SHARDS, INSTANCES)]


def weeks(spark: SparkSession, scratch: str, rows: int, batches: int) -> None:
    """Print the locality of every week, by who plans when and knows what."""
    del spark, scratch
    per_week = 20
    posts = Regions(per_week * rows)
    settings: dict[str, Any] = {"pairs": 10**7, "keys": 10**7}
    online = Locality(period=1, pairs=100_000)
    offline = Locality(period=per_week, once=True, pays=0, **settings)
    plans = {"online": _even(), "offline": _even(), "hash": _even()}
    print(f"\nPosts of {batches} weeks, {per_week} batches of {rows:,} each; rows that stay\n")
    print("| week | online | an oracle | offline | hash | keys moved online |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for week in range(batches):
        first = week * per_week * rows
        whole = posts.draw(first, first + per_week * rows)
        wise = Locality(period=1, pays=0, **settings)
        plans["oracle"] = wise.next_plans(_even(), _reports(_even(), whole, _pairs(whole)))
        stayed: dict[str, list[float]] = {name: [] for name in plans}
        moved = 0
        for batch in range(per_week):
            drawn = posts.draw(first + batch * rows, first + (batch + 1) * rows)
            for name, each in plans.items():
                stayed[name].append(_locality(each, drawn))
            pairs = _pairs(drawn)
            before = plans["online"]
            kept = pairs.most(online.counts_pairs)
            plans["online"] = online.next_plans(before, _reports(before, drawn, kept))
            moved += sum(
                new.rehomed(old).keys.size for old, new in zip(before, plans["online"], strict=True)
            )
            told = _reports(plans["offline"], drawn, pairs)
            plans["offline"] = offline.next_plans(plans["offline"], told)
        means = [f"{np.mean(stayed[n]):.1%}" for n in ("online", "oracle", "offline", "hash")]
        print(f"| {week} | {' | '.join(means)} | {moved:,} |", flush=True)


def kept(spark: SparkSession, scratch: str, rows: int, batches: int) -> None:
    """Print what some of the pairs are worth, on the data that they were counted on."""
    del spark, scratch, batches
    # As many rare pairs as tweets have, of which the paper keeps a thousandth.
    drawn = Regions(rows, common=20_000).draw(0, rows)
    pairs = _pairs(drawn)
    print(f"\nOf {pairs.counts.size:,} pairs in {rows:,} posts\n")
    print("| kept | rows that stay | times hash |")
    print("| ---: | ---: | ---: |")
    by_hash = _locality(_even(), drawn)
    for part in (0.0, 0.0001, 0.001, 0.01, 0.1, 1.0):
        some = pairs.most(round(part * pairs.counts.size))
        policy = Locality(period=1, pays=0, pairs=10**7, keys=10**7)
        plans = policy.next_plans(_even(), _reports(_even(), drawn, some))
        near = _locality(plans, drawn)
        print(f"| {part:.2%} | {near:.1%} | {near / by_hash:.2f} |", flush=True)


class _Ticking:
    """A thread that wants to run every millisecond, and how long it could not."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._is_over = False
        self._thread = Thread(target=self._tick)

    def _tick(self) -> None:
        last = time.perf_counter()
        while not self._is_over:
            time.sleep(0.001)
            now = time.perf_counter()
            self.longest, last = max(self.longest, now - last), now

    def __enter__(self) -> _Ticking:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over = True
        self._thread.join()


def planning(spark: SparkSession, scratch: str, rows: int, batches: int) -> None:
    """Print how long it takes to plan for many pairs, and how long nothing else can run then."""
    del spark, scratch, batches
    posts = Regions(4 * rows, regions=2000, tags=2000, common=200_000)
    drawn = posts.draw(0, 4 * rows)
    pairs = _pairs(drawn).most(rows)
    reports = _reports(_even(), drawn, pairs)
    print(f"\n{pairs.counts.size:,} pairs are cut\n")
    print("| where | the batch waits | until there is a plan | nothing runs for | rows that stay |")
    print("| --- | ---: | ---: | ---: | ---: |")

    def tell(where: str, waits: float, took: float, stood: float, plans: list[Plan]) -> None:
        near = _locality(plans, drawn)
        print(
            f"| {where} | {waits:.2f} s | {took:.1f} s | {stood:.2f} s | {near:.1%} |", flush=True
        )

    policy = Locality(period=1, pays=0, pairs=rows, keys=rows)
    with _Ticking() as ticking:
        begin = time.perf_counter()
        thought = policy.think(_even(), reports)
        waits = time.perf_counter() - begin
        assert thought is not None
        plans = thought()
    tell("a thread", waits, time.perf_counter() - begin, ticking.longest, plans)
    planner = Planner(beside=True)
    # The second time there is a process already.
    for where in ("a process that starts", "a process"):
        policy = Locality(period=1, pays=0, pairs=rows, keys=rows, once=True)
        with _Ticking() as ticking:
            begin = time.perf_counter()
            plans = planner.next_plans(policy, _even(), reports)
            waits = time.perf_counter() - begin
            while all(not len(plan.placed) for plan in plans):
                time.sleep(0.01)
                plans = planner.next_plans(_Patient(), _even(), reports)
        tell(where, waits, time.perf_counter() - begin, ticking.longest, plans)
    planner.close()


class _Patient(Static):
    """Never think: only ask what was thought of."""

    def think(self, plans: Sequence[Plan], reports: Sequence[Report]) -> Thought | None:
        return None


PARTS: Parts = {
    "exchange": (exchange, 2, 100_000, 3),
    "padding": (padding, 2, 150_000, 6),
    "weeks": (weeks, 2, 100_000, 5),
    "kept": (kept, 2, 4_000_000, 1),
    "planning": (planning, 2, 1_000_000, 1),
}

if __name__ == "__main__":
    print_tables(PARTS, __doc__)
