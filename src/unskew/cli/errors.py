"""How the command fails: one line, exit code 2, no traceback."""

from __future__ import annotations

import errno
import tempfile
from typing import IO, Any

import click

from unskew.errors import UnskewError

WRONG_INPUT = 2
INTERRUPTED = 130
"""What a shell reports of a command that Ctrl-C ended."""


class Failure(click.ClickException):
    """One line on stderr."""

    exit_code = WRONG_INPUT

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line; names out of a file cannot break it or command the terminal."""
        click.echo(f"unskew: error: {one_line(self.message)}", file=file, err=True)


class Commands(click.Group):
    """A group of commands whose errors are ours."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; turn what can go wrong outside of the program into `Failure`."""
        try:
            return super().invoke(ctx)
        except UnskewError as error:
            raise Failure(str(error)) from error
        except MemoryError as error:
            raise Failure("not enough memory; give fewer instances or fewer keys") from error
        except OSError as error:
            if error.errno == errno.EPIPE:
                # The reader of a pipe has seen enough: click ends quietly.
                raise
            raise Failure(_reason(error)) from error
        except KeyboardInterrupt:
            click.echo("unskew: interrupted", err=True)
            ctx.exit(INTERRUPTED)


def one_line(text: str) -> str:
    r"""Return text without line breaks, with everything that does not print written out.

    Examples
    --------
    >>> one_line("a\nb\x1b[31m")
    'a b\\x1b[31m'
    """
    spaced = " ".join(text.split())
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in spaced
    )


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return (
            f"no space left; a stream takes 12 bytes a tuple in {tempfile.gettempdir()} while it "
            f"is compared: name a larger place with TMPDIR"
        )
    return str(error)
