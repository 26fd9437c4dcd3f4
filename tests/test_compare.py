"""The engine of `unskew compare`: dealing, batches, measures, errors, recommendation."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import unskew.compare
from unskew.compare import Comparison, compare, recommend
from unskew.errors import BadInput, BadParameter, UnknownGrouping
from unskew.grouping import base
from unskew.grouping.base import Grouping, groupings
from unskew.metrics import imbalance, replication_lower_bound
from unskew.workloads import Workload, Zipf


class Walking(Grouping):
    """Send a tuple as far from its key's home as this source has sent tuples in this batch."""

    name: ClassVar[str] = "walking"
    reference: ClassVar[str] = "tests"

    def __init__(self, instances: int, *, seed: int = 0, source: int = 0, stride: int = 1) -> None:
        super().__init__(instances, seed=seed, source=source)
        self.stride = stride
        self._state = {"loads": np.zeros(instances, dtype=np.int64)}

    def _route(self, keys: NDArray[np.uint64], chosen: NDArray[np.int32]) -> None:
        for i, key in enumerate(keys):
            chosen[i] = walked(int(key), int(self.loads.sum()), self)
            self._state["loads"][chosen[i]] += 1

    @property
    def loads(self) -> NDArray[np.int64]:
        return self._state["loads"].astype(np.int64)

    @property
    def fan_out(self) -> int:
        return self.instances

    @property
    def hot_keys(self) -> int:
        return self.source

    def begin_batch(self) -> None:
        self._state["loads"][:] = 0


def walked(key: int, sent: int, router: Walking) -> int:
    """Return the instance that a walking grouping chooses."""
    return (key + sent * router.stride + 5 * router.source + router.seed) % router.instances


class Listed(Workload):
    """Keys from a list, with or without a length that is known beforehand."""

    def __init__(self, keys: list[int], *, counted: bool = True, breaks: bool = False) -> None:
        self.name = self.description = "listed"
        self.messages = len(keys) if counted else None
        self._keys = np.array(keys, dtype=np.uint64)
        self._breaks = breaks

    def batches(self, size: int = 1) -> Iterator[NDArray[np.uint64]]:
        yield self._keys
        if self._breaks:
            raise BadInput("the rest of listed is missing; write it again")


KEYS = [int(key) for key in np.random.default_rng(7).zipf(1.5, size=1000) % 60]


@pytest.fixture(autouse=True)
def walking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(base._registry, "walking", Walking)


def plainly(keys: list[int], instances: int, sources: int, batch: int, seed: int) -> Comparison:
    """Deal, route and count one tuple at a time."""
    held: set[tuple[int, int]] = set()
    weighted = 0.0
    for begin in range(0, len(keys), batch):
        routers = [Walking(instances, seed=seed, source=s, stride=3) for s in range(sources)]
        sent = [0] * sources
        loads = [0] * instances
        for i, key in enumerate(keys[begin : begin + batch]):
            source = i % sources
            instance = walked(key, sent[source], routers[source])
            sent[source] += 1
            loads[instance] += 1
            held.add((key, instance))
        weighted += imbalance(loads) * sum(loads)
    return Comparison(
        grouping="walking",
        instances=instances,
        sources=sources,
        messages=len(keys),
        keys=len(set(keys)),
        imbalance=weighted / len(keys),
        replication_factor=len(held) / len(set(keys)),
        memory_keys=len(held),
        ns_per_tuple=0.0,
        state_bytes=8 * instances,
        hot_keys=sources - 1,
        lower_bound=replication_lower_bound(np.bincount(keys), instances),
    )


@pytest.mark.parametrize("batch", [None, 64, 300], ids="batch={}".format)
@pytest.mark.parametrize("chunk", [1, 7, 1 << 16], ids="chunk={}".format)
@pytest.mark.parametrize("sources", [1, 3], ids="sources={}".format)
def test_dealing_and_counting_agree_with_plain_python(
    sources: int, chunk: int, batch: int | None
) -> None:
    [row] = compare(
        Listed(KEYS),
        [8],
        ["walking"],
        parameters={"walking": {"stride": 3}},
        sources=sources,
        seed=11,
        batch=batch,
        chunk=chunk,
    )
    expected = plainly(KEYS, 8, sources, batch or len(KEYS), seed=11)
    assert replace(row, ns_per_tuple=0.0, imbalance=0.0) == replace(expected, imbalance=0.0)
    assert row.imbalance == pytest.approx(expected.imbalance, rel=1e-12)


