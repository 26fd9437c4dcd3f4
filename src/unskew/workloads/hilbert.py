"""The Hilbert curve: squares of a grid as numbers, so that neighbours on the curve are neighbours.

Positions become keys by it: a square of the map is one key, and nearby keys are nearby squares.
"""

from __future__ import annotations

from unskew.kernel import kernel


@kernel
def hilbert_cell(x: int, y: int, order: int) -> int:
    """Return the place on the curve of the square in column x and row y, both below 2 ** order.

    Examples
    --------
    >>> [hilbert_cell(x, y, 1) for x, y in ((0, 0), (0, 1), (1, 1), (1, 0))]
    [0, 1, 2, 3]

    References
    ----------
    D. Hilbert, Ueber die stetige Abbildung einer Linie auf ein Flaechenstueck, 1891; LS-Stream,
    Section VI, takes the place on the curve for the key.
    """
    cell = 0
    for level in range(order - 1, -1, -1):
        right, upper = (x >> level) & 1, (y >> level) & 1
        cell = (cell << 2) | ((3 * right) ^ upper)
        if upper == 0:
            # The two lower quarters have the curve on its side, the right one from its end.
            if right == 1:
                x, y = ~x, ~y
            x, y = y, x
    return cell
