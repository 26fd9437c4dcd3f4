"""DAGreedy against its formula, evaluated for every instance at every tuple."""

from __future__ import annotations

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

from unskew.grouping import DAGreedy, Key
from unskew.tally import KeyIndex, KeyTally


class Oracle:
    """The largest 0.5 [holds the key] - 0.5 (load - mean) / mean takes the tuple of a hot key.

    A hot key belongs to its counter of the sketch: it is cold while it has none, or another one.
    """

    def __init__(self, router: DAGreedy) -> None:
        self.places = Places(router)
        self.n, self.interval = router.instances, router.interval
        self.sketch = PlainSpaceSaving(router.counters)
        self.hot: dict[int, tuple[int, set[int]]] = {}
        self.loads = [0] * self.n

    def send(self, key: int) -> int:
        slot = self.sketch.observe(key)
        owner, holders = self.hot.get(slot, (None, set()))
        if owner == key:
            place = self._best(holders)
            holders.add(place)
        else:
            place = self.places.home(key)
        self.loads[place] += 1
        if self.sketch.total == self.interval:
            self._end_interval()
        return self.places.instance(place)

    def begin_batch(self) -> None:
        self.loads = [0] * self.n

    def _best(self, holders: set[int]) -> int:
        # The score times twice the mean times n is a whole number; a holder wins a tie.
        total = sum(self.loads)

        def score(i: int) -> int:
            return (i in holders) * total - (self.n * self.loads[i] - total)

        return max(range(self.n), key=lambda i: (score(i), i in holders, -i))

    def _end_interval(self) -> None:
        before, self.hot = self.hot, {}
        for slot, key in enumerate(self.sketch.keys):
            if self.sketch.certain(slot) * 100 * self.n > self.sketch.total:
                fresh = (key, {self.places.home(key)})
                owner, holders = before.get(slot, fresh)
                self.hot[slot] = (key, holders) if owner == key else fresh
        self.sketch.restart()


@settings(deadline=None, max_examples=60)
@given(
    streams,
    instance_counts,
    seeds,
    sources,
    st.sampled_from([1, 2, 10, 50, 200]),
    st.one_of(st.none(), st.integers(1, 12)),
)
def test_every_tuple_goes_where_the_formula_sends_it(
    keys: Keys, instances: int, seed: int, source: int, interval: int, counters: int | None
) -> None:
    router = DAGreedy(instances, seed=seed, source=source, interval=interval, counters=counters)
    assert router.route(keys).tolist() == answers(Oracle(router), keys)


@pytest.mark.parametrize("instances", [1, 2, 3, 8, 16, 65, 130])
def test_zipf_streams_go_where_the_formula_sends_them(instances: int) -> None:
    for exponent, source in ((0.8, 0), (1.4, 1), (2.0, 5)):
        router = DAGreedy(instances, seed=source + 7, source=source, interval=500)
        oracle = Oracle(router)
        for batch in range(2):
            router.begin_batch()
            oracle.begin_batch()
            keys = zipf(exponent, 1250, seed=batch)
            assert router.route(keys).tolist() == answers(oracle, keys)


def test_in_the_first_interval_every_key_is_cold() -> None:
    keys = zipf(2.0, 10_000)
    assert (DAGreedy(16, seed=3).route(keys) == Key(16, seed=3).route(keys)).all()


def test_a_hot_key_gains_a_copy_when_its_holder_is_above_the_least_by_more_than_the_mean() -> None:
    router = DAGreedy(4, interval=4)
    chosen = router.route(array([9] * 11)).tolist()
    home = chosen[0]
    first, second, third = (place for place in range(4) if place != home)
    assert chosen[:4] == [home] * 4
    # Loads 4, 0, 0, 0: the holder is 4 above the least, the mean is 1. Then 1 with 5/4, 2 with 6/4.
    assert chosen[4:7] == [first, first, second]
    # 4, 2, 1, 0: 1 with 7/4. Then 2 with 8/4, a tie that the holder wins, 2 with 9/4, 3 with 10/4.
    assert chosen[7:] == [second, first, second, third]


@pytest.mark.parametrize("exponent", [1.0, 1.4, 2.0])
def test_imbalance_stays_near_1_with_hardly_a_copy(exponent: float) -> None:
    keys = zipf(exponent, 200_000, keys=1_000_000)
    for instances in (16, 64):
        tally = KeyTally(instances)
        tally.add(KeyIndex().ids(keys), DAGreedy(instances, interval=1000).route(keys))
        assert 0.05 < tally.imbalance < 1.1
        assert 1 < tally.replication_factor < 1.15


def test_a_key_that_cools_goes_back_to_its_home() -> None:
    router = DAGreedy(8, interval=100)
    home = int(Key(8).route(array([5]))[0])
    assert len(set(router.route(array([5] * 1000)).tolist())) == 8
    router.route(array(list(range(100, 400))))
    assert set(router.route(array([5] * 20)).tolist()) == {home}
