"""The Hilbert curve: against a curve that is drawn by its definition."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from unskew.workloads.hilbert import hilbert_cell


def cells(x: NDArray[np.int64], y: NDArray[np.int64], order: int) -> NDArray[np.int64]:
    """Return the place on the curve of each square."""
    return np.array([hilbert_cell(*square, order) for square in zip(x, y, strict=True)])


def drawn(order: int) -> list[tuple[int, int]]:
    """Return the squares in the order of the curve: four smaller curves, two of them turned."""
    if order == 0:
        return [(0, 0)]
    part, half = drawn(order - 1), 1 << (order - 1)
    return [
        *((y, x) for x, y in part),
        *((x, y + half) for x, y in part),
        *((x + half, y + half) for x, y in part),
        *((2 * half - 1 - y, half - 1 - x) for x, y in part),
    ]


@pytest.mark.parametrize("order", range(1, 7))
def test_the_cells_are_places_on_the_curve(order: int) -> None:
    x, y = np.array(drawn(order), dtype=np.int64).T
    assert cells(x, y, order).tolist() == list(range(4**order))


def test_a_coarser_curve_has_the_quarter_of_a_cell() -> None:
    x, y = np.random.default_rng(0).integers(0, 1 << 31, (2, 1000))
    fine, coarse = cells(x, y, 31), cells(x >> 2, y >> 2, 29)
    # Curves of orders that differ by two are drawn in the same sense.
    assert (fine >> 4 == coarse).all()
    assert fine.min() >= 0


def test_neighbours_on_the_curve_are_neighbours_on_the_map() -> None:
    rows, columns = np.divmod(np.arange(1 << 12), 1 << 6)
    order = np.argsort(cells(columns, rows, 6))
    steps = abs(np.diff(columns[order])) + abs(np.diff(rows[order]))
    assert (steps == 1).all()
