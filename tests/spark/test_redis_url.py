"""A Redis with TLS: what is wrong is told, and no password."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from redis.exceptions import MaxConnectionsError
from services import CannotHave, end, free_port, start_redis

from unskew.errors import BadParameter, SinkDown
from unskew.spark import Output, RedisSink
from unskew.spark.redis_url import redis_address, tls_fault, tls_hint


class Secured(NamedTuple):
    """A Redis that speaks TLS alone, and asks for a password."""

    port: int
    certificate: Path
    key: Path

    def url(self, *, host: str = "127.0.0.1", password: str = "s3cret", **files: Path) -> str:
        asked = "&".join(f"{name}={file}" for name, file in files.items())
        return f"rediss://:{password}@{host}:{self.port}/0{f'?{asked}' if asked else ''}"

    def trusting(self, **others: Any) -> str:
        return self.url(ssl_ca_certs=self.certificate, **others)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Yield a Redis with a certificate that it has signed itself, for its number alone."""
    for needed in ("openssl", "redis-server"):
        if shutil.which(needed) is None:
            pytest.skip(f"there is no {needed}")
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    made += ["-nodes", "-days", "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    made += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True)
    port = free_port()
    options = ["--port", "0", "--tls-port", str(port), "--tls-cert-file", str(certificate)]
    options += ["--tls-key-file", str(key), "--tls-ca-cert-file", str(certificate)]
    options += ["--tls-auth-clients", "no", "--requirepass", "s3cret"]
    try:
        started = start_redis(folder / "redis", port, *options)
    except CannotHave as error:
        pytest.skip(f"no Redis with TLS: {error}")
    yield Secured(port, certificate, key)
    end(started["pids"]["redis"])


def rows(folder: Path) -> Output:
    path = folder / "rows.parquet"
    pq.write_table(pa.table({"word": ["the"], "count": [1]}), path)
    schema = StructType().add("word", "string").add("count", "long")
    return Output(cast(SparkSession, None), [path], schema, "a")


def refused(url: str, folder: Path) -> str:
    """Return why a Redis cannot be written to, which must be found out at once."""
    with pytest.raises(BadParameter) as caught:
        RedisSink(url, "word").write(rows(folder), 0)
    assert caught.value.__cause__ is None
    told = str(caught.value)
    assert "s3cret" not in told
    return told


def test_versions_go_over_tls(secured: Secured, tmp_path: Path) -> None:
    sink = RedisSink(secured.trusting(), "word", name="tls")
    sink.write(rows(tmp_path), 0)
    assert sink.read("count") == {"the": "1"}
    assert sink.address == f"rediss://127.0.0.1:{secured.port}/0"
    assert "s3cret" not in repr(sink)


def test_the_environment_can_name_the_certificate(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(secured.certificate))
    assert RedisSink(secured.url(), "word", name="none").read("count") == {}


def test_a_certificate_that_nobody_trusts_is_told(secured: Secured, tmp_path: Path) -> None:
    told = refused(secured.url(), tmp_path)
    assert "its certificate is not trusted: self-signed certificate" in told
    assert "?ssl_ca_certs=FILE" in told


def test_a_certificate_of_another_host_is_told(secured: Secured, tmp_path: Path) -> None:
    told = refused(secured.trusting(host="localhost"), tmp_path)
    assert "not trusted" in told
    assert "mismatch" in told


def test_a_file_that_is_no_certificate_is_told(secured: Secured, tmp_path: Path) -> None:
    told = refused(secured.url(ssl_ca_certs=secured.key), tmp_path)
    assert "whether the files are certificates" in told
    with pytest.raises(BadParameter, match=r"ssl_ca_certs .* no such file"):
        RedisSink(secured.url(ssl_ca_certs=tmp_path / "none"), "word")


def test_a_password_that_is_wrong_is_told_as_without_tls(secured: Secured, tmp_path: Path) -> None:
    told = refused(secured.trusting(password="wr0ng"), tmp_path)
    assert "refuses the user or the password" in told
    assert "wr0ng" not in told


def test_a_redis_that_asks_for_a_certificate_is_shown_one(secured: Secured, tmp_path: Path) -> None:
    own = secured.trusting(ssl_certfile=secured.certificate, ssl_keyfile=secured.key)
    client: Any = redis.Redis.from_url(own)
    client.config_set("tls-auth-clients", "yes")
    try:
        assert RedisSink(own, "word", name="none").read("count") == {}
        told = refused(secured.trusting(), tmp_path)
    finally:
        client.config_set("tls-auth-clients", "no")
        client.close()
    assert "it may ask for a certificate" in told
    assert "ssl_certfile=FILE" in told


def test_without_tls_it_is_told_that_it_may_want_it(secured: Secured, tmp_path: Path) -> None:
    sink = RedisSink(f"redis://:s3cret@127.0.0.1:{secured.port}/0", "word", patience=0)
    with pytest.raises(
        SinkDown, match="if it speaks TLS alone, the URL begins with rediss"
    ) as told:
        sink.write(rows(tmp_path), 0)
    assert "s3cret" not in str(told.value)


@pytest.mark.parametrize(
    ("error", "address", "hint"),
    [
        (TimeoutError("handshake"), "rediss://host:6379/0", "speaks no TLS"),
        (ConnectionResetError(), "redis://host:6379/0", "speaks TLS alone"),
        (ConnectionRefusedError(), "redis://host:6379/0", ""),
        (ConnectionRefusedError(), "rediss://host:6379/0", ""),
        (TimeoutError("busy"), "redis://host:6379/0", ""),
    ],
)
def test_only_a_server_that_is_there_may_want_another_url(
    error: OSError, address: str, hint: str
) -> None:
    wrapped = redis.ConnectionError("as redis-py tells it")
    wrapped.__cause__ = error
    told = tls_hint(wrapped, address)
    assert hint in told
    assert bool(hint) == bool(told)
    assert tls_fault(wrapped) is None


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (redis.ConnectionError("Connection closed by server."), "speaks TLS alone"),
        (redis.BusyLoadingError("LOADING"), ""),
        (redis.ReadOnlyError("READONLY"), ""),
        (MaxConnectionsError("too many"), ""),
        (redis.TimeoutError("busy"), ""),
    ],
    ids=["broken off", "still reading its files", "a replica", "too many of ours", "busy"],
)
def test_a_server_that_tells_why_is_not_asked_for_tls(error: Exception, hint: str) -> None:
    told = tls_hint(error, "redis://host:6379/0")
    assert hint in told
    assert bool(hint) == bool(told)


def test_an_address_has_neither_password_nor_files(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    url = f"rediss://me:s3cret@[::1]/2?ssl_ca_certs={tmp_path / 'ca.pem'}"
    assert redis_address(url) == "rediss://[::1]:6379/2"
