"""Locality-aware routing: where ours and the paper's agree, and where not, told from the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unskew.experiments.base import Row
from unskew.experiments.disagreements import Why, disagreements
from unskew.experiments.locality_runs import LOCALITY as REACHED
from unskew.experiments.locality_runs import TIMES as FASTER
from unskew.experiments.locality_synthetic import AHEAD, SECOND_NODE
from unskew.experiments.locality_weeks import (
    AWAY,
    BEHIND,
    HASH,
    MEAN_OFF,
    OURS,
    TIMES,
)

CLOSE = 3.0
"""Points of locality from the oracle that count as close."""


def findings(rows: Sequence[Row]) -> list[str]:
    """Return what the figures say, and what is not the paper's."""
    return [
        *_second_node(rows),
        *_ahead(rows),
        *_behind(rows),
        *_few(rows),
        *_racks(rows),
        *_reconfigured(rows),
        *disagreements(rows, WHY),
    ]


def _of(rows: Sequence[Row], metric: str) -> list[Row]:
    return [row for row in rows if row.metric == metric]


def _second_node(rows: Sequence[Row]) -> list[str]:
    own = _of(rows, SECOND_NODE)
    if not own:
        return []
    parts = [f"{row.ours:+.0f} % ({row.case.split(', ')[1]})" for row in own]
    text = (
        f"Figure 7: a second node changes the throughput of locality-aware at 60 % of locality by "
        f"{', '.join(parts)}; the paper says that gains fall with the padding, to less than none "
        f"with 20 kB. None of these was fitted."
    )
    return [text]


def _ahead(rows: Sequence[Row]) -> list[str]:
    own = _of(rows, AHEAD)
    if not own:
        return []
    most = max(own, key=lambda row: row.ours)
    times = f"{most.ours:.2f} times"
    return [f"Figure 9: locality-aware is up to {times} as fast as hash-based, with {most.case}."]


def _behind(rows: Sequence[Row]) -> list[str]:
    own = _of(rows, BEHIND)
    if not own:
        return []
    parts = [f"{row.ours:.1f} with {row.case}" for row in own]
    close = [row for row in own if row.series == OURS and row.ours <= CLOSE]
    first = min((row.x for row in close), default=0)
    text = f"Figure 11: points of locality below the oracle: {'; '.join(parts)}."
    if close:
        text += (
            f" Within {CLOSE:g} points from {first:g} plans a week on, one every {168 / first:g} "
            f"hours, if counts fade; counts since the last plan alone know too little of the rare "
            f"pairs."
        )
    else:
        text += (
            f" None is within {CLOSE:g} points: the oracle knows hashtags before their first post."
        )
    return [text]


def _few(rows: Sequence[Row]) -> list[str]:
    return [
        f"Figure 12: {row.case}: {row.ours:.2f} times the locality of hash; the paper says that it "
        f"doubles."
        for row in _of(rows, TIMES)
        if row.paper is not None
    ]


def _racks(rows: Sequence[Row]) -> list[str]:
    own = _of(rows, AWAY)
    if not own:
        return []
    parts = [f"{row.ours:.1f} % ({row.case.split(', ')[1]})" for row in own]
    return [f"Figure 12: posts that leave their rack, of two of three nodes: {', '.join(parts)}."]


def _reconfigured(rows: Sequence[Row]) -> list[str]:
    own = [row for row in _of(rows, FASTER) if row.figure == "13" and row.paper is None]
    if not own:
        return []
    parts = [f"{row.ours:.2f} ({row.case})" for row in own]
    text = (
        f"Figure 13: throughput after the first plan, in those of hash-based: {', '.join(parts)}. "
        f"It grows with the padding and with a slower network, as the paper says."
    )
    return [text]


def _weeks(rows: Sequence[Row], off: Sequence[Row]) -> str:
    hashed = [row.ours for row in rows if row.metric == MEAN_OFF and row.series == HASH]
    start = f" ({hashed[0]:.0f} %)" if hashed else ""
    return (
        f"A few hundred regions are fewer than the paper's locations, so that hashing has them "
        f"less balanced{start}; and ours are as popular in every week, but for events, so that old "
        f"plans lose locality more than balance."
    )


def _stable(rows: Sequence[Row], off: Sequence[Row]) -> str:
    near = max((row.ours for row in rows if row.metric == REACHED), default=0.0)
    return (
        f"Plans have {near:.0f} % of the posts stay on their node, and balance both counts; the "
        f"paper does not say what they reach on the pictures of Flickr, whose tags are less "
        f"bound to a country."
    )


WHY: Mapping[str, Why] = {"11": _weeks, "13": _stable}
"""What explains a figure, from its rows and those of them that are not near the paper's."""
