from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

import unskew
from unskew.balance import Balancer, Greedy, Plan, Report
from unskew.errors import BadParameter
from unskew.simulator import (
    Arrivals,
    Bursty,
    Constant,
    Exponential,
    Hourly,
    Merge,
    MergeResult,
    Network,
    Nodes,
    PerKey,
    Poisson,
    Ramp,
    Result,
    Stage,
    Steady,
    Trace,
    saturation,
    simulate,
)
from unskew.simulator.engine import CHUNK
from unskew.workloads import Zipf

NETWORK = Network(local=1e-4, latency=2e-3, tuple_bytes=100, bandwidth=1e6)


def chain(grouping: str = "partial-key") -> list[Stage]:
    """Return two stages on nodes of different speeds, with a network that lets tuples overtake."""
    speeds = Nodes(2, speeds=[1.0, 0.6], changes=[(0.2, [0.5, 1.0])])
    return [
        Stage("parse", 3, Exponential(2e-3, seed=1), nodes=speeds, network=NETWORK),
        Stage("count", 5, PerKey(1e-3, 6e-3), grouping, nodes=Nodes(3), network=NETWORK),
    ]


def run(stages: list[Stage], messages: int = 800, **options: Any) -> Result:
    return simulate(
        Zipf(1.2, 100, messages), Poisson(700.0), stages, sources=2, keep_trace=True, **options
    )


def by_birth(result: Result) -> np.ndarray[Any, np.dtype[np.float64]]:
    assert result.trace is not None
    return result.trace[np.argsort(result.trace[:, 0], kind="stable")]


class Model:
    """The same topology as processes of simpy, which knows nothing of our engine."""

    def __init__(self, stages: list[Stage], sources: int) -> None:
        self.stages = stages
        self.clock = simpy.Environment()
        self.servers = [
            [simpy.Resource(self.clock) for _ in range(stage.instances)] for stage in stages
        ]
        upstream = [sources, *(stage.instances for stage in stages)]
        self.routers = [
            [unskew.grouping(stage.grouping, stage.instances, source=i) for i in range(count)]
            for stage, count in zip(stages, upstream, strict=False)
        ]
        self.nodes = [stages[0].nodes.of(sources), *(s.nodes.of(s.instances) for s in stages)]
        self.started = [0] * len(stages)
        self.left: list[tuple[float, float]] = []

    def tuple_(self, born: float, key: int, source: int) -> Generator[simpy.Event, Any, None]:
        yield self.clock.timeout(born)
        for number, stage in enumerate(self.stages):
            keys = np.array([key], dtype=np.uint64)
            target = int(self.routers[number][source].route(keys)[0])
            stays = self.nodes[number][source] == self.nodes[number + 1][target]
            yield self.clock.timeout(stage.network.local if stays else stage.network.remote)
            work = float(stage.service.work(keys, self.started[number], number)[0])
            self.started[number] += 1
            with self.servers[number][target].request() as turn:
                yield turn
                yield from self.serve(stage, int(self.nodes[number + 1][target]), work)
            source = target
        self.left.append((born, self.clock.now))

    def serve(self, stage: Stage, node: int, work: float) -> Generator[simpy.Event, Any, None]:
        while work > 0:
            now = self.clock.now
            part = int(np.searchsorted(stage.nodes.starts, now, side="right")) - 1
            speed = float(stage.nodes.speeds[part, node])
            later = stage.nodes.starts[part + 1 :]
            until = float(later[0]) - now if later.size else np.inf
            if work / speed <= until:
                yield self.clock.timeout(work / speed)
                return
            yield self.clock.timeout(until)
            work -= until * speed


@pytest.mark.parametrize("grouping", ["partial-key", "key", "frugal"])
def test_the_engine_agrees_with_simpy_tuple_by_tuple(grouping: str) -> None:
    stages = chain(grouping)
    model = Model(stages, sources=2)
    keys = np.concatenate(list(Zipf(1.2, 100, 800).batches()))
    times, _ = Poisson(700.0).times(0, 800, 0.0)
    for i in range(800):
        model.clock.process(model.tuple_(float(times[i]), int(keys[i]), i % 2))
    model.clock.run()
    ours = by_birth(run(stages))
    np.testing.assert_allclose(ours, np.array(sorted(model.left)), rtol=1e-9)


