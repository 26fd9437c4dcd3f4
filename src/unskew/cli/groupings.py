"""`unskew groupings`: what there is to choose from."""

from __future__ import annotations

import inspect

import click

from unskew.cli.output import show
from unskew.cli.tables import groupings_table
from unskew.grouping.base import groupings


@click.command("groupings")
def groupings_command() -> None:
    """List the groupings, each with what it does and the paper it comes from."""
    entries = [
        (name, (inspect.getdoc(cls) or "").partition("\n")[0], cls.reference)
        for name, cls in groupings().items()
    ]
    show(groupings_table(entries))
