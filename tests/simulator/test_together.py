"""Chains whose keys one balancer places: what it is told, and how its plans are carried out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from simulator.scripted import Given

from unskew.balance import Balancer, Locality, Placed, Plan, Report, TwoTier
from unskew.balance.base import Thought
from unskew.errors import BadParameter
from unskew.simulator import (
    Constant,
    Join,
    KeyColumns,
    Network,
    Nodes,
    Result,
    Stage,
    Steady,
    Trace,
    simulate,
)

WORK = 1e-4
INSTANCES, SHARDS = 3, 12


class JointScript(Balancer):
    """Use these plans of all stages in one interval after the other; keep what was reported."""

    name = "joint script"
    is_joint = True

    def __init__(self, *plans: list[Plan], counters: int = 1000) -> None:
        self.left = list(plans)
        self.seen: list[list[Report]] = []
        self.counts_pairs = counters

    def next_plan(self, plan: Plan, report: Report) -> Plan:
        raise AssertionError("stages are planned together")

    def think(self, plans: Sequence[Plan], reports: Sequence[Report]) -> Thought | None:
        self.seen.append(list(reports))
        now = self.left.pop(0) if self.left else list(plans)
        return lambda: now


def with_keys(places: dict[int, int]) -> Plan:
    """Return the even plan but for these keys, which are in these shards."""
    placed = Placed(np.array([*places], dtype=np.uint64), np.array([*places.values()]))
    return Plan(Plan.even(SHARDS, INSTANCES).assignment, INSTANCES, 1, placed=placed)


def counts(balancer: Balancer | None, **options: Any) -> list[Stage]:
    every: dict[str, Any] = {"nodes": Nodes(INSTANCES), "shards": SHARDS} | options
    network = Network(tuple_bytes=500)
    return [
        Stage("region", INSTANCES, Constant(WORK), "key", balancer=balancer, **every),
        Stage(
            *("tag", INSTANCES, Constant(WORK), "key"),
            balancer=balancer,
            network=network,
            key=1,
            **every,
        ),
    ]


def related(messages: int, seed: int = 0) -> list[NDArray[np.uint64]]:
    """Return keys of which the second tells the first: each of 60 has one of 12."""
    second = np.random.default_rng(seed).integers(60, size=messages).astype(np.uint64)
    return [second % np.uint64(12) * np.uint64(7), second + np.uint64(1000)]


def test_a_report_has_the_pairs_of_all_instances_and_the_sizes_of_what_moves() -> None:
    keys, script = related(3000), JointScript()
    simulate(
        *(KeyColumns(*keys), Steady(1000.0), counts(script, key_bytes=40.0, row_bytes=2.0)),
        control=1.0,
        sources=INSTANCES,
    )
    first, second = script.seen[0]
    pairs = first.pairs[1]
    found = zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)
    expected = Counter(zip(keys[0][:999].tolist(), keys[1][:999].tolist(), strict=True))
    assert dict(zip(found, pairs.counts.tolist(), strict=True)) == expected
    assert not second.pairs
    assert (first.row_bytes, second.row_bytes) == (500.0, 0.0)
    assert first.key_bytes == pytest.approx(40 + 2 * 999 / 12)
    # Those of the second stage are on their way for a moment.
    assert second.key_bytes == pytest.approx(40 + 2 * second.rows.sum() / 60)
    assert first.state_bytes.sum() == pytest.approx(12 * 40 + 2 * 999)
    # Counts begin anew with each report, states do not.
    again = script.seen[1][0]
    assert again.pairs[1].counts.sum() == 1000
    assert again.state_bytes.sum() == pytest.approx(12 * 40 + 2 * 1999)


def test_pairs_are_counted_in_bounded_memory() -> None:
    script = JointScript(counters=4)
    simulate(KeyColumns(*related(3000)), Steady(1000.0), counts(script), control=1.0)
    assert script.seen[0][0].pairs[1].counts.size <= 4 * INSTANCES


def test_a_key_brings_its_state_along_and_no_other_moves() -> None:
    # Key 0 is in shard 0, key 3 in shard 3, both on instance 0; key 0 goes to instance 1.
    plans = [with_keys({0: 1}), Plan.even(SHARDS, INSTANCES)]
    script = JointScript(plans)
    stages = counts(script, key_bytes=100.0, row_bytes=50.0, move_seconds_per_byte=1e-3)
    rows = np.array([0, 0, 3, 0, 3, 4, 5], dtype=np.uint64)
    times = [1.0, 2.0, 3.0, 10.01, 10.02, 10.03, 10.04]
    result = simulate(
        *(KeyColumns(rows, np.zeros(7, dtype=np.uint64)), Trace(times), stages),
        control=10.0,
        keep_trace=True,
    )
    region, tag = result.stages
    assert (region.keys_moved, region.bytes_moved, region.moves) == (1, 200.0, 0)
    assert (tag.keys_moved, tag.bytes_moved) == (0, 0.0)
    assert region.loads.tolist() == [4, 2, 1]
    assert result.trace is not None
    left = dict(result.trace.tolist())
    # Instances 0 and 1 stand still until 10.2, the third does not.
    assert left[10.01] == pytest.approx(10.2 + 2 * WORK)
    assert left[10.02] == pytest.approx(10.2 + 3 * WORK, abs=2 * WORK)
    assert left[10.03] > 10.2
    assert left[10.04] == pytest.approx(10.04 + 2 * WORK)


def test_a_shard_brings_the_state_of_its_keys_along() -> None:
    even = Plan.even(SHARDS, INSTANCES)
    script = JointScript([even.move({3: 1}), even])
    stages = counts(script, key_bytes=100.0)
    keys = np.array([3, 15, 27, 4, 5], dtype=np.uint64)
    result = simulate(
        KeyColumns(keys, keys), Trace([1.0, 2.0, 3.0, 4.0, 11.0]), stages, control=10.0
    )
    assert (result.stages[0].moves, result.stages[0].bytes_moved) == (1, 300.0)
    assert result.stages[0].keys_moved == 0


def located(
    messages: int, balancer: Balancer | None, between: Sequence[Stage] = (), **options: Any
) -> Result:
    first, second = counts(balancer, key_bytes=10.0, move_seconds_per_byte=1e-6)
    return simulate(
        *(KeyColumns(*related(messages)), Steady(3000.0), [first, *between, second]),
        sources=INSTANCES,
        control=0.2,
        keep_trace=True,
        **options,
    )


STATELESS = Stage(
    "parse", 2 * INSTANCES, Constant(WORK), "local-or-shuffle", nodes=Nodes(INSTANCES)
)


@pytest.mark.parametrize(
    "between", [pytest.param([], id="in a row"), pytest.param([STATELESS], id="one between")]
)
def test_keys_that_occur_together_come_to_live_together(between: list[Stage]) -> None:
    hashed = located(12_000, None, between).stages[-1]
    placed = located(12_000, Locality(period=1, pays=0.0), between).stages[-1]
    assert hashed.locality < 0.5
    # All but what came before the first plan.
    assert placed.locality > 1 - 0.05 * (1 - hashed.locality) - 0.01
    assert placed.imbalance < 0.1
    assert placed.keys_moved > 10


@settings(max_examples=15)
@given(messages=st.integers(1, 2500), chunk=st.integers(1, 900))
def test_no_tuple_is_lost_and_no_cut_shows_where_keys_move(messages: int, chunk: int) -> None:
    balancer = Locality(period=1, pays=0.0)
    cut = located(messages, balancer, [STATELESS], chunk=chunk)
    whole = located(messages, balancer, [STATELESS])
    assert cut.trace is not None
    assert whole.trace is not None
    assert cut.trace.tolist() == whole.trace.tolist()
    for one, other in zip(cut.stages, whole.stages, strict=True):
        assert one.loads.sum() == messages
        assert one.loads.tolist() == other.loads.tolist()
        assert (one.keys_moved, one.bytes_moved) == (other.keys_moved, other.bytes_moved)


def test_a_stage_without_keys_stays_on_the_node_or_deals_to_all() -> None:
    # Sources are on nodes 0 to 2; the stage has four instances on the first two nodes.
    stages = [
        Stage("here", 3, Constant(WORK), "local-or-shuffle", nodes=Nodes(3)),
        Stage("there", 4, Constant(WORK), "local-or-shuffle", nodes=Nodes(2)),
    ]
    result = simulate(Given([5] * 1200), Steady(1000.0), stages, sources=3)
    here, there = result.stages
    assert here.locality == 1.0
    assert here.loads.tolist() == [400, 400, 400]
    # Node 2 has no instance, and its 400 tuples go to all four in turn.
    assert there.locality == pytest.approx(2 / 3)
    assert there.loads.tolist() == [300, 300, 300, 300]


def test_a_stage_begins_with_the_plan_that_it_is_given() -> None:
    stage = Stage("count", INSTANCES, Constant(WORK), "key", plan=with_keys({0: 2, 3: 1}))
    result = simulate(Given([0, 0, 3, 6]), Steady(1.0), [stage])
    assert stage.shards == SHARDS
    assert result.stages[0].loads.tolist() == [1, 1, 2]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        pytest.param(
            lambda: Stage("s", 2, Constant(1.0), "shuffle", shards=4, balancer=Locality()),
            'give it grouping="key", not',
            id="a joint balancer where a grouping routes",
        ),
        pytest.param(
            lambda: counts(Locality(), can_split=True),
            "no can_split",
            id="a joint balancer where keys may be split",
        ),
        pytest.param(
            lambda: Join("j", 2, 1.0, 1.0, 1.0, 1.0, shards=2, balancer=Locality()),
            "balance it by itself",
            id="a joint balancer of a join",
        ),
        pytest.param(
            lambda: Stage("s", 2, Constant(1.0), "key", plan=with_keys({})),
            "its plan is for 3 and 12",
            id="a plan for others",
        ),
        pytest.param(
            lambda: Stage(
                "s", 2, Constant(1.0), "key", plan=Plan(np.array([0, 1]), 2, hot={1: (0,)})
            ),
            "begins with a plan that has hot keys",
            id="a plan with hot keys",
        ),
        pytest.param(
            lambda: Stage("s", 3, Constant(1.0), "shuffle", plan=with_keys({0: 1})),
            "'shuffle' routes",
            id="a plan of keys where a grouping routes",
        ),
        pytest.param(
            lambda: Stage("s", 2, Constant(1.0), "local-or-shuffle", shards=4),
            "no shards and no parameters",
            id="shards of a stage without keys",
        ),
        pytest.param(
            lambda: simulate(
                *(KeyColumns(*related(10)), Steady(1.0)),
                [
                    Stage("a", 2, Constant(1.0), "key", shards=4, balancer=(both := Locality())),
                    Stage("b", 3, Constant(1.0), "key", shards=4, balancer=both, key=1),
                ],
                control=1.0,
            ),
            "'a', 'b' together, which have 2 to 3 instances",
            id="stages of unlike size",
        ),
    ],
)
def test_what_cannot_be_planned_together_is_refused(make: Callable[[], object], told: str) -> None:
    with pytest.raises(BadParameter, match=told):
        make()


class Sums(TwoTier):
    """Two tiers, with all reports kept."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[list[Report]] = []

    def think(self, plans: Sequence[Plan], reports: Sequence[Report]) -> Thought | None:
        self.seen.append(list(reports))
        return super().think(plans, reports)


