"""`unskew state`: what the checkpoint of a pipeline holds, without starting Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich import box
from rich.table import Table
from rich.text import Text

from unskew.cli.errors import one_line, printable
from unskew.cli.output import check_target, show, write_stdout, write_whole, written_whole
from unskew.errors import BadParameter

if TYPE_CHECKING:
    from unskew.state.inspecting import BatchState, Inspection, KeyState, ShardState, StageState

LONGEST = 48
"""Characters of a key in a table; --json has all of it."""


@click.command(
    "state",
    epilog="""\b
Examples:
  unskew state checkpoint
      the newest batch, of stage 0, beside a running query or without one
  unskew state checkpoint --stage 1 --batch 41
      another stage, an earlier batch
  unskew state checkpoint --json - | jq '.hottest[0]'
  unskew state checkpoint --export users.parquet
      keys and state, for any tool
  unskew state checkpoint --reshard 256 --to checkpoint/unskew-256
      another number of shards, see below

\b
How to read the tables:
  kind        batch: its rows; settled: what expired at the end of a run after
              it; flushed: what a flush let expire; initial: what was there
              before; re-sharded: a copy, with --reshard
  rows in     that came to the stage, late ones among them
  moved       shards that were on another instance than in the batch before;
              keys that were, because they are split or placed, or had been
  imbalance   how far the instance with most rows is above the mean: 0.01 is
              1 %, 2 is three times the mean
  state KB    in files; runs that newer ones partly replace are in it whole,
              and so are their rows
  hot keys    of the plan: their rows and state are on several instances, in a
              shard of each, numbered after all others
  keys placed of the plan: in another shard than that of their hash, with the
              keys that they occur with
  hottest     rows as far as tasks told: each names its 16 largest keys

\b
To change the number of shards:
  1. stop the pipeline
  2. unskew state checkpoint --reshard 256 --to checkpoint/unskew-256
  3. start it with Pipeline(..., shards=256) and
     .start(..., checkpoint="checkpoint", state="checkpoint/unskew-256")
  It goes on where it stopped. The old state is only read: remove it once the
  new one has proved itself, or go back to it until the first new batch. Hot
  keys have to be whole: where they are not, the error says what to do.
