"""Keys out of a file: text, CSV or Parquet, of any size."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.errors import (
    BadInput,
    BadParameter,
    MissingInput,
    UnhashableKey,
    UnknownColumn,
    UnskewError,
)
from unskew.keys import hash_keys
from unskew.parameters import one_of, whole_number
from unskew.workloads.base import BATCH, MOST, Workload
from unskew.workloads.readers import CsvReader, ParquetReader, Reader, TextReader

Nulls = Literal["error", "drop", "keep"]

_READERS: dict[str, type[Reader]] = {
    ".txt": TextReader,
    ".log": TextReader,
    ".csv": CsvReader,
    ".tsv": CsvReader,
    ".parquet": ParquetReader,
}


def open_keys(
    path: str | os.PathLike[str],
    key: str | Sequence[str] | None = None,
    *,
    nulls: Nulls = "error",
) -> KeyFile:
    r"""Open a file as a workload.

    The suffix tells the format: .txt and .log have a key per line, .csv and .tsv a header and
    columns of text, .parquet columns of any type; text and CSV may be compressed (.gz). The file is
    read a block at a time whenever the workload is, so that it may be larger than memory.

    Parameters
    ----------
    path : path
        The file.
    key : str or list of str, optional
        The key column, or several as a list or with commas between them. May be left out where
        there is only one column.
    nulls : {"error", "drop", "keep"}, default "error"
        What to do with a row that has no value in a key column: refuse the file, leave the row out,
        or hash it as Spark does, with null as one more key.

    Returns
    -------
    KeyFile
        A workload that hashes the keys as Spark's ``xxhash64``.

    Raises
    ------
    MissingInput
        There is no such file.
    UnknownColumn
        The file has no such column.
    UnhashableKey
        The column has a type that Spark cannot hash either.
    BadInput
        It is not a regular file or cannot be read as one of these formats; or, when the workload is
        read, it is damaged, empty or has null keys.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "rides.csv"
    >>> _ = path.write_text("city,driver\nOslo,7\nBergen,8\nOslo,9\n")
    >>> [batch.size for batch in open_keys(path, "city").batches(size=2)]
    [2, 1]
    >>> folder.cleanup()
    """
    one_of("nulls", nulls, get_args(Nulls))
    file = Path(path)
    with _readable(file):
        if file.is_dir():
            raise BadInput(f"{file} is a directory; name a single file")
        if not file.exists():
            raise MissingInput(f"there is no file {file}; check the path")
        if not file.is_file():
            raise BadInput(
                f"{file} is a pipe or a device, and keys may be read more than once; write them to "
                f"a regular file first"
            )
        if file.stat().st_size == 0:
            raise BadInput(f"{file} is empty; give a file with at least one key")
        reader = _reader(file)
        schema = reader.schema()
        rows = reader.rows()
    columns = _columns(file, schema, key)
    for column in columns:
        try:
            hash_keys(pa.array([], type=schema.field(column).type))
        except UnhashableKey as error:
            raise UnhashableKey(f"column {column!r} of {file}: {error}") from error
    return KeyFile(reader, columns, nulls=nulls, rows=None if nulls == "drop" else rows)


class KeyFile(Workload):
    """The keys of a file; `open_keys` makes it.

    Parameters
    ----------
    reader : Reader
        Reads the file.
    columns : list of str
        The key columns.
    nulls : {"error", "drop", "keep"}
        What to do with rows that have no key.
    rows : int or None
        Length of the stream, where it is known.

    Attributes
    ----------
    left_out : int
        Rows without a key that the last pass to the end left out.
    """

    def __init__(
        self, reader: Reader, columns: list[str], *, nulls: Nulls, rows: int | None
    ) -> None:
        self._reader = reader
        self.columns = columns
        self.nulls = nulls
        self.messages = rows
        self.left_out = 0
        self.name = reader.path.name
        self.description = f"{', '.join(columns)} of {reader.path}"

    def batches(self, size: int = BATCH) -> Iterator[NDArray[np.uint64]]:
        """Yield the key hashes in order, `size` at a time; the last batch may be shorter."""
        step = whole_number("size", size, least=1, most=MOST)
        return _cut(self._hashes(), step)

    def _hashes(self) -> Iterator[NDArray[np.uint64]]:
        """Yield the hashes in the pieces in which the file is read."""
        path = self._reader.path
        rows = keys = 0
        for batch in self._read():
            usable = self._usable(batch, rows)
            rows += batch.num_rows
            if usable.num_rows:
                keys += usable.num_rows
                try:
                    hashes = hash_keys(*usable.columns)
                except BadParameter as error:
                    raise BadInput(f"{path} has a key that cannot be hashed: {error}") from error
                yield hashes
        if not rows:
            raise BadInput(f"{path} has no rows; give a file with at least one key")
        if not keys:
            raise BadInput(
                f'{path} has no key in any row of {rows}, and nulls="drop" leaves them all out; '
                f'choose another key column, or count null as a key with nulls="keep"'
            )
        self.left_out = rows - keys

    def _read(self) -> Iterator[pa.RecordBatch]:
        with _readable(self._reader.path):
            for batch in self._reader.read(self.columns):
                # Formats return columns in the order of the file; the hash needs the caller's.
                yield batch.select(self.columns)

    def _usable(self, batch: pa.RecordBatch, before: int) -> pa.RecordBatch:
        """Return the rows that count, `before` of the file's having been read already."""
        if self.nulls == "keep":
            return batch
        for name, column in zip(self.columns, batch.columns, strict=True):
            if not column.null_count:
                continue
            if self.nulls == "drop":
                batch = batch.filter(batch.column(name).is_valid())
                continue
            first = before + pc.index(column.is_null(), True).as_py() + 1
            last = before + batch.num_rows
            raise BadInput(
                f"column {name!r} of {self._reader.path} has no key in row {first}, and in "
                f"{column.null_count} of the rows {before + 1} to {last}; leave such rows out with "
                f'nulls="drop" or count null as a key with nulls="keep"'
            )
        return batch


