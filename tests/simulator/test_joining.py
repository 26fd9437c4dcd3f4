"""Joins against a model in plain Python that keeps every tuple and looks at every pair."""

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

from unskew.balance import Balancer, Greedy, Plan, Report
from unskew.errors import BadParameter
from unskew.grouping import ContRand
from unskew.simulator import (
    Join,
    JoinResult,
    Nodes,
    Poisson,
    Ramp,
    Result,
    Stage,
    Steady,
    Trace,
    saturation,
    simulate,
)
from unskew.simulator.joining import draw_sides, side_seed
from unskew.simulator.service import Constant
from unskew.workloads import Zipf

INSTANCES, SHARDS, WINDOW, CONTROL = 3, 6, 1.0, 0.5
KEEP, PROBE, PAIR, MOVE = 0.02, 0.01, 0.005, 0.03


class Model:
    """Every tuple that is kept, every pair that was found, and when each instance is free."""

    def __init__(self, plan: Plan, groups: ContRand | None = None) -> None:
        self.plan, self.groups = plan, groups
        # Number, time, side and key of each, and its instance, None if it is with its shard.
        self.kept: list[tuple[int, float, int, int, int | None]] = []
        self.free = [0.0] * plan.instances
        self.pairs: list[tuple[int, int]] = []
        self.left: list[float] = []
        self.turns: Counter[int] = Counter()
        self.moved = 0
        self.looks: list[list[int]] = []

    def home(self, key: int, plan: Plan | None = None) -> int:
        signed = key - 2**64 if key >= 2**63 else key
        return int((plan or self.plan).assignment[signed % SHARDS])

    def place(self, key: int, instance: int | None) -> int:
        return self.home(key) if instance is None else instance

    def send(self, key: int) -> tuple[set[int], int | None]:
        """Return where a tuple looks for partners, and where it is kept."""
        one = np.array([key], dtype=np.uint64)
        if self.groups is not None:
            kept = int(self.groups.route(one)[0])
            return {i for i in self.groups.members_of(one)[0].tolist() if i >= 0}, kept
        if key not in self.plan.hot:
            return {self.home(key)}, None
        copies = self.plan.hot[key]
        turn = self.turns[key]
        self.turns[key] += 1
        return {*self.plan.parts_of(key), self.home(key)}, copies[turn % len(copies)]

    def come(self, time: float, side: int, key: int) -> None:
        number = len(self.left)
        self.expire(time)
        places, instance = self.send(key)
        done = []
        for place in sorted(places):
            found = [
                other[0]
                for other in self.kept
                if other[2] != side and other[3] == key and self.place(key, other[4]) == place
            ]
            self.pairs += [(other, number) for other in found]
            work = PROBE + KEEP * (place == self.place(key, instance)) + PAIR * len(found)
            self.free[place] = max(self.free[place], time) + work
            done.append(self.free[place])
        self.left.append(max(done))
        self.kept.append((number, time, side, key, instance))

    def expire(self, now: float) -> None:
        self.kept = [each for each in self.kept if each[1] >= now - WINDOW]

    def change(self, now: float, plan: Plan) -> None:
        self.expire(now)
        places = [self.place(key, instance) for *_, key, instance in self.kept]
        self.looks.append([places.count(i) for i in range(plan.instances)])
        if plan is self.plan:
            return
        # Shards first, then the parts of keys, each in order.
        for shard in range(SHARDS):
            giver, taker = int(self.plan.assignment[shard]), int(plan.assignment[shard])
            size = sum(
                each[4] is None and (each[3] - 2**64 * (each[3] >= 2**63)) % SHARDS == shard
                for each in self.kept
            )
            self.pause(now, giver, taker, size)
        for key in sorted(self.plan.hot):
            gone = {*self.plan.hot[key], *self.plan.leaving.get(key, ())}
            for copy in sorted(gone - {*plan.hot.get(key, ()), *plan.leaving.get(key, ())}):
                mine = [each for each in self.kept if each[3:] == (key, copy)]
                self.pause(now, copy, self.home(key, plan), len(mine))
                self.kept = [(*each[:4], None) if each in mine else each for each in self.kept]
        self.plan, self.turns = plan, Counter()

    def pause(self, now: float, giver: int, taker: int, size: int) -> None:
        if giver != taker:
            self.moved += size
            for instance in (giver, taker):
                self.free[instance] = max(self.free[instance], now) + size * MOVE


