"""Imbalance and replication on the streams of Pd-Stream's Table IV, and harder ones, as Markdown.

Asked of pd-stream: imbalance at most 2e-5 from one source. Asked of frugal: imbalance within its
budget at a replication of 1.10 (1.20 for a budget of 0.0001, 1.25 with 8 sources), 0.02 over any
window of 1M tuples at 1.25 when the hot keys change every 100,000 tuples, and 0.05 on average in
batches of 5,000 rows at 1.4. `--zipf` and `--instances` choose a part; all of it takes 10 minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import click
import numpy as np
from numpy.typing import NDArray

import unskew
from unskew.compare import Comparison, compare
from unskew.metrics import imbalance
from unskew.tally import KeyIndex, KeyTally
from unskew.workloads import DriftingZipf, Zipf

MESSAGES = KEYS = 10_000_000
PERIOD, WINDOW, STEP = 100_000, 1_000_000, 10_000
BATCH, SOURCES, TIGHT = 5_000, 8, 1e-4
ALL = ("partial-key", "w-choices", "dagreedy", "dalton", "pd-stream", "frugal")
THREE = ("partial-key", "pd-stream", "frugal")
TABLE_IV = {
    1.0: (1_900_000, 5.9),
    1.2: (563_000, 18.5),
    1.4: (127_000, 32.2),
    1.6: (33_100, 43.7),
    1.8: (10_700, 53.2),
    2.0: (4_300, 60.7),
}

Row = dict[str, str]
Outcome = tuple[float, float]
"""Imbalance and replication factor."""


@click.command(help=__doc__)
@click.option("--zipf", multiple=True, type=float, default=tuple(TABLE_IV), show_default=True)
@click.option("--instances", multiple=True, type=int, default=(16, 32, 64, 128), show_default=True)
@click.option("--hot", default=100, show_default=True, help="Ranks whose keys change.")
@click.option("--seed", default=0, show_default=True, help="Of the streams.")
def main(zipf: Sequence[float], instances: Sequence[int], hot: int, seed: int) -> None:
    """Run every case and print one table after the other."""
    print_table("The stream beside Table IV", [stream_row(exponent, seed) for exponent in zipf])
    one, tight, adaptive, sources, batches, drift, moments = [], [], [], [], [], [], []
    for exponent in zipf:
        stream = Zipf(exponent, KEYS, MESSAGES, seed=seed)
        note(stream.description)
        one += by_instances(exponent, compare(stream, instances, ALL))
        budget = {"frugal": {"max_imbalance": TIGHT}}
        tight += by_instances(exponent, compare(stream, instances, ["frugal"], parameters=budget))
        follow = {"pd-stream": {"adaptive": True}}
        adaptive += by_instances(
            exponent, compare(stream, instances, ["pd-stream"], parameters=follow)
        )
        moments.append(moments_row(exponent, max(instances)))
        sources += by_instances(exponent, compare(stream, instances, THREE, sources=SOURCES))
        batches += by_instances(exponent, compare(stream, instances, THREE, batch=BATCH))
        drift += drift_rows(exponent, instances, hot, seed)
    print_table("One source (imbalance / replication)", one)
    print_table(f"frugal with a budget of {TIGHT}", tight)
    print_table("pd-stream with adaptive=True", adaptive)
    print_table("pd-stream: share of moments at which its busiest instance is ...", moments)
    print_table(f"{SOURCES} sources", sources)
    print_table(f"Hot keys change every {PERIOD:,} tuples: worst window of {WINDOW:,}", drift)
    print_table(f"Batches of {BATCH:,} rows: mean imbalance of a batch", batches)


def stream_row(exponent: float, seed: int) -> Row:
    """Return keys seen and share of the hottest key, ours and the paper's."""
    index = KeyIndex()
    for keys in Zipf(exponent, KEYS, MESSAGES, seed=seed).batches():
        index.ids(keys)
    seen, share = TABLE_IV.get(exponent, (float("nan"), float("nan")))
    return {
        "zipf": f"{exponent:g}",
        "keys": f"{len(index):,}",
        "keys, paper": f"{seen:,}",
        "p1 %": f"{100 * index.counts.max() / MESSAGES:.2f}",
        "p1 %, paper": f"{share}",
    }


