"""JSON documents that know their kind, their version and whether they were altered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zlib import crc32

from unskew.errors import DamagedCheckpoint, NewerCheckpoint
from unskew.state.files import create

FORMAT = 2
"""Version of everything under a checkpoint; it grows when older readers would misread it: with 2 a
stage may feed several others."""


def write_document(path: Path, kind: str, body: dict[str, Any]) -> None:
    """Create a document, or raise FileExistsError.

    The first line says what it is and has the checksum of the rest.
    """
    text = json.dumps(body, separators=(",", ":")).encode()
    head = {"unskew": kind, "format": FORMAT, "checksum": crc32(text)}
    create(path, json.dumps(head).encode() + b"\n" + text)


def read_document(path: Path, kind: str) -> dict[str, Any]:
    """Return what `write_document` wrote, or raise an error that names what is wrong with it.

    Raises
    ------
    FileNotFoundError
        If there is none.
    DamagedCheckpoint
        If it was cut, altered, or is something else.
    NewerCheckpoint
        If a newer version of unskew wrote it.
    """
    data = path.read_bytes()
    first, _, text = data.partition(b"\n")
    try:
        head = json.loads(first)
        is_ours = head["unskew"] == kind
        version, checksum = int(head["format"]), int(head["checksum"])
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedCheckpoint(
            f"{path} does not begin like a {kind} of unskew; restore the file from a copy"
        ) from error
    if not is_ours:
        raise DamagedCheckpoint(f"{path} is a {head['unskew']!r}, not a {kind}; restore the file")
    check_format(path, version)
    if crc32(text) != checksum:
        raise DamagedCheckpoint(
            f"{path} was cut or altered after it was written: its checksum is {crc32(text)}, not "
            f"{checksum}; restore the file from a copy"
        )
    body: dict[str, Any] = json.loads(text)
    return body


def check_format(path: Path, version: int) -> None:
    """Refuse files that a newer version wrote."""
    if version > FORMAT:
        raise NewerCheckpoint(
            f"{path} has format {version} and this version of unskew reads up to {FORMAT}; open it "
            f"with the unskew that wrote it, or a newer one"
        )
