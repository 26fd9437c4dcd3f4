"""Runs: rows of one shard, sorted by hash, of which newer ones replace older ones or add to them.

The state of a shard is a few runs. Where they replace, a run holds, for every hash that was
touched, all that is left of it: rows of an older run with a hash that a newer run has do not count.
Where they append, rows of all runs count. In both, a row with `GONE` set says of its hash that what
older runs have does not count. So keys whose hashes happen to be equal are never mixed up: they are
only read and written together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

HASH, GONE, EXPIRES = "unskew_hash", "unskew_gone", "unskew_expires"
"""Columns of every run: the hash; whether nothing is left; when the row expires, if ever."""

RUN_HEAD = 3
"""How many those are: keys and state come after them."""

NEVER = np.iinfo(np.int64).max
"""Expiry of what does not expire."""

FLUSH = NEVER - 1
"""The watermark of a flush, which all that can expire is below."""

NO_WATERMARK = np.iinfo(np.int64).min
"""The watermark before there is one."""

Hashes = NDArray[np.uint64]


def run_schema(fields: Sequence[pa.Field]) -> pa.Schema:
    """Return the columns of runs whose rows hold these fields; all can be null, for `GONE`."""
    own = [(HASH, pa.uint64()), (GONE, pa.bool_()), (EXPIRES, pa.int64())]
    return pa.schema([*own, *(field.with_nullable(True).remove_metadata() for field in fields)])


def empty(schema: pa.Schema) -> pa.RecordBatch:
    """Return no rows."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def hashes_of(run: pa.RecordBatch) -> Hashes:
    """Return the hash of each row, without a copy."""
    found: Hashes = run.column(HASH).to_numpy(zero_copy_only=True)
    return found


def removals(hashes: Hashes, schema: pa.Schema) -> pa.RecordBatch:
    """Return a run that says of these hashes that nothing is left."""
    size = hashes.size
    own = [pa.array(hashes), pa.array(np.ones(size, np.bool_)), pa.array(np.full(size, NEVER))]
    rest = [pa.nulls(size, field.type) for field in list(schema)[RUN_HEAD:]]
    return pa.RecordBatch.from_arrays([*own, *rest], schema=schema)


def find(
    runs: Sequence[pa.RecordBatch], hashes: Hashes, *, appends: bool = False
) -> list[pa.RecordBatch]:
    """Return the rows that count of some hashes, which are sorted and distinct.

    Costs a binary search for each hash and run; rows that are not asked for are not read.

    Parameters
    ----------
    runs : sequence of pyarrow.RecordBatch
        Of one shard, the newest first.
    hashes : array of uint64
        What to look for.
    appends : bool, default False
        Whether rows of newer runs add to those of older ones.
    """
    parts = []
    for run in runs:
        if not hashes.size:
            break
        there = hashes_of(run)
        first = np.searchsorted(there, hashes)
        inside = np.minimum(first, max(there.size - 1, 0))
        hit = (first < there.size) & (there[inside] == hashes) if there.size else first < 0
        if hit.any():
            last = np.searchsorted(there, hashes[hit], side="right")
            rows = run.take(pa.array(_ranges(first[hit], last)))
            parts.append(living(rows))
            hashes = hashes[~np.isin(hashes, gone_in(rows))] if appends else hashes[~hit]
    return parts


def gone_in(run: pa.RecordBatch) -> Hashes:
    """Return the hashes of which a run says that older rows do not count."""
    gone = run.column(GONE).to_numpy(zero_copy_only=False)
    found: Hashes = hashes_of(run)[gone] if gone.any() else np.empty(0, dtype=np.uint64)
    return found


def merge_appended(runs: Sequence[pa.RecordBatch], *, oldest: bool, after: int) -> pa.RecordBatch:
    """Return one run in place of several that add to each other.

    Parameters
    ----------
    runs : sequence of pyarrow.RecordBatch
        Neighbours, the newest first.
    oldest : bool
        Whether no older run is left: then rows with `GONE` are not needed any more.
    after : int
        Rows that expire up to this time are left out.
    """
    kept = []
    gone = np.empty(0, dtype=np.uint64)
    for run in runs:
        counts = run.column(EXPIRES).to_numpy() > after
        if gone.size:
            counts &= ~np.isin(hashes_of(run), gone)
        kept.append(run if counts.all() else run.filter(pa.array(counts)))
        gone = np.union1d(gone, gone_in(run))
    joined = pa.concat_batches(kept)
    merged = joined.take(pa.array(np.argsort(hashes_of(joined), kind="stable")))
    return living(merged) if oldest else merged


def merge(runs: Sequence[pa.RecordBatch], *, oldest: bool) -> pa.RecordBatch:
    """Return one run in place of several that replace each other.

    Parameters
    ----------
    runs : sequence of pyarrow.RecordBatch
        Neighbours, the newest first.
    oldest : bool
        Whether no older run is left: then rows with `GONE` are not needed any more.
    """
    if len(runs) > 1:
        hashes = np.concatenate([hashes_of(run) for run in runs])
        ages = np.repeat(np.arange(len(runs)), [run.num_rows for run in runs])
        # Stable: of equal hashes the newest run's rows come first.
        order = np.argsort(hashes, kind="stable")
        groups = np.cumsum(np.diff(hashes[order], prepend=hashes[order[:1]]) != 0)
        ages = ages[order]
        first = np.flatnonzero(np.diff(groups, prepend=-1))
        kept = order[ages == ages[first][groups]]
        merged = pa.concat_batches(runs).take(pa.array(kept))
    else:
        merged = runs[0]
    return living(merged) if oldest else merged


def counting(runs: Sequence[pa.RecordBatch], *, appends: bool, late: int) -> pa.RecordBatch:
    """Return every row of a shard that counts.

    Parameters
    ----------
    runs : sequence of pyarrow.RecordBatch
        All of the shard, the newest first.
    appends : bool
        Whether rows of newer runs add to those of older ones.
    late : int
        Of those, rows that expire up to this time have expired.
    """
    if appends:
        return merge_appended(runs, oldest=True, after=late)
    return merge(runs, oldest=True)


def living(run: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows without `GONE`."""
    gone = run.column(GONE)
    return run.filter(pc.invert(gone)) if pc.any(gone).as_py() else run


def slices(shards: NDArray[np.int64]) -> Iterator[tuple[int, slice]]:
    """Return each shard of a sorted array, and where it is.

    Examples
    --------
    >>> list(slices(np.array([2, 2, 5])))
    [(2, slice(0, 2, None)), (5, slice(2, 3, None))]
    """
    starts = np.flatnonzero(np.diff(shards, prepend=-1))
    for start, end in pairwise([*starts.tolist(), shards.size]):
        yield int(shards[start]), slice(start, end)


def next_expiry(run: pa.RecordBatch) -> int:
    """Return when the first of the rows expires."""
    return int(run.column(EXPIRES).to_numpy().min(initial=NEVER))


def last_expiry(run: pa.RecordBatch) -> int:
    """Return when the last of the rows expires."""
    return int(run.column(EXPIRES).to_numpy().max(initial=NO_WATERMARK))


def _ranges(first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return all places from first to last, of each pair in turn."""
    lengths = last - first
    if (lengths == 1).all():
        return first
    starts = np.cumsum(lengths) - lengths
    places: NDArray[np.int64] = np.arange(int(lengths.sum())) - np.repeat(starts - first, lengths)
    return places