def test_stages_that_share_nodes_are_told_the_sum_and_need_not_be_alike() -> None:
    balancer = Sums()
    nodes = Nodes(2, cores=[2, 1])
    # All of the second stage begins on the first node.
    crowded = Plan(np.zeros(SHARDS, dtype=np.int32), 2)
    stages = [
        Stage("one", 3, Constant(6e-4), "shuffle", nodes=nodes, shards=SHARDS, balancer=balancer),
        Stage("two", 2, Constant(9e-4), "key", nodes=nodes, plan=crowded, balancer=balancer),
    ]
    keys = np.arange(4000, dtype=np.uint64) % np.uint64(120)
    result = simulate(KeyColumns(keys), Steady(1000.0), stages, control=1.0)

    first, second = balancer.seen[0]
    assert first.nodes is not None
    assert second.nodes is not None
    # 0.4 of the first node's two cores by the one stage and 0.9 by the other.
    assert first.nodes.cpu.tolist() == pytest.approx([0.65, 0.2], abs=0.01)
    assert second.nodes.cpu.tolist() == first.nodes.cpu.tolist()
    assert first.nodes.cores is not None
    assert first.nodes.cores.tolist() == [2.0, 1.0]
    assert second.keys is not None
    assert second.keys.sum() == 120
    assert first.keys is None
    last = balancer.seen[-1][0].nodes
    assert last is not None
    assert last.cpu[1] > 0.3
    assert sum(stage.moves for stage in result.stages) > 0


