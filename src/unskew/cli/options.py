"""Options that take lists, and the options that together say what the workload is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import click

from unskew.workloads import DriftingZipf, Workload, Zipf, dataset, open_keys

ZIPF, KEYS, MESSAGES = 1.4, 100_000, 1_000_000
"""The default workload: skew that key grouping cannot bear, in seconds on a laptop."""

HOT = 100
"""Ranks that change their key in a drifting stream."""


def words(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    """Return words that have commas between them."""
    parts = tuple(word.strip() for word in value.split(","))
    if not all(parts):
        raise click.BadParameter(f"{value!r} has a comma with nothing beside it.", ctx, param)
    return parts


def numbers(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """Return whole numbers that have commas between them."""
    try:
        return tuple(int(word) for word in words(ctx, param, value))
    except ValueError:
        message = f"{value!r} is not whole numbers with commas, as 16,32,64."
        raise click.BadParameter(message, ctx, param) from None


@dataclass(frozen=True)
class WorkloadOptions:
    """What was asked for on the command line; None where an option was not given."""

    path: Path | None
    key: str | None
    nulls: str | None
    zipf: float | None
    keys: int | None
    messages: int | None
    drift: int | None
    dataset: str | None

    def open(self, seed: int) -> Workload:
        """Return the workload that is meant, or say which options do not go together."""
        if self.path is not None:
            self._refuse("--input", "zipf", "keys", "messages", "drift", "dataset")
            nulls = cast(Literal["error", "drop", "keep"], self.nulls or "error")
            return open_keys(self.path, self.key, nulls=nulls)
        for name in ("key", "nulls"):
            if getattr(self, name) is not None:
                raise click.UsageError(f"--{name} is about a file; name it with --input FILE.")
        if self.dataset is not None:
            self._refuse("--dataset", "zipf", "keys", "drift")
            return dataset(self.dataset, messages=self.messages, seed=seed)
        exponent = ZIPF if self.zipf is None else self.zipf
        keys = KEYS if self.keys is None else self.keys
        messages = MESSAGES if self.messages is None else self.messages
        if self.drift is None:
            return Zipf(exponent, keys, messages, seed=seed)
        hot = min(HOT, max(keys // 3, 1))
        return DriftingZipf(exponent, keys, messages, period=self.drift, hot=hot, seed=seed)

    def _refuse(self, option: str, *others: str) -> None:
        for name in others:
            if getattr(self, name) is not None:
                raise click.UsageError(f"{option} and --{name} exclude each other; leave one out.")
