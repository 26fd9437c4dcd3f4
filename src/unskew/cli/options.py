"""Options that take lists, and the options that together say what the workload is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import click

from unskew.errors import BadParameter
from unskew.workloads import DriftingZipf, Rides, Workload, Zipf, dataset, open_keys

ZIPF, KEYS, MESSAGES = 1.4, 100_000, 1_000_000
"""The default workload: skew that key grouping cannot bear, in seconds on a laptop."""

HOT = 100
"""Ranks that change their key in a drifting stream."""

LEAST_DRIFTING = 3
"""Keys without which a hot one finds no other to change with."""


def words(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    """Return words that have commas between them."""
    if not value.strip():
        raise BadParameter(f"{param.opts[0]} is empty; give at least one, or leave it out")
    parts = tuple(word.strip() for word in value.split(","))
    if not all(parts):
        raise BadParameter(f"{param.opts[0]} {value!r} has a comma with nothing beside it")
    return parts


def numbers(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """Return whole numbers that have commas between them."""
    parts = words(ctx, param, value)
    try:
        return tuple(int(word) for word in parts)
    except ValueError:
        raise BadParameter(
            f"{param.opts[0]} {value!r} is not whole numbers with commas, as 16,32,64"
        ) from None


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
            try:
                return open_keys(self.path, self.key, nulls=nulls)
            except BadParameter as error:
                if self.key is not None:
                    raise
                raise BadParameter(f"{error}, with --key COLUMN") from error
        for name in ("key", "nulls"):
            if getattr(self, name) is not None:
                raise BadParameter(f"--{name} is about a file; name it with --input FILE")
        if self.dataset is not None:
            self._refuse("--dataset", "zipf", "keys", "drift")
            if self.dataset == "rides":
                return Rides(MESSAGES if self.messages is None else self.messages, seed=seed)
            return dataset(self.dataset, messages=self.messages, seed=seed)
        exponent = ZIPF if self.zipf is None else self.zipf
        keys = KEYS if self.keys is None else self.keys
        messages = MESSAGES if self.messages is None else self.messages
        if self.drift is None:
            return Zipf(exponent, keys, messages, seed=seed)
        if 0 < keys < LEAST_DRIFTING:
            raise BadParameter(f"--drift needs --keys of at least {LEAST_DRIFTING}, not {keys}")
        hot = min(HOT, max(keys // 3, 1))
        return DriftingZipf(exponent, keys, messages, period=self.drift, hot=hot, seed=seed)

    def _refuse(self, option: str, *others: str) -> None:
        for name in others:
            if getattr(self, name) is not None:
                raise BadParameter(f"{option} and --{name} exclude each other; leave one out")
