"""What can be seen to be wrong with the options of `unskew run` before Spark has started."""

from __future__ import annotations

from glob import glob
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from unskew.errors import BadParameter, MissingInput

if TYPE_CHECKING:
    from unskew.apps import App


def check_taken(chosen: App, **given: str | None) -> None:
    """Refuse options that are of other apps, rather than leave them out without a word."""
    for option, value in given.items():
        if value is not None and option not in chosen.takes:
            others = ", ".join(f"--{name}" for name in given if name in chosen.takes)
            raise BadParameter(
                f"{chosen.name} takes no --{option}{_given(option, value)}; leave it out; it "
                f"takes {others}"
            )


def _given(option: str, value: str) -> str:
    """Return what was given, unless it may have a password."""
    return "" if option == "sink" else f", and was given {value!r}"


def is_typed(name: str) -> bool:
    """Return whether an option comes from the command line, and not from the environment."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def check_source(chosen: App, source: str, *columns: str | None) -> None:
    """Refuse what can be seen to be wrong before Spark has started, which takes seconds."""
    from unskew.apps.files import folder_of
    from unskew.spark import Topic

    if source == chosen.source or source == "rate":
        if any(columns):
            raise BadParameter(
                "--key, --time and --value are of files; name those with --source files:DIR"
            )
        return
    if source.startswith("kafka:") and "sink" in chosen.takes:
        Topic.of(source)
        return
    if "sink" in chosen.takes and not source.startswith("files:"):
        raise BadParameter(
            f"--source of words is text, rate, files:DIR or kafka://host:port/topic, not {source!r}"
        )
    folder = folder_of(source)
    if not folder.is_dir():
        raise MissingInput(f"there is no folder {folder}; name one with the files of the stream")
    if columns[0] is None and "key" in chosen.takes:
        raise BadParameter("name the key column of the files with --key")


def check_jars(jars: str, source: str) -> None:
    """Refuse a connector that nothing would use, or that is not there."""
    if not source.startswith("kafka:"):
        raise BadParameter(
            f"--jars is the connector to Kafka, and --source is {source}; leave it out, or name a "
            f"topic with --source kafka://host:port/topic"
        )
    for name in filter(None, map(str.strip, jars.split(","))):
        # Spark fetches what has a scheme.
        if not urlsplit(name).scheme and not glob(name):
            raise MissingInput(
                f"there is no file {name!r}, which --jars names; give paths with commas between "
                f"them, or leave it out and the connector is fetched"
            )