def _reader(path: Path) -> Reader:
    """Return the reader for the suffix."""
    suffix = path.suffix.lower()
    zipped = suffix == ".gz"
    if zipped:
        suffix = path.with_suffix("").suffix.lower()
    reader = _READERS.get(suffix)
    if reader is None or (zipped and reader is ParquetReader):
        raise BadInput(
            f"cannot tell the format of {path} from its name; name it {', '.join(_READERS)}, or "
            f".gz after one of these for text and CSV"
        )
    return reader(path)


def _columns(path: Path, schema: pa.Schema, key: str | Sequence[str] | None) -> list[str]:
    """Return the key columns that are meant, each of which exists once."""
    names: list[str] = schema.names
    there = ", ".join(names)
    if key is None:
        if len(names) != 1:
            raise BadParameter(f"{path} has {len(names)} columns; choose the key among {there}")
        return names
    if isinstance(key, str):
        # A name with a comma in it is still a name.
        wanted = [key] if key in names else [part.strip() for part in key.split(",")]
    else:
        wanted = list(key)
    if not wanted:
        raise BadParameter(f"key names no column; choose among {there}")
    for column in wanted:
        if column not in names:
            raise UnknownColumn(f"{path} has no column {column!r}; choose among {there}")
        if names.count(column) > 1:
            raise BadInput(f"{path} has more than one column {column!r}; rename one of them")
        if wanted.count(column) > 1:
            raise BadParameter(f"key names column {column!r} twice; name it once")
    return wanted


def _cut(pieces: Iterable[NDArray[np.uint64]], size: int) -> Iterator[NDArray[np.uint64]]:
    """Yield the same stream in pieces of one size, the last one shorter."""
    pending: list[NDArray[np.uint64]] = []
    waiting = 0
    for piece in pieces:
        start = 0
        while waiting + piece.size - start >= size:
            stop = start + size - waiting
            yield np.concatenate([*pending, piece[start:stop]])
            pending, waiting, start = [], 0, stop
        if start < piece.size:
            pending.append(piece[start:])
            waiting += piece.size - start
    if pending:
        yield np.concatenate(pending)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn whatever pyarrow or the system says about a file into one of our errors."""
    try:
        yield
    except UnskewError:
        raise
    except FileNotFoundError as error:
        raise MissingInput(f"{path} is gone; it was there when it was opened") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise BadInput(
            f"cannot read {path}; it is damaged, cut short, or not what its name says: {reason}"
        ) from error