def play(
    keys: list[int], times: list[float], sides: list[int], model: Model, plans: list[Plan]
) -> Model:
    """Let tuples come, and plans change every `CONTROL` seconds."""
    left, look = list(plans), 1
    for time, side, key in zip(times, sides, keys, strict=True):
        # As the engine adds up the times when it looks.
        while time >= sum([CONTROL] * look):
            now = sum([CONTROL] * look)
            model.change(now, left.pop(0) if left else model.plan)
            look += 1
        model.come(time, side, key)
    return model


def join(**others: Any) -> Join:
    options: dict[str, Any] = {"row_bytes": 1.0, "move_seconds_per_byte": MOVE}
    return Join("join", INSTANCES, WINDOW, KEEP, PROBE, PAIR, **options | others)


def joined(result: Result) -> JoinResult:
    (stage,) = result.stages
    assert isinstance(stage, JoinResult)
    return stage


instance = st.integers(0, INSTANCES - 1)
some_keys = st.sampled_from([0, 1, 2, 7, 2**64 - 1])


def a_plan(table: list[int], hot: dict[int, tuple[int, ...]], left: dict[int, int]) -> Plan:
    """Return a plan in which some keys leave an instance."""
    leaving = {key: {at: 0} for key, at in left.items() if key in hot and at not in hot[key]}
    return Plan(np.array(table), INSTANCES, hot=hot, leaving=leaving)


plans = st.lists(
    st.builds(
        a_plan,
        st.lists(instance, min_size=SHARDS, max_size=SHARDS),
        st.dictionaries(some_keys, st.lists(instance, min_size=1, max_size=4).map(tuple)),
        st.dictionaries(some_keys, instance),
    ),
    max_size=8,
)
streams = st.lists(
    st.tuples(some_keys, st.one_of(st.just(0.0), st.floats(1e-3, 0.3))), min_size=1, max_size=60
)


def expected_pairs(keys: list[int], times: list[float], sides: list[int]) -> list[tuple[int, int]]:
    """Return all pairs of the same key, different sides, at most a window apart."""
    return [
        (i, j)
        for j in range(len(keys))
        for i in range(j)
        if keys[i] == keys[j] and sides[i] != sides[j] and times[i] >= times[j] - WINDOW
    ]


def agrees(result: Result, model: Model) -> None:
    stage = joined(result)
    assert result.trace is not None
    assert result.trace[:, 1].tolist() == pytest.approx(model.left)
    assert stage.pairs == len(model.pairs)
    assert stage.moved == model.moved
    assert stage.stored.tolist() == model.looks


@settings(max_examples=150, deadline=None)
@given(stream=streams, script=plans, seed=st.integers(0, 3), chunk=st.integers(1, 70))
def test_each_pair_is_found_once_whatever_moves_or_is_split(
    stream: list[tuple[int, float]], script: list[Plan], seed: int, chunk: int
) -> None:
    keys, times = [key for key, _ in stream], np.cumsum([gap for _, gap in stream]).tolist()
    sides = draw_sides(side_seed(seed), 0, len(keys), 0.5).tolist()
    result = simulate(
        *(Given(keys), Trace(times), [join(shards=SHARDS, balancer=Script(*script))]),
        seed=seed,
        control=CONTROL,
        keep_trace=True,
        chunk=chunk,
    )
    model = play(keys, times, sides, Model(Plan.even(SHARDS, INSTANCES)), script)
    assert sorted(model.pairs) == sorted(expected_pairs(keys, times, sides))
    agrees(result, model)


