"""What the batches of the app words did, for people."""

from __future__ import annotations

from collections import Counter

import numpy as np

from unskew.apps.base import Watch
from unskew.apps.log import Log
from unskew.apps.word_counts import WordCounts
from unskew.balance import Balancer, Plan, TwoTier
from unskew.metrics import utilisation_spread
from unskew.spark import Balance, BatchReport, HotRows

HOTTEST = 10
"""Words of each batch that are told of."""


class WordLog(Log):
    """The batches, as the pipeline tells of them.

    Where words would have been by their hash alone is what the even plan says, which no balancer
    has touched.

    Attributes
    ----------
    spreads : list of float
        Of each batch: busy time of the busiest node less that of the idlest, in means.
    """

    def __init__(
        self, instances: int, balancer: Balancer, counts: WordCounts, watch: Watch
    ) -> None:
        super().__init__(watch)
        self.spreads: list[float] = []
        self.nodes: set[str] = set()
        self._instances, self._balancer = instances, balancer
        self._counts = counts

    @property
    def offset_degree(self) -> float | None:
        """Of the nodes after the last batch, the mean; None where the balancer has none."""
        last = self._balancer.last if isinstance(self._balancer, TwoTier) else None
        told = np.concatenate(last.offsets) if last is not None and last.offsets else np.zeros(0)
        known = told[~np.isnan(told)]
        return float(known.mean()) if known.size else None

    def note(self, report: BatchReport) -> None:
        """Take the report of a batch."""
        if report.kind != "batch":
            return
        tasks = report.facts["tasks"]
        rows: Counter[int] = Counter()
        instances: Counter[int] = Counter()
        busy: Counter[str] = Counter()
        for task in tasks:
            busy[task["node"]["name"]] += task["busy"]
            for key, size in task["hot"]:
                rows[key] += size
                instances[key] += 1
        self.nodes |= set(busy)
        seconds = np.array(list(busy.values()))
        self.spreads.append(utilisation_spread(seconds / max(seconds.mean(), 1e-9)))
        keys = self._counts.words
        balance = Balance(
            loads=report.loads[0].tolist(),
            hash_loads=self._by_hash(report, rows, instances),
            partials=keys + sum(number - 1 for number in instances.values()),
            hot=[
                HotRows(self._counts.word(key), size, instances[key])
                for key, size in rows.most_common(HOTTEST)
            ],
        )
        self._add(report, report.rows, keys, balance)

    def _by_hash(
        self, report: BatchReport, rows: Counter[int], instances: Counter[int]
    ) -> list[int]:
        """Return the rows of each instance had nothing moved, and no word been split."""
        counted = report.reports[0].rows
        even = Plan.even(counted.size, self._instances)
        loads = np.bincount(even.assignment, counted, self._instances)
        # Words that are split are in no shard.
        split = np.array([key for key, number in instances.items() if number > 1], dtype=np.uint64)
        homes = even.assignment[even.shard_of(split)]
        np.add.at(loads, homes, [rows[int(key)] for key in split])
        return [int(load) for load in loads]
