"""Pd-Stream: where ours and the paper's agree, where they do not, and why, told from the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from unskew.experiments import pd_stream_latency as latency
from unskew.experiments.base import Row
from unskew.experiments.disagreements import NEAR, Why, disagreements, distance
from unskew.experiments.pd_stream_balance import OPERATOR_STATE
from unskew.experiments.pd_stream_tables import TABLE_IV
from unskew.experiments.pd_stream_topology import JOIN, SHARE, WINDOW


def findings(rows: Sequence[Row]) -> list[str]:
    """Return where pd-stream stands against the others, and where ours is not the paper's."""
    margins = ("latency of pd-stream lower by, %", "throughput of pd-stream higher by, %")
    return [
        *(_against(row) for row in rows if row.metric in margins),
        *_varied(rows, latency.SLACK, "latency", f"rate; the figures use {100 * SHARE:g} %"),
        *_varied(rows, latency.MARGIN, "throughput", f"window; the figures use {WINDOW:g} s"),
        *disagreements(rows, WHY),
    ]


def _against(row: Row) -> str:
    measure, better = (
        ("latency", "lower") if row.metric.startswith("latency") else ("throughput", "higher")
    )
    worse = "higher" if better == "lower" else "lower"
    text = (
        f"{row.panel}, {row.x:.0f} instances: the {measure} of pd-stream is {abs(row.ours):.2f} % "
        f"{better if row.ours >= 0 else worse} than that of {row.series}"
    )
    if row.paper is not None:
        text += f"; the paper says {row.paper:.2f} % {better}"
    return text + (f" ({row.series}: {row.note})." if row.note else ".")


def _varied(rows: Sequence[Row], metric: str, measure: str, setting: str) -> list[str]:
    """Return how the margin over w-choices depends on a setting that the paper does not give."""
    own = [row for row in rows if row.metric == metric]
    return [
        f"{panel}: the margin in {measure} over w-choices depends on the {setting}. It is "
        + ", ".join(
            f"{row.ours:.2f} % with {row.case.rpartition(', ')[2]}"
            for row in own
            if row.panel == panel
        )
        + "."
        for panel in dict.fromkeys(row.panel for row in own)
    ]


def _latency(rows: Sequence[Row], off: Sequence[Row]) -> str:
    places = [row for row in off if row.metric == "latency, ms"]
    if not places:
        return ""
    row = max(places, key=lambda row: row.x)
    join = _value(rows, latency.IN_JOIN, row)
    text = (
        f"Of our {row.ours:.0f} ms at {row.x:.0f} instances {join:.0f} are in the join and "
        f"{row.ours - join:.0f} from the end of a window to the merge."
    )
    if (row.paper or 0) < 1000 * JOIN:
        text += (
            f" The paper's {row.paper:.0f} ms is less than the {1000 * JOIN:.0f} ms of service "
            f"that its 445 tuples/s on 16 instances leave for a tuple. So either a join takes less "
            f"time on more instances, or latency is not measured over the join and the merge; "
            f"ours is, with the same service time for all."
        )
    return text


def _throughput(rows: Sequence[Row], off: Sequence[Row]) -> str:
    texts = []
    for row in off:
        if not row.metric.startswith("throughput of"):
            continue
        join, merge = (
            _value(rows, latency.OFFERED.format(stage), row, row.series)
            for stage in ("join", "merge")
        )
        if join > merge:
            off_balance = _value(rows, latency.IMBALANCE, row, row.series)
            texts.append(
                f"{row.series} on {row.panel} is held back by its join (offered {join:.2f}, the "
                f"merge {merge:.2f}), whose imbalance is {off_balance:.2f}: learned by intervals, "
                f"it depends on the length of the run."
            )
        else:
            own, other = (
                _value(rows, latency.PARTIALS, row, series) for series in ("pd-stream", row.series)
            )
            more = 100 * (other / own - 1)
            texts.append(
                f"{row.series} on {row.panel} is held back by the merge (offered {merge:.2f}, the "
                f"join {join:.2f}) and sends {other:.3f} partial states a tuple, {more:.0f} % more "
                f"than pd-stream's {own:.3f}: how much splitting costs depends on the tail of "
                f"the data, of which the paper prints no more than the number of keys."
            )
    return " ".join(texts)


def _value(rows: Sequence[Row], metric: str, like: Row, series: str | None = None) -> float:
    """Return another number of the same place."""
    wanted = (metric, like.panel, like.x, series or like.series)
    return next(row.ours for row in rows if (row.metric, row.panel, row.x, row.series) == wanted)


def _imbalance(rows: Sequence[Row], off: Sequence[Row]) -> str:
    texts = []
    tiny = [row for row in off if row.ours < 1e-3]
    if tiny:
        texts.append(
            f"{len(tiny)} of them are under 0.001, where imbalance counts single tuples: one tuple "
            f"above the mean is instances over messages, so fewer messages make it larger."
        )
    for row in off:
        if row.series == "partial-key" and row.x in TABLE_IV:
            instances = int(row.panel.split()[0])
            bound = TABLE_IV[row.x][1] / 100 * instances / 2 - 1
            if abs(bound / row.ours - 1) < NEAR:
                texts.append(
                    f"For {row.case} the paper's {row.paper:.4g} seems a slip: half of the first "
                    f"key's share, times {instances}, less 1, is {bound:.2f}; ours is "
                    f"{row.ours:.2f}."
                )
    return " ".join(texts)


def _replication(rows: Sequence[Row], off: Sequence[Row]) -> str:
    more = [row for row in off if row.ours > (row.paper or 0)]
    less = [row for row in off if row.ours < (row.paper or 0)]
    names = ", ".join(dict.fromkeys(row.series for row in [*more, *less]))
    return (
        f"Ours splits more in {len(more)} and less in {len(less)} of them ({names}). Replication "
        f"depends on how many rare keys are seen, so on the messages; what else differs the paper "
        f"does not let us know, as it says neither the number of sources nor how ties are broken."
    )


def _memory(rows: Sequence[Row], off: Sequence[Row]) -> str:
    row = max(off, key=distance)
    held = _value(rows, OPERATOR_STATE, row)
    return (
        f"What the paper measures is not said. For {row.case} our router has "
        f"{row.ours - held:,.0f} KB and the instances hold {held:,.0f} KB of keys and counts; the "
        f"paper's {row.paper:,.0f} KB is {'between' if (row.paper or 0) < held else 'above'} them."
    )


def _grouping_latency(rows: Sequence[Row], off: Sequence[Row]) -> str:
    times = [(row.paper or 0) / row.ours for row in off]
    largest = max(row.x for row in off)
    last = [row for row in off if row.x == largest]

    def order(key: Callable[[Row], float]) -> list[str]:
        panel = last[0].panel
        return [row.series for row in sorted(last, key=key) if row.panel == panel]

    return (
        f"Ours is the time in a compiled kernel, {min(times):,.0f} to {max(times):,.0f} times less "
        f"than the paper's inside Storm, which scans the window. From the fastest, on "
        f"{last[0].panel} at {largest:.0f} instances, ours are "
        f"{', '.join(order(lambda row: row.ours))}, the paper's "
        f"{', '.join(order(lambda row: row.paper or 0))}."
    )


WHY: Mapping[str, Why] = {
    "4": _latency,
    "6": _throughput,
    "8": _imbalance,
    "9": _imbalance,
    "10": _replication,
    "11": _replication,
    "12": _memory,
    "13": _grouping_latency,
}
"""What explains a figure, from its rows and those of them that are not near the paper's."""
