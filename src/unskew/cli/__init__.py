"""The command `unskew`: one module per command, and what they share."""

from __future__ import annotations

import click

from unskew import __version__
from unskew.cli.compare import compare_command
from unskew.cli.errors import Commands
from unskew.cli.groupings import groupings_command
from unskew.cli.reproduce import reproduce_command
from unskew.cli.run import run_command
from unskew.cli.state import state_command


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  unskew run                                     a job on Spark, balanced; needs Java 17
  unskew compare                                 a skewed stream made up on the spot
  unskew compare --input rides.parquet --key city
  unskew compare --help                          more of them
  unskew groupings                               what there is, and whose idea it was
  unskew state checkpoint                        what a pipeline keeps, and for which keys
""",
)
@click.version_option(__version__, prog_name="unskew")
def main() -> None:
    """Keep skewed streams balanced.

    A few keys carry most of the tuples, so one instance works while the others wait. Ask here how
    bad it is for your keys, and which grouping mends it at what price.
    """


main.add_command(compare_command)
main.add_command(groupings_command)
main.add_command(reproduce_command)
main.add_command(run_command)
main.add_command(state_command)
