"""Join of two streams on a key, within bounds of event time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.errors import BadParameter
from unskew.operators.base import (
    ENTRY_HEAD,
    PART_HEAD,
    ROW_HEAD,
    ROWS,
    STORED,
    TIME,
    Changes,
    Operator,
    Pairs,
)
from unskew.operators.matching import match
from unskew.operators.meeting import Meeting, in_order
from unskew.parameters import one_of, whole_number
from unskew.state.runs import FLUSH, HASH, NO_WATERMARK, RUN_HEAD, empty, hashes_of

SIDE, ROW = "unskew_side", "unskew_row"
LEFT_ROW, RIGHT_ROW = "unskew_left", "unskew_right"
"""Values, beside `STORED`: which stream a row is of; a hash of all that it holds; and that itself,
as a struct of the stream's columns, null in the other one."""

_VALUES = (SIDE, STORED, ROW, LEFT_ROW, RIGHT_ROW)

MATCHED, IS_MARK = "unskew_matched", "unskew_is_mark"
"""More of state: whether a row has a partner; whether it is but a mark that another row has one."""

LEFT, RIGHT = 0, 1
WITHOUT_TIME = 2
"""Sides; more by 2 are those of rows without a time, which are close to nothing."""

HOWS = ("inner", "left", "right", "full")

_LONGEST = 2**62
"""Microseconds of a bound, up or down: half of what 64 bits can say, 146,000 years."""

_COMMON = (TIME, SIDE, ROW, MATCHED, IS_MARK, LEFT_ROW, RIGHT_ROW)
"""What entries and state both have after their keys, in this order."""