""",
)
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("--stage", type=int, default=0, show_default=True, metavar="N", help="Which stage.")
@click.option(
    "--batch", type=int, metavar="N", help="Which batch of those that are kept.  [default: newest]"
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="How many shards and keys to show.",
)
@click.option(
    "--json",
    "json_path",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE|-",
    help="Write all of it as an object; - is stdout, which then has nothing else.",
)
@click.option(
    "--export",
    "export_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the state of the stage, keys and state columns, as a .parquet file.",
)
@click.option(
    "--reshard",
    "shards",
    type=int,
    metavar="SHARDS",
    help="Copy the newest state of all stages into one with so many shards; with --to.",
)
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    metavar="NEWFOLDER",
    help="Folder of the copy; must not be there yet.",
)
@click.pass_context
def state_command(
    context: click.Context,
    checkpoint: Path,
    stage: int,
    batch: int | None,
    top: int,
    json_path: Path | None,
    export_path: Path | None,
    shards: int | None,
    to: Path | None,
) -> None:
    """Look into the state of a pipeline, running or not, or give it another number of shards.

    CHECKPOINT is what Pipeline.start was given, or the folder of its state.
    """
    if shards is not None or to is not None:
        _check_alone(context)
        _reshard(checkpoint, shards, to)
        return
    quiet = json_path == Path("-")
    _check_targets(None if quiet else json_path, export_path)
    # Arrow takes a while to import, which no other command should wait for.
    from unskew.state.exporting import write_parquet
    from unskew.state.inspecting import choose, inspect_state

    chosen = choose(checkpoint, stage=stage, batch=batch)
    found = inspect_state(chosen, top=top)
    exported = None
    if export_path is not None:
        with written_whole(export_path) as part:
            exported = write_parquet(chosen, part)
    text = json.dumps(asdict(found), indent=1, allow_nan=False) + "\n"
    if quiet:
        write_stdout(text)
        return
    if json_path is not None:
        write_whole(json_path, text.encode())
    show(*_told(found))
    if exported is not None:
        show(f"Exported: {exported:,} rows of stage {stage} to {one_line(str(export_path))}")


def _check_alone(context: click.Context) -> None:
    """Refuse options that say nothing about a copy of the newest state of all stages."""
    for name in ("stage", "batch", "top", "json_path", "export_path"):
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = next(each.opts[0] for each in context.command.params if each.name == name)
            raise BadParameter(f"--reshard and {option} exclude each other; leave one out")


def _reshard(checkpoint: Path, shards: int | None, to: Path | None) -> None:
    if shards is None:
        raise BadParameter("--to is where --reshard SHARDS writes; give both")
    if to is None:
        raise BadParameter("say where the state with other shards goes, with --to NEWFOLDER")
    from unskew.state.resharding import reshard

    done = reshard(checkpoint, shards, to)
    show(
        f"{done.rows:,} rows of state, {_kilobytes(done.bytes)} KB, from {done.before:,} to "
        f"{done.after:,} shards, as of batch {done.batch}",
        f"Start the pipeline with shards={done.after}, state={str(done.folder)!r} and the "
        f"checkpoint that it had.",
    )


def _check_targets(json_path: Path | None, export_path: Path | None) -> None:
    """Find out before the work starts whether its results can be written."""
    if json_path is not None:
        check_target(json_path)
    if export_path is None:
        return
    if export_path.suffix != ".parquet":
        raise BadParameter(f"--export {export_path} writes Parquet; let its name end with .parquet")
    check_target(export_path)
    if json_path is not None and json_path.resolve() == export_path.resolve():
        raise BadParameter(f"--json and --export would both write {json_path}; name two files")


def _told(found: Inspection) -> Iterator[Table | str]:
    """Yield what was found, from the whole pipeline to single keys."""
    after = f"state after batch {found.batch}"
    if found.kind != "batch":
        after = "initial state" if found.kind == "initial" else f"{after}, {found.kind}"
    yield f"{one_line(found.folder)}: {after}{_watermark(found.watermark)}"
    yield ""
    yield _stages(found.stages)
    yield ""
    name = one_line(found.stages[found.stage].name)
    yield _batches(found.batches, f"stage {found.stage}, {name}: batches that are kept")
    for each in found.batches:
        if each.damage is not None:
            yield f"damaged: {one_line(each.damage)}"
    yield ""
    yield from _plan(found)
    if found.shards:
        yield ""
        yield _shards(found.shards, f"{found.shards_with_state:,} shards with state, the largest")
    if found.hottest:
        yield ""
        yield _keys(found.hottest, f"hottest keys of batch {found.batch}")


def _watermark(value: int | None) -> str:
    if value is None:
        return ""
    try:
        time = datetime.fromtimestamp(value / 1e6, UTC)
    except (ValueError, OverflowError, OSError):
        return f", watermark {value} us"
    return f", watermark {time:%Y-%m-%d %H:%M:%S} UTC"


def _table(title: str, left: Sequence[str], right: Sequence[str]) -> Table:
    """Return an empty table with columns of text, then columns of numbers."""
    table = Table(
        title=Text(title, style="bold"),
        title_justify="left",
        show_edge=False,
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        # Data may hold what looks like markup.
        highlight=False,
    )
    for heading in left:
        # A name that we chose is short, and no word is cut in two.
        table.add_column(heading, overflow="fold", no_wrap=heading == "kind")
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _stages(stages: Iterable[StageState]) -> Table:
    table = _table("stages", ("stage", "name", "operator", "columns"), ("shards",))
    for each in stages:
        columns = ", ".join(map(one_line, each.columns))
        cells = (str(each.number), one_line(each.name), one_line(each.operator), columns)
        table.add_row(*map(Text, cells), f"{each.shards:,}")
    return table


def _batches(batches: Iterable[BatchState], title: str) -> Table:
    moved = ("shards\nmoved", "keys\nmoved")
    numbers = ("rows in", "late", "s", "rows\nout", *moved, "imbalance", "state KB")
    table = _table(title, ("batch", "kind"), numbers)
    for each in batches:
        if each.damage is not None:
            table.add_row(f"{each.batch}", each.kind, *("?" for _ in numbers), style="red")
            continue
        table.add_row(
            f"{each.batch}",
            each.kind,
            f"{each.rows:,}",
            f"{each.late:,}",
            f"{each.seconds:.2f}",
            f"{each.rows_out:,}",
            f"{each.moves:,}",
            f"{each.hot_moves + each.key_moves:,}",
            "" if each.imbalance is None else f"{each.imbalance:.3f}",
            _kilobytes(each.state_bytes),
        )
    return table


def _plan(found: Inspection) -> Iterator[Table | str]:
    plan = found.plan
    if plan is None:
        yield "plan in force: none"
        return
    few, most = min(plan.shards), max(plan.shards)
    each = f"{few:,}" if few == most else f"{few:,} to {most:,}"
    instances = f"{plan.instances:,} instance{'' if plan.instances == 1 else 's'}"
    hot = f"{len(plan.hot):,} hot key{'' if len(plan.hot) == 1 else 's'}"
    placed = f", {plan.placed:,} key{'' if plan.placed == 1 else 's'} placed" if plan.placed else ""
    yield f"plan in force: {instances} with {each} shards, epoch {plan.epoch:,}, {hot}{placed}"
    if plan.hot:
        yield _keys(plan.hot, "hot keys of the plan")


def _shards(shards: Iterable[ShardState], title: str) -> Table:
    table = _table(title, (), ("shard", "instance", "state KB", "rows", "runs"))
    for each in shards:
        table.add_row(
            f"{each.shard}" + (" (hot keys)" if each.of_hot_keys else ""),
            "?" if each.instance is None else f"{each.instance}",
            _kilobytes(each.bytes),
            f"{each.rows:,}",
            f"{each.runs:,}",
        )
    return table


def _keys(keys: Iterable[KeyState], title: str) -> Table:
    table = _table(title, ("key", "instances"), ("rows", "hash"))
    for each in keys:
        text = Text("not in the state", "dim") if each.key is None else Text(_key(each.key))
        instances = ", ".join(map(str, each.instances))
        table.add_row(text, instances, f"{each.rows:,}", each.hash)
    return table


def _key(text: str) -> str:
    r"""Return the beginning of a key on one line, as it is but for what does not print.

    Examples
    --------
    >>> _key("a\n b\x1b")
    'a\\n b\\x1b'
    """
    shown = printable(text).replace("\n", "\\n")
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 3]}..."


def _kilobytes(size: int) -> str:
    return f"{size / 1024:,.1f}"
