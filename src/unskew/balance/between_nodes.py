"""The second tier: nodes, paired."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.balance.band import Band
from unskew.balance.standing import Shard, Standing

_MORE, _LESS = 1 + 1e-9, 1 - 1e-6
"""What is equal but for rounding counts as equal; and what only trades places is no gain."""


def even_nodes(standing: Standing, band: Band) -> list[tuple[int, int]]:
    """Pair low nodes with those that have more, until none is low or nothing can be done.

    In each round low nodes, the lowest first, are paired with high ones and then normal ones, the
    highest first. A pairing is dropped, and the next node tried, if no shard can go: because the
    giver would become low, or the taker high. A node that becomes normal, and is well within the
    band, is a giver in the next round. When none is low any more, nodes that are still high give to
    the lowest.

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
    pairing = _Pairing(standing, band)
    while pairing.round():
        pass
    pairing.relieve()
    return list(pairing.dropped)


class _Pairing:
    """Nodes that were low or high, until they are well within the band."""

    def __init__(self, standing: Standing, band: Band) -> None:
        self.standing, self.band = standing, band
        # What split keys have brought to the edge of the band counts as out of it.
        self.low = np.minimum(standing.loads, standing.measured) < band.low
        self.high = np.maximum(standing.loads, standing.measured) > band.high
        self.dropped: dict[tuple[int, int], None] = {}

    def round(self) -> bool:
        """Pair each low node with one that has not given in this round; return whether any did."""
        loads = self.standing.loads
        wants = self.low & (loads < self.band.into_low)
        offers = self.high & (loads > self.band.into_high)
        givers = [*self._ranked(offers, -1), *self._ranked(~wants & ~offers, -1)]
        gave: set[int] = set()
        for taker in self._ranked(wants, 1):
            for giver in givers:
                if giver in gave:
                    continue
                if self._hand_over(giver, taker):
                    gave.add(giver)
                    break
        return bool(gave)

    def relieve(self) -> None:
        """Let nodes that are still high give to the lowest."""
        loads = self.standing.loads
        for giver in self._ranked(self.high & (loads > self.band.into_high), -1):
            for taker in self._ranked(np.arange(loads.size) != giver, 1):
                if loads[giver] <= self.band.into_high:
                    break
                self._hand_over(giver, taker)

    def _ranked(self, chosen: NDArray[np.bool_], sign: int) -> list[int]:
        """Return chosen nodes by their load, from the lowest with sign 1, the highest with -1."""
        loads = self.standing.loads
        return sorted(np.flatnonzero(chosen).tolist(), key=lambda node: (sign * loads[node], node))

    def _hand_over(self, giver: int, taker: int) -> bool:
        """Let shards go, the largest first, until both are well within the band.

        Rather none that would leave the giver with less than the taker, unless one of them is still
        out of the band; and in no case one that would have them farther apart than they were.
        Returns whether any went; if none did, though they are out of the band, that is a pairing
        which was dropped.
        """
        loads, band, moved = self.standing.loads, self.band, False
        while (self.high[giver] and loads[giver] > band.into_high) or (
            self.low[taker] and loads[taker] < band.into_low
        ):
            shard = self._shard(giver, taker)
            if shard is None:
                if not moved and self._is_out(giver, taker):
                    self.dropped[giver, taker] = None
                break
            slots = self.standing.slots_of(shard.stage, taker)
            self.standing.move(shard, self.standing.lowest(shard.stage, slots))
            moved = True
        return moved

    def _shard(self, giver: int, taker: int) -> Shard | None:
        """Return what goes next."""
        loads, capacity = self.standing.loads, self.standing.capacity
        even = (loads[giver] - loads[taker]) / (1 / capacity[giver] + 1 / capacity[taker])
        room = min(
            (self.band.high - loads[taker]) * capacity[taker],
            (loads[giver] - self.band.low) * capacity[giver],
        )
        found = self.standing.largest_of_node(giver, taker, float(min(room, _MORE * even)))
        if found is None and self._is_out(giver, taker):
            most = float(min(room, _LESS * 2 * even))
            found = self.standing.smallest_of_node(giver, taker, most)
        return found

    def _is_out(self, giver: int, taker: int) -> bool:
        loads = self.standing.loads
        return bool(loads[giver] > self.band.high or loads[taker] < self.band.low)
