"""Where numbers are not near the paper's, told figure by figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from unskew.experiments.base import Row

NEAR = 0.2
"""Ours and the paper's agree if they differ by at most this part."""

Why = Callable[[Sequence[Row], Sequence[Row]], str]
"""Explains a figure, from its rows and those of them that are not near the paper's."""


def disagreements(rows: Sequence[Row], why: Mapping[str, Why]) -> list[str]:
    """Return a sentence for each figure with numbers that are not near the paper's.

    Parameters
    ----------
    rows : list of Row
        Of all figures.
    why : mapping of str to callable
        What explains a figure, by its number, where something does.

    Examples
    --------
    >>> disagreements([Row(0, "8", "zipf 1.0", "speed", 2.0, 3.0)], {"8": lambda own, off: "So."})
    ["Figure 8: 1 of 1 numbers differ from the paper's by more than 20 %, the most zipf 1.0 \
(speed: paper 2, ours 3). So."]
    """
    texts = []
    for figure in dict.fromkeys(row.figure for row in rows):
        own = [row for row in rows if row.figure == figure]
        stated = [row for row in own if row.ratio is not None]
        off = [row for row in stated if distance(row) > NEAR]
        if not off:
            continue
        widest = max(off, key=distance)
        kind = "Figure" if figure.isdigit() else "Table"
        reason = why[figure](own, off) if figure in why else ""
        texts.append(
            f"{kind} {figure}: {len(off)} of {len(stated)} numbers differ from the paper's by more "
            f"than {100 * NEAR:g} %, the most {widest.case} ({widest.metric}: paper "
            f"{widest.paper:.4g}, ours {widest.ours:.4g}). {reason}".rstrip()
        )
    return texts


def distance(row: Row) -> float:
    """Return by what part a number differs from the paper's."""
    return abs((row.ratio or 0) - 1)
