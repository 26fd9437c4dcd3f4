"""Pd-Stream, Tables II to V: the arithmetic of the paper, and the statistics of its data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unskew.experiments.base import Answers, Axis, Figure, Row, Sizes, Task
from unskew.grouping.pd_stream import key_shares
from unskew.tally import KeyIndex
from unskew.workloads import Zipf, dataset
from unskew.workloads.datasets import DATASETS

UNIVERSE = 10_000_000
"""Keys that the Zipf streams are drawn from: the paper does not say, this fits all of Table IV."""

TABLE_II = (36.78, 13.53, 4.97, 1.83, 0.67, 0.24)
TABLE_III = (
    *(25.0, 34.9, 43.1, 50.3, 56.9, 63.0, 68.7, 73.9),
    *(78.8, 83.4, 87.5, 91.2, 94.5, 97.1, 99.0, 99.9),
)
TABLE_IV = {
    1.0: (1.9e6, 5.9),
    1.2: (563e3, 18.5),
    1.4: (127e3, 32.2),
    1.6: (33.1e3, 43.7),
    1.8: (10.7e3, 53.2),
    2.0: (4.3e3, 60.7),
}
"""Keys seen and share of the first, in percent, by Zipf exponent."""

PAPER, OURS = "paper", "ours"


@dataclass(frozen=True)
class Statistics(Task):
    """Count the keys of a stream, and the share of the most frequent, in percent."""

    source: str
    messages: int

    @property
    def label(self) -> str:
        """What the progress bar calls it."""
        return f"keys of {self.source}"

    def run(self, seed: int) -> tuple[int, float]:
        """Measure."""
        index = KeyIndex()
        for batch in open_source(self.source, self.messages, seed).batches():
            index.ids(batch)
        counts = index.counts
        return len(index), 100 * float(counts.max()) / float(counts.sum())


def open_source(source: str, messages: int, seed: int) -> Zipf:
    """Return "zipf 1.4", or a data set of Table V, generated."""
    if source.startswith("zipf "):
        return Zipf(float(source.removeprefix("zipf ")), UNIVERSE, messages, seed=seed)
    return dataset(source, messages=messages, seed=seed)


def length(source: str, sizes: Sizes) -> int:
    """Return how many messages of a data set are used."""
    whole = DATASETS[source].messages
    return whole if sizes.dataset_messages is None else min(whole, sizes.dataset_messages)


def _none(sizes: Sizes) -> Sequence[Task]:
    return ()


def _table_ii(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    metric = "limit of P(X = 0), %"
    note = "the paper cuts off digits"
    return [
        Row(seed, "II", f"alpha {a}", metric, paper, 100 * math.exp(-a), note, x=a, series=OURS)
        for a, paper in enumerate(TABLE_II, start=1)
    ]


def _table_iii(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    shares = 100 * np.asarray(key_shares(16, 0.99))[-16:]
    return [
        Row(seed, "III", f"n_k {n}", "estimated share, %", paper, float(ours), x=n, series=OURS)
        for n, (paper, ours) in enumerate(zip(TABLE_III, shares, strict=True), start=1)
    ]


def _zipf_tasks(sizes: Sizes) -> list[Statistics]:
    return [Statistics(f"zipf {z}", sizes.zipf_messages) for z in sizes.exponents]


def _table_iv(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    whole = sizes.zipf_messages == 10_000_000
    note = "" if whole else "fewer messages than the paper's 10 million"
    rows = []
    for task in _zipf_tasks(sizes):
        z = float(task.source.removeprefix("zipf "))
        keys, p1 = answers[task]
        paper_keys, paper_p1 = TABLE_IV.get(z, (None, None))
        rows += [
            Row(
                *(seed, "IV", task.source, "keys seen", paper_keys if whole else None),
                *(keys, note, "", z, OURS),
            ),
            Row(seed, "IV", task.source, "first key, %", paper_p1, p1, note, x=z, series=OURS),
        ]
    return rows


def _dataset_tasks(sizes: Sizes) -> list[Statistics]:
    return [Statistics(name, length(name, sizes)) for name in ("ddos", "hashtags")]


def _table_v(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
    rows = []
    for place, task in enumerate(_dataset_tasks(sizes), start=1):
        table = DATASETS[task.source]
        keys, p1 = answers[task]
        whole = task.messages == table.messages
        note = "generated" if whole else "generated, fewer messages than the paper's"
        case = f"{task.source} (generated)"
        paper_keys = float(table.keys_seen) if whole else None
        rows += [
            Row(seed, "V", case, "keys seen", paper_keys, keys, note, "", place, OURS),
            Row(seed, "V", case, "first key, %", 100 * table.p1, p1, note, "", place, OURS),
        ]
    return rows


TABLES = (
    Figure(
        number="II",
        title="Limit of the chance to miss a hot key",
        x=Axis("alpha"),
        y=Axis("P(X = 0), %"),
        series=(PAPER, OURS),
        tasks=_none,
        rows=_table_ii,
        metric="limit of P(X = 0), %",
    ),
    Figure(
        number="III",
        title="Share of a key by its count in a window of 16, P = 0.99",
        x=Axis("count in the window"),
        y=Axis("estimated share, %"),
        series=(PAPER, OURS),
        tasks=_none,
        rows=_table_iii,
        metric="estimated share, %",
        remark="The text says P = 99.9 %; the printed numbers are those of 99 %.",
    ),
    Figure(
        number="IV",
        title="The Zipf streams",
        x=Axis("Zipf exponent"),
        y=Axis("share of the first key, %"),
        series=(PAPER, OURS),
        tasks=_zipf_tasks,
        rows=_table_iv,
        metric="first key, %",
        remark=f"Drawn from {UNIVERSE:,} keys, which the paper does not say but fits all rows.",
    ),
    Figure(
        number="V",
        title="The two data sets, generated from these statistics",
        x=Axis("1 ddos, 2 hashtags"),
        y=Axis("share of the first key, %"),
        series=(PAPER, OURS),
        tasks=_dataset_tasks,
        rows=_table_v,
        metric="first key, %",
        remark="The data are not ours to have: a Zipf law is fitted to the table of the paper.",
    ),
)
