"""Laws that hold for every registered grouping."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from grouping.plain import Keys, instance_counts, seeds, sources, streams, zipf
from hypothesis import given, settings
from hypothesis import strategies as st

import unskew
from unskew.errors import BadParameter, BadSnapshot, UnknownGrouping, UnskewError
from unskew.grouping import Grouping, Snapshot
from unskew.grouping.choices import home_of, key_bits, second_of
from unskew.mixing import spread_seed

Maker = Callable[..., Grouping]

NAMES = list(unskew.groupings())

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    # With parameters that make the state change within a short stream.
    "cardinality-aware, forgetful": ("cardinality-aware", {"remembered": 8}),
    "consistent, on a ring": ("consistent", {"walk": "bounded-ring", "shards_per_instance": 2}),
    "contrand, groups of 3": ("contrand", {"members": 3}),
    "d-choices, few counters": ("d-choices", {"counters": 8, "e": 0.01}),
    "dagreedy, short intervals": ("dagreedy", {"interval": 50}),
    "dalton, short slides": ("dalton", {"slide": 50}),
    "local-or-shuffle, on one": ("local-or-shuffle", {"local": (0,)}),
    "pd-stream, adaptive": ("pd-stream", {"adaptive": True}),
}

every_grouping = pytest.mark.parametrize(
    "make",
    [
        *(pytest.param(partial(unskew.grouping, name), id=name) for name in NAMES),
        *(
            pytest.param(partial(unskew.grouping, name, **parameters), id=variant)
            for variant, (name, parameters) in VARIANTS.items()
        ),
    ],
)

HOME = {"key", "dagreedy", "dalton"}
"""Groupings that send a key home until it is hot."""

ROUND_ROBIN = {"shuffle", "local-or-shuffle"}
"""Groupings that do not look at keys."""

TWO_CHOICES = {"partial-key", "cardinality-aware", "pd-stream"}
"""Groupings that send a key to one of its two choices until it is hot."""


def same(one: Snapshot, other: Snapshot) -> bool:
    """Return whether two snapshots hold the same."""
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


def saved(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot that was written to a file without pickle and read back."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **snapshot)
    file.seek(0)
    with np.load(file, allow_pickle=False) as loaded:
        return dict(loaded)


some = settings(max_examples=20)


@every_grouping
@some
@given(keys=streams, instances=instance_counts, seed=seeds, source=sources)
def test_answers_are_in_range_and_no_tuple_is_lost(
    make: Maker, keys: Keys, instances: int, seed: int, source: int
) -> None:
    router = make(instances, seed=seed, source=source)
    chosen = router.route(keys)
    assert chosen.dtype == np.int32
    assert chosen.shape == keys.shape
    assert ((chosen >= 0) & (chosen < instances)).all()
    assert router.loads.tolist() == np.bincount(chosen, minlength=instances).tolist()
    assert router.loads.sum() == keys.size


@every_grouping
@pytest.mark.parametrize("source", [0, 3])
def test_the_same_seed_and_source_route_alike(make: Maker, source: int) -> None:
    keys = zipf(1.4, 3000)
    given_keys = keys.copy()
    one, other = (make(16, seed=7, source=source) for _ in range(2))
    assert one.route(keys).tolist() == other.route(keys).tolist()
    assert same(one.snapshot(), other.snapshot())
    assert keys.tolist() == given_keys.tolist()


@every_grouping
def test_different_seeds_route_differently(make: Maker) -> None:
    keys = np.random.default_rng(5).integers(0, 2**63, size=4000, dtype=np.uint64)
    one, other = (make(16, seed=seed) for seed in (1, 2))
    alike = np.count_nonzero(one.route(keys) == other.route(keys)) / keys.size
    # One in 16 by chance. Round robin asks no hash.
    assert alike == 1 if one.name in ROUND_ROBIN else alike < 0.2


@every_grouping
@some
@given(
    keys=streams,
    cuts=st.lists(st.integers(0, 600), max_size=6),
    instances=instance_counts,
    seed=seeds,
    source=sources,
)
def test_it_does_not_matter_how_the_stream_is_cut(
    make: Maker, keys: Keys, cuts: list[int], instances: int, seed: int, source: int
) -> None:
    whole, cut = (make(instances, seed=seed, source=source) for _ in range(2))
    # Cuts that coincide, or lie behind the end, make empty calls.
    pieces = [cut.route(piece) for piece in np.split(keys, sorted(cuts))]
    assert np.concatenate(pieces).tolist() == whole.route(keys).tolist()
    assert cut.loads.tolist() == whole.loads.tolist()
    assert same(cut.snapshot(), whole.snapshot())


@every_grouping
@some
@given(keys=streams, part=st.floats(0, 1), instances=instance_counts, seed=seeds, source=sources)
def test_a_snapshot_continues_exactly_in_a_fresh_object(
    make: Maker, keys: Keys, part: float, instances: int, seed: int, source: int
) -> None:
    first, rest = np.split(keys, [int(part * keys.size)])
    router, fresh, used = (make(instances, seed=seed, source=source) for _ in range(3))
    router.route(first)
    snapshot = saved(router.snapshot())
    expected = router.route(rest).tolist()
    fresh.restore(snapshot)
    used.route(keys[::-1].copy())
    used.restore(snapshot)
    for restored in (fresh, used):
        assert restored.route(rest).tolist() == expected
        assert restored.loads.tolist() == router.loads.tolist()
        assert restored.hot_keys == router.hot_keys
        assert same(restored.snapshot(), router.snapshot())


@every_grouping
def test_a_snapshot_is_a_copy(make: Maker) -> None:
    router = make(8)
    snapshot = router.snapshot()
    before = {name: array.copy() for name, array in snapshot.items()}
    router.route(zipf(1.2, 500))
    assert same(snapshot, before)
    assert not same(snapshot, router.snapshot())
    router.restore(snapshot)
    router.route(zipf(1.2, 500))
    assert same(snapshot, before)


@every_grouping
def test_loads_are_a_copy(make: Maker) -> None:
    router = make(8)
    router.loads[...] = 99
    assert router.loads.tolist() == [0] * 8


def unlike(snapshot: Snapshot) -> dict[str, Snapshot]:
    """Return snapshots that do not fit, by what is wrong with them."""
    loads = snapshot["loads"]
    without = {name: array for name, array in snapshot.items() if name != "loads"}
    return {
        "an array is missing": without,
        "an array is too many": snapshot | {"others": loads},
        "an array has another name": without | {"load": loads},
        "an array is too short": snapshot | {"loads": loads[:-1]},
        "an array has another dimension": snapshot | {"loads": loads[None]},
        "an array has another type": snapshot | {"loads": loads.astype(np.float64)},
        "nothing is there": {},
    }


@every_grouping
@pytest.mark.parametrize("wrong", unlike({"loads": np.zeros(2)}))
def test_a_snapshot_that_does_not_fit_is_refused_and_changes_nothing(
    make: Maker, wrong: str
) -> None:
    router, other = make(8), make(8)
    router.route(zipf(1.2, 300))
    other.route(zipf(1.2, 900))
    before = router.snapshot()
    with pytest.raises(BadSnapshot, match=r"damaged|cannot be restored"):
        router.restore(unlike(other.snapshot())[wrong])
    assert same(router.snapshot(), before)


@every_grouping
def test_a_snapshot_of_another_number_of_instances_is_refused(make: Maker) -> None:
    with pytest.raises(BadSnapshot, match=r"instances=9.* cannot be restored into .*instances=8"):
        make(8).restore(make(9).snapshot())


@every_grouping
def test_a_snapshot_with_a_value_altered_is_refused(make: Maker) -> None:
    snapshot = make(8).snapshot()
    snapshot["loads"][3] += 1
    with pytest.raises(BadSnapshot, match="damaged"):
        make(8).restore(snapshot)


@every_grouping
@pytest.mark.parametrize("other", [{"seed": 1}, {"source": 1}])
def test_a_snapshot_of_another_seed_or_source_is_refused(
    make: Maker, other: dict[str, int]
) -> None:
    with pytest.raises(BadSnapshot, match=r"cannot be restored"):
        make(8).restore(make(8, **other).snapshot())


@pytest.mark.parametrize("name", NAMES)
def test_a_snapshot_of_another_state_is_refused(name: str) -> None:
    router = unskew.grouping(name, 8)
    for other_name in set(NAMES) - {name}:
        snapshot = unskew.grouping(other_name, 8).snapshot()
        with pytest.raises(BadSnapshot, match=f"{other_name} .* cannot .* {name} "):
            router.restore(snapshot)


@every_grouping
@pytest.mark.parametrize("instances", [1, 2, 3, 40])
def test_no_key_reaches_more_instances_than_the_fan_out(make: Maker, instances: int) -> None:
    router = make(instances)
    reached = defaultdict(set)
    keys = zipf(1.4, 5000)
    for key, instance in zip(keys.tolist(), router.route(keys).tolist(), strict=True):
        reached[key].add(instance)
    assert 1 <= router.fan_out <= instances
    assert max(len(instances_of_key) for instances_of_key in reached.values()) <= router.fan_out


@pytest.mark.parametrize("name", sorted(HOME | TWO_CHOICES | {"frugal"}))
@settings(max_examples=50)
@given(key=st.integers(0, 2**64 - 1), instances=instance_counts, seed=seeds, source=sources)
def test_the_first_tuple_of_a_source_goes_to_the_home_that_its_key_has_at_every_source(
    name: str, key: int, instances: int, seed: int, source: int
) -> None:
    router = unskew.grouping(name, instances, seed=seed, source=source)
    bits = np.uint64(key_bits(np.uint64(key), spread_seed(seed)))
    assert router.route(np.array([key], dtype=np.uint64)).tolist() == [home_of(bits, instances)]


@pytest.mark.parametrize("name", sorted(HOME | TWO_CHOICES))
@settings(max_examples=25)
@given(
    keys=st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=200),
    instances=instance_counts,
    seed=seeds,
    source=sources,
)
def test_keys_that_come_once_go_to_choices_that_do_not_depend_on_the_source(
    name: str, keys: list[int], instances: int, seed: int, source: int
) -> None:
    router = unskew.grouping(name, instances, seed=seed, source=source)
    chosen = router.route(np.array(keys, dtype=np.uint64)).tolist()
    for key, instance in zip(keys, chosen, strict=True):
        bits = np.uint64(key_bits(np.uint64(key), spread_seed(seed)))
        choices = {home_of(bits, instances)}
        if name in TWO_CHOICES:
            choices.add(second_of(bits, instances))
        assert instance in choices


@every_grouping
@some
@given(
    batches=st.lists(streams, min_size=2, max_size=3),
    instances=instance_counts,
    seed=seeds,
    source=sources,
)
def test_a_new_batch_has_no_load_and_loses_no_tuple(
    make: Maker, batches: list[Keys], instances: int, seed: int, source: int
) -> None:
    router = make(instances, seed=seed, source=source)
    for keys in batches:
        router.begin_batch()
        assert router.loads.tolist() == [0] * instances
        chosen = router.route(keys)
        assert router.loads.tolist() == np.bincount(chosen, minlength=instances).tolist()


@every_grouping
def test_a_batch_that_begins_at_once_changes_nothing(make: Maker) -> None:
    keys = zipf(1.2, 2000)
    begun, plain = make(16), make(16)
    begun.begin_batch()
    assert begun.route(keys).tolist() == plain.route(keys).tolist()


@every_grouping
def test_what_is_hot_is_carried_into_the_next_batch(make: Maker) -> None:
    router = make(16)
    router.route(zipf(1.6, 30_000))
    hot = router.hot_keys
    router.begin_batch()
    assert router.hot_keys == hot


@every_grouping
@pytest.mark.parametrize("instances", [1, 16, 128])
def test_the_state_is_bounded_whatever_the_number_of_keys(make: Maker, instances: int) -> None:
    router = make(instances)
    before = router.state_bytes
    router.route(np.random.default_rng(5).integers(0, 2**63, size=60_000, dtype=np.uint64))
    router.route(zipf(1.2, 20_000))
    snapshot = router.snapshot()
    arrays = sum(snapshot[name].nbytes for name in snapshot.keys() - {"made_by", "checksum"})
    assert arrays <= router.state_bytes == before < 64 * 1024


@every_grouping
def test_one_instance_gets_everything(make: Maker) -> None:
    router = make(1, seed=4, source=5)
    for keys in (zipf(2.0, 1500), zipf(0.5, 1500)):
        assert router.route(keys).tolist() == [0] * 1500
        router.begin_batch()
    assert router.fan_out == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("instances", [0, -1, 1.5, True, "4", None, 2**31])
def test_bad_instances_are_named(name: str, instances: Any) -> None:
    with pytest.raises(BadParameter, match=f"instances must be .*, not {instances!r}"):
        unskew.grouping(name, instances)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("parameter", "value"),
    [("seed", -1), ("seed", 2**63), ("seed", 0.5), ("source", -3), ("source", "a")],
)
def test_bad_seeds_and_sources_are_named(name: str, parameter: str, value: Any) -> None:
    with pytest.raises(BadParameter, match=f"{parameter} must be .*, not {value!r}"):
        unskew.grouping(name, 4, **{parameter: value})


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_parameter_is_named(name: str) -> None:
    with pytest.raises(
        BadParameter, match=f"{name} has no parameter 'flavour'; it takes seed, source"
    ):
        unskew.grouping(name, 4, flavour=1)


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        ("bounded-ring", "e", 0.0),
        ("bounded-ring", "points", 0),
        ("cardinality-aware", "remembered", 3),
        ("consistent", "e", 0.0),
        ("consistent", "shards", 3),
        ("consistent", "shards_per_instance", 0),
        ("consistent", "walk", "stroll"),
        ("contrand", "members", 0),
        ("d-choices", "e", -0.5),
        ("d-choices", "theta", 0.0),
        ("w-choices", "counters", 0),
        ("w-choices", "theta", "much"),
        ("dagreedy", "interval", 0),
        ("dalton", "epsilon", 1.0),
        ("dalton", "rate", 0.0),
        ("dalton", "slide", 0),
        ("frugal", "max_imbalance", 0.0),
        ("local-or-shuffle", "local", "near"),
        ("frugal", "counters", 0),
        ("pd-stream", "alpha", float("nan")),
        ("pd-stream", "theta", -0.25),
        ("pd-stream", "expected", 1.0),
        ("random-choices", "e", float("inf")),
        ("random-choices", "tries", 0),
    ],
)
def test_a_parameter_out_of_its_range_is_named(name: str, parameter: str, value: Any) -> None:
    with pytest.raises(BadParameter, match=f"{parameter} must be .*, not {value!r}"):
        unskew.grouping(name, 4, **{parameter: value})


@pytest.mark.parametrize("name", ["", "Key", "no-such", 7])
def test_an_unknown_name_is_told_which_there_are(name: Any) -> None:
    with pytest.raises(UnknownGrouping) as caught:
        unskew.grouping(name, 4)
    assert str(caught.value) == f"there is no grouping {name!r}; choose one of {', '.join(NAMES)}"
    assert isinstance(caught.value, UnskewError)
    assert isinstance(caught.value, KeyError)


@every_grouping
@pytest.mark.parametrize(
    ("keys", "told"),
    [
        pytest.param(np.arange(3), "of int64;", id="signed"),
        pytest.param(np.arange(3, dtype=np.uint32), "uint32", id="narrow"),
        pytest.param(np.ones(3), "float64", id="floats"),
        pytest.param(np.array(["a"]), "<U1", id="strings"),
        pytest.param(np.zeros((2, 2), dtype=np.uint64), "2 dimension", id="a table"),
        pytest.param([1, 2, 3], "not list;", id="a list"),
    ],
)
def test_keys_that_are_no_hashes_are_refused_and_change_nothing(
    make: Maker, keys: Any, told: str
) -> None:
    router = make(4)
    before = router.snapshot()
    with pytest.raises(BadParameter, match=rf"{told}.*unskew\.hash_keys"):
        router.route(keys)
    assert same(router.snapshot(), before)


@every_grouping
def test_keys_may_lie_apart_in_memory(make: Maker) -> None:
    keys = zipf(1.0, 600)
    assert make(8).route(keys[::3]).tolist() == make(8).route(keys[::3].copy()).tolist()


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_is(name: str) -> None:
    router = unskew.grouping(name, 4, seed=5, source=6)
    assert router.name == name
    assert type(router) is unskew.groupings()[name]
    assert router.reference
    assert repr(router) == f"{type(router).__name__}(4, seed=5, source=6)"
