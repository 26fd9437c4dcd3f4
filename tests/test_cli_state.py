"""`unskew state`: what it prints, what it writes, and how it refuses."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from rich.console import Console
from state.playing import NEVER, Player, a_player, counting, play_initial, users

from unskew.balance import Plan
from unskew.balance.placed import Placed
from unskew.cli import main
from unskew.cli.state import _batches, state_command
from unskew.keys import hash_keys
from unskew.state import Run
from unskew.state.inspecting import BatchState
from unskew.state.segment import SegmentReader
from unskew.state.versions import Kind

EVIL = "a [red]b\n\x1b[31mc\x07\u202e"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["state", *arguments], prog_name="unskew")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def player() -> Player:
    """Return a pipeline of two stages after two batches."""
    made = a_player(Path("checkpoint/unskew").absolute(), stages=2)
    made.play(0, users(*["hot"] * 50, *(f"user {number}" for number in range(40))))
    made.play(1, users(*["hot"] * 50, *[EVIL] * 7, "user 1"), plan=made.plan.move({1: 0}))
    return made


def everything() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file()}


def test_it_tells_of_stages_batches_plan_shards_and_keys(player: Player) -> None:
    before = everything()
    result = run("checkpoint", "--top", "3")
    assert (result.exit_code, result.stderr) == (0, "")
    assert everything() == before
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[0] == f"{player.checkpoint.folder}: state after batch 1"
    assert any(line.startswith("0 stage 0 aggregation(n=Count(),") for line in lines)
    assert re.search(r"^0 batch 90 0 0\.25 41 0 0 0\.\d{3} [\d.]+$", "\n".join(lines), re.MULTILINE)
    assert re.search(r"^1 batch 58 0 0\.25 3 1 0 [\d.]+ [\d.]+$", "\n".join(lines), re.MULTILINE)
    assert "plan in force: 2 instances with 3 to 5 shards, epoch 1, 0 hot keys" in lines
    where = lines.index("8 shards with state, the largest")
    assert lines[where + 1] == "shard instance state KB rows runs"
    assert [len(line.split()) for line in lines[where + 3 : where + 6]] == [5, 5, 5]
    assert lines[where + 6] == ""
    where = lines.index("hottest keys of batch 1")
    hashed = int(hash_keys(pa.array(["hot"]))[0])
    [instance] = player.plan.instances_of(hashed)
    assert lines[where + 3] == f"hot {instance} 50 {hashed}"
    assert len(lines) == where + 6
    assert max(map(len, result.stdout.splitlines()[1:])) <= 80


def test_keys_that_are_placed_are_found_and_their_moves_are_told() -> None:
    player = a_player(Path("checkpoint/unskew").absolute())
    names = [*["hot"] * 50, *(f"user {number}" for number in range(40))]
    player.play(0, users(*names))
    keys = hash_keys(pa.array(["hot", "user 1"]))
    elsewhere = (player.plan.hashed_shard_of(keys) + 1) % 8
    plan = replace(player.plan, epoch=1, placed=Placed(keys, elsewhere))
    player.play(1, users(*names), plan=plan)
    player.play(1, users(), kind=Kind.SETTLED)

    result = run("checkpoint")

    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "plan in force: 2 instances with 4 shards, epoch 1, 0 hot keys, 2 keys placed" in lines
    assert any(re.match(r"1 batch 90 0 0\.25 41 0 2 ", line) for line in lines)
    assert any(re.match(r"1 settled 0 0 0\.25 0 0 0 ", line) for line in lines)
    where = lines.index("hottest keys of batch 1")
    assert lines[where + 3] == f"hot {plan.assignment[elsewhere[0]]} 50 {keys[0]}"
    assert "not in the state" not in result.stdout
    assert max(map(len, result.stdout.splitlines()[1:])) <= 80


def test_no_column_of_batches_is_cut_short_when_numbers_are_large() -> None:
    batch = BatchState(999, "flushed", 250_000, 12, 180_000, 12.25, 1024, 12, 9_876, 1.5, 10**8)
    console = Console(width=80, file=StringIO())
    console.print(_batches([batch], "batches"))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    told = "999 flushed 250,000 12 12.25 180,000 1,024 9,888 1.500 97,656.2"
    assert " ".join(shown.splitlines()[-1].split()) == told


def test_keys_cannot_command_the_terminal(player: Player) -> None:
    result = run("checkpoint")
    assert "a [red]b\\n\\x1b[31mc\\x07\\u202e " in result.stdout
    assert not set(result.stdout) & set("\x1b\x07\u202e")
    found = json.loads(run("checkpoint", "--json", "-").stdout)
    assert found["hottest"][1]["key"] == EVIL


def test_a_long_key_is_cut_in_the_table_and_whole_in_json() -> None:
    a_player(Path("checkpoint")).play(0, users("k" * 500))
    assert f"{'k' * 20}" in run("checkpoint").stdout
    assert "k" * 50 not in "".join(run("checkpoint").stdout.split())
    [hottest] = json.loads(run("checkpoint", "--json", "-").stdout)["hottest"]
    assert hottest["key"] == "k" * 500


def test_json_holds_all_of_it(player: Player) -> None:
    result = run("checkpoint", "--stage", "1", "--batch", "0", "--json", "out.json")
    assert "state after batch 0" in result.stdout
    found = json.loads(Path("out.json").read_text())
    assert list(found) == [
        *("folder", "batch", "kind", "watermark", "stage", "stages", "batches", "plan", "shards"),
        *("shards_with_state", "state_bytes", "hottest"),
    ]
    assert (found["stage"], found["batch"], len(found["hottest"])) == (1, 0, 10)
    assert found["hottest"][0]["key"] == "hot"
    assert [batch["rows"] for batch in found["batches"]] == [90, 58]
    on_stdout = run("checkpoint", "--stage", "1", "--batch", "0", "--json", "-")
    assert json.loads(on_stdout.stdout) == found
    assert on_stdout.stderr == ""


def test_the_state_is_exported(player: Player) -> None:
    result = run("checkpoint", "--export", "out.parquet")
    assert result.stdout.endswith("Exported: 42 rows of stage 0 to out.parquet\n")
    table = pq.read_table("out.parquet")
    assert table.schema.names == ["user", "state_n"]
    assert dict(zip(*table.to_pydict().values(), strict=True))["hot"] == 100


def test_an_export_that_fails_leaves_an_earlier_one_as_it_was(
    player: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("out.parquet").write_text("earlier")
    before = everything()
    opened = SegmentReader.__call__
    calls = []

    def fail_late(self: SegmentReader, run: Run) -> pa.RecordBatch:
        calls.append(run)
        if len(calls) == 12:
            raise OSError(5, "Input/output error")
        return opened(self, run)

    monkeypatch.setattr(SegmentReader, "__call__", fail_late)
    result = run("checkpoint", "--export", "out.parquet")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Input/output error" in result.stderr
    assert everything() == before


def test_what_came_before_the_first_batch_and_after_the_last_is_told() -> None:
    made = a_player(Path("checkpoint"))
    play_initial(made, users("a"))
    assert ": initial state\n" in run("checkpoint").stdout
    made.play(0, users("a"))
    made.play(0, users(), kind=Kind.SETTLED, watermark=1_700_000_000_000_000)
    assert "after batch 0, settled, watermark 2023-11-14 22:13:20 UTC" in run("checkpoint").stdout
    made.play(0, users(), kind=Kind.FLUSHED, watermark=NEVER - 1)
    assert "state after batch 0, flushed" in run("checkpoint").stdout


def test_a_damaged_batch_is_a_line_among_the_others(player: Player) -> None:
    path = player.checkpoint.folder / "manifests" / "000000000000.json"
    path.write_bytes(path.read_bytes()[:-5])
    result = run("checkpoint")
    assert result.exit_code == 0
    assert re.search(r"^0 +batch( +\?){7}", result.stdout, flags=re.MULTILINE)
    assert f"damaged: {path} was cut or altered" in result.stdout


def test_a_copy_with_other_shards_goes_on(player: Player) -> None:
    result = run("checkpoint", "--reshard", "5", "--to", "new")
    assert (result.exit_code, result.stderr) == (0, "")
    told, how = result.stdout.splitlines()
    assert re.fullmatch(r"84 rows of state, [\d.]+ KB, from 8 to 5 shards, as of batch 1", told)
    assert how == (
        f"Start the pipeline with shards=5, state={str(Path('new').absolute())!r} and the "
        f"checkpoint that it had."
    )
    shown = run("new").stdout
    assert "state after batch 1, re-sharded" in shown
    assert "plan in force: 2 instances with 2 to 3 shards, epoch 0, 0 hot keys" in shown
    assert a_player(Path("new"), shards=5, stages=2).play(2, users("a")).version == 8


BAD = {
    "no checkpoint": (["."], r"error: \. is not the checkpoint of a pipeline"),
    "no folder": (["gone"], r"error: gone is not the checkpoint of a pipeline"),
    "nothing": ([], r"Missing argument 'CHECKPOINT'; see unskew state --help"),
    "no batch yet": (["young"], r"young has no batch yet; wait for the first one"),
    "a damaged manifest": (["damaged"], r"000000000000\.json was cut or altered"),
    "a damaged pipeline": (["worse"], r"pipeline\.json does not begin like a pipeline of unskew"),
    "an unknown stage": (
        ["checkpoint", "--stage", "2"],
        r"error: --stage must be from 0 to 1, not 2",
    ),
    "an unknown batch": (
        ["checkpoint", "--batch", "7"],
        r"error: --batch must be one that is kept, 0 to 1, not 7",
    ),
    "nothing to show": (["checkpoint", "--top", "0"], r"Invalid value for '--top'"),
    "an export of another kind": (
        ["checkpoint", "--export", "out.csv"],
        r"--export out\.csv writes Parquet; let its name end with \.parquet",
    ),
    "an export to nowhere": (["checkpoint", "--export", "no/out.parquet"], r"no directory .*/no"),
    "two results in one file": (
        ["checkpoint", "--export", "o.parquet", "--json", "./o.parquet"],
        r"both write o\.parquet; name two files",
    ),
    "shards without a folder": (["checkpoint", "--reshard", "4"], r"with --to NEWFOLDER"),
    "a folder without shards": (
        ["checkpoint", "--to", "new"],
        r"--reshard SHARDS writes; give both",
    ),
    "no shards": (
        ["checkpoint", "--reshard", "0", "--to", "new"],
        r"error: --reshard must be from 1 to 1048576, not 0",
    ),
    "a folder that is there": (
        ["checkpoint", "--reshard", "4", "--to", "young"],
        r"young is there already; name a folder that is not",
    ),
    "shards of one stage": (
        ["checkpoint", "--reshard", "4", "--to", "new", "--stage", "1"],
        r"--reshard and --stage exclude each other",
    ),
    "shards and an export": (
        ["checkpoint", "--reshard", "4", "--to", "new", "--export", "out.parquet"],
        r"--reshard and --export exclude each other",
    ),
    "hot keys in one shard": (
        ["hot", "--reshard", "4", "--to", "new"],
        r'stage 0 has hot keys .* one batch with balancer="static"',
    ),
    "a name that would command the terminal": (["a\n\x1b[31mb"], r"a \\x1b\[31mb is not the"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line_exit_code_2_and_no_file(
    arguments: list[str], message: str, player: Player
) -> None:
    del player
    a_player(Path("young"))
    for name, document in (("damaged", "manifests/000000000000"), ("worse", "pipeline")):
        a_player(Path(name)).play(0, users("a"))
        path = Path(name) / f"{document}.json"
        path.write_bytes(path.read_bytes()[:-5] if name == "damaged" else b"{}")
    key = int(hash_keys(pa.array(["a"]))[0])
    a_player(Path("hot")).play(
        0, users("a"), plan=Plan(Plan.even(8, 2).assignment, 2, 0, {key: (0, 1)})
    )
    before = everything()

    result = run(*arguments)

    assert result.exit_code == 2
    assert re.search(message, result.stderr), result.stderr
    [line] = result.stderr.splitlines()
    assert line.startswith("unskew: error: ")
    assert result.stdout == ""
    assert everything() == before
    assert not Path("new").exists()


def test_names_of_stages_and_columns_cannot_command_the_terminal() -> None:
    Player(
        Path("checkpoint"), [counting(pa.field("\x1b[31mkey", pa.string()))], Plan.even(2, 1)
    ).play(0, pa.record_batch({"\x1b[31mkey": ["a"]}))
    shown = run("checkpoint").stdout
    assert "\\x1b[31mkey" in shown
    assert "\x1b" not in shown


def test_help_teaches_with_commands_that_parse() -> None:
    shown = run("--help").stdout
    examples = re.findall(r"^ +(?:2\. )?unskew (state.*)$", shown, flags=re.MULTILINE)
    assert len(examples) >= 6
    for example in examples:
        _, *arguments = shlex.split(example.partition(" |")[0])
        with state_command.make_context("state", [*arguments]):
            pass
    assert max(map(len, shown.splitlines())) <= 80
    assert 'state="checkpoint/unskew-256"' in shown
    assert "unskew state" in CliRunner().invoke(main, ["--help"]).stdout


def test_it_needs_no_spark(player: Player) -> None:
    del player
    code = "import sys; sys.modules['pyspark'] = None\nfrom unskew.cli import main; main()"
    for arguments in (["--export", "out.parquet"], ["--reshard", "4", "--to", "new"]):
        done = subprocess.run(
            [sys.executable, "-c", code, "state", "checkpoint", *arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
