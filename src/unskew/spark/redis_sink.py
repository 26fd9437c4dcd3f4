"""Redis as a sink: the newest values of every key, each version counted once."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from unskew.errors import BadParameter, LostVersions, MissingExtra, SinkDown
from unskew.parameters import number
from unskew.spark.redis_scripts import DONE, GAP, WRITE
from unskew.spark.redis_url import redis_address, tls_fault, tls_hint
from unskew.spark.sinks import Output, Sink
from unskew.spark.spark_checkpoint import SparkCheckpoint
from unskew.state import Checkpoint
from unskew.state.reading import folder_of

log = logging.getLogger("unskew.pipeline")

T = TypeVar("T")

_CHUNK = 1000
"""Rows of one script: all of them are written, or none."""

_PIPELINED = 50
"""Scripts that are sent before their answers are read."""

_LONGEST_WAIT = 5.0


class _Gap(Exception):
    """Redis has lost a part of the version that is being written."""


class RedisSink(Sink):
    """Hashes in Redis, ``NAME:COLUMN`` for each column of values, with a field for each key.

    A version is written by scripts that look first whether Redis has it: one that comes again, from
    this driver or one that was given up, changes nothing. Values are those of a key so far, as
    ``mode="update"`` gives them, so that half a version may be written again. Redis has to keep
    what it acknowledges (``appendonly yes``, against a crash of its machine also ``appendfsync
    always``): the pipeline sends nothing twice once it is done. One that has lost a version is
    refused with the next one; `refill` brings it up to date. One that loses a part of a version
    while it is written, as where a replica takes its place, is noticed before the version counts,
    and gets all of it again.

    While Redis is down the batch waits; after `patience` seconds the query fails, and the next
    start delivers the same version again. Rows go through the driver, about 200,000 a second.

    Parameters
    ----------
    url : str
        ``redis://host:port/db``, with TLS ``rediss://``, with ``user:password@`` before the host.
        The password is told nowhere. With TLS a certificate to trust can be named after it,
        ``?ssl_ca_certs=FILE``, those of the system count by default; and one to show,
        ``ssl_certfile=FILE&ssl_keyfile=FILE``.
    keys : str or sequence of str
        Key columns. The field of a key is its text, or that of a JSON array if there are several.
    name : str, default "unskew"
        What names in Redis begin with: one for each sink of a query. ``NAME:version`` says what is
        done.
    patience : float, default 60.0
        Seconds to go on trying while Redis is down.

    Examples
    --------
    >>> RedisSink("rediss://me:secret@localhost:6380/2", "word", name="words")
    RedisSink('rediss://localhost:6380/2', keys=['word'], name='words')
    """

    def __init__(
        self,
        url: str,
        keys: str | Sequence[str],
        *,
        name: str = "unskew",
        patience: float = 60.0,
    ) -> None:
        try:
            import redis
        except ImportError as error:
            raise MissingExtra(
                'RedisSink needs redis-py; install it with: pip install "unskew[redis]"'
            ) from error
        self.address = redis_address(url)
        self.keys = [keys] if isinstance(keys, str) else list(keys)
        if not self.keys:
            raise BadParameter("keys must name the key columns of the rows, and names none")
        self.name = name
        self.patience = number("patience", patience, least=0)
        self._redis = redis
        # What failed is begun anew, not sent again in the middle: up to `patience` it is tried.
        never = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
        self._client = redis.Redis.from_url(
            url, socket_timeout=10, socket_connect_timeout=5, health_check_interval=30, retry=never
        )
        self._write = self._client.register_script(WRITE)
        self._done = self._client.register_script(DONE)

    @property
    def place(self) -> object:
        """Where versions are counted."""
        return self.address, self.name

    def __repr__(self) -> str:
        """Return how it was made, without the password."""
        return f"RedisSink({self.address!r}, keys={self.keys!r}, name={self.name!r})"

    def write(self, output: Output, version: int) -> None:
        """Write the rows of a version, unless Redis has it.

        Raises
        ------
        LostVersions
            If Redis has not the version before, which was done.
        """
        self._check(output.schema.names)
        asked = [output.query or "", str(version), str(output.before)]
        if not self._patiently(lambda: self._deliver(self._of_files(output), asked)):
            log.info("%s has version %d already", self.address, version)

    def check_query(self, checkpoint: str | os.PathLike[str]) -> None:
        """Refuse names that another query has written to; ``Pipeline.start`` asks.

        A Redis that does not answer is not waited for: what is wrong is then told with the first
        version.

        Raises
        ------
        BadParameter
            If the names are taken, or the user, the password or TLS is refused.
        """
        query = SparkCheckpoint(Path(checkpoint) / "spark").query_id()
        try:
            told = self._patiently(
                lambda: self._client.hget(f"{self.name}:version", "query"), patience=0
            )
        except SinkDown:
            return
        owner = told.decode() if isinstance(told, bytes) else told
        if owner is not None and owner != (query or ""):
            raise self._is_of(owner)

    def refill(self, rows: DataFrame, checkpoint: str | os.PathLike[str]) -> bool:
        """Write the values of all keys to a Redis that has lost versions; return whether it had.

        The query must not be running. All rows go through the driver, which holds them.

        Parameters
        ----------
        rows : DataFrame
            Keys and their values, out of the state; of counts by ``word``, as parts of a key that
            is split are added up: ``read_state(spark, checkpoint).groupBy("word").agg(F.sum(
            "state_count").alias("count"))``. Read only if something is missing. With
            ``mode="append"`` the state of what came out has expired: values that Redis has lost
            with it do not come back, and a DataFrame of the same columns without rows makes the
            query go on.
        checkpoint : path
            As of ``Pipeline.start``, or its ``state``.
        """
        self._check(rows.columns)
        store = Checkpoint(folder_of(Path(checkpoint)))
        done = [each for each in store.versions() if store.is_done(each) and each >= 0]
        if not done or self._has() >= done[-1]:
            return False
        manifest = store.manifest(done[-1])
        query = "" if manifest is None else manifest.facts.get("query") or ""
        batches = rows.toArrow().to_batches(_CHUNK)
        asked = [query, str(done[-1]), "-1"]
        self._patiently(lambda: self._deliver(self._chunks(batches), asked))
        log.warning("%s had lost versions; all is there up to %d", self.address, done[-1])
        return True

    def read(self, column: str) -> dict[str, str]:
        """Return a column of values by the text of the key: all that is in Redis."""
        hashed = f"{self.name}:{column}"
        found = self._patiently(lambda: dict(self._client.hscan_iter(hashed, count=10_000)))
        return {key.decode(): value.decode() for key, value in found.items()}

    def _check(self, columns: Sequence[str]) -> None:
        missing = [key for key in self.keys if key not in columns]
        if missing:
            raise BadParameter(
                f"keys= has {missing[0]!r}, and what comes out has {', '.join(columns)}"
            )
        if "version" in columns and "version" not in self.keys:
            raise BadParameter(
                f"a column 'version' comes out, and {self.name}:version is where the sink notes "
                f"what is done; give the column another name"
            )

    def _has(self) -> int:
        """Return the last version that is done, by what Redis says."""
        told = self._patiently(lambda: self._client.hget(f"{self.name}:version", "done"))
        return -1 if told is None else int(told)

    def _deliver(self, chunks: Iterable[tuple[str, list[Any]]], asked: Sequence[str]) -> bool:
        """Write all of a version; return whether it was new.

        Parameters
        ----------
        chunks : iterable of (str, list)
            Hashes, each with fields and values in turn.
        asked : sequence of str
            Query, version, and the version before, which must be there.
        """
        sent = self._client.pipeline(transaction=False)
        counted, attempt, part = f"{self.name}:version", uuid4().hex[:12], 0
        for hashed, pairs in chunks:
            self._write([counted, hashed], [*asked, attempt, part, *pairs], client=sent)
            part += 1
            if part % _PIPELINED == 0 and not self._answered(sent.execute(), asked):
                return False
        # One that failed among others is known only now: nothing is done before that.
        if not self._answered(sent.execute(), asked):
            return False
        return self._answered([self._done([counted], [*asked, attempt, part])], asked)

    def _answered(self, answers: Sequence[Any], asked: Sequence[str]) -> bool:
        """Return whether all was written; refuse names of another query, and what has gaps.

        Raises
        ------
        _Gap
            If all has to be written again.
        """
        for answer in answers:
            if answer == GAP:
                raise _Gap
            if isinstance(answer, bytes):
                raise self._is_of(answer.decode())
            if isinstance(answer, list):
                has = "none" if answer[0] < 0 else f"nothing after version {answer[0]}"
                raise LostVersions(
                    f"{self.name} in {self.address} has {has} of this query, and was given all up "
                    f"to version {asked[2]}: Redis has lost what it acknowledged, or is another "
                    f"one; bring its data back, with appendonly yes, or write it anew out of the "
                    f"state with RedisSink.refill, as unskew run words does at its next start with "
                    f"the same --out"
                )
        return all(answers)

    def _is_of(self, query: str) -> BadParameter:
        return BadParameter(
            f"{self.name}:version in {self.address} is of query {query}; go on with the "
            f"checkpoint of that one (--out of unskew run), take another name for this one (name= "
            f"of RedisSink, --sink-name of unskew run) or another database of the URL, or delete "
            f"{self.name}:* there"
        )

    def _of_files(self, output: Output) -> Iterator[tuple[str, list[Any]]]:
        for file in output.files:
            yield from self._chunks(pq.ParquetFile(file).iter_batches(_CHUNK))

    def _chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, list[Any]]]:
        """Yield a hash, and fields and values for it in turn."""
        for batch in batches:
            fields = self._fields(batch)
            for column in batch.schema.names:
                if column not in self.keys:
                    values = map(_text, batch.column(column).to_pylist())
                    pairs = zip(fields, values, strict=True)
                    yield f"{self.name}:{column}", [each for pair in pairs for each in pair]

    def _fields(self, batch: pa.RecordBatch) -> list[str]:
        """Return the text of each key."""
        columns = [batch.column(key) for key in self.keys]
        for key, column in zip(self.keys, columns, strict=True):
            if column.null_count:
                raise BadParameter(
                    f"column {key!r} has null, which is no field in Redis; leave those rows out "
                    f"before the pipeline, or give them another key"
                )
        if len(columns) == 1:
            return list(map(_text, columns[0].to_pylist()))
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return [_text(list(row)) for row in rows]

    def _patiently(self, step: Callable[[], T], patience: float | None = None) -> T:
        """Do something that may be done again, until Redis is there or patience ends."""
        errors = self._redis.exceptions
        patience = self.patience if patience is None else patience
        begin, wait = time.monotonic(), 0.1
        while True:
            try:
                return step()
            except (errors.AuthenticationError, errors.NoPermissionError) as error:
                raise BadParameter(
                    f"{self.address} refuses the user or the password of the URL "
                    f"({type(error).__name__})"
                ) from None
            except (_Gap, errors.NoScriptError) as error:
                # Another one has taken its place, or it was started again.
                lost = "a part of the version" if isinstance(error, _Gap) else "a script"
                told, reason = "has not kept what it was given", f"{lost} is missing"
            except (errors.ConnectionError, errors.TimeoutError, errors.ReadOnlyError) as error:
                fault = tls_fault(error)
                if fault is not None:
                    raise BadParameter(f"no TLS with {self.address}: {fault}") from None
                told = "has not answered"
                reason = type(error).__name__ + tls_hint(error, self.address)
            left = patience - (time.monotonic() - begin)
            if left <= 0:
                raise SinkDown(
                    f"{self.address} {told} for {patience:g} s ({reason}); nothing "
                    f"is lost: start the query again when Redis is there, and it delivers what is "
                    f"missing"
                ) from None
            if wait == 0.1:
                log.warning("%s %s (%s); trying again", self.address, told, reason)
            time.sleep(min(wait, left))
            wait = min(2 * wait, _LONGEST_WAIT)


def _text(value: Any) -> Any:
    """Return what Redis keeps of a value: its text, or JSON where it has parts."""
    if isinstance(value, str | bytes):
        return value
    if value is None or isinstance(value, bool | int | float | list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)
