"""Sinks: where the committed output of a batch goes, as often as it has to."""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from unskew.errors import BadParameter
from unskew.state.files import local_folder, sync_folder

_QUERY = "_query"
"""File in the folder of a version that says whose it is; Spark does not read it."""


class Output:
    """What came out of one version: Parquet files that nobody will change.

    Parameters
    ----------
    spark : SparkSession
        Of the query.
    files : sequence of Path
        In order; none if nothing came out.
    schema : StructType
        Of the rows.
    query : str or None
        Id of the query that they are of.
    before : int, default -1
        The version before this one, which the sink was given whole; -1 if there was none.
    """

    def __init__(
        self,
        spark: SparkSession,
        files: Sequence[Path],
        schema: StructType,
        query: str | None = None,
        before: int = -1,
    ) -> None:
        self.spark = spark
        self.files = list(files)
        self.schema = schema
        self.query = query
        self.before = before

    def rows(self) -> DataFrame:
        """Return the rows; reading them twice gives them twice."""
        if not self.files:
            return self.spark.createDataFrame([], self.schema)
        return self.spark.read.schema(self.schema).parquet(*map(str, self.files))


class Sink(ABC):
    """Takes each version at least once, and must make it count once: by its number.

    Numbers grow, not always by one: there is a version for each batch of Spark, four times its
    number, and perhaps more after it, for what expired at the end of a run.
    """

    own_columns: ClassVar[frozenset[str]] = frozenset()
    """Names that it needs itself, in lower case: no column can be called so."""

    @property
    def place(self) -> object:
        """Where versions are: two sinks with the same one would take each other's for their own."""
        return self

    def check_query(self, checkpoint: str | os.PathLike[str]) -> None:
        """Refuse, before a query starts, what another one has written to, if that can be seen.

        Parameters
        ----------
        checkpoint : path
            As of ``Pipeline.start``.
        """
        return

    @abstractmethod
    def write(self, output: Output, version: int) -> None:
        """Take a version; called again with the same rows if it is not sure that it was done."""


class ParquetSink(Sink):
    """A folder with a subfolder for each version that had output, ``version=28``.

    A version appears whole, by one rename, and one that is there already is left alone. The files
    are those that the tasks wrote: nothing is encoded twice.
    """

    own_columns: ClassVar[frozenset[str]] = frozenset({"version"})

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = local_folder(folder)

    @property
    def place(self) -> object:
        """The folder itself, whatever it was called."""
        return self.folder.resolve()

    def write(self, output: Output, version: int) -> None:
        """Put the files of a version in place."""
        target = self.folder / f"version={version}"
        if target.exists():
            self._check(target, output)
        if not output.files or target.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        hidden = self.folder / f".version={version}.{uuid4().hex}"
        hidden.mkdir()
        try:
            for number, file in enumerate(output.files):
                _copy(file, hidden / f"part-{number:05}.parquet")
            (hidden / _QUERY).write_text(output.query or "")
            sync_folder(hidden)
            try:
                hidden.rename(target)
            except OSError:
                # An earlier attempt that was still running got there first, with the same rows.
                if not target.exists():
                    raise
        finally:
            shutil.rmtree(hidden, ignore_errors=True)
        sync_folder(self.folder)

    def _check(self, target: Path, output: Output) -> None:
        """Refuse a folder that another query has written its versions to."""
        mark = target / _QUERY
        theirs = mark.read_text() if mark.exists() else ""
        if output.query is not None and theirs != output.query:
            raise BadParameter(
                f"{target} was written by {f'query {theirs}' if theirs else 'something else'}, and "
                f"this is query {output.query}; name an empty folder for the output of a new "
                f"checkpoint"
            )


class MemorySink(Sink):
    """Rows in this process, for tests and notebooks."""

    def __init__(self) -> None:
        self._versions: dict[int, list[Any]] = {}

    def write(self, output: Output, version: int) -> None:
        """Keep the rows of a version."""
        self._versions[version] = output.rows().collect()

    @property
    def versions(self) -> dict[int, list[Any]]:
        """Return the rows of each version, by its number."""
        return dict(self._versions)

    def rows(self) -> list[Any]:
        """Return the rows of all versions, in order."""
        return [row for version in sorted(self._versions) for row in self._versions[version]]


class ConsoleSink(Sink):
    """Print the first rows of every version."""

    def __init__(self, rows: int = 20) -> None:
        self._rows = rows

    def write(self, output: Output, version: int) -> None:
        """Print."""
        print(f"version {version}")
        output.rows().show(self._rows, truncate=False)


class FunctionSink(Sink):
    """A function of the user's own, called with a DataFrame and the number of the version."""

    def __init__(self, function: Callable[[DataFrame, int], None]) -> None:
        self.function = function

    @property
    def place(self) -> object:
        """The function, which knows no more than the number of a version."""
        return self.function

    def write(self, output: Output, version: int) -> None:
        """Call it."""
        self.function(output.rows(), version)


SinkLike = str | os.PathLike[str] | Sink | Callable[[DataFrame, int], None]
"""What a user may name as a sink."""


def sink_of(given: object) -> Sink:
    """Return the sink that a user named: a sink, a function, "console", or a folder's path."""
    if isinstance(given, Sink):
        return given
    if callable(given):
        return FunctionSink(given)
    if given == "console":
        return ConsoleSink()
    if given == "memory":
        raise BadParameter("rows are kept in memory by MemorySink(): make one, and ask it for rows")
    if isinstance(given, str | os.PathLike):
        return ParquetSink(given)
    raise BadParameter(
        f'a sink is a folder for Parquet files, "console", MemorySink() or a function of a '
        f"DataFrame and the number of the version, not {given!r}"
    )


def check_columns(sink: Sink, schema: StructType) -> None:
    """Refuse columns that a sink would hide.

    Raises
    ------
    BadParameter
        If one is called as what it adds itself, such as the version in the names of folders.
    """
    for name in schema.names:
        if name.lower() in sink.own_columns:
            raise BadParameter(
                f"{type(sink).__name__} has a {name.lower()} of its own, which would be read in "
                f"place of your column {name!r}; call that one otherwise"
            )


def check_apart(sinks: Iterable[Sink]) -> None:
    """Refuse one sink for two stages: what it has of a version it takes for all of it.

    Raises
    ------
    BadParameter
        If two have the same place.
    """
    known: list[object] = []
    for sink in sinks:
        if sink.place in known:
            raise BadParameter(
                f"two stages cannot share the sink {sink.place!s}: a version is there once; give "
                f"each its own"
            )
        known.append(sink.place)


def _copy(source: Path, target: Path) -> None:
    """Link where that can be done: output is never changed, so the two may share their bytes."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        with target.open("rb") as file:
            os.fsync(file.fileno())
