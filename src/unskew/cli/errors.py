"""How the command fails: one line, exit code 2, no traceback."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from unskew.errors import BadInput, BadParameter, UnskewError

WRONG_INPUT = 2
INTERRUPTED = 130
"""What a shell reports of a command that Ctrl-C ended."""

OPTIONS = {
    "batch": "--batch",
    "exponent": "--zipf",
    "instances": "--instances",
    "key": "--key",
    "keys": "--keys",
    "max_imbalance": "--max-imbalance",
    "messages": "--messages",
    "period": "--drift",
    "seed": "--seed",
    "shards": "--reshard",
    "sources": "--sources",
    "stage": "--stage",
}
"""What the parameters that errors name are called on the command line."""


class Failure(click.ClickException):
    """One line on stderr."""

    exit_code = WRONG_INPUT

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line; names out of a file cannot break it or command the terminal."""
        told = without_passwords(one_line(self.message))
        click.echo(f"unskew: error: {told}", file=file, err=True)


class Commands(click.Group):
    """A group of commands whose errors are ours."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Read what stands before the command."""
        with _failing_in_one_line():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with _failing_in_one_line():
            return super().invoke(ctx)


def one_line(text: str) -> str:
    r"""Return text without line breaks, with everything that does not print written out.

    Examples
    --------
    >>> one_line("a\nb\x1b[31m")
    'a b\\x1b[31m'
    """
    return printable(" ".join(text.split()))


def without_passwords(text: str) -> str:
    """Return text whose URLs have neither user nor password, wherever a user has put them.

    Examples
    --------
    >>> without_passwords("there is no app 'redis://me:secret@host:6379/0'")
    "there is no app 'redis://***@host:6379/0'"
    """
    return re.sub(r"://[^\s'\"]*@", "://***@", text)


def printable(text: str) -> str:
    r"""Return text with everything that does not print written out, but for line breaks.

    Examples
    --------
    >>> printable("a\n  b\x1b[31m")
    'a\n  b\\x1b[31m'
    """
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode()
        for char in text
    )


@contextmanager
def _failing_in_one_line() -> Iterator[None]:
    """Turn what can go wrong outside of the program into `Failure`."""
    try:
        yield
    except UnskewError as error:
        raise Failure(_in_options(error)) from error
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        hint = f"; see {error.ctx.command_path} --help" if error.ctx else ""
        raise Failure(error.format_message().rstrip(".") + hint) from error
    except MemoryError as error:
        raise Failure("not enough memory; give fewer instances or fewer keys") from error
    except OSError as error:
        if error.errno == errno.EPIPE:
            # The reader of a pipe has seen enough: click ends quietly.
            raise
        raise Failure(str(error)) from error
    except KeyboardInterrupt:
        click.echo("unskew: interrupted", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None


def _in_options(error: UnskewError) -> str:
    """Return the message with options for parameters."""
    message = str(error)
    if isinstance(error, BadParameter):
        name = re.match(r"(\w+) (?:must be|names) ", message)
        if name and name[1] in OPTIONS:
            message = OPTIONS[name[1]] + message.removeprefix(name[1])
    if isinstance(error, BadInput):
        message = re.sub(r'nulls="(drop|keep)"', r"--nulls \1", message)
    return message
