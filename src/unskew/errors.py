"""Errors: each says what was wrong, the value received, and the way out.

Every error is an `UnskewError` and also the built-in that a caller would expect, so that both
``except UnskewError`` and ``except ValueError`` work.
"""

from __future__ import annotations


class UnskewError(Exception):
    """Base of every error that unskew raises on purpose."""

    def __str__(self) -> str:
        """Return the message itself; `KeyError` would quote it."""
        return str(self.args[0]) if self.args else ""


class BadParameter(UnskewError, ValueError):
    """A parameter is outside the range that its documentation gives."""


class UnknownGrouping(UnskewError, KeyError):
    """No grouping is registered under this name."""


class UnknownBalancer(UnskewError, KeyError):
    """No balancer is registered under this name."""


class BadSnapshot(UnskewError, ValueError):
    """A snapshot does not belong to the object that should restore it."""


class BadInput(UnskewError, ValueError):
    """The input cannot be read as a stream of keys: empty, truncated, or with null keys."""


class MissingInput(UnskewError, FileNotFoundError):
    """The input file does not exist."""


class UnknownColumn(UnskewError, KeyError):
    """The input has no column of this name."""


class UnhashableKey(UnskewError, TypeError):
    """The key column has a type that Spark cannot hash either."""


class MissingSpark(UnskewError, ImportError):
    """PySpark is not installed, or is older than unskew needs."""


class MissingExtra(UnskewError, ImportError):
    """A package that only some need is not installed."""


class UnsupportedSpark(UnskewError, RuntimeError):
    """The session is too old, or is of a kind that cannot do what was asked."""


class NotReplayable(UnskewError, RuntimeError):
    """A lost task could come back with other rows unnoticed, so nothing is routed."""


class BadPlan(UnskewError, ValueError):
    """A plan is damaged, or was made for other keys or another number of instances."""


class MissingPlan(UnskewError, FileNotFoundError):
    """There is no saved plan or profile in this place."""


class BadAggregate(UnskewError, TypeError):
    """An aggregate raised an error, or a method of it returned something else than promised."""


class NotVerified(UnskewError, AssertionError):
    """The results of an app are not those of plain Spark."""


class FailedRun(UnskewError, RuntimeError):
    """Spark stopped the job of an app."""


class UnsupportedFolder(UnskewError, OSError):
    """A folder cannot hold state: it is read-only, or cannot refuse a second file of a name."""


class CannotWrite(UnskewError, OSError):
    """A file of a checkpoint could not be written, as on a full disk; nothing was committed."""


class DamagedCheckpoint(UnskewError, ValueError):
    """A file of a checkpoint is missing, cut or altered."""


class NewerCheckpoint(UnskewError, ValueError):
    """A checkpoint was written by a newer version of unskew."""


class WrongCheckpoint(UnskewError, ValueError):
    """A checkpoint is of a pipeline with other stages, or of none."""


class CheckpointTaken(UnskewError, RuntimeError):
    """Another driver writes to the same checkpoint."""


class BadOperator(UnskewError, TypeError):
    """An operator raised an error, or returned something else than promised."""


class ProcessFailed(UnskewError, RuntimeError):
    """A process of its own ended, or what it was to do failed."""


class SinkDown(UnskewError, ConnectionError):
    """Where results go did not answer for too long; they are committed, and delivered later."""


class LostVersions(UnskewError, RuntimeError):
    """Where results go has no longer what it was given, so that more would not be the whole."""