@given(
    st.sampled_from(["shuffle", "key", "partial-key", "pd-stream", "frugal"]),
    st.integers(1, 300),
    st.integers(1, 400),
)
def test_no_tuple_is_lost_or_doubled_however_the_stream_is_cut(
    grouping: str, messages: int, chunk: int
) -> None:
    first, second = chain(grouping)
    stages = [first, replace(second, shards=20, balancer=Greedy(), row_bytes=10.0)]
    result = run(stages, messages, chunk=chunk, control=0.05)
    assert result.messages == messages == result.latency.count
    for stage in result.stages:
        assert stage.loads.sum() == messages == stage.completed.sum()
        assert not stage.queues[-1].any()
    whole = run(stages, messages, chunk=CHUNK, control=0.05)
    np.testing.assert_array_equal(by_birth(result), by_birth(whole))
    assert [stage.moves for stage in result.stages] == [stage.moves for stage in whole.stages]


def test_the_same_seed_gives_the_same_numbers() -> None:
    one, two = run(chain()), run(chain())
    np.testing.assert_array_equal(one.trace, two.trace)
    assert not np.array_equal(by_birth(run(chain(), seed=1)), by_birth(one))


def test_a_tuple_that_meets_no_other_takes_its_work_and_its_hop() -> None:
    stage = Stage("alone", 1, Constant(0.5), network=Network(local=0.1, latency=0.1))
    result = simulate(Zipf(0.0, 2, 10), Steady(1.0), [stage])
    assert result.latency.mean == pytest.approx(0.6)
    assert result.stages[0].utilisation.tolist() == pytest.approx([5.0 / result.seconds])


def test_work_that_meets_a_change_of_speed_is_done_in_two_parts() -> None:
    nodes = Nodes(1, changes=[(2.0, [0.5])])
    stage = Stage("slowing", 1, Constant(1.5), nodes=nodes)
    result = simulate(Zipf(0.0, 2, 1), Trace([1.0]), [stage])
    # One second at full speed, then half a second of work at half speed.
    assert result.seconds == pytest.approx(3.0)


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_locality_of_key_grouping_is_one_in_the_number_of_nodes(nodes: int) -> None:
    stage = Stage("count", 10, Constant(1e-5), "key", nodes=Nodes(nodes))
    result = simulate(Zipf(0.0, 10_000, 50_000), Steady(1e4), [stage], sources=10)
    assert result.stages[0].locality == pytest.approx(1 / nodes, abs=0.02)


def test_a_balancer_moves_shards_off_a_slow_node() -> None:
    def stage(balancer: Greedy | None) -> Stage:
        nodes = Nodes(4, speeds=[1.0, 1.0, 1.0, 0.4])
        return Stage("count", 4, Constant(1e-3), "key", nodes=nodes, shards=200, balancer=balancer)

    stream, arrivals = Zipf(0.5, 10_000, 60_000), Poisson(2500.0)
    without = simulate(stream, arrivals, [stage(None)], control=1.0)
    balanced = simulate(stream, arrivals, [stage(Greedy())], control=1.0)
    assert without.stages[0].moves == 0 < balanced.stages[0].moves
    assert balanced.latency.mean < 0.2 * without.latency.mean
    assert np.ptp(balanced.stages[0].utilisation) < 0.25 < np.ptp(without.stages[0].utilisation)


def test_moving_state_costs_time() -> None:
    def mean(seconds_per_byte: float) -> float:
        stage = Stage(
            "count",
            4,
            Constant(1e-3),
            "key",
            nodes=Nodes(4, speeds=[1.0, 1.0, 1.0, 0.4]),
            shards=200,
            balancer=Greedy(),
            row_bytes=100.0,
            move_seconds_per_byte=seconds_per_byte,
        )
        return simulate(Zipf(0.5, 1000, 20_000), Poisson(2000.0), [stage], control=1.0).latency.mean

    assert mean(1e-5) > 1.05 * mean(0.0)


