"""`unskew compare`: how bad is the skew, and which grouping mends it at what price."""

from __future__ import annotations

import errno
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from unskew.cli.errors import Failure
from unskew.cli.options import WorkloadOptions, numbers, words
from unskew.cli.output import check_target, is_ascii_only, show, write_stdout, write_whole
from unskew.cli.tables import comparison_table
from unskew.compare import (
    BYTES_PER_TUPLE,
    Comparison,
    Recommendation,
    compare,
    counted,
    recommend,
)
from unskew.compare import Progress as Report
from unskew.errors import BadParameter
from unskew.workloads import KeyFile, Workload

EXAMPLES = """\b
Examples:
  unskew compare
      all groupings on a made-up stream, Zipf 1.4
  unskew compare --input rides.parquet --key city --instances 64
      your own keys; text, CSV and Parquet, of any size
  unskew compare --input rides.csv --key city,driver --nulls drop
      a key of two columns, rows without one left out
  unskew compare --zipf 2.0 --keys 10000000 --messages 10000000
      the hardest setting of the papers
  unskew compare --sources 8 --batch 5000 --groupings frugal,pd-stream
      eight upstream tasks, micro-batches of 5,000 rows
  unskew compare --json - | jq '.[] | select(.imbalance < 0.01)'
  unskew compare --chart skew.html

\b
How to read the table:
  imbalance           how far the busiest instance is above the mean: 0.01 is
                      1 %, 19 is twenty times the mean
  replication factor  on how many instances a key lives on average, and beside
                      the number of instances the least that balance allows
  distinct keys held  summed over the instances: what state costs
  hot keys            keys treated as hot at the end, by the source with most
  router state        of one source
  Use ...             the least product of the busiest instance's load and the
                      replication factor; 5 % above the mean is balanced
"""


@click.command("compare", epilog=EXAMPLES)
@click.option(
    "--input",
    "path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read the keys from a .txt, .csv, .tsv or .parquet file.",
)
@click.option("--key", metavar="COLUMN", help="Key column of the file, or several with commas.")
@click.option(
    "--nulls",
    type=click.Choice(["error", "drop", "keep"]),
    help="Rows of the file without a key: refuse (the default), leave out, or one more key.",
)
@click.option("--zipf", type=float, metavar="Z", help="Make up a Zipf stream.  [default: 1.4]")
@click.option("--keys", type=int, metavar="K", help="Keys to draw from.  [default: 100000]")
@click.option("--messages", type=int, metavar="M", help="Length of the stream.  [default: 1000000]")
@click.option(
    "--drift", type=int, metavar="PERIOD", help="Let the hottest keys change every PERIOD tuples."
)
@click.option(
    "--dataset",
    metavar="NAME",
    help="Make up a data set of the papers: ddos, hashtags, wikipedia, twitter or rides.",
)
@click.option(
    "--instances",
    callback=numbers,
    default="16,32,64,128",
    show_default=True,
    metavar="N,N,...",
    help="Numbers of instances.",
)
@click.option(
    "--sources",
    type=int,
    default=1,
    show_default=True,
    metavar="S",
    help="Deal the tuples to S independent groupings, as S upstream tasks would.",
)
@click.option(
    "--batch",
    type=int,
    metavar="ROWS",
    help="Cut the stream into micro-batches; imbalance is then their mean.",
)
@click.option(
    "--groupings",
    "names",
    callback=words,
    default="all",
    show_default=True,
    metavar="A,B,...",
    help="Groupings to compare; `unskew groupings` lists them.",
)
@click.option("--max-imbalance", type=float, metavar="E", help="Imbalance that frugal may leave.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of stream and groupings.")
@click.option(
    "--json",
    "json_path",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE|-",
    help="Write the results as a list of objects; - is stdout, which then has nothing else.",
)
@click.option(
    "--chart",
    "chart_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw them: .png, .svg, or .html that needs no network.",
)
def compare_command(
    path: Path | None,
    key: str | None,
    nulls: str | None,
    zipf: float | None,
    keys: int | None,
    messages: int | None,
    drift: int | None,
    dataset: str | None,
    instances: tuple[int, ...],
    sources: int,
    batch: int | None,
    names: tuple[str, ...],
    max_imbalance: float | None,
    seed: int,
    json_path: Path | None,
    chart_path: Path | None,
) -> None:
    """Compare groupings on your keys, or on a stream with a skew that you guess."""
    to_stdout = json_path == Path("-")
    _check_targets(path, None if to_stdout else json_path, chart_path)
    if max_imbalance is not None and names != ("all",) and "frugal" not in names:
        raise BadParameter("--max-imbalance is for frugal; add it to --groupings, or leave it out")
    workload = WorkloadOptions(path, key, nulls, zipf, keys, messages, drift, dataset).open(seed)
    parameters = {} if max_imbalance is None else {"frugal": {"max_imbalance": max_imbalance}}
    with _room_for_stream(), _progress_bar() as report:
        rows = compare(
            workload,
            instances,
            None if names == ("all",) else names,
            parameters=parameters,
            sources=sources,
            seed=seed,
            batch=batch,
            progress=report,
        )
    advice = recommend(rows)
    title = _title(workload, rows[0], batch)

    # Everything is made before anything is written.
    drawing = None if chart_path is None else _drawing(chart_path, rows, advice, title)
    text = json.dumps([asdict(row) for row in rows], indent=2, allow_nan=False) + "\n"
    if to_stdout:
        write_stdout(text)
    elif json_path is not None:
        write_whole(json_path, text.encode())
    if chart_path is not None and drawing is not None:
        write_whole(chart_path, drawing)

    ascii_only = is_ascii_only(stderr=to_stdout)
    table = comparison_table(rows, advice, title, ascii_only=ascii_only)
    show(table, str(advice), stderr=to_stdout)


