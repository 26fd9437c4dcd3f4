"""Consistent Grouping: where ours and the paper's agree, and why not, told from the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unskew.experiments.base import Row
from unskew.experiments.consistent_grouping_days import BACK, SETTLED, SHARDS, SPREAD, WORST
from unskew.experiments.consistent_grouping_runs import OURS, PUBLISHED
from unskew.experiments.consistent_grouping_schemes import IMBALANCE, MEMORY
from unskew.experiments.consistent_grouping_storm import KEPT, LOWER, TIMES
from unskew.experiments.disagreements import Why, disagreements


def findings(rows: Sequence[Row]) -> list[str]:
    """Return what the rows say of bounds, memory, settling and shards, and what differs."""
    return [
        *_bounds(rows),
        *_memory(rows),
        *_settling(rows),
        *_shards(rows),
        *disagreements(rows, WHY),
    ]


def _bounds(rows: Sequence[Row]) -> list[str]:
    own = [row for row in rows if row.metric == IMBALANCE and row.series == "random-choices"]
    if not own:
        return []
    largest = max(own, key=lambda row: row.ours)
    text = (
        f"PoRC: the largest imbalance of {len(own)} cases is {largest.ours:.5f} ({largest.case}; "
        f"{largest.note}). The paper bounds it by e times the mean; one tuple more than that, "
        f"which is n/m, cannot be helped."
    )
    return [text]


def _memory(rows: Sequence[Row]) -> list[str]:
    """Return how the keys that PoRC keeps compare with those of PKG, over the bins."""
    own = [row for row in rows if row.figure == "7" and row.metric == MEMORY]
    held = {(row.series, row.x): row.ours for row in own}
    ratios = {
        x: value / held["partial-key", x]
        for (series, x), value in held.items()
        if series == "random-choices"
    }
    if not ratios:
        return []
    curve = ", ".join(f"{ratio:.2f} with {x:.0f}" for x, ratio in sorted(ratios.items()))
    text = (
        f"Figure 7: PoRC keeps as many keys as PKG times {curve} bins. The paper says as low as "
        f"PKG; a hot key that fills its shards pushes others on, and these push in turn."
    )
    return [text]


def _settling(rows: Sequence[Row]) -> list[str]:
    texts = []
    for figure in ("10", "13"):
        own = [row for row in rows if row.figure == figure]
        for name in (PUBLISHED, OURS):
            mine = {row.metric: row.ours for row in own if row.series == name and not row.x}
            worst = {
                metric.removeprefix(WORST): value
                for metric, value in mine.items()
                if metric.startswith(WORST)
            }
            if not worst:
                continue
            settled = (mine.get(SETTLED + cluster) for cluster in worst)
            after = ", ".join("never" if each is None else f"{each:.1f} %" for each in settled)
            texts.append(
                f"Figure {figure}, {name}: messages from the begin of each cluster until the "
                f"spread stays below 0.1: {after}; from 5 % on it is at most "
                f"{', '.join(f'{value:.3f}' for value in worst.values())}; {mine[BACK]:.0f} shards "
                f"went back within ten intervals, {mine[SHARDS]:.0f} shards in the end."
            )
    return texts


def _shards(rows: Sequence[Row]) -> list[str]:
    own = [row for row in rows if row.figure == "12" and row.metric == SPREAD]
    if not own:
        return []
    parts = [
        f"{name} "
        + ", ".join(f"{row.ours:.2f} with {row.x:.0f}" for row in own if row.series == name)
        for name in (PUBLISHED, OURS)
    ]
    text = (
        f"Figure 12, spread in the second half by shards for each worker: {'; '.join(parts)}. At "
        f"least 176 in all, 17.6 for each worker, are needed for one shard of a slow worker to fit "
        f"between the thresholds. The paper has 5 do badly, 100 best, and 1000 late to settle."
    )
    return [text]


def _bound(rows: Sequence[Row], off: Sequence[Row]) -> str:
    return "The paper says close to e, of which less is better."


def _storm(rows: Sequence[Row], off: Sequence[Row]) -> str:
    best = max((row.ours for row in rows if row.metric == TIMES), default=0.0)
    text = (
        f"Consistent holds {best:.2f} times what key grouping does; the slow workers hold key "
        f"grouping to 30 % of what its busiest worker would take. All times grow with the delay "
        f"here, so that ratios do not depend on it; the paper's 3.44 and 2 are the most over "
        f"delays, and its abstract has them the other way round."
    )
    return text if any(row.metric in (TIMES, LOWER) for row in off) else ""


def _kept(rows: Sequence[Row], off: Sequence[Row]) -> str:
    if not any(row.metric == KEPT for row in off):
        return ""
    return (
        "The paper's are parts of the memory of the cluster, in which more is kept than keys: ours "
        "count keys alone, of a stream that is shorter than the paper's 1.2G messages."
    )


WHY: Mapping[str, Why] = {"7": _bound, "14": _kept, "15": _storm}
"""What explains a figure, from its rows and those of them that are not near the paper's."""
