"""The first tier: slots of one stage on one node."""

from __future__ import annotations

from collections.abc import Callable

from unskew.balance.band import Band
from unskew.balance.standing import Standing


def even_slots(standing: Standing, stage: int, node: int, band_of: Callable[[float], Band]) -> None:
    """Move shards out of high slots of a node into its lowest, the largest first.

    A shard goes only if its slot does not become low by that, nor the other one high; so what was
    normal stays normal. What is too large for that stays where it is: keys that are have been
    split before.

    Parameters
    ----------
    standing : Standing
        Where shards stand; changed.
    stage, node : int
        Whose slots.
    band_of : callable
        Returns what is normal for their mean.

    References
    ----------
    St-Stream, Section 4.2 (a) and Algorithm 1. Its text moves the largest out first, which is
    done here, its algorithm takes them as they come; and it does not say where to stop.
    """
    slots = standing.slots_of(stage, node)
    if slots.size < 2:
        return
    loads = standing.slots[stage]
    band = band_of(float(loads[slots].mean()))
    for giver in sorted(slots.tolist(), key=lambda slot: (-loads[slot], slot)):
        if loads[giver] <= band.high:
            break
        while loads[giver] > band.into_high:
            taker = standing.lowest(stage, slots)
            most = min(band.high - loads[taker], loads[giver] - band.low)
            shard = standing.largest_of_slot(stage, giver, float(most))
            if shard is None or taker == giver:
                break
            standing.move(shard, taker)
