"""A Python quantile aggregate on skewed keys: `unskew.spark.aggregate` beside Spark's own ways.

Asked: at least 3 times faster than ``groupBy().applyInPandas`` with a delay-bound update, and every
result within the sketch's promise of the exact one. Ratios within one run: the ways take turns, the
best of each counts. "Delay-bound" means that a row waits and does not compute, all rows of a call
at once, so that two cores can run 16 instances.
"""

from __future__ import annotations

import argparse
import os
import time
from math import ceil
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bench_repartition import DELAY, INSTANCES, Ways, best, session
from pyspark.sql import DataFrame

from unskew.aggregates import Groups, Quantiles
from unskew.spark import aggregate
from unskew.workloads import Zipf

PROBABILITIES = (0.5, 0.99)
ERROR = 0.01
KEYS = 10_000
SCHEMA = "key long, q array<double>"


class Waiting(Quantiles):
    """Quantiles whose update waits for each row."""

    def __init__(self, delay: float) -> None:
        super().__init__(PROBABILITIES, ERROR)
        self.delay = delay

    def update(self, states: pa.Array, groups: Groups, *values: pa.Array) -> pa.Array:
        """Wait, then count."""
        time.sleep(groups.size * self.delay)
        return super().update(states, groups, *values)


def exact(values: Any) -> list[float]:
    """Return the exact quantiles, as the aggregate defines them."""
    ordered = np.sort(values)
    return [float(ordered[max(ceil(q * ordered.size), 1) - 1]) for q in PROBABILITIES]


def ways_of(df: DataFrame, delay: float) -> Ways:
    """Return the ways to aggregate."""

    def in_pandas(rows: Any) -> Any:
        time.sleep(len(rows) * delay)
        first = rows[["key"]].iloc[:1]
        return first.assign(q=[exact(rows["value"].to_numpy())])

    def in_arrow(rows: pa.Table) -> pa.Table:
        time.sleep(rows.num_rows * delay)
        return pa.table({"key": rows["key"][:1], "q": [exact(rows["value"].to_numpy())]})

    asked = {"q": Waiting(delay).of("value")}
    return {
        "applyInPandas": lambda: df.groupBy("key").applyInPandas(in_pandas, SCHEMA),
        "applyInArrow": lambda: df.groupBy("key").applyInArrow(in_arrow, SCHEMA),
        "unskew": lambda: aggregate(df, "key", asked, instances=INSTANCES),
        "unskew, no exchange": lambda: aggregate(df, "key", asked, grouping=None),
    }


def write_rows(path: str, rows: int) -> dict[int, list[float]]:
    """Write skewed keys and their values, one file for each of 16 sources; return the quantiles."""
    os.mkdir(path)
    keys = np.concatenate(list(Zipf(1.4, KEYS, rows).batches())).view(np.int64)
    values = np.random.default_rng(1).lognormal(0, 2, rows)
    table = pa.table({"key": keys, "value": values})
    for number in range(INSTANCES):
        part = table.slice(number * rows // INSTANCES, rows // INSTANCES)
        pq.write_table(part, f"{path}/{number:02}.parquet")
    kept = rows // INSTANCES * INSTANCES
    order = np.argsort(keys[:kept], kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=keys[order][0] - 1))
    groups = np.split(values[order], starts[1:])
    return {int(key): exact(part) for key, part in zip(keys[order][starts], groups, strict=True)}


def worst_error(found: DataFrame, wanted: dict[int, list[float]]) -> float:
    """Return the largest relative error of a result; every key has to be there once."""
    rows = found.collect()
    if {row.key for row in rows} != wanted.keys() or len(rows) != len(wanted):
        raise AssertionError(f"{len(rows)} results for {len(wanted)} keys")
    found_and_exact = [pair for row in rows for pair in zip(row.q, wanted[row.key], strict=True)]
    return max(abs(float(got) / exactly - 1) for got, exactly in found_and_exact)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1_000_000)
    given = parser.parse_args()
    print(
        f"Quantiles of {given.rows:,} rows, Zipf 1.4 over {KEYS:,} keys, {INSTANCES} instances, "
        f"local[{INSTANCES}]; seconds, and how many times unskew is faster\n"
    )
    print("| update | AQE | way | seconds | unskew is faster | largest error |")
    print("| --- | --- | --- | ---: | ---: | ---: |")
    with TemporaryDirectory() as scratch:
        wanted = write_rows(f"{scratch}/rows", given.rows)
        for adaptive in (False, True):
            spark = session(INSTANCES, scratch, adaptive=adaptive)
            spark.conf.set("spark.sql.shuffle.partitions", str(INSTANCES))
            df = spark.read.parquet(f"{scratch}/rows")
            for delay in (DELAY, 0.0):
                ways = ways_of(df, delay)
                times = best(ways, given.repetitions)
                text = f"delay-bound, {delay * 1e6:.0f} us a row" if delay else "no delay"
                for name, took in times.items():
                    error = worst_error(ways[name](), wanted)
                    if error > ERROR + 1e-9:
                        raise AssertionError(f"{name} is off by {error}, more than {ERROR}")
                    print(
                        f"| {text} | {'on' if adaptive else 'off'} | {name} | {took:.2f} "
                        f"| {took / times['unskew']:.2f} | {error:.4f} |",
                        flush=True,
                    )
        spark.stop()


if __name__ == "__main__":
    main()
