"""What is told of a checkpoint, against what was played into it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from state.playing import NEVER, Player, a_player, counting, play_initial, rows_by_shard, users

from unskew.aggregates import count
from unskew.balance import Plan
from unskew.errors import BadParameter, DamagedCheckpoint, WrongCheckpoint
from unskew.keys import hash_keys
from unskew.operators import Aggregation, PerKey
from unskew.state import exporting as exporting_module
from unskew.state.exporting import write_parquet
from unskew.state.inspecting import choose, inspect_state
from unskew.state.manifest import Manifest
from unskew.state.versions import Kind

NAMES = [*["hot"] * 50, *(f"user {number}" for number in range(40))]


def hash_of(*key: Any) -> int:
    return int(hash_keys(*(pa.array([part], pa.string()) for part in key))[0])


def test_batches_are_told_as_they_were(tmp_path: Path) -> None:
    player = a_player(tmp_path / "unskew")
    player.play(0, users(*NAMES))
    moved = player.plan.move({3: 0, 5: 0})
    newest = player.play(1, users("hot", "hot", "new"), plan=moved)

    found = inspect_state(choose(tmp_path))

    assert (found.folder, found.batch, found.kind) == (str(tmp_path / "unskew"), 1, "batch")
    assert found.watermark is None
    [stage] = found.stages
    assert (stage.name, stage.shards) == ("stage 0", 8)
    assert stage.columns == ("user: string", "state_n: int64")
    assert stage.operator.startswith("aggregation(n=Count()")
    first, second = found.batches
    loads = np.bincount(np.array([hash_of(name) for name in NAMES], dtype=np.uint64) % 2)
    assert (first.batch, first.rows, first.late, first.rows_out, first.moves) == (0, 90, 0, 41, 0)
    assert first.imbalance == pytest.approx(loads.max() / 45 - 1)
    assert (second.rows, second.rows_out, second.moves, second.seconds) == (3, 2, 2, 0.25)
    assert second.state_bytes == found.state_bytes == sum(newest.state_bytes(0).values())
    assert found.plan is not None
    assert (found.plan.instances, found.plan.epoch, found.plan.shards) == (2, 1, (6, 2))
    assert found.plan.hot == ()


def test_late_rows_are_among_those_that_came_in(tmp_path: Path) -> None:
    player = windowed(tmp_path)
    player.play(0, in_windows(20), watermark=15_000_000)
    player.play(1, in_windows(10, 20, 30), watermark=15_000_000)
    before, batch = inspect_state(choose(tmp_path)).batches
    assert (before.rows, before.late) == (1, 0)
    assert (batch.rows, batch.late) == (3, 1)


def test_the_largest_shards_are_named_with_their_instance(tmp_path: Path) -> None:
    player = a_player(tmp_path)
    for batch in range(3):
        newest = player.play(batch, users(*NAMES[: 90 - 20 * batch]), plan=Plan.even(8, 3))
    found = inspect_state(choose(tmp_path), top=3)

    sizes = Counter(newest.state_bytes(0)).most_common()
    assert [each.bytes for each in found.shards] == [size for _, size in sizes[:3]]
    assert found.shards_with_state == len(sizes)
    for each in found.shards:
        runs = newest.stages[0][each.shard]
        assert each.instance == each.shard % 3
        assert (each.rows, each.runs) == (sum(run.rows for run in runs), len(runs))
        assert not each.of_hot_keys


def test_hot_keys_have_their_text_their_instances_and_shards_of_their_own(tmp_path: Path) -> None:
    player = a_player(tmp_path, stages=2)
    player.play(0, users(*NAMES))
    key = hash_of("hot")
    player.play(1, users(*NAMES), plan=Plan(player.plan.assignment, 2, 7, {key: (0, 1)}))

    found = inspect_state(choose(tmp_path), top=99)

    assert found.plan is not None
    [hot] = found.plan.hot
    assert (hot.hash, hot.key, hot.rows, hot.instances) == (str(key), "hot", 50, (0, 1))
    assert found.hottest[0] == hot
    assert {each.shard: each.instance for each in found.shards if each.of_hot_keys} == {8: 0, 9: 1}
    # Each key once, whether the merge passes its row on or makes it.
    for stage in (0, 1):
        batches = inspect_state(choose(tmp_path, stage=stage)).batches
        assert [each.rows_out for each in batches] == [41, 41]
    earlier = inspect_state(choose(tmp_path, batch=0))
    assert earlier.plan is not None
    assert earlier.plan.hot == ()
    assert (earlier.hottest[0].key, earlier.hottest[0].instances) == ("hot", (key % 2,))


WINDOW = pa.struct({"start": pa.timestamp("us"), "end": pa.timestamp("us")})


def windowed(folder: Path, mode: str = "append") -> Player:
    fields = [pa.field("window", WINDOW), pa.field("user", pa.string())]
    operator = Aggregation({"n": count()}, mode=mode, windowed=True).bind(fields, [])
    return Player(folder, [operator], Plan.even(8, 2), windowed=True)


def in_windows(*ends: int, user: str = "someone") -> pa.RecordBatch:
    """Return a row in the window of ten seconds before each time."""
    windows = [
        {"start": datetime.fromtimestamp(end - 10, UTC), "end": datetime.fromtimestamp(end, UTC)}
        for end in ends
    ]
    plain = [{name: time.replace(tzinfo=None) for name, time in each.items()} for each in windows]
    return pa.record_batch(
        {"window": pa.array(plain, WINDOW), "user": pa.array([user] * len(ends), pa.string())}
    )


def test_after_the_end_of_a_run_the_hottest_keys_are_those_of_its_last_batch(
    tmp_path: Path,
) -> None:
    player = windowed(tmp_path)
    player.play(0, in_windows(10, 20, 20))
    player.play(0, in_windows(), kind=Kind.SETTLED, watermark=10_000_000)

    found = inspect_state(choose(tmp_path))

    assert (found.batch, found.kind, found.watermark) == (0, "settled", 10_000_000)
    assert [each.kind for each in found.batches] == ["batch", "settled"]
    assert [each.imbalance for each in found.batches] == [1.0, None]
    [hottest] = found.hottest
    # The window is no part of the key, nor is the count.
    assert (hottest.key, hottest.rows) == ("someone", 3)

    player.play(0, in_windows(), kind=Kind.FLUSHED, watermark=NEVER - 1)
    flushed = inspect_state(choose(tmp_path))
    assert (flushed.kind, flushed.shards, flushed.state_bytes) == ("flushed", (), 0)
    # It is looked up where it still was.
    assert flushed.hottest == found.hottest


def test_a_key_that_the_state_has_not_is_known_by_its_hash(tmp_path: Path) -> None:
    def forget(key: dict[str, Any], rows: Any, state: Any) -> tuple[None, None]:
        return None, None

    schema = pa.schema({"most": pa.int64()})
    forgetful = PerKey(forget, state=schema, output=schema)
    Player(tmp_path, [forgetful.bind([pa.field("user", pa.string())], [])], Plan.even(4, 1)).play(
        0, users("a")
    )
    [hottest] = inspect_state(choose(tmp_path)).hottest
    assert (hottest.hash, hottest.key, hottest.rows) == (str(hash_of("a")), None, 1)


@pytest.mark.parametrize(
    ("columns", "texts"),
    [
        pytest.param({"a": ["x", None]}, {"x", "null"}, id="text"),
        pytest.param({"a": ["x", "x"], "b": [1, 2]}, {"x, 1", "x, 2"}, id="two columns"),
        pytest.param({"a": [b"\x00\xff"]}, {"00ff"}, id="bytes"),
        pytest.param({"a": [True]}, {"True"}, id="a boolean"),
        pytest.param(
            {"a": ["x", None], "b": [None, "x"]}, {"x, null or null, x"}, id="equal hashes"
        ),
        pytest.param({"a": [{"b": 1, "c": "x"}]}, {"{'b': 1, 'c': 'x'}"}, id="a struct"),
        pytest.param({"a": ["l\n\x1b[2J"]}, {"l\n\x1b[2J"}, id="control characters"),
        pytest.param({"a": [pa.scalar(2**60, pa.timestamp("us"))]}, {None}, id="a time too late"),
    ],
)
def test_the_text_of_a_key_is_its_columns(
    columns: dict[str, list[Any]], texts: set[str | None], tmp_path: Path
) -> None:
    batch = pa.record_batch({name: pa.array(values) for name, values in columns.items()})
    Player(tmp_path, [counting(*batch.schema)], Plan.even(4, 1)).play(0, batch)
    assert {each.key for each in inspect_state(choose(tmp_path)).hottest} == texts


def test_a_damaged_batch_does_not_hide_the_others(tmp_path: Path) -> None:
    player = a_player(tmp_path)
    for batch in range(3):
        player.play(batch, users("a"))
    path = tmp_path / "manifests" / "000000000001.json"
    path.write_bytes(path.read_bytes()[:-9])

    found = inspect_state(choose(tmp_path))

    assert [each.rows for each in found.batches] == [1, 0, 1]
    assert [each.damage is None for each in found.batches] == [True, False, True]
    assert str(path) in str(found.batches[1].damage)
    with pytest.raises(DamagedCheckpoint, match=r"000000000001\.json was cut or altered"):
        choose(tmp_path, batch=1)


def test_damaged_state_is_named(tmp_path: Path) -> None:
    newest = a_player(tmp_path).play(0, users("a"))
    [name] = newest.files()
    (tmp_path / "state" / name).unlink()
    with pytest.raises(DamagedCheckpoint, match=r"\.arrow is missing"):
        inspect_state(choose(tmp_path))


def test_an_initial_state_is_told_before_the_first_batch_and_after(tmp_path: Path) -> None:
    player = a_player(tmp_path)
    play_initial(player, users("a", "a"))
    found = inspect_state(choose(tmp_path))
    assert (found.batch, found.kind, len(found.shards)) == (-1, "initial", 1)
    assert [(each.key, each.rows) for each in found.hottest] == [("a", 2)]
    player.play(0, users("b"))
    later = inspect_state(choose(tmp_path))
    assert [each.kind for each in later.batches] == ["initial", "batch"]
    assert inspect_state(choose(tmp_path, batch=-1)).shards == found.shards


def test_without_a_plan_nobody_knows_where_shards_are(tmp_path: Path) -> None:
    a_player(tmp_path).play(0, users("a"))
    (tmp_path / "plans" / "000000000000.json").unlink()
    found = inspect_state(choose(tmp_path))
    assert found.plan is None
    assert [each.instance for each in found.shards] == [None]
    assert [(each.key, each.instances) for each in found.hottest] == [("a", ())]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stage": 1}, "stage must be from 0 to 0, not 1"),
        ({"stage": -1}, "stage must be from 0 to 0, not -1"),
        ({"batch": 3}, r"batch must be one that is kept, 0 to 1, 4, not 3"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(
    options: dict[str, int], message: str, tmp_path: Path
) -> None:
    player = a_player(tmp_path)
    first = player.play(0, users("a"))
    player.play(1, users("a"))
    player.checkpoint.commit(Manifest(16, first.stages))
    with pytest.raises(BadParameter, match=message):
        choose(tmp_path, **options)


def test_what_is_no_checkpoint_or_has_no_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongCheckpoint, match="is not the checkpoint of a pipeline"):
        choose(tmp_path)
    a_player(tmp_path)
    with pytest.raises(WrongCheckpoint, match="has no batch yet"):
        choose(tmp_path)


@pytest.mark.parametrize("row_group", [1, 1 << 17])
def test_the_state_is_exported_row_by_row(
    row_group: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting_module, "ROW_GROUP", row_group)
    # The name that the state of the count has, too.
    player = Player(tmp_path, [counting(pa.field("state_n", pa.string()))], Plan.even(8, 2))
    for number, names in enumerate((NAMES, NAMES[:60])):
        newest = player.play(number, pa.record_batch({"state_n": names}))

    rows = write_parquet(choose(tmp_path), tmp_path / "out.parquet")

    written = pq.read_table(tmp_path / "out.parquet")
    assert written.schema.names == ["state_n", "state_n_"]
    assert (rows, pq.ParquetFile(tmp_path / "out.parquet").num_row_groups) == (
        41,
        len(newest.stages[0]) if row_group == 1 else 1,
    )
    pairs = zip(*(column.to_pylist() for column in written.columns), strict=True)
    assert dict(pairs) == Counter([*NAMES, *NAMES[:60]])


def test_what_was_exported_of_an_earlier_batch_is_its_state(tmp_path: Path) -> None:
    player = a_player(tmp_path)
    first = player.play(0, users("a", "b"))
    player.play(1, users("a"))
    write_parquet(choose(tmp_path, batch=0), tmp_path / "out.parquet")
    written = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert sorted(row["user"] for row in written) == ["a", "b"]
    kept = [row for rows in rows_by_shard(player.checkpoint, first).values() for row in rows]
    assert {row["state_n"] for row in written} == {row["state_n"] for row in kept} == {1}


def test_no_state_cannot_be_exported(tmp_path: Path) -> None:
    player = windowed(tmp_path)
    player.play(0, in_windows(10))
    player.play(0, in_windows(), kind=Kind.FLUSHED, watermark=NEVER - 1)
    with pytest.raises(BadParameter, match="stage 0 has no state to write"):
        write_parquet(choose(tmp_path), tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()
