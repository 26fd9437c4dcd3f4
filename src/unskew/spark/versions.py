"""Which Spark there must be; imports no PySpark, so that its absence can be told."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache

from unskew.errors import MissingSpark, UnsupportedSpark

NEEDED = (4, 2)
"""The oldest Spark whose shuffles notice by default that a lost task came back with other rows."""


def check_pyspark() -> None:
    """Raise `MissingSpark` unless there is a PySpark that is new enough."""
    wanted = 'install it with: pip install "unskew[spark]"'
    try:
        from pyspark import __version__ as found
    except ImportError as error:
        raise MissingSpark(f"unskew.spark needs PySpark, which is not here; {wanted}") from error
    if is_too_old(found):
        raise MissingSpark(f"unskew.spark needs PySpark 4.2 or newer, not {found}; {wanted}")


def check_session(version: str) -> None:
    """Raise `UnsupportedSpark` unless a session of this version is new enough."""
    if is_too_old(version):
        raise UnsupportedSpark(
            f"unskew needs Spark 4.2 or newer, the session runs {version}; connect to a newer one"
        )


def check_workers(master: str, python: str) -> None:
    """Raise `MissingSpark` where Spark's workers on this machine are a Python without unskew.

    Parameters
    ----------
    master : str
        Of the session; what is on another machine is not looked at.
    python : str
        What Spark starts there.
    """
    found = shutil.which(python)
    if master.startswith("local") and found != sys.executable and not _has_unskew(found or python):
        raise MissingSpark(
            f"Spark's workers are {found or python}, which has no unskew; set PYSPARK_PYTHON "
            f"before the session begins: export PYSPARK_PYTHON={sys.executable}"
        )


@cache
def _has_unskew(python: str) -> bool:
    try:
        done = subprocess.run([python, "-c", "import unskew"], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def is_too_old(version: str) -> bool:
    """Return whether a version is older than what is needed.

    Examples
    --------
    >>> is_too_old("4.1.2"), is_too_old("4.2.0"), is_too_old("5.0.0-SNAPSHOT")
    (True, False, False)
    """
    return tuple(int(part) for part in version.split(".")[:2]) < NEEDED