def _check_targets(source: Path | None, json_path: Path | None, chart_path: Path | None) -> None:
    """Find out before the work starts whether its results can be written."""
    for option, target in (("--json", json_path), ("--chart", chart_path)):
        if source and target and source.exists() and target.exists() and source.samefile(target):
            raise BadParameter(f"{option} {target} would overwrite the input; name another file")
    if chart_path is not None:
        # A third of a second that only those who ask for a chart should wait.
        from unskew.charts import chart_format

        chart_format(chart_path)
        check_target(chart_path)
    if json_path is not None:
        check_target(json_path)
    if (
        json_path is not None
        and chart_path is not None
        and json_path.resolve() == chart_path.resolve()
    ):
        raise BadParameter(f"--json and --chart would both write {json_path}; name two files")


def _drawing(path: Path, rows: list[Comparison], advice: Recommendation, title: str) -> bytes:
    from unskew.charts import chart_format, comparison_chart, render

    return render(comparison_chart(rows, advice, title), chart_format(path))


def _title(workload: Workload, row: Comparison, batch: int | None) -> str:
    messages, keys = counted(row.messages, "message"), counted(row.keys, "key")
    title = f"{workload.description}: {messages}, {keys}"
    if isinstance(workload, KeyFile) and workload.left_out:
        title += f", {counted(workload.left_out, 'row')} without a key left out"
    if row.sources > 1:
        title += f", {counted(row.sources, 'source')}"
    if batch is not None:
        title += f", batches of {counted(batch, 'row')}"
    return title


@contextmanager
def _room_for_stream() -> Iterator[None]:
    """Say what takes the space where there is none: only the copy of the stream does here."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise Failure(
            f"no space left; a stream takes {BYTES_PER_TUPLE} bytes a tuple in "
            f"{tempfile.gettempdir()} while it is compared: name a larger place with TMPDIR"
        ) from error


@contextmanager
def _progress_bar() -> Iterator[Report]:
    """Yield what `compare` reports to: a bar on stderr, if anyone is there to see it."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("reading", total=None)

        def report(label: str, done: int, total: int | None) -> None:
            bar.update(task, description=f"{label:<32}", completed=done, total=total)

        yield report