@settings(max_examples=50, deadline=None)
@given(stream=streams, seed=st.integers(0, 3), members=st.integers(1, 3))
def test_groups_find_each_pair_once(
    stream: list[tuple[int, float]], seed: int, members: int
) -> None:
    keys, times = [key for key, _ in stream], np.cumsum([gap for _, gap in stream]).tolist()
    sides = draw_sides(side_seed(seed), 0, len(keys), 0.5).tolist()
    result = simulate(
        *(Given(keys), Trace(times)),
        [join(grouping="contrand", parameters={"members": members})],
        seed=seed,
        control=CONTROL,
        keep_trace=True,
    )
    groups = ContRand(INSTANCES, seed=seed, members=members)
    model = play(keys, times, sides, Model(Plan.even(SHARDS, INSTANCES), groups), [])
    assert sorted(model.pairs) == sorted(expected_pairs(keys, times, sides))
    agrees(result, model)


def test_a_report_tells_rows_stored_work_and_hot_keys() -> None:
    # Keys 0 to 5 are shards 0 to 5; key 1 is hot from the first look on.
    hot = Plan(Plan.even(SHARDS, INSTANCES).assignment, INSTANCES, 1, {1: (0, 1)})
    script = Script(hot)
    keys, times = [0, 0, 1, 2, 0, 1, 1], [0.1, 0.2, 0.3, 0.45, 0.6, 0.7, 0.8]
    nodes = Nodes(3, speeds=[1.0, 0.5, 1.5])
    simulate(
        *(Given([*keys, 5]), Trace([*times, 1.1])),
        [
            Join(
                *("join", INSTANCES, WINDOW, KEEP, PROBE, 0.0),
                shards=SHARDS,
                balancer=script,
                nodes=nodes,
                can_split=True,
                row_bytes=10.0,
            )
        ],
        control=CONTROL,
    )
    first, second = script.seen
    one = KEEP + PROBE
    assert first.rows.tolist() == [2, 1, 1, 0, 0, 0]
    assert first.stored is not None
    assert first.stored.tolist() == [2, 1, 1, 0, 0, 0]
    assert first.work is not None
    assert first.work.tolist() == pytest.approx([2 * one, one, one, 0, 0, 0])
    assert first.busy.tolist() == pytest.approx([2 * one, 2 * one, one / 1.5, 0, 0, 0])
    # Of keys, too, it is the work at the mean speed.
    assert first.hot == pytest.approx({0: 2 * one, 1: one, 2: one})
    assert (first.watermark, first.latest) == (500_000, 500_000 + int(1e6 * WINDOW))
    assert first.state_bytes.tolist() == [20, 10, 10, 0, 0, 0]
    assert first.can_split
    # What was kept of the hot key before stays with its shard.
    assert second.rows.tolist() == [1, 0, 0, 0, 0, 0]
    assert second.stored is not None
    assert second.stored.tolist() == [3, 1, 1, 0, 0, 0]
    # One is kept by instance 0 and looks at 1; the other way round.
    assert second.hot[1] == pytest.approx(2 * (one + PROBE))


def test_the_series_tells_what_each_instance_was_asked_for() -> None:
    result = simulate(
        Given([0, 0, 1, 2, 4]), Trace([0.1, 0.2, 0.6, 0.7, 1.2]), [join()], control=CONTROL
    )
    stage = joined(result)
    assert stage.looks.tolist() == [0.5, 1.0]
    assert stage.copies.tolist() == [[2, 0, 0], [0, 1, 1]]
    assert stage.stored.tolist() == [[2, 0, 0], [2, 1, 1]]
    assert stage.asked[1].tolist() == pytest.approx([0, KEEP + PROBE, KEEP + PROBE])
    assert stage.load_imbalances.tolist() == pytest.approx([2.0, 1.0])


