"""LS-Stream: where ours and the paper's agree, where they do not, and why, told from the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unskew.experiments.base import Row
from unskew.experiments.disagreements import Why, disagreements
from unskew.experiments.ls_stream_rides import INSTANCES as RIDE_INSTANCES
from unskew.experiments.ls_stream_rides import RATE
from unskew.experiments.ls_stream_rows import BOTTLENECK, HIGHER, LATENCY, LOWER
from unskew.experiments.ls_stream_topology import (
    BURST,
    INSTANCES,
    KEEP,
    KEYS,
    PROBE,
    RIDE,
    SERIES,
)
from unskew.workloads import Zipf


def findings(rows: Sequence[Row]) -> list[str]:
    """Return where ls-stream and ours stand against the others, and what is not the paper's."""
    return [
        *(_against(row) for row in rows if row.metric in (LOWER, HIGHER)),
        *_over_skew(rows),
        *disagreements(rows, WHY),
    ]


def _against(row: Row) -> str:
    duel, _, where = row.case.partition(", ")
    own, _, other = duel.partition(" against ")
    measure, better, worse = (
        ("latency", "lower", "higher") if row.metric == LOWER else ("bottleneck", "higher", "lower")
    )
    text = (
        f"Figure {row.figure}, {where}: the {measure} of {own} is {abs(row.ours):.1f} % "
        f"{better if row.ours >= 0 else worse} than that of {other}"
    )
    return text + (f"; the paper says {row.paper:g} %." if row.paper is not None else ".")


def most_by_moving(exponent: float) -> float:
    """Return the tuples a second that no plan without splitting exceeds: the first key's limit.

    Examples
    --------
    >>> most_by_moving(1.0) < most_by_moving(0.6)
    True
    """
    return 1 / (Zipf(exponent, KEYS, 1).p(1) * (KEEP + PROBE))


def _over_skew(rows: Sequence[Row]) -> list[str]:
    """Return what skew does to each bottleneck, and what of it moving shards cannot help."""
    own = [row for row in rows if row.figure == "8" and row.metric == BOTTLENECK]
    if not own:
        return []
    low, high = min(row.x for row in own), max(row.x for row in own)
    found = {(row.series, row.x): row.ours for row in own}
    parts = [
        f"{name} from {found[name, low]:,.0f} to {found[name, high]:,.0f}"
        for name in SERIES
        if (name, low) in found and (name, high) in found
    ]
    share = Zipf(high, KEYS, 1).p(1) * INSTANCES
    text = (
        f"From Zipf {low:g} to {high:g} the bottleneck goes, in tuples/s, {', '.join(parts)}. The "
        f"paper says that fastjoin and ls-stream stay where they are. At Zipf {high:g} the first "
        f"of {KEYS} keys alone is {share:.1f} times what one of {INSTANCES} instances should have: "
        f"moving shards, which keeps a key whole, cannot hold more than "
        f"{most_by_moving(high):,.0f} tuples/s there, whoever moves them. The skew that makes hash "
        f"fall to the paper's 11,000 leaves no more room than that; splitting does."
    )
    return [text]


def _latency(rows: Sequence[Row], off: Sequence[Row]) -> str:
    means = {row.series: row.ours for row in rows if row.metric == LATENCY}
    text = (
        "In bursts a tuple waits in proportion to the load of its instance, and no balance makes "
        "that less than the mean"
    )
    if rows[0].figure == "12":
        even = 500 * BURST * RATE / RIDE_INSTANCES * RIDE * (KEEP + PROBE)
        text += f": {even:.1f} ms for what comes in a burst if all instances had the same"
    text += "."
    if means.get("contrand", 0.0) > means.get("hash", 0.0):
        text += (
            " A tuple of contrand is done when the later of its two copies is, and each copy costs "
            "a look, which outweighs its better balance here."
        )
    return text


def _limit(rows: Sequence[Row], off: Sequence[Row]) -> str:
    return (
        "The threshold of 1.0 of ls-stream leaves an instance with up to twice the mean, while "
        "fastjoin acts when the largest load is 2.2 times the smallest; both leave keys whole. "
        "Ours has a threshold of 0.2, and splits keys."
    )


def _threshold(rows: Sequence[Row], off: Sequence[Row]) -> str:
    return (
        "A threshold acts while it is below the load imbalance of hashing, which is a matter of "
        "which keys meet: with other seeds the line ends elsewhere."
    )


WHY: Mapping[str, Why] = {
    "9": _latency,
    "10": _limit,
    "11": _limit,
    "12": _latency,
    "13": _latency,
    "14": _threshold,
    "15": _threshold,
}
"""What explains a figure, from its rows and those of them that are not near the paper's."""
