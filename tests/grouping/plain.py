"""What the oracles of several groupings share, in plain Python: places, SpaceSaving, streams."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from unskew.grouping import Grouping
from unskew.grouping.choices import home_of, key_bits, place_of, second_of, stride_of, strides_of
from unskew.mixing import counter_bits
from unskew.workloads import Zipf

Keys = NDArray[np.uint64]


class Oracle(Protocol):
    """Decide where one tuple goes."""

    def send(self, key: int) -> int:
        """Return the instance of the next tuple."""


class Places:
    """The places that the hash of a key names, as the source of a grouping numbers them."""

    def __init__(self, router: Grouping) -> None:
        self.instances, self.first, self.seed = router.instances, router._first, router._key_seed
        self._strides = strides_of(self.instances)
        self._sequences: dict[int, list[int]] = {}
        self._seconds: dict[int, int] = {}

    def _bits(self, key: int) -> np.uint64:
        return np.uint64(key_bits(np.uint64(key), self.seed))

    def sequence(self, key: int) -> list[int]:
        """Return the home of a key and all other places, in the order of its walk."""
        if key not in self._sequences:
            bits, n = self._bits(key), self.instances
            home = place_of(home_of(bits, n), self.first, n)
            stride = stride_of(bits, self._strides)
            self._sequences[key] = [(home + step * stride) % n for step in range(n)]
        return self._sequences[key]

    def home(self, key: int) -> int:
        return self.sequence(key)[0]

    def second(self, key: int) -> int:
        """Return the second choice of a key."""
        if key not in self._seconds:
            n = self.instances
            self._seconds[key] = place_of(second_of(self._bits(key), n), self.first, n)
        return self._seconds[key]

    def instance(self, place: int) -> int:
        return (place + self.first) % self.instances


class PlainSpaceSaving:
    """SpaceSaving as a list of counters, the smallest found by min()."""

    def __init__(self, counters: int) -> None:
        self.room = counters
        self.keys: list[int] = []
        self.counts: list[int] = []
        self.errors: list[int] = []
        self.total = 0
        self._chances = 0
        self._slots: dict[int, int] = {}

    def observe(self, key: int) -> int:
        """Count one tuple and return the slot of its key."""
        slot = self._count(key)
        return self._take_over(key) if slot is None else slot

    def observe_by_chance(self, key: int, seed: np.uint64) -> int | None:
        """Count one tuple; a key without a slot is let in with a chance of 1 / (least + 1)."""
        slot = self._count(key)
        if slot is not None:
            return slot
        self._chances += 1
        draw = int(counter_bits(seed, np.uint64(self._chances))) >> 32
        let_in = draw * (min(self.counts) + 1) < 2**32
        return self._take_over(key) if let_in else None

    def certain(self, slot: int) -> int:
        """Return how many tuples the key of a slot had at least."""
        return self.counts[slot] - self.errors[slot]

    def halve(self) -> None:
        self.counts = [count // 2 for count in self.counts]
        self.errors = [error // 2 for error in self.errors]
        self.total //= 2

    def restart(self) -> None:
        self.counts = [0] * len(self.counts)
        self.errors = [0] * len(self.errors)
        self.total = 0

    def _count(self, key: int) -> int | None:
        self.total += 1
        if key not in self._slots:
            if len(self.keys) == self.room:
                return None
            self._slots[key] = len(self.keys)
            self.keys.append(key)
            self.counts.append(0)
            self.errors.append(0)
        slot = self._slots[key]
        self.counts[slot] += 1
        return slot

    def _take_over(self, key: int) -> int:
        slot = self.counts.index(min(self.counts))
        del self._slots[self.keys[slot]]
        self._slots[key] = slot
        self.keys[slot] = key
        self.errors[slot] = self.counts[slot]
        self.counts[slot] += 1
        return slot


def zipf(exponent: float, messages: int, *, keys: int = 10_000, seed: int = 0) -> Keys:
    return Zipf(exponent, keys=keys, messages=messages, seed=seed).draw(0, messages)


def array(keys: list[int]) -> Keys:
    return np.array(keys, dtype=np.uint64)


def answers(oracle: Oracle, keys: Keys) -> list[int]:
    """Return what the oracle says to each tuple."""
    return [oracle.send(key) for key in keys.tolist()]


def _stream(runs: list[tuple[int, int]], shuffled_by: int) -> Keys:
    keys = array([key for key, times in runs for _ in range(times)])
    return np.random.default_rng(shuffled_by).permutation(keys) if shuffled_by else keys


streams = st.builds(
    _stream,
    st.lists(
        st.tuples(
            st.one_of(st.integers(0, 2), st.integers(0, 30), st.integers(0, 2**64 - 1)),
            st.one_of(st.just(1), st.integers(1, 8), st.integers(1, 120)),
        ),
        max_size=40,
    ),
    st.integers(0, 5),
)
"""Skewed streams: a few keys many times, others seldom, in runs or mixed."""

instance_counts = st.one_of(st.integers(1, 9), st.sampled_from([16, 63, 64, 65, 130]))
sources = st.integers(0, 9)
seeds = st.integers(0, 2**63 - 1)
