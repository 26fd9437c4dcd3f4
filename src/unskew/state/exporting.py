"""The state of a stage as one Parquet file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.errors import BadParameter
from unskew.state.inspecting import Chosen
from unskew.state.runs import RUN_HEAD, counting
from unskew.state.segment import SegmentReader

ROW_GROUP = 1 << 17
"""Rows from which on the shards that are held are written, as one row group."""


def write_parquet(chosen: Chosen, path: Path) -> int:
    """Write keys and state, and return how many rows that were.

    Holds some small shards, or a large one, at a time. A hot key has a row for each instance that
    has a part of its state.

    Parameters
    ----------
    chosen : Chosen
        Which stage, as of which batch.
    path : Path
        Is overwritten; after an error it is not whole.

    Raises
    ------
    BadParameter
        If there is no state, whose columns would not be known, or Parquet cannot hold it.
    """
    writer = None
    rows = 0
    try:
        for table in _tables(chosen):
            if writer is None:
                writer = pq.ParquetWriter(path, table.schema)
            writer.write_table(table)
            rows += table.num_rows
    except pa.ArrowNotImplementedError as error:
        raise BadParameter(
            f"Parquet cannot hold the state of stage {chosen.stage}: {error}; read it with "
            f"unskew.spark.read_state"
        ) from error
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        raise BadParameter(
            f"stage {chosen.stage} has no state to write; name another stage or batch"
        )
    return rows


def _tables(chosen: Chosen) -> Iterator[pa.Table]:
    reader = SegmentReader(chosen.store.segments)
    held: list[pa.RecordBatch] = []
    state = chosen.manifest.stages[chosen.stage]
    spec = chosen.specs[chosen.stage]
    for shard in sorted(state):
        runs = [reader(run) for run in state[shard]]
        rows = counting(runs, appends=spec.appends, late=chosen.manifest.late(chosen.stage))
        names = _distinct(rows.schema.names[RUN_HEAD:])
        held.append(pa.RecordBatch.from_arrays(rows.columns[RUN_HEAD:], names=names))
        if sum(each.num_rows for each in held) >= ROW_GROUP:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _distinct(names: list[str]) -> list[str]:
    """Return names that differ: a key may be called as a column of the state is.

    Examples
    --------
    >>> _distinct(["user", "state_n", "state_n"])
    ['user', 'state_n', 'state_n_']
    """
    found: list[str] = []
    for name in names:
        while name in found:
            name += "_"
        found.append(name)
    return found
