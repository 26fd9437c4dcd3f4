"""The URL of a Redis, and what is wrong with its TLS, without a word of the password."""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from unskew.errors import BadParameter

SCHEMES = ("redis", "rediss")

FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
"""What may come after ``?``: certificates to trust, our own certificate, and its key."""

_PASSING = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ssl.SSLWantReadError)
"""What also comes of a server that goes away."""


def redis_address(url: str) -> str:
    """Return the URL of a Redis without user and password, once it is sure that it is one.

    Raises
    ------
    BadParameter
        If it is none, or names a file that is not there.

    Examples
    --------
    >>> redis_address("redis://me:secret@localhost/1")
    'redis://localhost:6379/1'
    """
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port or 6379
        base = int(parts.path.strip("/") or 0)
        asked = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        # What cannot be read may be the password: it is not shown.
        scheme, host, port, base, asked = "", None, 0, 0, []
    is_known = all(name in FILES for name, _ in asked) and (scheme == "rediss" or not asked)
    if scheme not in SCHEMES or not host or base < 0 or not is_known or parts.fragment:
        raise BadParameter(
            "the URL of a Redis is redis://host:port/db, or rediss:// with TLS, with "
            "user:password@ before the host if it asks for them; letters such as / # ? @ in a "
            "password are written as %2F %23 %3F %40; after rediss://host:port/db there may be "
            f"?{FILES[0]}=FILE, a certificate to trust, and &{FILES[1]}=FILE&{FILES[2]}=FILE, one "
            "to show"
        )
    for name, file in asked:
        if not Path(file).is_file():
            raise BadParameter(
                f"{name} of the URL of the Redis names {file!r}, and there is no such file"
            )
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/{base}"


def tls_fault(error: BaseException) -> str | None:
    """Return what is wrong with the TLS of a connection that failed; None if nothing is known.

    Only what trying again does not mend: a server that goes away breaks off, too.
    """
    found = _cause(error)
    if not isinstance(found, ssl.SSLError) or isinstance(found, _PASSING):
        return None
    if isinstance(found, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted: {found.verify_message}; name the one to trust with "
            f"?{FILES[0]}=FILE after the URL, or in SSL_CERT_FILE in the environment, and take the "
            f"host's name that is in it"
        )
    reason = (found.reason or type(found).__name__).replace("_", " ").lower()
    if "certificate required" in reason or "handshake failure" in reason:
        return (
            f"it may ask for a certificate ({reason}); show it one with ?{FILES[1]}=FILE&{FILES[2]}"
            f"=FILE after the URL"
        )
    return f"{reason}; see whether it speaks TLS there, and whether the files are certificates"


def tls_hint(error: BaseException, address: str) -> str:
    """Return what a server that is there and says nothing may want, empty if it is not there."""
    from redis.exceptions import ConnectionError as Broken

    found = _cause(error)
    if isinstance(found, ConnectionRefusedError):
        return ""
    if address.startswith("rediss:") and isinstance(found, TimeoutError):
        return "; if it speaks no TLS, the URL begins with redis://"
    # Of its own kinds of this error a server has told the reason: it is read, and needs no TLS.
    if address.startswith("redis:") and (
        type(found) is Broken or isinstance(found, ConnectionResetError)
    ):
        return "; if it speaks TLS alone, the URL begins with rediss://"
    return ""


def _cause(error: BaseException) -> BaseException:
    """Return the error of the system that another came of, or that one itself if there is none."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, OSError):
        found = found.__cause__ or found.__context__
    return error if found is None else found
