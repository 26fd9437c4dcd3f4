"""Versions: numbers of what a pipeline commits, of which each batch of Spark has up to three."""

from __future__ import annotations

import re
from enum import IntEnum


class Kind(IntEnum):
    """What made a version: a batch; the end of a run after it; a flush after that."""

    BATCH = 0
    SETTLED = 1
    FLUSHED = 2


INITIAL = -1
"""The version of a state that was there before the first batch."""

_PER_BATCH = 4
_NAME = re.compile(r"(?P<batch>\d{12})(-(?P<kind>settled|flushed))?")


def version_of(batch: int, kind: Kind = Kind.BATCH) -> int:
    """Return the number of the state after a batch, or after what followed it.

    Examples
    --------
    >>> version_of(0), version_of(2), version_of(2, Kind.SETTLED)
    (0, 8, 9)
    """
    return _PER_BATCH * batch + kind


def batch_of(version: int) -> int:
    """Return the batch that a version is of, or follows."""
    return version // _PER_BATCH


def kind_of(version: int) -> Kind:
    """Return what made a version."""
    return Kind(version % _PER_BATCH)


def name_of(version: int) -> str:
    """Return the name that files of a version have, which sort as the numbers do.

    Examples
    --------
    >>> name_of(9), name_of(INITIAL)
    ('000000000002-settled', 'initial')
    """
    if version == INITIAL:
        return "initial"
    kind = kind_of(version)
    suffix = "" if kind is Kind.BATCH else f"-{kind.name.lower()}"
    return f"{batch_of(version):012}{suffix}"


def version_named(name: str) -> int | None:
    """Return the version of a name that `name_of` made, or None if it is another name."""
    if name == "initial":
        return INITIAL
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    kind = Kind[(found["kind"] or "batch").upper()]
    return version_of(int(found["batch"]), kind)
