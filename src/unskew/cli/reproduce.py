"""`unskew reproduce`: a paper's figures and tables, ours beside the paper's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

from unskew.cli.output import show
from unskew.errors import BadParameter
from unskew.experiments.base import Progress as Report
from unskew.experiments.base import Row


@click.command(
    "reproduce",
    epilog="""\b
Examples:
  unskew reproduce --list
  unskew reproduce pd-stream --quick --out report
  unskew reproduce pd-stream --figure 8 --figure 10 --out report
  unskew reproduce ls-stream --quick --out report
  unskew reproduce consistent-grouping --quick --out report
""",
)
@click.argument("name", metavar="EXPERIMENT", required=False)
@click.option("--list", "listing", is_flag=True, help="List the experiments and their figures.")
@click.option("--quick", is_flag=True, help="About a minute: fewer messages and settings.")
@click.option(
    "--figure", "numbers", multiple=True, help="A figure or table, as 8 or IV; may be repeated."
)
@click.option("--seed", type=click.IntRange(min=0, max=2**62), default=0, show_default=True)
@click.option(
    "--out",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for results.json, results.csv and report.html.",
)
def reproduce_command(
    name: str | None,
    listing: bool,
    quick: bool,
    numbers: tuple[str, ...],
    seed: int,
    folder: Path | None,
) -> None:
    """Run a paper's experiments again, and hold our numbers against the paper's."""
    # Charts and the simulator take a second to import, which no other command should wait for.
    from unskew.experiments import EXPERIMENTS, experiment
    from unskew.experiments.report import write_report

    if listing:
        for entry in EXPERIMENTS.values():
            show(f"{entry.name}: {entry.reference}")
            for figure in entry.figures:
                show(f"  {figure.heading}")
        return
    if name is None:
        raise BadParameter("name an experiment, or see which there are with --list")
    chosen = experiment(name)
    figures = chosen.choose(numbers)
    if folder is None:
        raise BadParameter("say where the results go, with --out DIR")
    # Whether it can be written shows now, not after an hour.
    folder.mkdir(parents=True, exist_ok=True)
    sizes = chosen.quick if quick else chosen.full
    with _progress_bar() as report:
        rows = chosen.run(sizes, seed=seed, figures=figures, progress=report)
    path = write_report(folder, chosen, sizes, rows, figures)
    show(_summary(rows, f"{chosen.reference} ({sizes.name})"), f"Report: {path}")


def _summary(rows: Sequence[Row], title: str) -> Table:
    from unskew.experiments.report import number

    table = Table(title=title, title_justify="left")
    for heading in ("figure", "case", "metric"):
        table.add_column(heading)
    for heading in ("paper", "ours", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        if row.paper is not None:
            ratio = "" if row.ratio is None else f"{row.ratio:.3g}"
            numbers = (number(row.paper), number(row.ours), ratio)
            table.add_row(row.figure, row.case, row.metric, *numbers)
    return table


@contextmanager
def _progress_bar() -> Iterator[Report]:
    """Yield what the experiment reports to: a bar on stderr, if anyone is there to see it."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("starting", total=None)

        def report(label: str, done: int, total: int) -> None:
            bar.update(task, description=f"{label:<36}", completed=done, total=total)

        yield report
