"""The second tier: nodes, paired."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.balance.band import Band
from unskew.balance.standing import Standing

_MORE, _LESS = 1 + 1e-9, 1 - 1e-6
"""What is equal but for rounding counts as equal; and what only trades places is no gain."""


def even_nodes(standing: Standing, band: Band) -> list[tuple[int, int]]:
    """Pair low nodes with those that have more, until none is low or nothing can be done.

    In each round low nodes, the lowest first, are paired with high ones and then normal ones, the
    highest first. A pairing is dropped, and the next node tried, if no shard can go: because the
    giver would become low, or the taker high. A node that becomes normal is a giver in the next
    round. When none is low any more, nodes that are still high give to the lowest.

    Parameters
    ----------
    standing : Standing
        Where shards stand; changed.
    band : Band
        What is normal.

    Returns
    -------
    list of (int, int)
        Givers and takers of the pairings that were dropped, each once.

    References
    ----------
    St-Stream, Section 4.2 (b) and Algorithm 2, whose input says overloaded where low nodes are
    meant, and which moves load from low to normal nodes. That high nodes give to normal ones when
    none is low is ours: the paper would leave them high.
    """
    dropped: dict[tuple[int, int], None] = {}
    while _round(standing, band, dropped):
        pass
    for giver in _ranked(standing, standing.loads > band.high, -1):
        others = np.ones(standing.loads.size, dtype=np.bool_)
        others[giver] = False
        for taker in _ranked(standing, others, 1):
            if standing.loads[giver] <= band.into_high:
                break
            if not _hand_over(standing, band, giver, taker):
                dropped[giver, taker] = None
    return list(dropped)


def _round(standing: Standing, band: Band, dropped: dict[tuple[int, int], None]) -> bool:
    """Pair each low node with one that has not given in this round; return whether any did."""
    loads = standing.loads
    low = _ranked(standing, loads < band.low, 1)
    givers = [
        *_ranked(standing, loads > band.high, -1),
        *_ranked(standing, (loads >= band.low) & (loads <= band.high), -1),
    ]
    gave: set[int] = set()
    for taker in low:
        for giver in givers:
            if giver in gave:
                continue
            if _hand_over(standing, band, giver, taker):
                gave.add(giver)
                break
            dropped[giver, taker] = None
    return bool(gave)


def _hand_over(standing: Standing, band: Band, giver: int, taker: int) -> bool:
    """Let shards go, the largest first, until both are well within the band; return if any went.

    Rather none that would leave the giver with less than the taker, unless one of them is still out
    of the band; and in no case one that would have them farther apart than they were.
    """
    loads, capacity = standing.loads, standing.capacity
    is_high, is_low = loads[giver] > band.high, loads[taker] < band.low
    moved = False
    while (is_high and loads[giver] > band.into_high) or (is_low and loads[taker] < band.into_low):
        even = (loads[giver] - loads[taker]) / (1 / capacity[giver] + 1 / capacity[taker])
        room = min(
            (band.high - loads[taker]) * capacity[taker],
            (loads[giver] - band.low) * capacity[giver],
        )
        is_out = loads[giver] > band.high or loads[taker] < band.low
        shard = standing.largest_of_node(giver, taker, float(min(room, _MORE * even)))
        if shard is None and is_out:
            shard = standing.smallest_of_node(giver, taker, float(min(room, _LESS * 2 * even)))
        if shard is None:
            break
        slot = standing.lowest(shard.stage, standing.slots_of(shard.stage, taker))
        standing.move(shard, slot)
        moved = True
    return moved


def _ranked(standing: Standing, chosen: NDArray[np.bool_], sign: int) -> list[int]:
    """Return the chosen nodes by their load, from the lowest with sign 1, the highest with -1."""
    nodes = np.flatnonzero(chosen).tolist()
    return sorted(nodes, key=lambda node: (sign * standing.loads[node], node))