def by_instances(exponent: float, rows: Iterable[Comparison]) -> list[Row]:
    """Return a table row for each number of instances, a column for each grouping."""
    table: dict[int, Row] = {}
    for row in rows:
        head = {
            "zipf": f"{exponent:g}",
            "instances": f"{row.instances}",
            "least replication": f"{row.lower_bound:.3f}",
        }
        columns = table.setdefault(row.instances, head)
        columns[row.grouping] = cell((row.imbalance, row.replication_factor))
    return list(table.values())


def moments_row(exponent: float, instances: int) -> Row:
    """Return how often pd-stream's largest load is 0, 1, 2 or more tuples above the mean."""
    keys = np.concatenate(list(Zipf(exponent, KEYS, MESSAGES // 4).batches()))
    router = unskew.grouping("pd-stream", instances)
    above = []
    # At whole multiples of the instances the mean is a whole number, too.
    step = 8 * instances
    for start in range(0, keys.size - step + 1, step):
        router.route(keys[start : start + step])
        above.append(router.loads.max() - (start + step) // instances)
    shares = [np.mean(np.array(above) == tuples) for tuples in range(3)]
    row = {"zipf": f"{exponent:g}", "instances": f"{instances}"}
    names = ("at the mean", "1 tuple above", "2 tuples above")
    row.update({name: f"{share:.3f}" for name, share in zip(names, shares, strict=True)})
    return row


def drift_rows(exponent: float, instances: Sequence[int], hot: int, seed: int) -> list[Row]:
    """Return the table rows of a stream whose hot keys change."""
    stream = DriftingZipf(exponent, KEYS, MESSAGES, period=PERIOD, hot=hot, seed=seed)
    note(stream.description)
    keys = np.concatenate(list(stream.batches()))
    ids = KeyIndex().ids(keys)
    rows = []
    for count in instances:
        row = {
            "zipf": f"{exponent:g}",
            "instances": f"{count}",
            "least replication": f"{least_replication(ids, count):.3f}",
        }
        for name in THREE:
            row[name] = cell(drift_outcome(name, keys, ids, count))
        rows.append(row)
    return rows


def drift_outcome(
    name: str, keys: NDArray[np.uint64], ids: NDArray[np.uint32], instances: int
) -> Outcome:
    """Return the largest imbalance of any window, in steps, and the replication of all."""
    chosen = unskew.grouping(name, instances).route(keys)
    tally = KeyTally(instances)
    tally.add(ids, chosen)
    parts = [np.bincount(part, minlength=instances) for part in chosen.reshape(-1, STEP)]
    sums = np.cumsum([np.zeros(instances, dtype=np.int64), *parts], axis=0)
    windows = sums[WINDOW // STEP :] - sums[: -WINDOW // STEP]
    return max(imbalance(loads) for loads in windows), tally.replication_factor


def least_replication(ids: NDArray[np.uint32], instances: int) -> float:
    """Return the replication of a router that splits each key as its hottest period needs."""
    needed = np.ones(int(ids.max()) + 1)
    for period in ids.reshape(-1, PERIOD):
        counts = np.bincount(period, minlength=needed.size)
        needed = np.maximum(needed, np.ceil(counts * instances / PERIOD))
    return float(needed.mean())


def cell(outcome: Outcome) -> str:
    """Return both figures as one cell."""
    return f"{outcome[0]:.1e} / {outcome[1]:.3f}"


def print_table(title: str, rows: Sequence[Row]) -> None:
    """Print a Markdown table."""
    print(f"\n### {title}\n")
    print("| " + " | ".join(rows[0]) + " |")
    print("|" + " ---: |" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(row.values()) + " |")
    sys.stdout.flush()


def note(text: str) -> None:
    """Say on stderr what is being done."""
    print(f"... {text}", file=sys.stderr)


if __name__ == "__main__":
    main()
