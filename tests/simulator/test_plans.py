"""Stages that a plan routes alone: shards by hash, hot keys in turn, as in a pipeline on Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from simulator.scripted import Given, Script

from unskew.balance import Balancer, Greedy, Plan
from unskew.errors import BadParameter
from unskew.simulator import (
    Constant,
    Merge,
    Network,
    Nodes,
    PerKey,
    Poisson,
    Result,
    Stage,
    Steady,
    Trace,
    simulate,
)
from unskew.workloads import Zipf

WORK = 1e-3
INSTANCES, SHARDS = 4, 12

Copies = dict[int, tuple[int, ...]]


def hot_in_turn(*hot: Copies) -> Script:
    """Have these keys hot in one interval after the other."""
    even = Plan.even(SHARDS, INSTANCES).assignment
    return Script(*(Plan(even, INSTANCES, 1 + epoch, keys) for epoch, keys in enumerate(hot)))


def planned(balancer: Balancer | None, **other: Any) -> Stage:
    options: dict[str, Any] = {"shards": SHARDS, "can_split": True} | other
    return Stage("count", INSTANCES, Constant(WORK), "key", balancer=balancer, **options)


def zipf(messages: int) -> NDArray[np.uint64]:
    return np.concatenate(list(Zipf(1.2, 200, messages).batches()))


def chosen(keys: NDArray[np.uint64], start: int, hot: Copies, sources: int) -> list[int]:
    """Return the instance of each tuple, of which the first is tuple `start`, in plain Python."""
    turns = {(source, key): source for source in range(sources) for key in hot}
    found = []
    for number, key in enumerate(keys.tolist(), start):
        signed = key - 2**64 if key >= 2**63 else key
        copies = hot.get(key, (signed % SHARDS % INSTANCES,))
        turn = turns.get((number % sources, key), 0)
        found.append(copies[turn % len(copies)])
        turns[number % sources, key] = turn + 1
    return found


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("sources", [1, 3])
def test_the_shard_of_a_key_is_that_of_the_plan(sources: int, seed: int) -> None:
    keys, script = zipf(1500), Script()
    result = simulate(
        *(Given(keys), Steady(1000.0), [planned(script)]), sources=sources, seed=seed, control=1.0
    )
    shards = Plan.even(SHARDS, INSTANCES).shard_of(keys)
    # The tuple that comes when the balancer looks is of the next interval.
    rows = np.bincount(shards[:999], minlength=SHARDS)
    assert script.seen[0].rows.tolist() == rows.tolist()
    assert script.seen[0].busy.tolist() == pytest.approx((rows * WORK).tolist())
    loads = np.bincount(shards % INSTANCES, minlength=INSTANCES)
    assert result.stages[0].loads.tolist() == loads.tolist()


@pytest.mark.parametrize("sources", [1, 3])
@pytest.mark.parametrize(
    "copies", [pytest.param((0, 1, 2, 3), id="evenly"), pytest.param((3, 1, 1), id="by weight")]
)
def test_hot_keys_are_dealt_to_their_instances_in_turn(
    copies: tuple[int, ...], sources: int
) -> None:
    keys = zipf(4000)
    (first, _), (second, _) = Counter(keys.tolist()).most_common(2)
    hot = {first: copies, second: (2,)}
    script = hot_in_turn(hot)
    result = simulate(
        *(Given(keys), Steady(1000.0), [planned(script)]), sources=sources, control=2.0
    )
    places = chosen(keys[:1999], 0, {}, sources) + chosen(keys[1999:], 1999, hot, sources)
    assert result.stages[0].loads.tolist() == np.bincount(places, minlength=INSTANCES).tolist()

    before, after = script.seen
    assert before.can_split
    assert after.can_split
    for report, part in ((before, keys[:1999]), (after, keys[1999:3999])):
        rows = Counter(part.tolist())
        assert report.hot[first] == pytest.approx(rows[first] * WORK)
        assert report.hot[second] == pytest.approx(rows[second] * WORK)
    # Hot keys are in no shard.
    cold = keys[1999:3999][~np.isin(keys[1999:3999], np.array([*hot], dtype=np.uint64))]
    shards = Plan.even(SHARDS, INSTANCES).shard_of(cold)
    assert after.rows.tolist() == np.bincount(shards, minlength=SHARDS).tolist()
    assert after.busy.sum() == pytest.approx(cold.size * WORK)


def test_a_report_tells_of_the_keys_with_most_service_and_of_those_that_are_hot() -> None:
    # Each key comes ten times in an interval, and ten times in the next.
    keys = np.arange(10_001, dtype=np.uint64) % 500
    service = PerKey(1e-4, 1e-2)
    work = service.work(np.arange(500, dtype=np.uint64), 0) * 10
    script = Script(Plan(Plan.even(8, 2).assignment, 2, 1, {int(work.argmin()): (1,)}))
    stage = Stage("count", 2, service, "key", shards=8, balancer=script)
    simulate(Given(keys), Steady(1000.0), [stage], control=5.0005)
    hottest = {key: work[key] for key in np.argsort(-work)[: 2 * 16].tolist()}
    before, after = script.seen
    assert before.hot == pytest.approx(hottest)
    assert after.hot == pytest.approx(hottest | {int(work.argmin()): work.min()})
    assert not before.can_split


NETWORK = Network(local=1e-4, latency=2e-3)


def split_run(messages: int, **options: Any) -> Result:
    stages = [
        Stage("parse", 3, Constant(WORK / 4), nodes=Nodes(3), network=NETWORK),
        planned(Greedy(), nodes=Nodes(2), network=NETWORK, row_bytes=10.0),
    ]
    stream = Zipf(1.5, 100, messages)
    return simulate(
        stream, Poisson(2000.0), stages, sources=2, keep_trace=True, control=0.05, **options
    )


@settings(max_examples=30)
@given(messages=st.integers(1, 900), chunk=st.integers(1, 400))
def test_no_tuple_is_lost_and_no_cut_shows_where_keys_are_split(messages: int, chunk: int) -> None:
    cut, whole = split_run(messages, chunk=chunk), split_run(messages)
    assert cut.trace is not None
    assert whole.trace is not None
    assert cut.trace.tolist() == whole.trace.tolist()
    for one, other in zip(cut.stages, whole.stages, strict=True):
        assert one.loads.sum() == messages == one.completed.sum()
        assert one.loads.tolist() == other.loads.tolist()
        assert one.moves == other.moves


def test_splitting_balances_what_moving_shards_cannot() -> None:
    def run(**options: Any) -> Result:
        # One key has 43 % of the tuples, more than an instance can serve.
        merge = Merge(1, Constant(WORK / 10), window=0.5)
        stage = planned(Greedy(), shards=64, **options)
        stream = Zipf(1.6, 1000, 60_000)
        return simulate(stream, Poisson(3000.0), [stage], merge=merge, control=0.5)

    whole, split = run(can_split=False), run()
    assert whole.merge is not None
    assert split.merge is not None
    assert whole.stages[0].imbalance > 0.6 > 0.1 > split.stages[0].imbalance
    assert split.latency.mean < 0.1 * whole.latency.mean
    assert whole.merge.partials <= 1.01 * whole.merge.results < split.merge.partials


def test_a_key_that_is_whole_again_brings_its_state_home() -> None:
    key, home = 24, 0
    script = hot_in_turn({key: (0, 1, 1, 2)}, {})
    stage = planned(script, row_bytes=100.0, move_seconds_per_byte=1e-3)
    # Tuples of the key alone: 2 before it is hot, 8 while it is, 1 after, far apart.
    times = [1, 2, 11, 12, 13, 14, 15, 16, 17, 18, 20.1, 31]
    result = simulate(
        Given([key] * 12), Trace(np.array(times, float)), [stage], control=10.0, keep_trace=True
    )
    assert [report.state_bytes[home] for report in script.seen] == [200.0, 200.0, 1100.0]
    assert [sum(report.state_bytes) for report in script.seen] == [200.0, 200.0, 1100.0]
    assert result.stages[0].loads.tolist() == [6, 4, 2, 0]
    assert result.stages[0].moves == 0
    # Home takes 400 and 200 bytes from the two others, and the next tuple waits for that.
    assert result.trace is not None
    left = dict(result.trace.tolist())
    assert left[18.0] == pytest.approx(18.0 + WORK)
    assert left[20.1] == pytest.approx(20.6 + WORK)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        pytest.param(
            lambda: planned(None, shards=None), "only a plan splits keys", id="splits no shards"
        ),
        pytest.param(
            lambda: Stage("s", 2, Constant(1.0), "shuffle", shards=4, can_split=True),
            "not 'shuffle'",
            id="splits what a grouping splits",
        ),
        pytest.param(
            lambda: simulate(
                *(Zipf(0.0, 2, 2), Steady(1.0)), [planned(None, parameters={"flavour": 1})]
            ),
            "key has no parameter 'flavour'",
            id="a parameter that key grouping has not",
        ),
    ],
)
def test_what_cannot_be_split_is_refused(make: Callable[[], object], told: str) -> None:
    with pytest.raises(BadParameter, match=told):
        make()
