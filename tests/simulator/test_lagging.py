"""Sources that hear of plans late, shards that are divided, and what reports say of work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from simulator.scripted import Script

from unskew.balance import Balancer, Consistent, Plan, Report, Static
from unskew.errors import BadParameter
from unskew.simulator import Constant, Network, Nodes, PerKey, Stage, Steady, simulate
from unskew.simulator.lagging import Lag
from unskew.workloads import Zipf


class Watching(Consistent):
    """Consistent, with all that it saw and did."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Plan, Report]] = []

    def next_plan(self, plan: Plan, report: Report) -> Plan:
        self.seen.append((plan, report))
        return super().next_plan(plan, report)


@given(
    starts=st.lists(st.integers(1, 50), unique=True, max_size=6).map(sorted),
    most=st.sampled_from([0.5, 3.0, 20.0]),
)
def test_a_source_goes_by_the_last_plan_that_is_older_than_its_delay(
    starts: list[int], most: float
) -> None:
    # Plan number i has the only shard on instance i.
    plans = [Plan(np.array([i]), len(starts) + 1) for i in range(len(starts) + 1)]
    lag = Lag(plans[0], sources=3, most=most, seed=1)
    assert ((lag.delays >= 0) & (lag.delays < most)).all()
    assert len(set(lag.delays.tolist())) == 3
    for number, start in enumerate(starts, start=1):
        lag.follow(plans[number], float(start))
        # Tuples come in the order of time: none is before the last plan.
        times = np.repeat(start + np.arange(0, 30, 0.7), 3)
        sources = np.tile(np.arange(3), times.size // 3)
        got = lag.instances(np.zeros(times.size, dtype=np.int64), sources, times)
        for time, source, instance in zip(times, sources, got.tolist(), strict=True):
            known = [s for s in starts[:number] if s <= time - lag.delays[source]]
            assert instance == len(known)


def test_with_a_lag_tuples_go_on_to_where_their_shard_was() -> None:
    def loads(lag: float) -> list[int]:
        table = np.zeros(4, dtype=np.int32)
        stage = Stage(
            "count",
            instances=2,
            service=Constant(1e-4),
            grouping="random-choices",
            plan=Plan(table, 2),
            balancer=Script(Plan(table + 1, 2, 1)),
            lag=lag,
        )
        result = simulate(
            *(Zipf(1.0, 100, 1000), Steady(100.0), [stage]), sources=2, control=2.0, width=1.0
        )
        return [int(each) for each in result.stages[0].came[:, 1]]

    at_once, late = loads(0.0), loads(4.0)
    assert at_once[:3] == [0, 0, 100]
    assert late[2] < 100
    assert sum(late) < sum(at_once)
    assert late[6:9] == [100, 100, 100]


def test_chunks_do_not_show_through_a_lag() -> None:
    stage = Stage(
        "count",
        instances=3,
        service=Constant(0.001),
        grouping="consistent",
        shards=12,
        nodes=Nodes(3, speeds=[1.0, 1.0, 0.3]),
        balancer=Consistent(),
        lag=0.4,
    )
    one, other = (
        simulate(
            *(Zipf(1.0, 100, 8000), Steady(1500.0), [stage]), sources=3, control=0.5, chunk=chunk
        ).stages[0]
        for chunk in (97, 1 << 17)
    )
    assert one.came.tolist() == other.came.tolist()
    assert one.moves == other.moves > 0


@pytest.mark.parametrize("parameters", [{}, {"shards": 8, "grouping": "key"}])
def test_a_lag_without_shards_of_a_grouping_is_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(BadParameter, match="has a lag"):
        Stage("count", 2, Constant(1.0), lag=1.0, **parameters)


def test_too_few_shards_are_divided_until_they_fit() -> None:
    balancer = Watching()
    stage = Stage(
        "count",
        instances=10,
        service=Constant(0.8 * 22 / 20_000),
        grouping="consistent",
        shards=50,
        nodes=Nodes(10, speeds=[5.0] * 3 + [1.0] * 7),
        balancer=balancer,
    )
    result = simulate(Zipf(1.0, 10_000, 400_000), Steady(20_000.0), [stage], control=0.5)

    # 176 are needed, each of 50 becomes four.
    assert [plan.shards for plan, _ in balancer.seen[:3]] == [50, 200, 200]
    assert result.stages[0].shards == 200
    assert balancer.shards_wanted == 0
    came = result.stages[0].came[-20:-5].sum(axis=0) / np.array([5.0] * 3 + [1.0] * 7)
    assert np.ptp(came) < 0.125 * came.mean()


@pytest.mark.parametrize("lag", [0.0, 1e-6], ids=["at once", "late"])
@pytest.mark.parametrize(
    "network",
    [
        Network(latency=1.0),
        Network(latency=1.0, tuple_bytes=1.0, bandwidth=1e6, is_shared=True),
    ],
    ids=["each alone", "over links"],
)
def test_tuples_under_way_stay_with_their_shard_when_it_is_divided(
    network: Network, lag: float
) -> None:
    def came(wanted: int) -> NDArray[np.int64]:
        # The first shard is on the node of the source, and four of five are not.
        balancer = Script()
        balancer.shards_wanted = wanted
        stage = Stage(
            "count",
            instances=2,
            service=Constant(1e-4),
            grouping="consistent",
            plan=Plan(np.array([0, 1, 1, 1, 1]), 2),
            nodes=Nodes(2),
            network=network,
            balancer=balancer,
            lag=lag,
        )
        result = simulate(Zipf(0.0, 1000, 501), Steady(1000.0), [stage], control=0.5).stages[0]
        assert result.shards == max(wanted, 5)
        totals: NDArray[np.int64] = result.came.sum(axis=0)
        return totals

    # But for the last one, all were sent before the shards were divided.
    whole, divided = came(0), came(20)
    assert whole[1] > 350
    assert np.abs(divided - whole).max() <= 1


def test_reports_tell_speed_from_work() -> None:
    balancer = Watching()
    stage = Stage(
        "count",
        instances=2,
        service=PerKey(0.0001, 0.0009),
        grouping="consistent",
        shards=8,
        nodes=Nodes(2, speeds=[1.0, 0.25]),
        balancer=balancer,
    )
    simulate(Zipf(0.5, 50, 4000), Steady(1000.0), [stage], control=1.0)

    plan, report = balancer.seen[0]
    assert report.work is not None
    assert report.work.sum() == pytest.approx(report.busy.sum())
    pace = np.bincount(plan.assignment, report.work) / np.bincount(plan.assignment, report.busy)
    assert pace[0] / pace[1] == pytest.approx(4.0)


def test_keys_of_different_cost_are_balanced_by_time_and_not_by_count() -> None:
    def late(balancer: Balancer) -> NDArray[np.float64]:
        speeds = [1.0, 1.0, 0.5, 2.0]
        stage = Stage(
            "count",
            instances=4,
            service=PerKey(0.0001, 0.0059),
            grouping="key",
            shards=64,
            nodes=Nodes(4, speeds=speeds),
            balancer=balancer,
        )
        result = simulate(Zipf(0.6, 2000, 60_000), Steady(1000.0), [stage], control=1.0, width=1.0)
        means: NDArray[np.float64] = result.stages[0].busy[30:59].mean(axis=0)
        return means

    still, moved = late(Static()), late(Consistent())
    assert np.ptp(still) > 0.5
    # Shards of hashed keys are not alike, and 64 are few: the band, and as much again.
    assert np.ptp(moved) < 0.2 * moved.mean()
