"""Dalton against a bandit of lists, and the most that a bandit of six arms can do."""

from __future__ import annotations

import numpy as np
import pytest
from grouping.plain import (
    Keys,
    Places,
    PlainSpaceSaving,
    answers,
    array,
    instance_counts,
    seeds,
    sources,
    streams,
    zipf,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.grouping import Dalton, Key
from unskew.mixing import counter_bits
from unskew.tally import KeyIndex, KeyTally


class Bandit:
    """The instances that a hot key uses, the oldest first, and what they are worth."""

    def __init__(self, key: int, home: int) -> None:
        self.key, self.most = key, 2
        self.places = [home]
        self.values = [np.float32(-2.0)]
        self.held: set[int] = set()


class Oracle:
    """Epsilon-greedy, a bandit for each hot key; cold keys go to their home.

    The load and the mean of a reward count the tuple, holders are the instances that the key used
    in this slide, values are rounded to float32. A hot key belongs to its counter of the sketch.
    """

    def __init__(self, router: Dalton) -> None:
        self.router, self.n = router, router.instances
        self.homes = Places(router)
        self.sketch = PlainSpaceSaving(router.counters)
        self.bandits: dict[int, Bandit] = {}
        self.loads = [0] * self.n
        self.drawn = 0

    def send(self, key: int) -> int:
        bandit = self.bandits.get(self.sketch.observe(key))
        if bandit is not None and bandit.key == key:
            place = self._pull(bandit)
            self.loads[place] += 1
            self._learn(bandit, place)
        else:
            place = self.homes.home(key)
            self.loads[place] += 1
        if self.sketch.total == self.router.slide:
            self._end_slide()
        return place

    def begin_batch(self) -> None:
        self.loads = [0] * self.n

    def _draw(self) -> int:
        self.drawn += 1
        return int(counter_bits(self.router._chance_seed, np.uint64(self.drawn)))

    def _pull(self, bandit: Bandit) -> int:
        """Exploit with one random number; explore with a second one, perhaps a new instance."""
        if (self._draw() >> 11) / 2**53 >= self.router.epsilon:
            return bandit.places[bandit.values.index(max(bandit.values))]
        upper = self._draw() >> 32
        if len(bandit.places) == min(bandit.most, self.n):
            return bandit.places[upper * len(bandit.places) >> 32]
        place = upper * self.n >> 32
        if place not in bandit.places:
            bandit.places.append(place)
            bandit.values.append(np.float32(-2.0))
        return place

    def _learn(self, bandit: Bandit, place: int) -> None:
        bandit.held.add(place)
        load, mean = self.loads[place], sum(self.loads) / self.n
        reward = -0.5 * (load - mean) / max(load, mean) - 0.5 * len(bandit.held) / self.n
        arm = bandit.places.index(place)
        value = float(bandit.values[arm])
        bandit.values[arm] = np.float32(value + self.router.rate * (reward - value))

    def _end_slide(self) -> None:
        before, self.bandits = self.bandits, {}
        for slot, key in enumerate(self.sketch.keys):
            if self.sketch.certain(slot) * self.n > self.sketch.total:
                bandit = before.get(slot)
                if bandit is None or bandit.key != key:
                    bandit = Bandit(key, self.homes.home(key))
                else:
                    bandit.most = min(6, bandit.most + 1)
                bandit.held.clear()
                self.bandits[slot] = bandit
        self.sketch.restart()


@settings(deadline=None, max_examples=60)
@given(
    streams,
    instance_counts,
    seeds,
    sources,
    st.sampled_from([0.01, 0.1, 0.9]),
    st.sampled_from([0.1, 0.5]),
    st.sampled_from([1, 2, 10, 50, 200]),
    st.one_of(st.none(), st.integers(1, 12)),
)
def test_every_tuple_goes_where_the_bandit_sends_it(
    keys: Keys,
    instances: int,
    seed: int,
    source: int,
    epsilon: float,
    rate: float,
    slide: int,
    counters: int | None,
) -> None:
    router = Dalton(
        instances,
        seed=seed,
        source=source,
        epsilon=epsilon,
        rate=rate,
        slide=slide,
        counters=counters,
    )
    assert router.route(keys).tolist() == answers(Oracle(router), keys)


@pytest.mark.parametrize("instances", [1, 2, 3, 8, 16, 65, 130])
def test_zipf_streams_go_where_the_bandit_sends_them(instances: int) -> None:
    for exponent, source in ((0.8, 0), (1.4, 1), (2.0, 5)):
        router = Dalton(instances, seed=source + 7, source=source, slide=300)
        oracle = Oracle(router)
        for batch in range(2):
            router.begin_batch()
            oracle.begin_batch()
            keys = zipf(exponent, 1250, seed=batch)
            assert router.route(keys).tolist() == answers(oracle, keys)


def test_in_the_first_slide_every_key_is_cold() -> None:
    keys = zipf(2.0, 10_000)
    assert (Dalton(16, seed=3).route(keys) == Key(16, seed=3).route(keys)).all()


def test_a_key_that_stays_hot_may_use_one_more_instance_after_each_slide_up_to_6() -> None:
    chosen = Dalton(64, slide=1000, epsilon=0.5).route(array([5] * 10_000)).reshape(10, 1000)
    used = [len(set(chosen[: slide + 1].ravel().tolist())) for slide in range(10)]
    assert used == [1, 2, 3, 4, 5, 6, 6, 6, 6, 6]


@pytest.mark.parametrize("exponent", [1.0, 1.4, 2.0])
def test_no_key_of_a_zipf_stream_uses_more_than_6_instances_at_a_time(exponent: float) -> None:
    keys = zipf(exponent, 100_000, keys=1_000_000)
    chosen = Dalton(64, slide=2000).route(keys)
    most = 0
    for start in range(0, keys.size, 2000):
        used: dict[int, set[int]] = {}
        slide = slice(start, start + 2000)
        for key, instance in zip(keys[slide].tolist(), chosen[slide].tolist(), strict=True):
            used.setdefault(key, set()).add(instance)
        most = max(most, *map(len, used.values()))
    assert most == 6


def test_a_key_too_large_for_6_instances_is_never_balanced() -> None:
    keys = zipf(2.0, 200_000, keys=1_000_000)
    index, tally = KeyIndex(), KeyTally(64)
    tally.add(index.ids(keys), Dalton(64, slide=1000).route(keys))
    largest_share = index.counts.max() / keys.size
    assert tally.imbalance >= largest_share * 64 / 6 - 1 > 5
    assert 1 < tally.replication_factor < 1.4


def test_a_key_that_cools_goes_back_to_its_home() -> None:
    router = Dalton(8, slide=100)
    home = int(Key(8).route(array([5]))[0])
    assert len(set(router.route(array([5] * 5000)).tolist())) == 6
    router.route(array(list(range(100, 400))))
    assert set(router.route(array([5] * 20)).tolist()) == {home}
