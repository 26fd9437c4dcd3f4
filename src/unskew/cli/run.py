"""`unskew run`: a whole job on Spark, balanced, with what balance is worth beside it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from unskew.cli.errors import one_line, printable
from unskew.cli.output import check_target, show, write_stdout, write_whole
from unskew.cli.run_checks import check_jars, check_source, check_taken, is_typed
from unskew.errors import BadParameter, MissingSpark

if TYPE_CHECKING:
    from unskew.apps import Batch, Options, Summary
    from unskew.apps.base import Watch

GROUPING = "frugal"
"""What balances an app unless another is named."""

INSTANCES = 16
"""Unless told otherwise."""

CORES = 2
"""Of each executor that is started for --speeds, and instances."""

WORTH_TELLING = 1.15
"""Times fewer rows, or pairs, below which two ways to spread them are called the same."""

SHOWN = 12
"""Batches in the live table; older ones scroll out of it."""


@click.command(
    "run",
    epilog="""\b
Examples:
  unskew run                                       the demo: hashtags, balanced by frugal
  unskew run --grouping pd-stream --verify         the paper's, checked against plain Spark
  unskew run --grouping key                        what Spark's hashing does, to compare
  unskew run --source files:clicks --key user --time at --value ms --out result
  unskew run rides --verify --out result           a join of two streams, its state moves
  unskew run rides --balancer static               the same, and nothing moves
  unskew run regions --verify                      two keys in a row that live together
  unskew run bayes --speeds 1,1,0.3 --verify       three executors, one is slow
  unskew run bayes --speeds 1,1,0.3 --change 5:0.3,1,1     and then another
  unskew run words --verify                        words of a text that comes along
  unskew run words --source kafka://localhost:9092/lines --sink redis://localhost:6379/0
  unskew run --json - --batches 5

\b
How to read the table:
  imbalance   how far the busiest instance is above the mean, and what it
              would be under Spark's own hash of the key: of rows, and of rides
              of the pairs that are looked at, which is what its balancer evens
  replication instances that a key of a window has on average; rows of a join
              look for partners at all of them
  hot keys    the largest, each with its number of instances

\b
What --out holds:
  trends/batch=N   of trending: Parquet, updates; of a window and key the last
                   batch counts. Windows are of 20 seconds; hashtag is the key
                   of your files, reach the quantiles of your value
  pairs/version=N  of rides: Parquet, every order with each report of a taxi in
                   its cell in the 5 minutes before, or with none
  hashtags/version=N  of regions: Parquet, updates; of a hashtag the last counts
  counters/version=N  of bayes: Parquet, updates; of a value and class the last
  classified/batch=N  of bayes: Parquet, examples of the second stream, each with
                   its class and the one that was found
  words/version=N  of words: Parquet, updates; of a word the last counts
  report.html      the last run as charts
  checkpoint       where the next run goes on

\b
What rides adds to --json:
  migrations       shards and split keys that went to other instances
  migrated_bytes   of their state
  late_rows        that came after the watermark, and count for nothing
  latency_p95_ms   from a batch's start until it is delivered and the next plan
                   is made, all but 5 % of them

\b
What regions adds to --json:
  locality           rows that stayed on their instance between the two stages
  shuffle_bytes      that went through the exchange between them, by Spark's count
  hash_shuffle_bytes what it would have been by the hash of the hashtag
  moves              keys and shards that went to other instances

\b
What bayes adds to --json:
  utilisation_spread     of the last batch: how much longer the busiest instance
                         was busy than the idlest, in parts of its time
  utilisation_spreads    of every batch
  convergence            batches until the spread was below 0.15: from the first,
                         then from each --change; null where it was not
  virtual_workers        shards
  virtual_workers_wanted how many there should be, 0 if there are enough; a run
                         in another --out has them with --shards
  migrations, migrated_bytes  as of rides
  slowed_by              how executors were slowed: quota, delay or null
  accuracy               part of the second stream whose class was found
  majority               the same, were all of the largest class

\b
What words adds to --json:
  node_spread      busy time of the busiest node less that of the idlest, in means,
                   of each batch
  offset_degree    share of words on slots that have too much over the share of
                   different words there, the mean of the nodes
  moves            shards and words that went to other instances

\b
Where words come from, and go:
  --source text    the text that comes along, the default; rate is generated, files:DIR
                   has files that end in .txt, kafka://host:port/topic is read from the
                   first message to the last that is there when it starts
  --sink           redis://user:password@host:port/db, rediss:// with TLS: the counts are
                   in the hash words:count, of another run with another --sink-name;
                   UNSKEW_SINK=... in the environment keeps a password out of the list of
                   processes
