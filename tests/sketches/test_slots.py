"""The hash index against a dictionary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.sketches.slots import Slots, empty_index, find, remove, slot_type

SLOTS = 6
_INDEX = empty_index(SLOTS)


def start(key: int) -> int:
    """Return the place where the search for a key begins."""
    return int(find(_INDEX, np.zeros(SLOTS, dtype=np.uint64), np.uint64(key)))


# Keys whose searches begin at the end of the index, and so run into each other and round its end.
COLLIDING = [key for key in range(600) if start(key) in (0, _INDEX.size - 2, _INDEX.size - 1)]


def slot_at(index: Slots, keys: np.ndarray[tuple[int], np.dtype[np.uint64]], key: int) -> int:
    """Return the slot that the index gives a key, -1 if none."""
    return int(index[find(index, keys, np.uint64(key))]) - 1


@given(st.lists(st.sampled_from(COLLIDING), max_size=80))
def test_colliding_keys_are_found_as_in_a_dictionary(steps: list[int]) -> None:
    index = empty_index(SLOTS)
    keys = np.zeros(SLOTS, dtype=np.uint64)
    oracle: dict[int, int] = {}
    for key in steps:
        place = np.uint64(find(index, keys, np.uint64(key)))
        if key in oracle:
            remove(index, keys, place)
            del oracle[key]
        elif len(oracle) < SLOTS:
            slot = min(set(range(SLOTS)) - set(oracle.values()))
            index[place] = slot + 1
            keys[slot] = key
            oracle[key] = slot
        assert {key: slot_at(index, keys, key) for key in COLLIDING} == {
            key: oracle.get(key, -1) for key in COLLIDING
        }
        assert np.count_nonzero(index) == len(oracle)


def test_enough_keys_collide_to_wrap_around_the_index() -> None:
    assert len(COLLIDING) > 2 * SLOTS
    assert {start(key) for key in COLLIDING} == {0, _INDEX.size - 2, _INDEX.size - 1}


@pytest.mark.parametrize("slots", [1, 2, 3, 100, 2**15 - 1, 2**15])
def test_a_full_index_holds_every_slot_and_stays_sparse(slots: int) -> None:
    index = empty_index(slots)
    keys = np.arange(slots, dtype=np.uint64) << np.uint64(32)
    for slot in range(slots):
        index[find(index, keys, keys[slot])] = slot + 1
    assert [slot_at(index, keys, key) for key in keys.tolist()] == list(range(slots))
    assert index.size >= 8 * slots
    assert np.iinfo(slot_type(slots)).max >= slots