def test_how_the_stream_is_cut_into_chunks_changes_no_result_of_any_grouping() -> None:
    workload = Zipf(1.4, keys=500, messages=4000, seed=3)
    names = list(groupings())
    whole, cut = (
        [
            replace(row, ns_per_tuple=0.0)
            for row in compare(workload, [5, 16], names, sources=3, chunk=chunk)
        ]
        for chunk in (1 << 16, 97)
    )
    assert whole == cut
    assert {row.grouping for row in whole} == set(names)


def test_rows_come_by_instances_then_by_grouping_and_once_each() -> None:
    rows = compare(Listed(KEYS), [8, 4, 8], ["walking", "key", "walking"])
    assert [(row.instances, row.grouping) for row in rows] == [
        (8, "walking"),
        (8, "key"),
        (4, "walking"),
        (4, "key"),
    ]


def test_the_cost_is_that_of_a_typical_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    # Ten chunks of 100 tuples at 7 ns each, one of them disturbed, and a tail of one slow tuple.
    costs = [700] * 9 + [10**9] + [5000]
    clock = iter(np.cumsum([0] + [ns for cost in costs for ns in (cost, 0)]).tolist())
    monkeypatch.setattr(unskew.compare, "perf_counter_ns", lambda: next(clock))
    [row] = compare(Listed([*KEYS, 1]), [4], ["walking"], chunk=100)
    assert row.ns_per_tuple == 7.0


def test_no_temporary_file_is_left_nor_seen_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: list[Path] = []
    compare(Listed(KEYS), [4], ["walking"], progress=lambda *_: seen.extend(tmp_path.iterdir()))
    with pytest.raises(BadInput, match="missing"):
        compare(Listed(KEYS, breaks=True), [4], ["walking"])
    assert [*seen, *tmp_path.iterdir()] == []


