from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from unskew.balance import Greedy, Plan, Report
from unskew.balance.splitting import split_hot_keys

INSTANCES, SHARDS = 4, 8
HOT, OTHER = 8, 17
"""Keys whose homes are shards 0 and 1, on instances 0 and 1 of the even plan."""

Copies = Mapping[int, tuple[int, ...]]


def even(hot: Copies) -> Plan:
    return Plan(Plan.even(SHARDS, INSTANCES).assignment, INSTANCES, 5, hot)


def report(
    plan: Plan, keys: Mapping[int, float], rest: Sequence[float], *, can_split: bool = True
) -> Report:
    """Return what is measured where these keys ask for so much, and the others of each shard."""
    busy = np.array(rest, dtype=np.float64)
    for key, load in keys.items():
        if key not in plan.hot:
            busy[key % SHARDS] += load
    none = np.zeros(INSTANCES)
    shards = np.zeros(SHARDS)
    return Report(
        *(1.0, shards.astype(np.int64), busy, shards, none, none.astype(np.int64)),
        hot=keys,
        can_split=can_split,
    )


def loads(plan: Plan, keys: Mapping[int, float], rest: Sequence[float]) -> NDArray[np.float64]:
    """Return what each instance has to do under a plan."""
    found = np.zeros(INSTANCES)
    for shard, load in enumerate(rest):
        found[plan.assignment[shard]] += load
    for key, load in keys.items():
        copies = plan.hot.get(key, (int(plan.assignment[key % SHARDS]),))
        for copy in copies:
            found[copy] += load / len(copies)
    return found


@pytest.mark.parametrize(
    ("keys", "rest", "before", "after", "share"),
    [
        pytest.param({}, [1] * 8, {}, {}, [2, 2, 2, 2], id="nothing to do"),
        pytest.param(
            *({}, [0] * 8, {HOT: (1, 2)}, {HOT: (1, 2)}, [0, 0, 0, 0]),
            id="an interval without load leaves a split key as it is",
        ),
        pytest.param(
            *({HOT: 4}, [0, 2, 2, 2, 0, 2, 2, 2], {}, {}, [4, 4, 4, 4]),
            id="a key that fills one instance is not split",
        ),
        pytest.param(
            *({HOT: 8}, [1] * 8, {}, {HOT: (0, 1, 2)}, [11 / 3, 11 / 3, 14 / 3, 4]),
            id="a key that fills two gets a third, and shards make room for it",
        ),
        pytest.param(
            *({HOT: 8}, [0, 9, 0, 0, 0, 0, 0, 3], {}, {HOT: (0, 2, 3)}, [8 / 3, 9, 8 / 3, 17 / 3]),
            id="a key is split over those with least to do",
        ),
        pytest.param(
            *({HOT: 12}, [1] * 8, {HOT: (2, 3)}, {HOT: (0, 1, 2, 3)}, [5, 5, 5, 5]),
            id="a split key that grows keeps its instances and gets more",
        ),
        pytest.param(
            *({HOT: 6}, [3] * 8, {HOT: (1, 2, 3)}, {HOT: (1, 2, 3)}, [6, 8, 8, 8]),
            id="a split key that shrinks keeps its instances",
        ),
        pytest.param(
            *({HOT: 4}, [3] * 8, {HOT: (2, 1)}, {HOT: (2, 1)}, [6, 8, 8, 6]),
            id="a split key stays split above half an instance",
        ),
        pytest.param(
            *({HOT: 3}, [3] * 8, {HOT: (1, 2)}, {}, [9, 6, 6, 6]),
            id="a split key becomes whole below half an instance",
        ),
        pytest.param(
            *({}, [1] * 8, {HOT: (0, 1, 2, 3)}, {}, [2, 2, 2, 2]),
            id="a split key that nobody asks for any more becomes whole",
        ),
        pytest.param(
            *({HOT: 20}, [0] * 8, {}, {HOT: (0, 1, 2, 3)}, [5, 5, 5, 5]),
            id="a key with all the load is on every instance",
        ),
        pytest.param(
            {HOT: 9, OTHER: 7},
            [1] * 8,
            {},
            {HOT: (0, 1, 2), OTHER: (0, 1, 3)},
            [19 / 3, 19 / 3, 6, 16 / 3],
            id="two hot keys are both split, the larger first",
        ),
        pytest.param(
            *({HOT: 9, OTHER: 1}, [1] * 8, {OTHER: (0, 3)}, {HOT: (0, 2, 3)}, [4, 4, 5, 5]),
            id="one key is split while another becomes whole",
        ),
        pytest.param(
            {HOT: 8},
            [0, 6, 2, 4, 0, 0, 0, 0],
            {HOT: (0, 0, 0, 1)},
            {HOT: (0, 1, 2)},
            [8 / 3, 26 / 3, 14 / 3, 4],
            id="a key gets more instances, not more turns of those that it has",
        ),
        pytest.param(
            {HOT: 8},
            [1, 3, 4, 4, 1, 3, 4, 4],
            {HOT: (0, 0, 0, 1)},
            {HOT: (0, 0, 0, 1)},
            [8, 8, 8, 8],
            id="an instance that is named three times takes three parts",
        ),
    ],
)
def test_hot_keys_get_the_instances_that_they_fill_and_one_more(
    keys: dict[int, float], rest: list[float], before: Copies, after: Copies, share: list[float]
) -> None:
    plan = even(before)
    got = Greedy().next_plan(plan, report(plan, keys, rest))
    assert dict(got.hot) == after
    assert loads(got, keys, rest).tolist() == pytest.approx(share)
    # And with that it is done.
    assert Greedy().next_plan(got, report(got, keys, rest)) is got