def split_run(messages: int, **options: Any) -> Result:
    stage = Join(
        *("join", 4, 0.3, 1e-3, 2e-4, 1e-5),
        shards=24,
        balancer=Greedy(),
        can_split=True,
        row_bytes=1.0,
        move_seconds_per_byte=1e-6,
    )
    return simulate(
        *(Zipf(1.4, 100, messages), Poisson(2500.0), [stage]),
        **{"keep_trace": True, "control": 0.05, **options},
    )


@settings(max_examples=20, deadline=None)
@given(messages=st.integers(1, 900), chunk=st.integers(1, 400))
def test_no_cut_shows_where_keys_are_split(messages: int, chunk: int) -> None:
    cut, whole = split_run(messages, chunk=chunk), split_run(messages)
    assert cut.trace is not None
    assert whole.trace is not None
    assert cut.trace.tolist() == whole.trace.tolist()
    one, other = joined(cut), joined(whole)
    for name in ("pairs", "moves", "moved"):
        assert getattr(one, name) == getattr(other, name)
    for name in ("asked", "stored", "copies", "loads"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()


def test_splitting_helps_where_moving_cannot() -> None:
    def held(balancer: Balancer | None, **others: Any) -> float:
        stage = Join("join", 8, 0.5, 1e-3, 1e-4, 0.0, balancer=balancer, **others)
        stream, arrivals = Zipf(1.2, 1000, 40_000), Ramp(1000.0, tuples=10_000)
        return saturation(stream, arrivals, [stage], control=0.5, precision=0.05).rate

    plain = held(None)
    moved = held(Greedy(), shards=128)
    split = held(Greedy(), shards=128, can_split=True)
    first = Zipf(1.2, 1000, 1).p(1)
    assert plain < moved < 1.1 / (first * 1.1e-3) < 0.8 * split
    # Looks of more copies cost the rest.
    assert 0.7 * 8 / 1.1e-3 < split < 8 / 1.1e-3


def test_a_balancer_forgets_between_simulations() -> None:
    class Once(Script):
        """Move a shard the first time it ever looks."""

        def __init__(self) -> None:
            super().__init__()
            self.looked = np.zeros(1, dtype=np.int64)

        def next_plan(self, plan: Plan, report: Report) -> Plan:
            self.looked += 1
            return plan.move({0: 1}) if self.looked[0] == 1 else plan

        def snapshot(self) -> dict[str, NDArray[Any]]:
            return {"looked": self.looked.copy()}

        def restore(self, snapshot: dict[str, NDArray[Any]]) -> None:
            self.looked[...] = snapshot["looked"]

    once = Once()
    stages: list[Join | Stage] = [
        join(shards=SHARDS, balancer=once),
        Stage("next", 2, Constant(0.01), "key", shards=4, balancer=once),
    ]
    for stage in stages:
        runs = [
            simulate(Zipf(0.5, 10, 100), Steady(20.0), [stage], control=CONTROL) for _ in range(2)
        ]
        assert [run.stages[0].moves for run in runs] == [1, 1]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        pytest.param(lambda: join(grouping="shuffle"), "where all partners", id="shuffle"),
        pytest.param(
            lambda: join(balancer=Greedy()), "say how many with shards=", id="nothing to move"
        ),
        pytest.param(
            lambda: join(grouping="contrand", shards=SHARDS), "only a plan", id="groups with shards"
        ),
        pytest.param(
            lambda: join(grouping="contrand", parameters={"flavour": 1}),
            "contrand has no parameter 'flavour'",
            id="unknown parameter",
        ),
        pytest.param(
            lambda: join(parameters={"members": 2}), "key has no parameters", id="key with members"
        ),
        pytest.param(lambda: join(left=1.0), "left must be", id="one side only"),
        pytest.param(
            lambda: Join("join", 2, 0.0, 1.0, 1.0, 1.0), "window must be above 0", id="no window"
        ),
    ],
)
def test_what_makes_no_join_is_refused(make: Callable[[], object], told: str) -> None:
    with pytest.raises(BadParameter, match=told):
        make()