@pytest.mark.parametrize("counted", [True, False], ids=["known length", "unknown length"])
def test_progress_rises_to_its_total(counted: bool) -> None:
    calls: list[tuple[str, int, int | None]] = []
    compare(
        Listed(KEYS, counted=counted),
        [4, 8],
        ["walking"],
        chunk=300,
        progress=lambda *call: calls.append(call),
    )
    done = [call[1] for call in calls]
    assert calls[0] == ("reading", 1000, 3000 if counted else None)
    assert calls[-1] == ("walking, 8 instances", 3000, 3000)
    assert done == sorted(set(done))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        pytest.param({"instances": [0]}, BadParameter, "not 0", id="zero instances"),
        pytest.param({"instances": [-3]}, BadParameter, "not -3", id="negative instances"),
        pytest.param({"instances": []}, BadParameter, "nothing to compare", id="no instances"),
        pytest.param({"names": []}, BadParameter, "nothing to compare", id="no grouping"),
        pytest.param({"names": ["nope"]}, UnknownGrouping, "'nope'", id="an unknown grouping"),
        pytest.param({"sources": 0}, BadParameter, "sources", id="no source"),
        pytest.param({"batch": 0}, BadParameter, "batch", id="batches of nothing"),
        pytest.param(
            {"batch": 3}, BadParameter, "4 is more than the 3 rows", id="batches below instances"
        ),
        pytest.param({"chunk": 0}, BadParameter, "chunk", id="chunks of nothing"),
        pytest.param({"seed": -1}, BadParameter, "seed", id="a negative seed"),
        pytest.param(
            {"instances": [1001]},
            BadParameter,
            "1,001 is more than the 1,000 messages of listed",
            id="more instances than messages",
        ),
        pytest.param(
            {"parameters": {"walking": {"wrong": 1}}}, BadParameter, "wrong", id="a wrong parameter"
        ),
        pytest.param(
            {"parameters": {"key": {}}},
            BadParameter,
            "'key'",
            id="parameters of an absent grouping",
        ),
    ],
)
def test_bad_arguments_are_refused_before_the_workload_is_read(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    read: list[object] = []
    given: dict[str, Any] = {
        "instances": [4],
        "names": ["walking"],
        "progress": lambda *_: read.append(_),
    }
    with pytest.raises(error, match=message):
        compare(Listed(KEYS), **{**given, **arguments})
    assert read == []


def test_a_stream_for_which_the_disk_has_no_room_is_refused_with_the_estimate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usage = shutil.disk_usage(tempfile.gettempdir())._replace(free=11_999)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(BadParameter, match=r"1,000 messages take 0\.0 GB in .*TMPDIR"):
        compare(Listed(KEYS), [4], ["walking"])
    assert compare(Listed(KEYS[:999]), [4], ["walking"])


def test_a_stream_that_turns_out_shorter_than_the_instances_is_refused() -> None:
    with pytest.raises(BadParameter, match="5 is more than the 3 messages of listed"):
        compare(Listed([1, 2, 3], counted=False), [5], ["walking"])


@pytest.mark.parametrize("counted", [True, False], ids=["known length", "unknown length"])
def test_an_empty_stream_is_refused(counted: bool) -> None:
    with pytest.raises(BadInput, match="listed is empty"):
        compare(Listed([], counted=counted), [5], ["walking"])


def row(grouping: str, imbalance: float, replication: float, ns: float = 10.0) -> Comparison:
    return Comparison(grouping, 64, 1, 10_000, 100, imbalance, replication, 100, ns, 8, 0, 1.005)


@pytest.mark.parametrize(
    ("rows", "pick"),
    [
        pytest.param(
            [row("key", 19.6, 1.0), row("frugal", 0.01, 1.01), row("pd-stream", 1e-5, 1.4)],
            "frugal",
            id="the least replication within the tolerance wins",
        ),
        pytest.param(
            [row("key", 0.04, 1.0), row("frugal", 0.0, 1.0, ns=50.0)],
            "key",
            id="key grouping is enough for even keys",
        ),
        pytest.param(
            [row("a", 0.0, 1.011, ns=90.0), row("b", 0.01, 1.013, ns=20.0)],
            "b",
            id="of equals the cheapest wins",
        ),
        pytest.param(
            [row("a", 2.0, 1.5), row("b", 2.9, 1.1), row("c", 3.4, 1.0)],
            "b",
            id="where none is balanced, nearly the best counts as balanced",
        ),
        pytest.param(
            [replace(row("a", 0.0, 1.0), instances=8), row("a", 3.0, 1.0), row("b", 0.0, 2.0)],
            "b",
            id="the largest number of instances decides",
        ),
        pytest.param(
            [row("key", 0.06, 1.0), row("frugal", 0.0, 3.7), row("pd-stream", 0.0, 9.0)],
            "key",
            id="a few percent are not worth several instances for each key",
        ),
        pytest.param(
            [row("key", 0.4, 1.0), row("dagreedy", 0.2, 1.01), row("frugal", 0.01, 7.9)],
            "dagreedy",
            id="of groupings that do not balance the one that is worth its price",
        ),
    ],
)
def test_recommendation(rows: list[Comparison], pick: str) -> None:
    advice = recommend(rows)
    assert (advice.grouping, advice.instances) == (pick, 64)
    assert str(advice).startswith(f"Use {pick}: ")


def test_the_recommendation_says_what_key_grouping_would_cost() -> None:
    advice = recommend([row("key", 19.6, 1.0), row("frugal", 0.01, 1.012)])
    assert str(advice) == (
        "Use frugal: the busiest of 64 instances gets 1.01 times the mean at 1.01 instances per "
        "key (balance needs 1.00); with key grouping it gets 20.6 times the mean"
    )


@pytest.mark.parametrize(
    ("rows", "end"),
    [
        pytest.param(
            [row("key", 0.04, 1.0)], "; no key needs to be split", id="key grouping is balanced"
        ),
        pytest.param(
            [row("key", 24.0, 1.0)],
            "(balance needs 1.00); none of the compared groupings balances this stream within 5 %, "
            "compare frugal too",
            id="none is balanced and frugal was not asked",
        ),
        pytest.param(
            [row("key", 24.0, 1.0), row("frugal", 0.3, 1.2)],
            "; with key grouping it gets 25.0 times the mean; none of the compared groupings "
            "balances this stream within 5 %",
            id="none is balanced and frugal was asked",
        ),
        pytest.param(
            [row("key", 0.4, 1.0), row("shuffle", 0.0, 30.0), row("frugal", 0.01, 7.9)],
            "(balance needs 1.00); frugal would make it 1.01 times but takes 7.90 instances per "
            "key, which costs more than it saves",
            id="balance is too dear",
        ),
    ],
)
def test_the_recommendation_says_whether_it_balances(rows: list[Comparison], end: str) -> None:
    assert str(recommend(rows)).endswith(end)


def test_frugal_is_worth_its_price_on_skewed_streams() -> None:
    for exponent in (1.0, 1.4, 2.0):
        rows = compare(Zipf(exponent, keys=10_000, messages=100_000), [16])
        assert recommend(rows).grouping == "frugal"


def test_nothing_is_recommended_from_nothing() -> None:
    with pytest.raises(BadParameter, match="no rows"):
        recommend([])