@pytest.mark.parametrize(
    ("before", "share"),
    [
        pytest.param({}, [8, 4, 2, 2], id="shards leave the home of a key that cannot be split"),
        pytest.param(
            {HOT: (1, 2)},
            [8, 4, 2, 2],
            id="a key that can be split no more comes home with its load",
        ),
    ],
)
def test_keys_that_cannot_be_split_are_whole(before: Copies, share: list[float]) -> None:
    plan, keys, rest = even(before), {HOT: 8.0}, [0, 1, 1, 1, 2, 1, 1, 1]
    got = Greedy().next_plan(plan, report(plan, keys, rest, can_split=False))
    assert not got.hot
    assert loads(got, keys, rest).tolist() == pytest.approx(share)


def test_a_key_is_split_above_one_instance_and_whole_again_below_half() -> None:
    plan = even({})
    seen = []
    for part in (0.9, 1.0, 1.1, 1.0, 0.6, 0.4, 0.6, 1.0, 1.1):
        # The others have what is left of four instances of 1.
        keys, rest = {HOT: part}, [(4 - part) / SHARDS] * SHARDS
        plan = Greedy(threshold=9).next_plan(plan, report(plan, keys, rest))
        seen.append(len(plan.hot.get(HOT, ())))
    assert seen == [0, 0, 3, 3, 3, 0, 0, 0, 3]
    assert plan.epoch == 5 + 3


NOW, LATEST = 100, 160
"""Event times: what has expired, and when all that is kept will have."""


@pytest.mark.parametrize(
    ("load", "before", "leaving", "after", "left"),
    [
        pytest.param(
            *(8, (0, 1, 2), {}, (0, 1, 2), {}), id="a key that needs its instances keeps them"
        ),
        pytest.param(*(4, (0, 1, 2), {}, (0, 1, 2), {}), id="one instance too many stays"),
        pytest.param(
            *(4, (0, 1, 2, 3), {}, (0, 1), {2: LATEST, 3: LATEST}),
            id="two that are too many get no more, and leave when what they have has expired",
        ),
        pytest.param(
            *(4, (0, 1), {2: 130, 3: 99}, (0, 1), {2: 130}),
            id="those are left of whose tuples all have expired",
        ),
        pytest.param(
            *(8, (0, 1), {2: 130, 3: 130}, (0, 1, 2), {3: 130}),
            id="one that is leaving is taken back when the key grows",
        ),
        pytest.param(
            *(1, (0, 1), {}, (0,), {1: LATEST}), id="a key that has cooled goes home, with time"
        ),
        pytest.param(
            *(4, (0,), {1: 130}, (0,), {1: 130}),
            id="a key that is leaving must be as large as any other to be split again",
        ),
        pytest.param(
            *(7, (0,), {1: 130}, (0, 1, 2), {}), id="and then it is split, over those it was on"
        ),
        pytest.param(*(1, (0,), {1: 99}, None, {}), id="nothing is left elsewhere: it is whole"),
        pytest.param(
            *(1, (2, 3), {}, (0,), {2: LATEST, 3: LATEST}),
            id="a key that was not on its home goes there all the same",
        ),
    ],
)
def test_what_is_kept_stays_until_it_has_expired(
    load: float,
    before: tuple[int, ...],
    leaving: Mapping[int, int],
    after: tuple[int, ...] | None,
    left: Mapping[int, int],
) -> None:
    table = Plan.even(SHARDS, INSTANCES).assignment
    plan = Plan(table, INSTANCES, 5, {HOT: before}, {HOT: leaving})
    rest = [(20 - load) / SHARDS] * SHARDS
    told = replace(
        report(plan, {HOT: load}, rest),
        stored=np.ones(SHARDS, dtype=np.int64),
        watermark=NOW,
        latest=LATEST,
    )
    split = split_hot_keys(plan, told)
    assert split.hot.get(HOT) == after
    assert split.leaving.get(HOT, {}) == left
    following = Plan(table, INSTANCES, 6, split.hot, split.leaving)
    # Nothing moves but what nobody could find any more.
    expired = {key: at for key, at in leaving.items() if at <= NOW}
    moved = {shard - SHARDS for shard in following.cooled(plan)}
    assert moved == set(expired) | (set() if after else {0})
