"""What tests of apps share."""

from __future__ import annotations

from pathlib import Path

from unskew.apps import Options

FIGURES = {
    *("app", "strategy", "rows_in", "rows_out", "batches", "seconds", "rows_per_second"),
    *("balanced", "imbalance", "hash_imbalance", "replication_factor", "verified"),
}


def options(out: Path, **other: object) -> Options:
    """Return what a small run is asked for, but for what is given."""
    given = {
        "source": "rate",
        "key": None,
        "time": None,
        "value": None,
        "grouping": "frugal",
        "balancer": "greedy",
        "instances": 4,
        "batches": 2,
        "rows": 4000,
        "out": out,
        "seed": 0,
        "verify": True,
    }
    return Options(**{**given, **other})  # type: ignore[arg-type]
