"""St-Stream: where ours and the paper's agree, and where not, told from the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unskew.experiments.base import Row
from unskew.experiments.disagreements import Why, disagreements
from unskew.experiments.st_stream_figures import (
    DEGREE,
    LOWER,
    MOVED,
    OFFSET,
    SETTLED_AT,
    SPLIT_KEYS,
    SPREAD,
)


def findings(rows: Sequence[Row]) -> list[str]:
    """Return what the figures say, and what is not the paper's."""
    return [*_settled(rows), *_spread(rows), *_latency(rows), *_moves(rows), *_why(rows)]


def _of(rows: Sequence[Row], figure: str, metric: str) -> list[Row]:
    return [row for row in rows if row.figure == figure and row.metric == metric]


def _settled(rows: Sequence[Row]) -> list[str]:
    return [
        f"Figure 11: all nodes are between 30 and 60 % since second {row.ours:g}; the paper says "
        f"{row.paper:g}."
        for row in _of(rows, "11", SETTLED_AT)
    ]


def _spread(rows: Sequence[Row]) -> list[str]:
    own = _of(rows, "12", SPREAD)
    if len(own) < 2:
        return []
    before, after = own
    text = (
        f"Figure 12: the highest and the lowest node are {before.ours:.1f} points apart before "
        f"(paper {before.paper:g}) and {after.ours:.1f} after (paper {after.paper:g})."
    )
    return [text]


def _latency(rows: Sequence[Row]) -> list[str]:
    own = _of(rows, "14", LOWER)
    if not own:
        return []
    parts = [f"{row.ours:.1f} % lower with {row.case}" for row in own]
    text = (
        f"Figure 14: latency is {' and '.join(parts)} (paper {own[0].paper:g} %). It gains the "
        f"waiting at full slots, which depends on how much the work of words differs; the paper "
        f"does not tell."
    )
    return [text]


def _moves(rows: Sequence[Row]) -> list[str]:
    moved, split = _of(rows, "17", MOVED), _of(rows, "17", SPLIT_KEYS)
    offset = _of(rows, "17", OFFSET)
    if not moved or not split or len(offset) < 2:
        return []
    text = (
        f"Figure 17: shards moved: {moved[0].ours:.0f}, words split: {split[0].ours:.0f}; the "
        f"highest offset degree of a node went from {offset[0].ours:.2f} to {offset[1].ours:.2f}."
    )
    return [text]


def _why(rows: Sequence[Row]) -> list[str]:
    return disagreements(rows, WHY)


def _band(rows: Sequence[Row], off: Sequence[Row]) -> str:
    return (
        "The band follows from the mean by capacity, 43 %: it is from 29 to 58 %, and what was out "
        "of it is brought well inside at the first look. The paper says 40 to 60 % with this "
        "figure, 30 to 60 % with its Figure 17, and has 35.6 % itself in Figure 12."
    )


def _nodes(rows: Sequence[Row], off: Sequence[Row]) -> str:
    return (
        "Which nodes give how much depends on the loads of S3 to S6 before, of which the paper "
        "states none."
    )


def _recovery(rows: Sequence[Row], off: Sequence[Row]) -> str:
    own = [row for row in rows if row.metric == DEGREE]
    degrees = ", ".join(f"{row.ours:.3f} ({row.case})" for row in own)
    return (
        f"Smaller is more even: {degrees}. The paper's loads of 35.6 to 57 % cannot have a highest "
        f"over mean of 1.44, so that its degree is something else, and only the ratio compares."
    )


def _work(rows: Sequence[Row], off: Sequence[Row]) -> str:
    return "With less waiting before, there is less to gain; with more, more."


WHY: Mapping[str, Why] = {"11": _band, "12": _nodes, "13": _nodes, "14": _work, "17": _recovery}
"""What explains a figure, from its rows and those of them that are not near the paper's."""
