"""Run operators without Spark: for tests of your own.

Groupings need no help, and balancers take plain reports; an operator has state between batches,
which `run` keeps in a temporary folder, in the files that a pipeline would write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.balance import Plan
from unskew.keys import hash_keys
from unskew.operators import Operator
from unskew.operators.base import STORED, TIME
from unskew.operators.task import MOST_BYTES, Work, task_of
from unskew.state.manifest import Run
from unskew.state.runs import HASH, NEVER, NO_WATERMARK
from unskew.state.segment import SegmentReader


def run(
    operator: Operator,
    batches: Iterable[pa.RecordBatch],
    keys: str | Sequence[str],
    *,
    time: str | None = None,
    watermarks: Sequence[int] = (),
    plans: Sequence[Plan] = (),
    most_bytes: int = MOST_BYTES,
) -> list[pa.RecordBatch]:
    """Return what comes out of each batch, its rows sorted by their text.

    Parameters
    ----------
    operator : Operator
        Not bound yet.
    batches : iterable of pyarrow.RecordBatch
        Of the same columns.
    keys : str or sequence of str
        Names of the key columns; all others are values.
    time : str, optional
        Column of event time in microseconds, as int64: the end of the window in windowed
        aggregations, among the keys there.
    watermarks : sequence of int, optional
        Of each batch, in microseconds: what it lets expire, and what is late in the next. Without
        one nothing is late and nothing expires.
    plans : sequence of Plan, optional
        Of each batch, all with the same number of shards: state moves as they say. The last one
        goes on; by default there is one instance with four shards.
    most_bytes : int
        Entries to hold in memory.

    Examples
    --------
    >>> from unskew.aggregates import count
    >>> from unskew.operators import Aggregation
    >>> rows = pa.record_batch({"user": ["a", "b", "a"]})
    >>> [out.to_pydict() for out in run(Aggregation({"n": count()}), [rows], "user")]
    [{'user': ['a', 'b'], 'n': [2, 1]}]
    """
    keys = [keys] if isinstance(keys, str) else keys
    plans = plans or [Plan.even(4, 1)]
    out = []
    state: dict[int, tuple[Run, ...]] = {}
    watermark = NO_WATERMARK
    bound = None
    earlier = plans[0]
    with TemporaryDirectory(prefix="unskew-testing-") as folder:
        reader = SegmentReader(Path(folder))
        for number, batch in enumerate(batches):
            values = [name for name in batch.schema.names if name not in keys]
            bound = bound or operator.bind(
                [batch.schema.field(name) for name in keys],
                [batch.schema.field(name) for name in values],
            )
            plan = plans[min(number, len(plans) - 1)]
            rows = _rows(batch, bound, keys, values, time)
            rows, chosen = _sent(bound, plan, rows)
            made: list[pa.RecordBatch] = []
            parts: list[pa.RecordBatch] = []
            changed: dict[int, tuple[Run, ...]] = {}
            late, watermark = watermark, _at(watermarks, number)
            for instance in range(plan.instances):
                work = Work(
                    operator=bound,
                    plan=plan,
                    instance=instance,
                    shards=state,
                    segment=Path(folder) / f"{number}-{instance}.arrow",
                    late=late,
                    watermark=watermark,
                    cooled=plan.cooled(earlier),
                    rehomed=plan.rehomed(earlier),
                    most_bytes=most_bytes,
                )
                task = task_of(work, reader)
                made += task.run([rows.filter(pa.array(chosen == instance))])
                parts += task.parts
                changed |= task.report.runs
            if parts:
                made.append(bound.merge(pa.concat_batches(parts)))
            schema = pa.schema(list(bound.output))
            out.append(_in_order(pa.Table.from_batches(made, schema).combine_chunks(), schema))
            # All at once: tasks of one batch do not see what the others write.
            state = state | changed
            earlier = plan
    return out


def _at(watermarks: Sequence[int], number: int) -> int:
    return watermarks[number] if number < len(watermarks) else NO_WATERMARK


def _sent(
    operator: Operator, plan: Plan, rows: pa.RecordBatch
) -> tuple[pa.RecordBatch, NDArray[np.int32]]:
    """Return the rows, with the instance of each: those of a join go wherever partners may be."""
    hashes, turns = rows.column(HASH).to_numpy(), np.arange(rows.num_rows)
    if not operator.looks_everywhere:
        return rows, plan.route(hashes, turns)
    places, chosen, is_kept = plan.route_to_all(hashes, turns)
    sent = rows.take(pa.array(places))
    column = sent.schema.get_field_index(STORED)
    is_kept &= sent.column(STORED).to_numpy(zero_copy_only=False)
    return sent.set_column(column, sent.schema.field(STORED), pa.array(is_kept)), chosen


def _rows(
    batch: pa.RecordBatch,
    operator: Operator,
    keys: Sequence[str],
    values: Sequence[str],
    time: str | None,
) -> pa.RecordBatch:
    """Return the columns as an engine would bring them."""
    hashed = [name for name in keys if name != time] or list(keys)
    hashes = hash_keys(*(batch.column(name) for name in hashed))
    times = batch.column(time) if time else pa.array(np.full(batch.num_rows, NEVER))
    fields = [pa.field(HASH, pa.uint64()), pa.field(TIME, pa.int64())]
    columns = [batch.column(name) for name in (*keys, *values)]
    schema = pa.schema([*fields, *operator.keys, *operator.values])
    return pa.RecordBatch.from_arrays([pa.array(hashes), times, *columns], schema=schema)


def _in_order(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    order = sorted(range(table.num_rows), key=lambda row: str(table.slice(row, 1).to_pylist()))
    rows = table.take(pa.array(order, pa.int64())).to_pylist()
    return pa.RecordBatch.from_pylist(rows, schema)
