"""Rows that several stages follow on: each gets every row once, by a fold or by the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from unskew.aggregates import count
from unskew.balance import Plan
from unskew.keys import hash_keys
from unskew.operators import Aggregation
from unskew.operators.hop import Hop
from unskew.operators.parting import FOLDED, Parting

KEYS = ("one", "other", "third")


def hop_by(key: str) -> Hop:
    operator = Aggregation({"n": count()}).bind([pa.field(key, pa.int64())], [])
    return Hop(operator, Plan.even(6, 3), keys=(key,), values=(), own=("one",), pairs=100)


@given(
    st.lists(st.tuples(*(st.integers(0, 20) for _ in KEYS)), min_size=1, max_size=60),
    st.sets(st.sampled_from([1, 2, 5]), min_size=1),
    st.integers(0, 2),
)
def test_every_stage_gets_every_row_once(
    drawn: list[tuple[int, ...]], hopping: set[int], instance: int
) -> None:
    columns = dict(zip(KEYS, map(list, zip(*drawn, strict=True)), strict=True))
    rows = pa.record_batch(columns)
    key_of = dict(zip((1, 2, 5), KEYS, strict=True))
    hops = {number: hop_by(key_of[number]) for number in hopping}
    parting = Parting([1, 2, 5], hops, instance, 1 << 20)
    parts = [parting.part(rows.slice(0, 7)), parting.part(rows.slice(7))]
    written = pa.concat_batches(parts)
    assert written.schema.names == [*KEYS, FOLDED]
    for place, (number, key) in enumerate(key_of.items()):
        plan = Plan.even(6, 3)
        hashes = hash_keys(pa.array(columns[key]))
        near = plan.assignment[plan.shard_of(hashes)] == instance
        near &= number in hopping
        read = [
            value
            for value, folded in zip(
                written[key].to_pylist(), written[FOLDED].to_pylist(), strict=True
            )
            if not folded >> place & 1
        ]
        assert read == np.array(columns[key])[~near].tolist()
        if number in hopping:
            assert parting.near[number] == np.count_nonzero(near)
    assert set(parting.pairs) == hopping
    # Rows that all have folded are not written.
    assert all(folded != 0b111 for folded in written[FOLDED].to_pylist())


def test_each_stage_has_a_file_of_what_was_folded_for_it(tmp_path: Path) -> None:
    rows = pa.record_batch({key: list(range(50)) for key in KEYS})
    parting = Parting([1, 2], {1: hop_by("one"), 2: hop_by("other")}, 0, 1 << 20)
    parting.part(rows)
    written = parting.write(tmp_path / "task-3")
    assert written == {1: ["task-3-1.entries.arrow"], 2: ["task-3-2.entries.arrow"]}
    for number, names in written.items():
        with pa.ipc.open_file(tmp_path / names[0]) as file:
            assert file.read_all().num_rows == parting.near[number]


def test_one_stage_reads_what_was_not_folded_as_it_is() -> None:
    rows = pa.record_batch({key: list(range(50)) for key in KEYS})
    parting = Parting([1], {1: hop_by("one")}, 0, 1 << 20)
    left = parting.part(rows)
    assert left.schema == rows.schema
    assert left.num_rows + parting.near[1] == 50