@pytest.mark.parametrize(
    "arrivals",
    [
        Steady(50.0),
        Poisson(50.0),
        Bursty(50.0, burst=4.0, period=0.5),
        Ramp(50.0, tuples=100),
        Hourly([30.0, 90.0, 30.0], hour=2.0),
    ],
)
def test_arrivals_keep_their_rate_and_do_not_depend_on_the_cuts(arrivals: Arrivals) -> None:
    whole, _ = arrivals.times(0, 20_000, 0.0)
    clock, parts = 0.0, []
    for start in range(0, 20_000, 700):
        part, clock = arrivals.times(start, min(start + 700, 20_000), clock)
        parts.append(part)
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert np.all(np.diff(whole) >= 0)
    assert 20_000 / whole[-1] == pytest.approx(50.0, rel=0.03)
    faster, _ = arrivals.faster(2.0).times(0, 20_000, 0.0)
    assert 20_000 / faster[-1] == pytest.approx(100.0, rel=0.03)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        pytest.param(
            lambda: simulate(Zipf(1, 9, 9), Steady(1), []), "at least one stage", id="no stage"
        ),
        pytest.param(lambda: Steady(0), "rate must be above 0", id="no rate"),
        pytest.param(lambda: Hourly([]), "rates are empty", id="a day without hours"),
        pytest.param(lambda: Trace([2.0, 1.0]), "in order", id="a trace that goes back"),
        pytest.param(lambda: Nodes(2, speeds=[1.0]), "2 nodes, but 1 speeds", id="a speed missing"),
        pytest.param(lambda: Nodes(1, speeds=[0.0]), "speed must be above 0", id="a dead node"),
        pytest.param(lambda: Network(local=1.0), "must not take longer", id="a slow local hop"),
        pytest.param(
            lambda: simulate(Zipf(1, 9, 9), Steady(1), [Stage("s", 4, Constant(1), shards=3)]),
            "shards must be from 4",
            id="fewer shards than instances",
        ),
        pytest.param(
            lambda: simulate(Zipf(1, 9, 9), Trace([1.0]), [Stage("s", 1, Constant(1))]),
            "the trace has 1 times",
            id="a trace that is too short",
        ),
    ],
)
def test_what_cannot_be_simulated_is_refused(make: Any, told: str) -> None:
    with pytest.raises(BadParameter, match=told):
        make()


def test_a_key_on_two_instances_costs_two_merges() -> None:
    def merged(grouping: str) -> MergeResult:
        stage = Stage("count", 2, Constant(1e-4), grouping)
        merge = Merge(1, Constant(1e-3), window=1.0)
        result = simulate(Zipf(0.0, 1, 1000), Steady(100.0), [stage], merge=merge)
        assert result.merge is not None
        return result.merge

    whole, split = merged("key"), merged("shuffle")
    assert whole.partials == whole.results == split.results == 11
    assert split.partials == 2 * 11 - 1
    # Both come at the end of the window, and one waits for the other.
    assert whole.latency.mean == pytest.approx(1e-3)
    assert split.latency.largest == pytest.approx(2e-3)


@pytest.mark.parametrize("grouping", ["key", "shuffle"])
def test_saturation_is_the_capacity_of_the_busiest_instance(grouping: str) -> None:
    stream = Zipf(1.4, 100, 50_000)
    stage = Stage("count", 8, Constant(1e-3), grouping)
    found = saturation(stream, Steady(10.0), [stage])
    loads = found.result.stages[0].loads
    assert found.rate == pytest.approx(1000 * loads.sum() / loads.max(), rel=0.04)


def test_saturation_counts_the_merge_stage() -> None:
    stage = Stage("count", 4, Constant(1e-5), "shuffle")
    merge = Merge(1, Constant(1e-3), window=0.1)
    found = saturation(Zipf(0.0, 10**6, 20_000), Steady(10.0), [stage], merge=merge)
    assert found.rate == pytest.approx(1000, rel=0.1)


def test_saturation_does_not_depend_on_the_length_of_the_stream() -> None:
    def most(messages: int) -> float:
        stage = Stage("count", 32, Constant(1e-3), "pd-stream")
        merge = Merge(4, Constant(1e-4), window=1.0)
        return saturation(Zipf(1.4, 10_000, messages), Poisson(1000.0), [stage], merge=merge).rate

    assert most(150_000) == pytest.approx(most(1_000_000), rel=0.05)


