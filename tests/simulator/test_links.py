"""Links that the tuples of a node share, against simpy and against what arithmetic says."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from simulator.scripted import Given, Script

import unskew
from unskew.errors import BadParameter
from unskew.simulator import (
    Constant,
    KeyColumns,
    Network,
    Nodes,
    PerKey,
    Poisson,
    Result,
    Stage,
    Steady,
    Trace,
    saturation,
    simulate,
)
from unskew.workloads import Zipf

NETWORK = Network(
    local=1e-4, latency=3e-4, tuple_bytes=1000, bandwidth=1e6, is_shared=True, handling=5e-4
)
RATE = 900.0


def chain(network: Network = NETWORK) -> list[Stage]:
    """Return two stages on unlike nodes; work is by key, as links make tuples come at once."""
    return [
        Stage("parse", 4, PerKey(5e-4, 2e-3), "partial-key", nodes=Nodes(3), network=network),
        Stage("count", 3, Constant(1e-3), "key", nodes=Nodes(2), network=network, key=1),
    ]


def keys(messages: int) -> list[NDArray[np.uint64]]:
    return [np.concatenate(list(Zipf(1.1, 80, messages, seed=each).batches())) for each in (0, 5)]


def run(stages: list[Stage], messages: int = 700, **options: Any) -> Result:
    stream = KeyColumns(*keys(messages))
    return simulate(stream, Poisson(RATE), stages, sources=2, keep_trace=True, **options)


class Model:
    """The same stages as processes of simpy: a link is a resource, out of a node and into one."""

    def __init__(self, stages: list[Stage], sources: int) -> None:
        self.stages = stages
        self.clock = simpy.Environment()
        self.servers = [self.resources(stage.instances) for stage in stages]
        self.links = [(self.resources(3), self.resources(3)) for _ in stages]
        upstream = [sources, *(stage.instances for stage in stages)]
        self.routers = [
            [unskew.grouping(stage.grouping, stage.instances, source=i) for i in range(count)]
            for stage, count in zip(stages, upstream, strict=False)
        ]
        self.nodes = [stages[0].nodes.of(sources), *(s.nodes.of(s.instances) for s in stages)]
        self.started = [0] * len(stages)
        self.left: list[tuple[float, float]] = []

    def resources(self, count: int) -> list[simpy.Resource]:
        return [simpy.Resource(self.clock) for _ in range(count)]

    def tuple_(
        self, born: float, own: NDArray[np.uint64], source: int
    ) -> Generator[simpy.Event, Any, None]:
        yield self.clock.timeout(born)
        for number, stage in enumerate(self.stages):
            key = own[stage.key : stage.key + 1]
            target = int(self.routers[number][source].route(key)[0])
            giver, taker = self.nodes[number][source], self.nodes[number + 1][target]
            if giver == taker:
                yield self.clock.timeout(stage.network.local)
            else:
                yield from self.cross(number, int(giver), int(taker))
            work = float(stage.service.work(key, self.started[number], number)[0])
            self.started[number] += 1
            with self.servers[number][target].request() as turn:
                yield turn
                extra = stage.network.handling if giver != taker else 0.0
                yield self.clock.timeout(work + extra)
            source = target
        self.left.append((born, self.clock.now))

    def cross(self, number: int, giver: int, taker: int) -> Generator[simpy.Event, Any, None]:
        out, into = self.links[number]
        network = self.stages[number].network
        with out[giver].request() as turn:
            yield turn
            come = self.clock.process(self.come(network, into[taker]))
            yield self.clock.timeout(network.sending)
        yield come

    def come(self, network: Network, link: simpy.Resource) -> Generator[simpy.Event, Any, None]:
        yield self.clock.timeout(network.latency)
        with link.request() as turn:
            yield turn
            yield self.clock.timeout(network.sending)


def test_links_agree_with_simpy_tuple_by_tuple() -> None:
    stages = chain()
    model = Model(stages, sources=2)
    rows = np.stack(keys(700), axis=1)
    times, _ = Poisson(RATE).times(0, 700, 0.0)
    for i in range(700):
        model.clock.process(model.tuple_(float(times[i]), rows[i], i % 2))
    model.clock.run()
    ours = run(stages).trace
    assert ours is not None
    order = np.argsort(ours[:, 0], kind="stable")
    np.testing.assert_allclose(ours[order], np.array(sorted(model.left)), rtol=1e-9)


@settings(max_examples=30)
@given(messages=st.integers(1, 600), chunk=st.integers(1, 300))
def test_no_cut_of_the_stream_shows_on_links(messages: int, chunk: int) -> None:
    cut, whole = run(chain(), messages, chunk=chunk), run(chain(), messages)
    assert cut.trace is not None
    assert whole.trace is not None
    assert cut.trace.tolist() == whole.trace.tolist()
    for one, other in zip(cut.stages, whole.stages, strict=True):
        assert one.loads.tolist() == other.loads.tolist()
        np.testing.assert_allclose(one.links, other.links, rtol=1e-9)


def test_a_tuple_alone_takes_as_long_on_a_link_as_without() -> None:
    # Far apart, so that none meets another.
    times = np.arange(1.0, 41.0)
    stream = KeyColumns(*keys(40))
    shared, alone = (
        simulate(stream, Trace(times), chain(each), sources=2, keep_trace=True).trace
        for each in (NETWORK, replace(NETWORK, is_shared=False))
    )
    assert shared is not None
    assert alone is not None
    np.testing.assert_allclose(shared, alone)


def test_a_link_sends_what_its_bandwidth_allows() -> None:
    network = Network(tuple_bytes=1000, bandwidth=1e6, is_shared=True)
    stages = [
        Stage("first", 1, Constant(1e-6), nodes=Nodes(2)),
        Stage("second", 2, Constant(1e-6), "key", nodes=Nodes(2), network=network, shards=2),
    ]
    # Every second tuple leaves node 0: 1000 of 1000 bytes a second, so 2000 in all.
    found = saturation(Given([0, 1] * 10_000), Steady(100.0), stages)
    assert found.rate == pytest.approx(2000.0, rel=0.03)
    assert found.result.offered_at["network to second"] == pytest.approx(1.0, abs=0.03)
    (out, into) = found.result.stages[1].links
    assert out == pytest.approx([1.0, 0.0], abs=0.03)
    assert into == pytest.approx([0.0, 1.0], abs=0.03)


def test_a_link_takes_from_all_nodes_what_its_bandwidth_allows() -> None:
    # Three nodes send all they have to the fourth, which takes 1000 tuples a second.
    network = Network(tuple_bytes=1000, bandwidth=1e6, is_shared=True)
    stages = [
        Stage("first", 4, Constant(1e-6), nodes=Nodes(4)),
        Stage("second", 4, Constant(1e-6), "key", nodes=Nodes(4), network=network, shards=4),
    ]
    found = saturation(Given([3] * 20_000), Steady(100.0), stages, sources=4)
    assert found.rate == pytest.approx(1000.0 * 4 / 3, rel=0.03)
    assert found.result.stages[1].links.max(axis=1) == pytest.approx([1 / 3, 1.0], abs=0.03)


def test_balancers_see_the_busier_link_of_each_node() -> None:
    # All come from the first node, and two of three go on to the others; then all to the last.
    network = Network(tuple_bytes=1000, bandwidth=1e6, is_shared=True)
    script = Script()
    stage = Stage(
        *("count", 3, Constant(1e-6), "key"),
        nodes=Nodes(3),
        network=network,
        shards=3,
        balancer=script,
    )
    keys = [*([0, 1, 2] * 200), *([2] * 600)]
    simulate(Given(keys), Steady(300.0), [stage], control=1.0)
    told = [report.nodes for report in script.seen]
    assert all(each is not None and each.network is not None for each in told)
    busy = [each.network.tolist() for each in told if each is not None and each.network is not None]
    assert busy[1] == pytest.approx([0.2, 0.1, 0.1], abs=0.01)
    assert busy[3] == pytest.approx([0.3, 0.0, 0.3], abs=0.01)
    alone = Script()
    others = replace(stage, network=replace(network, is_shared=False), balancer=alone)
    simulate(Given(keys), Steady(300.0), [others], control=1.0)
    assert all(each.nodes is not None and each.nodes.network is None for each in alone.seen)


def test_only_tuples_of_other_nodes_are_handled() -> None:
    network = Network(handling=1.0)
    stages = [
        Stage("first", 1, Constant(1.0), nodes=Nodes(2)),
        Stage("second", 2, Constant(1.0), "key", nodes=Nodes(2), network=network, shards=2),
    ]
    result = simulate(Given([0, 1, 1]), Trace([0.0, 10.0, 20.0]), stages, keep_trace=True)
    assert result.trace is not None
    assert (result.trace[:, 1] - result.trace[:, 0]).tolist() == [2.0, 3.0, 3.0]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        pytest.param([], "at least one", id="no column"),
        pytest.param([np.zeros(2), np.zeros(3)], "all of one length", id="unlike columns"),
    ],
)
def test_columns_that_are_no_tuples_are_refused(columns: list[Any], told: str) -> None:
    with pytest.raises(BadParameter, match=told):
        KeyColumns(*columns)


def test_a_stage_needs_its_key() -> None:
    with pytest.raises(BadParameter, match="'count' has key=1, counted from 0, but tuples have 1"):
        simulate(Zipf(1.0, 9, 9), Steady(1.0), chain())