class IntervalJoin(Operator):
    """Find the pairs of two streams that have a key in common and are close in time.

    A row is kept until no row that is not late could be its partner. With an outer join a row that
    has found none comes out then, alone. A key may be split: each of its rows is kept by one of the
    instances and looks for partners at all of them, so that each pair meets once.

    State only grows: that a row which is kept has found a partner is said by a mark, which expires
    with it. Rows are told apart by a hash of all they hold; those that hold the same have the same
    partners.

    Parameters
    ----------
    before, after : int
        Microseconds: a row of the right stream is at most so much earlier, or later, than its
        partner of the left one.
    how : {"inner", "left", "right", "full"}, default "inner"
        Of which streams rows without a partner come out.
    """

    can_split: ClassVar[bool] = True
    appends: ClassVar[bool] = True
    looks_everywhere: ClassVar[bool] = True

    def __init__(self, before: int, after: int, how: str = "inner") -> None:
        for name, bound in (("before", before), ("after", after)):
            whole_number(name, bound, least=-_LONGEST, most=_LONGEST)
        if before + after < 0:
            raise BadParameter(
                f"no time is at most {before} us before and at most {after} us after another"
            )
        self.before, self.after, self.how = before, after, one_of("how", how, HOWS)
        self.is_outer = (how in ("left", "full"), how in ("right", "full"))
        self.tells_expired = any(self.is_outer)
        self.delay = max(before, after, 0)

    def __repr__(self) -> str:
        """Return the bounds and the kind."""
        return f"interval_join(before={self.before}, after={self.after}, how={self.how!r})"

    def bind(self, keys: Sequence[pa.Field], values: Sequence[pa.Field]) -> IntervalJoin:
        """Return the operator of rows with these columns."""
        known = {field.name: field for field in values}
        if not known.keys() >= set(_VALUES):
            raise BadParameter(
                f"a join takes the values {', '.join(_VALUES)}, not {', '.join(known)}"
            )
        bound = type(self)(self.before, self.after, self.how)
        bound.keys, bound.values = tuple(keys), tuple(values)
        side, _, row, left, right = (known[name] for name in _VALUES)
        bound.state = (
            pa.field(TIME, pa.int64()),
            *(side, row, pa.field(MATCHED, pa.bool_()), pa.field(IS_MARK, pa.bool_())),
            *(left, right),
        )
        bound.output = (*keys, *left.type, *right.type)
        return bound

    @property
    def entry_schema(self) -> pa.Schema:
        """Schema of entries: rows, and state that is taken over."""
        head = [pa.field(HASH, pa.uint64()), pa.field(TIME, pa.int64()), pa.field(ROWS, pa.int64())]
        known = {field.name: field for field in self.values}
        flags = [pa.field(MATCHED, pa.bool_()), pa.field(IS_MARK, pa.bool_())]
        return pa.schema([*head, *self.keys, *(known[name] for name in _VALUES), *flags])

    def fold(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows, of which none has a partner yet; a row counts where it is kept."""
        no = pa.array(np.zeros(rows.num_rows, dtype=np.bool_))
        kept = rows.column(STORED).cast(pa.int64())
        first_value = ROW_HEAD + len(self.keys)
        columns = [
            *(*rows.columns[:ROW_HEAD], kept, *rows.columns[ROW_HEAD:first_value]),
            *(rows.column(name) for name in _VALUES),
            *(no, no),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.entry_schema)

    def is_probe(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Return which rows or entries are kept elsewhere and only look for partners."""
        stored: NDArray[np.bool_] = rows.column(STORED).to_numpy(zero_copy_only=False)
        return ~stored

    def process(self, state: pa.RecordBatch, entries: pa.RecordBatch) -> Changes:
        """Find the partners of new rows; keep those that are kept here."""
        rows = _Rows.of(self, state, entries)
        left, right = rows.side == LEFT, rows.side == RIGHT
        # A pair of which both are new meets where the left one is kept.
        old = rows.is_kept & ~rows.is_new
        first = self._meet(rows, left & rows.is_new, right & old)
        second = self._meet(rows, left & rows.is_kept, right & rows.is_new)
        both = (first, second)
        found = np.zeros(rows.side.size, dtype=np.bool_)
        for meeting in both:
            meeting.mark(found)
        met = [rows.hashes[meeting.left] for meeting in both]
        counts = [meeting.last - meeting.first for meeting in both]
        pairs = Pairs(np.concatenate(met), np.concatenate(counts))
        return Changes(self._added(rows, found), self._pairs(rows, both), pairs)

    def is_told(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Return which rows are marks, or may come out alone."""
        kept = dict(zip(self.run_schema.names[RUN_HEAD:], rows.columns[RUN_HEAD:], strict=True))
        is_mark = kept[IS_MARK].to_numpy(zero_copy_only=False)
        matched = kept[MATCHED].to_numpy(zero_copy_only=False)
        told: NDArray[np.bool_] = is_mark | (self._is_outer(kept[SIDE].to_numpy()) & ~matched)
        return told

    def expire(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of outer streams that have found no partner."""
        return self._unmatched(rows, RUN_HEAD)

    def merge(self, parts: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of outer streams that have found no partner at any instance."""
        return self._unmatched(parts, PART_HEAD)

    def entries_of(self, runs: pa.RecordBatch) -> pa.RecordBatch:
        """Return what another instance kept as entries, which are no new rows."""
        kept = dict(zip(self.run_schema.names[RUN_HEAD:], self.kept_columns(runs), strict=True))
        size = runs.num_rows
        columns = [
            *(runs.column(HASH), kept[TIME], pa.array(np.zeros(size, dtype=np.int64))),
            *(kept[field.name] for field in self.keys),
            *(kept[SIDE], pa.array(np.ones(size, dtype=np.bool_)), kept[ROW]),
            *(kept[LEFT_ROW], kept[RIGHT_ROW], kept[MATCHED], kept[IS_MARK]),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.entry_schema)

    def _is_outer(self, side: NDArray[np.int8]) -> NDArray[np.bool_]:
        """Return whether rows of these sides come out without a partner."""
        outer: NDArray[np.bool_] = np.array(self.is_outer * 2)[side]
        return outer

    def _meet(self, rows: _Rows, left: NDArray[np.bool_], right: NDArray[np.bool_]) -> Meeting:
        """Return which of some rows of the right stream each of some of the left one meets."""
        ours, theirs = (rows.order[chosen[rows.order]] for chosen in (left, right))
        return Meeting.of(rows.key, rows.time, ours, theirs, self.before, self.after)

    def _pairs(self, rows: _Rows, meetings: Sequence[Meeting]) -> Iterator[pa.RecordBatch]:
        for meeting in meetings:
            for left, right in meeting.pairs():
                yield self._output(rows, left, right)

    def _output(
        self, rows: _Rows, left: NDArray[np.int64], right: NDArray[np.int64]
    ) -> pa.RecordBatch:
        ours, theirs = pa.array(left), pa.array(right)
        columns = [
            *(key.take(ours) for key in rows.keys),
            *rows.left.take(ours).flatten(),
            *rows.right.take(theirs).flatten(),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(list(self.output)))

    def _added(self, rows: _Rows, found: NDArray[np.bool_]) -> pa.RecordBatch:
        """Return new state: rows that are kept here, and marks of others that found a partner."""
        kept = np.arange(rows.side.size) < rows.entries
        kept &= rows.is_stored
        marks = np.zeros(0, dtype=np.int64)
        if self.tells_expired:
            outer = self._is_outer(rows.side)
            fresh = found & outer & ~rows.is_mark & ~rows.matched & ~kept
            # A row of an earlier batch may have a mark already.
            marks = np.flatnonzero(fresh & ~np.isin(rows.row, rows.row[rows.is_mark]))
        chosen = np.concatenate((np.flatnonzero(kept), marks))
        is_mark = rows.is_mark[chosen]
        is_mark[chosen.size - marks.size :] = True
        taken = pa.array(chosen)
        bare = pa.array(np.arange(chosen.size) >= chosen.size - marks.size)
        reach = np.where(rows.side[chosen] % 2 == LEFT, self.after, self.before)
        columns = [
            pa.array(rows.hashes[chosen]),
            pa.array(np.zeros(chosen.size, dtype=np.bool_)),
            pa.array(_last_chance(rows.time[chosen], reach)),
            *(key.take(taken) for key in rows.keys),
            pa.array(rows.time[chosen]),
            pa.array(rows.side[chosen].astype(np.int8)),
            pa.array(rows.row[chosen]),
            pa.array((rows.matched | found)[chosen]),
            pa.array(is_mark),
            _without(rows.left.take(taken), bare),
            _without(rows.right.take(taken), bare),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.run_schema)

    def _unmatched(self, batch: pa.RecordBatch, head: int) -> pa.RecordBatch:
        names = self.run_schema.names[RUN_HEAD:]
        kept = dict(zip(names, batch.columns[head:], strict=True))
        side = kept[SIDE].to_numpy()
        row = kept[ROW].to_numpy()
        is_mark = kept[IS_MARK].to_numpy(zero_copy_only=False)
        matched = kept[MATCHED].to_numpy(zero_copy_only=False)
        alone = self._is_outer(side) & ~is_mark & ~matched
        alone &= ~np.isin(row, row[is_mark])
        if not alone.any():
            return empty(pa.schema(list(self.output)))
        chosen = pa.array(np.flatnonzero(alone))
        columns = [
            *(kept[field.name].take(chosen) for field in self.keys),
            *kept[LEFT_ROW].take(chosen).flatten(),
            *kept[RIGHT_ROW].take(chosen).flatten(),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(list(self.output)))


@dataclass(frozen=True)
class _Rows:
    """Entries, and after them the state of their keys, column by column.

    Attributes
    ----------
    entries : int
        How many of the rows are entries.
    key : array of int64
        Number of the key.
    is_stored : array of bool
        Whether it is, or will be, kept here.
    """

    entries: int
    hashes: NDArray[np.uint64]
    key: NDArray[np.int64]
    time: NDArray[np.int64]
    side: NDArray[np.int8]
    row: NDArray[np.int64]
    is_new: NDArray[np.bool_]
    is_stored: NDArray[np.bool_]
    is_mark: NDArray[np.bool_]
    matched: NDArray[np.bool_]
    keys: Sequence[pa.Array]
    left: pa.Array
    right: pa.Array

    @classmethod
    def of(cls, operator: Operator, state: pa.RecordBatch, entries: pa.RecordBatch) -> _Rows:
        width = len(operator.keys)
        old = dict(zip(operator.run_schema.names[RUN_HEAD:], state.columns[RUN_HEAD:], strict=True))
        # Keys by place: one may be called like a value.
        keys = [
            pa.concat_arrays([entries.column(ENTRY_HEAD + i), state.column(RUN_HEAD + i)])
            for i in range(width)
        ]
        own = entries.schema.names[ENTRY_HEAD + width :]
        new = dict(zip(own, entries.columns[ENTRY_HEAD + width :], strict=True))
        new[TIME] = entries.column(TIME)
        both = {name: pa.concat_arrays([new[name], old[name]]) for name in _COMMON}
        hashes = np.concatenate((hashes_of(entries), hashes_of(state)))
        numbers, _ = match(hashes, None, keys)
        tail = np.zeros(state.num_rows, dtype=np.bool_)
        stored = new[STORED].to_numpy(zero_copy_only=False)
        return cls(
            entries=entries.num_rows,
            hashes=hashes,
            key=numbers,
            time=both[TIME].to_numpy(),
            side=both[SIDE].to_numpy(),
            row=both[ROW].to_numpy(),
            # What was taken over is kept, and stands for no rows.
            is_new=np.concatenate((~stored | (entries.column(ROWS).to_numpy() > 0), tail)),
            is_stored=np.concatenate((stored, ~tail)),
            is_mark=both[IS_MARK].to_numpy(zero_copy_only=False),
            matched=both[MATCHED].to_numpy(zero_copy_only=False),
            keys=keys,
            left=both[LEFT_ROW],
            right=both[RIGHT_ROW],
        )

    @property
    def is_kept(self) -> NDArray[np.bool_]:
        """Whether each is a row, not a mark, that is kept here."""
        kept: NDArray[np.bool_] = self.is_stored & ~self.is_mark
        return kept

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Places of all rows that have a key, in the order of key and time."""
        places = in_order(self.key, self.time)
        for key in self.keys:
            if key.null_count:
                places = places[key.is_valid().to_numpy(zero_copy_only=False)[places]]
        return places


def _last_chance(time: NDArray[np.int64], reach: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return when rows expire: not before there is a watermark, and not after a flush.

    A row without a time is as old as 64 bits can say while there is no watermark yet, and bounds
    may be negative: their sum would be a time that never comes.
    """
    first, last = NO_WATERMARK + 1 - np.minimum(reach, 0), FLUSH - np.maximum(reach, 0)
    expires: NDArray[np.int64] = np.clip(time, first, last) + reach
    return expires


def _without(values: pa.Array, bare: pa.Array) -> pa.Array:
    """Return values with null where a row is but a mark."""
    return pc.if_else(bare, pa.scalar(None, values.type), values)