""",
)
@click.argument("name", metavar="[APP]", default="trending")
@click.option("--list", "listing", is_flag=True, help="List the apps.")
@click.option(
    "--source",
    metavar="rate|files:DIR|URL",
    help="A generated stream, or the files of a folder, one a batch: Parquet, CSV, JSON or text; "
    "words has more, see below.  [default: rate; of words: text]",
)
@click.option("--key", metavar="COLUMN", help="Key column of the files.")
@click.option(
    "--time", metavar="COLUMN", help="Event time of the files.  [default: when each was written]"
)
@click.option(
    "--value", metavar="COLUMN", help="Number whose quantiles are computed, of the files."
)
@click.option("--grouping", help=f"Sends the rows, of trending.  [default: {GROUPING}]")
@click.option(
    "--sink", metavar="URL", envvar="UNSKEW_SINK", help="A Redis for the counts, of words."
)
@click.option(
    "--sink-name",
    metavar="NAME",
    help="What names in the Redis begin with, of words: another for each --out.  [default: words]",
)
@click.option(
    "--jars",
    metavar="FILE,...",
    help="The connector to Kafka, of words.  [default: fetched, in Spark's own version]",
)
@click.option(
    "--balancer",
    help="Moves the state, of rides, regions, bayes and words.  [default: ls-stream, locality, "
    "consistent, two-tier]",
)
@click.option(
    "--shards",
    type=click.IntRange(1, 2**20),
    help="That the balancer moves, of bayes.  [default: 100 for each instance with consistent, "
    "else 16 for each]",
)
@click.option("--stable", is_flag=True, help="Hashtags stay in their regions, of regions.")
@click.option(
    "--speeds",
    metavar="S,S,...",
    help="Start as many executors on this machine, slowed to these parts of their speed, of bayes: "
    "by a CPU quota where the system allows it, else by waiting.",
)
@click.option(
    "--change",
    "changes",
    multiple=True,
    metavar="BATCH:S,S,...",
    help="Other --speeds from a batch on; may be given again.",
)
@click.option(
    "--instances",
    type=click.IntRange(1, 1024),
    help=f"[default: {INSTANCES}, or {CORES} for each of --speeds]",
)
@click.option(
    "--batches",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="Of a generated stream; files and Kafka are read to their end.",
)
@click.option("--rows", type=click.IntRange(min=1), help="In a batch.  [default: by app]")
@click.option(
    "--master",
    help="Where Spark runs; on several machines all must see --out, and the files.  [default: "
    "local[*], or executors on this machine with --speeds]",
)
@click.option("--seed", type=click.IntRange(0, 2**31), default=0, show_default=True)
@click.option("--verify", is_flag=True, help="Compute it all again with plain Spark, and compare.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for results, see below; a second run goes on where it stopped.",
)
@click.option(
    "--json",
    "json_path",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE|-",
    help="Write the summary as an object; - is stdout, which then has nothing else.",
)
def run_command(
    name: str,
    listing: bool,
    source: str | None,
    key: str | None,
    time: str | None,
    value: str | None,
    grouping: str | None,
    sink: str | None,
    sink_name: str | None,
    jars: str | None,
    balancer: str | None,
    shards: int | None,
    stable: bool,
    speeds: str | None,
    changes: tuple[str, ...],
    instances: int | None,
    batches: int,
    rows: int | None,
    master: str | None,
    seed: int,
    verify: bool,
    out: Path | None,
    json_path: Path | None,
) -> None:
    """Run a job on Spark, balanced, and see the balance of every batch.

    APP is trending unless another is named; --list tells which there are.
    """
    # Spark takes a second to import, which no other command should wait for.
    try:
        from unskew.apps import APPS, Options, app
    except MissingSpark as error:
        raise BadParameter(str(error)) from error
    from unskew.apps.report import run_report
    from unskew.apps.session import spark_session
    from unskew.balance import balancer as make_balancer
    from unskew.grouping import grouping as make_grouping
    from unskew.spark import Speeds
    from unskew.spark.redis_url import redis_address

    if listing:
        for entry in APPS.values():
            show(f"{entry.name}: {entry.title}")
        return
    chosen = app(name)
    check_taken(
        chosen,
        source=None if source == "rate" else source,
        key=key,
        time=time,
        value=value,
        grouping=grouping,
        balancer=balancer,
        shards=None if shards is None else str(shards),
        stable="--stable" if stable else None,
        speeds=speeds,
        change=" ".join(changes) or None,
        # The environment may be for another app.
        sink=sink if is_typed("sink") else None,
        jars=jars,
        **{"sink-name": sink_name},
    )
    if sink_name is not None and not (sink_name and sink):
        raise BadParameter(
            f"--sink-name {sink_name!r} is what names in a Redis begin with; give it letters, and "
            f"name the Redis with --sink"
        )
    if changes and speeds is None:
        raise BadParameter(f"--change {changes[0]} changes --speeds; give those, too")
    slowed = None if speeds is None else Speeds.parsed(speeds, changes)
    if instances is None:
        instances = INSTANCES if slowed is None else CORES * len(slowed.first)
    if slowed is not None and instances < len(slowed.first):
        raise BadParameter(
            f"--speeds has {len(slowed.first)} numbers, and there are {instances} instances; every "
            f"executor needs at least one"
        )
    if shards is not None and shards < instances:
        raise BadParameter(
            f"--shards {shards} is fewer than there are instances, {instances}; every instance "
            f"needs at least one"
        )
    if master is None:
        number = 0 if slowed is None else len(slowed.first)
        master = f"local-cluster[{number},{CORES},1024]" if number else "local[*]"
    make_grouping(grouping or GROUPING, instances)
    make_balancer(balancer or chosen.balancer)
    if sink is not None and "sink" in chosen.takes:
        redis_address(sink)
    if sink is not None and "sink" not in chosen.takes:
        sink = None
    check_source(chosen, source or chosen.source, key, time, value)
    if jars is not None:
        check_jars(jars, source or chosen.source)
    quiet = json_path is not None and str(json_path) == "-"
    if json_path is not None and not quiet:
        check_target(json_path)
    with _folder(out) as folder, tempfile.TemporaryDirectory(prefix="unskew-") as scratch:
        options = Options(
            source=source or chosen.source,
            key=key,
            time=time,
            value=value,
            grouping=grouping or GROUPING,
            balancer=balancer or chosen.balancer,
            instances=instances,
            batches=batches,
            rows=rows or chosen.rows,
            out=folder,
            seed=seed,
            verify=verify,
            stable=stable,
            speeds=slowed,
            shards=shards,
            sink=sink,
            sink_name=sink_name,
            jars=jars,
        )
        with (
            spark_session(master, Path(scratch), chosen.settings(options)) as spark,
            _live(options, chosen.strategy(options), stderr=quiet) as watch,
        ):
            summary = chosen.run(spark, options, watch)
        if out is not None and summary.batches:
            write_whole(out / "report.html", run_report(summary).encode())
    text = json.dumps(summary.as_dict(), indent=1) + "\n"
    if quiet:
        write_stdout(text)
        return
    if json_path is not None:
        write_whole(json_path, text.encode())
    show(*_told(summary))
    if out is not None:
        show(f"Results: {out / chosen.results}", f"Report: {out / 'report.html'}")


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """Yield the folder that was named, or one that is gone afterwards."""
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadParameter(
                f"cannot make the folder {out} of --out: {error.strerror}; name another"
            ) from error
        yield out.resolve()
        return
    made = Path(tempfile.mkdtemp(prefix="unskew-run-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def _live(options: Options, strategy: str, *, stderr: bool) -> Iterator[Watch]:
    """Yield what is told of every batch: a table that grows, or lines where nobody watches."""
    console = Console(stderr=stderr, highlight=False)
    seen: list[Batch] = []
    if not console.is_terminal:
        yield lambda batch: show(_line(batch), stderr=stderr)
        return
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        live.update(Text(f"starting Spark; {options.rows:,} rows in a batch"))

        def watch(batch: Batch) -> None:
            seen.append(batch)
            live.update(_table(seen[-SHOWN:], strategy))

        yield watch


def _line(batch: Batch) -> str:
    hot = ", ".join(f"{one_line(hot.key)} on {hot.instances}" for hot in batch.balance.hot[:3])
    return (
        f"batch {batch.number}: {batch.rows_per_second:,.0f} rows/s, imbalance "
        f"{batch.balance.imbalance:.3f} (Spark's hash {batch.balance.hash_imbalance:.2f}), "
        f"replication {batch.replication_factor:.3f}, {hot}"
    )


def _table(batches: list[Batch], strategy: str) -> Table:
    table = Table(title=f"unskew run, {strategy}", title_justify="left")
    for heading in ("batch", "rows/s", "imbalance", "under hashing", "replication"):
        table.add_column(heading, justify="right")
    table.add_column("hot keys, and their instances")
    for batch in batches:
        hot = ", ".join(f"{one_line(hot.key)} {hot.instances}" for hot in batch.balance.hot[:4])
        table.add_row(
            f"{batch.number}",
            f"{batch.rows_per_second:,.0f}",
            f"{batch.balance.imbalance:.3f}",
            f"{batch.balance.hash_imbalance:.2f}",
            f"{batch.replication_factor:.3f}",
            Text(hot),
        )
    return table


def _batches(summary: Summary) -> str:
    number = len(summary.batches)
    return f"{number} batch{'es' if number != 1 else ''}"


def _gain(summary: Summary) -> str:
    """Return what balance was worth, where it was worth something."""
    if summary.outcome is not None or summary.gain < WORTH_TELLING:
        return ""
    return f": the busiest instance has {summary.gain:.1f} times fewer {summary.balanced}"


def _told(summary: Summary) -> Iterator[Table | str]:
    """Yield the summary: the batches, what it did, what came out."""
    if not summary.batches:
        yield "There is nothing new: --out has all that the source has."
        return
    yield _table(list(summary.batches), summary.strategy)
    yield from map(printable, summary.notes)
    yield (
        f"{summary.rows_in:,} rows in {_batches(summary)} and {summary.seconds:.1f} s; "
        f"imbalance of {summary.balanced} {summary.imbalance:.3f}, under Spark's hash "
        f"{summary.hash_imbalance:.2f}{_gain(summary)}."
    )
    if summary.outcome is not None:
        yield summary.outcome
    if summary.verified:
        yield "Verified: all results, of earlier runs too, are those that plain Spark computes."
