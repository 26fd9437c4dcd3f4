"""The contract of every operator: rows and the state of their keys in, changes and output out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.errors import BadParameter
from unskew.state.runs import EXPIRES, HASH, RUN_HEAD, Hashes, empty, run_schema

TIME, ROWS = "unskew_time", "unskew_rows"
"""Event time of a row in microseconds; how many rows an entry stands for."""

STORED = "unskew_stored"
"""Whether a row is kept here, or only looks for partners; see `Operator.looks_everywhere`."""

ROW_HEAD, ENTRY_HEAD, PART_HEAD = 2, 3, 4
"""How many columns rows, entries and parts have before the key."""

TOUCHED, FINAL = "unskew_touched", "unskew_final"
"""Whether a batch changed a part of a key's state; whether its time is over."""


class Pairs(NamedTuple):
    """How many pairs of rows a call looked at, by the hash of their key; one may come again."""

    hashes: Hashes
    counts: NDArray[np.int64]


class Changes(NamedTuple):
    """What a call did.

    Attributes
    ----------
    state : pyarrow.RecordBatch
        Rows in the schema of the operator's runs, in any order: for every hash that was touched all
        that is left of it, or, where it appends, what is new.
    output : iterable of pyarrow.RecordBatch
        Rows that come out, made when they are asked for.
    pairs : Pairs, optional
        What a join had to do beside taking its entries.
    """

    state: pa.RecordBatch
    output: Iterable[pa.RecordBatch]
    pairs: Pairs | None = None


class Operator(ABC):
    """What keeps state for each key; the same object runs on Spark and in tests.

    Rows of a key are brought to the shard that has its state. They come as Arrow columns in a fixed
    order: the hash of the key, its event time (`NEVER` where there is none), the keys, the values.
    `fold` makes entries of them, as small as can be; `process` is given the entries of some shards
    and the state of their keys. All methods are pure: the same input gives the same answer, in
    every attempt, and nothing is kept between calls.

    Attributes
    ----------
    keys, values, state, output : tuple of pyarrow.Field
        Columns; `state` comes after the keys in a run, `output` is all that comes out.
    can_split : bool
        Whether a key may have parts of its state on several instances: then parts are entries, too,
        see `entries_of`, and `merge` makes one output of them.
    windowed : bool
        Whether the time of a row is when the state that it belongs to expires.
    appends : bool
        Whether state only grows until it expires: then `process` returns what is new, and parts of
        a key that is split are told only when they expire.
    tells_expired : bool
        Whether anything ever comes out of what expires.
    delay : int
        Microseconds that the times of what comes out may be behind the watermark.
    passes : bool
        Whether every row comes out: then rows wait as they came, see `let_out`, and entries are
        made of what is `looked_at`.
    looks_everywhere : bool
        Whether rows of a hot key look for partners at every instance that has some of it: then
        they have the value `STORED`, and are kept by one of the instances.
    """

    can_split: ClassVar[bool] = False
    windowed: bool = False
    appends: ClassVar[bool] = False
    tells_expired: bool = True
    delay: int = 0
    passes: ClassVar[bool] = False
    looks_everywhere: ClassVar[bool] = False

    keys: tuple[pa.Field, ...]
    values: tuple[pa.Field, ...]
    state: tuple[pa.Field, ...]
    output: tuple[pa.Field, ...]

    @abstractmethod
    def bind(self, keys: Sequence[pa.Field], values: Sequence[pa.Field]) -> Operator:
        """Return the operator of rows with these columns, or raise what does not fit."""

    @property
    def kind(self) -> str:
        """What a checkpoint must agree with, beside the columns of the state."""
        return repr(self)

    @property
    def run_schema(self) -> pa.Schema:
        """Schema of the runs that hold its state."""
        return run_schema([*self.keys, *self.state])

    @property
    def entry_schema(self) -> pa.Schema:
        """Schema of what `fold` returns; by default that of the rows, with how many each is."""
        head = [pa.field(HASH, pa.uint64()), pa.field(TIME, pa.int64()), pa.field(ROWS, pa.int64())]
        return pa.schema([*head, *self.keys, *self.values])

    def fold(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return entries for rows; by default one for each.

        Parameters
        ----------
        rows : pyarrow.RecordBatch
            Hash and time, then the key columns, then the values.
        """
        ones = pa.array(np.ones(rows.num_rows, dtype=np.int64))
        columns = [*rows.columns[:ROW_HEAD], ones, *rows.columns[ROW_HEAD:]]
        return pa.RecordBatch.from_arrays(columns, schema=self.entry_schema)

    def combine(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Return entries of several calls of `fold` as one; by default one after the other."""
        return pa.concat_batches(parts) if parts else empty(self.entry_schema)

    def is_probe(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Return which rows or entries are kept, and counted, elsewhere and only look for partners.

        None by default.
        """
        return np.zeros(rows.num_rows, dtype=np.bool_)

    @abstractmethod
    def process(self, state: pa.RecordBatch, entries: pa.RecordBatch) -> Changes:
        """Return what entries do to the state of their keys.

        An operator that can be split returns first the states of the entries, one for each and in
        their order, and so does its output, if there is any.

        Parameters
        ----------
        state : pyarrow.RecordBatch
            The state of all keys whose hash is among the entries, in the schema of the runs.
        entries : pyarrow.RecordBatch
            Combined, in the order of their hashes.
        """

    def looked_at(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of rows that `fold` takes: by default all."""
        return rows

    def let_out(
        self, rows: Sequence[pa.RecordBatch], hashes: Hashes, results: pa.RecordBatch
    ) -> Iterator[pa.RecordBatch]:
        """Return rows with what came out of the entries of their keys; for those that pass.

        Parameters
        ----------
        rows : sequence of pyarrow.RecordBatch
            Hash, time, keys, values.
        hashes : array of uint64
            Of the entries of the whole batch.
        results : pyarrow.RecordBatch
            What `process` let out, a row for each entry.
        """
        raise BadParameter(f"{self!r} lets no rows through; only what it makes of them comes out")

    @abstractmethod
    def expire(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return what comes out of state whose time is over; the engine removes it."""

    def is_told(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Return which rows may matter for what comes out when they expire: by default all."""
        return np.ones(rows.num_rows, dtype=np.bool_)

    @property
    def part_schema(self) -> pa.Schema:
        """Schema of parts: state of keys that several instances share."""
        head = [(HASH, pa.uint64()), (EXPIRES, pa.int64()), (TOUCHED, pa.bool_())]
        kept = list(self.run_schema)[RUN_HEAD:]
        return pa.schema([*head, (FINAL, pa.bool_()), *kept])

    def kept_columns(self, run: pa.RecordBatch) -> list[pa.Array]:
        """Return the keys and the state of a run."""
        return list(run.columns[RUN_HEAD:])

    def entries_of(self, runs: pa.RecordBatch) -> pa.RecordBatch:
        """Return the state of a part as entries, of no rows, for another instance to take over."""
        raise BadParameter(f"{self!r} cannot be split; its keys have one instance each")

    def merge(self, parts: pa.RecordBatch) -> pa.RecordBatch:
        """Return what comes out of all parts of some keys."""
        raise BadParameter(f"{self!r} cannot be split; its keys have one instance each")
