"""Read key columns out of text, CSV and Parquet files, a block at a time.

A reader knows the columns of a file and yields some of them as Arrow record batches; what a key is
and what may be wrong with it is not its business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from unskew.errors import BadInput

BLOCK = 8 << 20
"""Bytes read at a time; also the longest row that a CSV file may have."""

ROWS = 1 << 16
"""Rows of a Parquet file that are decoded at a time."""


class Reader(ABC):
    """One file format.

    Parameters
    ----------
    path : Path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return the names and types of the columns."""

    @abstractmethod
    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns from the first row to the last."""

    def rows(self) -> int | None:
        """Return the number of rows where the file tells without being read."""
        return None


class TextReader(Reader):
    """A key per line, in a column called ``line``; an empty line is a null.

    Lines end with a line feed, or a carriage return and one.
    """

    def schema(self) -> pa.Schema:
        """Return the one column that there is."""
        return pa.schema([("line", pa.large_string())])

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the lines, as many at a time as a block holds."""
        done = 0
        for block in self._blocks():
            lines = _lines(block)
            try:
                lines.validate(full=True)
            except pa.ArrowInvalid as error:
                raise BadInput(
                    f"line {done + _first_bad_line(block)} of {self.path} is not UTF-8; convert "
                    f"the file, with iconv for one"
                ) from error
            done += len(lines)
            yield pa.record_batch([lines], names=list(columns))

    def _blocks(self) -> Iterator[bytes]:
        """Yield whole lines, the last with its line feed even if the file has none."""
        compression = "gzip" if self.path.suffix.lower() == ".gz" else None
        with pa.input_stream(str(self.path), compression=compression) as stream:
            pending: list[bytes] = []
            at_start = True
            while chunk := stream.read(BLOCK):
                if at_start:
                    # A byte order mark is no part of the first key.
                    chunk = chunk.removeprefix(b"\xef\xbb\xbf")
                    at_start = False
                cut = chunk.rfind(b"\n") + 1
                if cut:
                    yield b"".join([*pending, chunk[:cut]])
                    pending = []
                pending.append(chunk[cut:])
            rest = b"".join(pending)
            if rest:
                yield rest + b"\n"


class CsvReader(Reader):
    """Columns separated by commas, or by tabs in a .tsv, with a header line.

    Every value is text, as for Spark's reader unless it infers a schema: a type guessed from the
    first rows would give the same key another hash, or fail at a later row. A field with nothing in
    it is null, one with ``""`` is not.
    """

    def schema(self) -> pa.Schema:
        """Return the columns that the header names, each of strings."""
        with self._open(None) as stream:
            return pa.schema([(name, pa.string()) for name in stream.schema.names])

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the columns block by block."""
        with self._open(columns) as stream:
            yield from stream

    def _open(self, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        tabs = ".tsv" in (suffix.lower() for suffix in self.path.suffixes[-2:])
        return pa.csv.open_csv(
            str(self.path),
            read_options=pa.csv.ReadOptions(block_size=BLOCK),
            parse_options=pa.csv.ParseOptions(
                delimiter="\t" if tabs else ",", newlines_in_values=True
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types={name: pa.string() for name in columns or ()},
                include_columns=columns,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )


class ParquetReader(Reader):
    """Columns of a Parquet file, of any type."""

    def schema(self) -> pa.Schema:
        """Return the columns as Arrow has them."""
        with pa.parquet.ParquetFile(self.path) as file:
            return file.schema_arrow

    def rows(self) -> int | None:
        """Return the number of rows that the footer tells."""
        with pa.parquet.ParquetFile(self.path) as file:
            return int(file.metadata.num_rows)

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the columns a part of a row group at a time."""
        with pa.parquet.ParquetFile(self.path) as file:
            yield from file.iter_batches(batch_size=ROWS, columns=list(columns))


def _lines(block: bytes) -> pa.Array:
    """Return the lines of a block that ends with a line feed, without their ends."""
    data = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    lengths = np.diff(ends, prepend=-1) - 1
    returns = (lengths > 0) & (data[ends - 1] == ord("\r"))
    kept = np.ones(data.size, dtype=np.bool_)
    kept[ends] = False
    kept[ends[returns] - 1] = False
    lengths -= returns
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    lines = pa.LargeStringArray.from_buffers(
        lengths.size, pa.py_buffer(offsets), pa.py_buffer(data[kept])
    )
    return pc.if_else(pa.array(lengths > 0), lines, None)


def _first_bad_line(block: bytes) -> int:
    """Return the number, from 1, of the first line that is not UTF-8."""
    try:
        block.decode("utf-8")
    except UnicodeDecodeError as error:
        return block.count(b"\n", 0, error.start) + 1
    return 1
