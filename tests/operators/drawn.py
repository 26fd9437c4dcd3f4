"""Plans that are drawn: from batch to batch nothing stays in place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from unskew.balance import Placed, Plan

SHARDS = 2


@st.composite
def a_plan(draw: st.DrawFn, hashes: Sequence[int], *, can_split: bool = True) -> Plan:
    """Return any plan of two shards, with any keys hot, leaving and placed."""
    instances = draw(st.integers(1, 4))
    instance = st.integers(0, instances - 1)
    table = draw(st.lists(instance, min_size=SHARDS, max_size=SHARDS))
    copies = st.lists(instance, min_size=1, max_size=4).map(tuple)
    hot = draw(st.dictionaries(st.sampled_from(hashes), copies, max_size=3 if can_split else 0))
    left = {key: draw(instance) for key in hot if draw(st.booleans())}
    leaving = {key: {at: 0} for key, at in left.items() if at not in hot[key]}
    places = draw(st.dictionaries(st.sampled_from(hashes), st.integers(0, SHARDS - 1)))
    placed = Placed(np.array(list(places), dtype=np.uint64), np.array(list(places.values())))
    return Plan(np.array(table), instances, hot=hot, leaving=leaving, placed=placed)