def test_saturation_tells_how_far_it_is_and_ends_at_all() -> None:
    calls: list[tuple[int, int]] = []
    stage = Stage("count", 2, Constant(1e-3))
    saturation(
        *(Zipf(0.0, 10, 5_000), Steady(10.0), [stage]),
        progress=lambda done, most: calls.append((done, most)),
    )
    assert all(done < most for done, most in calls[:-1])
    assert calls[-1][0] == calls[-1][1] == len(calls) - 1


@pytest.mark.parametrize("seed", [0, 7])
def test_gaps_have_nothing_to_do_with_keys_of_the_same_seed(seed: int) -> None:
    ranks = Zipf(1.4, 1000, 50_000, seed=seed).ranks(0, 50_000)
    times, _ = Poisson(1.0, seed=seed).times(0, 50_000, 0.0)
    gaps = np.diff(np.append(0, times))
    assert gaps[ranks == 1].mean() == pytest.approx(1.0, rel=0.05)


def test_stages_with_equal_services_draw_their_own_work() -> None:
    keys = np.zeros(1000, dtype=np.uint64)
    service = Exponential(1.0)
    assert abs(np.corrcoef(service.work(keys, 0, 0), service.work(keys, 0, 1))[0, 1]) < 0.1


@pytest.mark.parametrize("width", [0.01, 0.1, 7.0])
def test_no_instance_is_busy_for_longer_than_the_time(width: float) -> None:
    stage = Stage("count", 2, Constant(0.5))
    result = simulate(Zipf(0.0, 10, 100), Poisson(3.0), [stage], width=width)
    busy = result.stages[0].busy
    assert busy.max() <= 1 + 1e-9
    slices = result.stages[0].times[0]
    assert busy.sum() * slices == pytest.approx(100 * 0.5)


class Spy(Balancer):
    """Keep what was reported."""

    name = "spy"

    def __init__(self) -> None:
        self.seen: list[Report] = []

    def next_plan(self, plan: Plan, report: Report) -> Plan:
        self.seen.append(report)
        return plan


@pytest.mark.parametrize("width", [0.01, None, 20.0])
def test_a_balancer_sees_the_queue_of_this_moment_whatever_is_drawn(width: float | None) -> None:
    spy = Spy()
    stage = Stage("count", 1, Constant(1e-3), shards=1, balancer=spy)
    simulate(Zipf(0.0, 10, 4000), Steady(2000.0), [stage], control=1.0, width=width)
    # Twice what it can serve: a thousand wait after a second.
    assert spy.seen[0].queues.tolist() == pytest.approx([1000], abs=2)
    assert spy.seen[0].utilisation.tolist() == pytest.approx([1.0], abs=1e-3)


def test_long_silence_takes_no_time() -> None:
    stage = Stage("count", 1, Constant(1e-3))
    merge = Merge(1, Constant(1e-3), window=1e-3)
    result = simulate(Zipf(0.0, 10, 3), Trace([0.0, 1e6, 2e6]), [stage], merge=merge)
    assert result.merge is not None
    assert result.merge.partials == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Stage("s", 2, Constant(1.0), balancer=Greedy()), "say how many with shards="),
        (lambda: Stage("s", 0, Constant(1.0)), "instances"),
        (lambda: Stage("s", 1, Constant(1.0), row_bytes=-1.0), "row_bytes"),
        (lambda: Network(latency=float("nan")), "latency"),
        (lambda: Trace([0.0, float("nan")]), "finite"),
        (lambda: Trace([1.7e9, 1.7e9 + 1]), "subtract that from all"),
        (
            lambda: simulate(
                *(Zipf(0.0, 2, 2), Steady(1.0)),
                [Stage("s", 1, Constant(1.0), shards=1, balancer=Greedy())],
            ),
            "control=",
        ),
        (
            lambda: saturation(
                Zipf(0.0, 2, 3), Trace([0.0, 0.0, 0.0]), [Stage("s", 1, Constant(1.0))]
            ),
            "all tuples come at once",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(BadParameter, match=message):
        make()