def test_stages_that_share_nodes_are_told_the_sum_of_their_networks() -> None:
    balancer = Sums()
    network = Network(tuple_bytes=1000, bandwidth=1e6, is_shared=True)
    # From the one source, on the first node, to the second; from there nothing moves on.
    there = Plan(np.ones(SHARDS, dtype=np.int32), 2)
    first = Stage(
        *("one", 2, Constant(1e-4), "key"),
        nodes=Nodes(2),
        plan=there,
        balancer=balancer,
        network=network,
    )
    second = replace(first, name="two", plan=Plan(np.zeros(SHARDS, dtype=np.int32), 2))
    stream = KeyColumns(np.zeros(900, dtype=np.uint64))
    simulate(stream, Steady(300.0), [first, second], control=1.0)
    for report in balancer.seen[0]:
        assert report.nodes is not None
        assert report.nodes.network is not None
        # Out of the first and into the second, and then back again.
        assert report.nodes.network.tolist() == pytest.approx([0.6, 0.6], abs=0.01)


def test_nodes_have_cores_or_are_refused() -> None:
    assert Nodes(3, cores=[1, 3, 2]).of(6).tolist() == [0, 1, 2, 1, 2, 1]
    with pytest.raises(BadParameter, match="there are 2 nodes, but cores of 1"):
        Nodes(2, cores=[4])
    with pytest.raises(BadParameter, match="cores must be from 1"):
        Nodes(1, cores=[0])
