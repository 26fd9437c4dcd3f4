"""The command line: what it prints, what it writes, and how it refuses."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.core import ParameterSource
from click.testing import CliRunner, Result

import unskew.cli.compare
from unskew.cli import main
from unskew.cli.compare import compare_command
from unskew.grouping.base import groupings

REQUIRED = [
    "grouping",
    "instances",
    "sources",
    "messages",
    "keys",
    "imbalance",
    "replication_factor",
    "memory_keys",
    "ns_per_tuple",
    "state_bytes",
]
SMALL = ["compare", "--messages", "3000", "--keys", "200", "--groupings", "key,shuffle"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty directory with one file of each kind."""
    monkeypatch.chdir(tmp_path)
    Path("keys.txt").write_text("a\nb\na\nc\na\n")
    Path("rides.csv").write_text("city,driver\nOslo,1\nOslo,2\nBergen,2\nOslo,1\n")
    Path("nulls.csv").write_text("city,driver\nOslo,1\n,2\nBergen,3\n")
    Path("empty.txt").write_text("")
    Path("out.bin").write_bytes(b"a\n")
    Path("header.csv").write_text("city\n")
    Path("blank.csv").write_text("city,driver\n,1\n,2\n")
    Path("directory.txt").mkdir()
    Path("link.json").symlink_to("keys.txt")
    Path("hard.svg").hardlink_to("keys.txt")
    table = pa.table({"m": pa.array([[("a", 1)]] * 4, pa.map_(pa.string(), pa.int64()))})
    pq.write_table(table, "map.parquet")
    pq.write_table(pa.table({"k": list(range(1000))}), "whole.parquet")
    whole = Path("whole.parquet").read_bytes()
    Path("cut.parquet").write_bytes(whole[: len(whole) // 2])
    # The footer is there, the pages it points to are not.
    Path("damaged.parquet").write_bytes(whole[:4] + bytes(len(whole) - 700) + whole[-696:])
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), prog_name="unskew")


def files() -> set[str]:
    return {path.name for path in Path().iterdir()}


def test_json_is_a_list_of_objects_with_exactly_these_keys_in_this_order() -> None:
    result = run(*SMALL, "--instances", "4,8", "--sources", "2", "--json", "out.json")
    assert result.exit_code == 0
    rows = json.loads(Path("out.json").read_text())
    assert [list(row) for row in rows] == [[*REQUIRED, "hot_keys", "lower_bound"]] * 4
    assert [(row["instances"], row["grouping"]) for row in rows] == [
        (4, "key"),
        (4, "shuffle"),
        (8, "key"),
        (8, "shuffle"),
    ]
    assert {(row["messages"], row["sources"]) for row in rows} == {(3000, 2)}
    whole = {"instances", "sources", "messages", "keys", "memory_keys", "state_bytes", "hot_keys"}
    for row in rows:
        assert all(isinstance(row[key], int) == (key in whole) for key in row if key != "grouping")


def test_with_json_on_stdout_everything_else_goes_to_stderr() -> None:
    result = run(*SMALL, "--instances", "4", "--json", "-")
    assert [row["grouping"] for row in json.loads(result.stdout)] == ["key", "shuffle"]
    assert "4 instances" in result.stderr
    assert "Use shuffle: " in result.stderr


def test_the_table_has_a_part_for_each_number_of_instances_and_ends_with_the_advice() -> None:
    result = run(*SMALL, "--instances", "4,16")
    lines = [line.strip() for line in result.stdout.splitlines() if line.strip()]
    found = [line.partition(" ")[0] for line in lines if re.match(r"\d+ inst|key |shuffle ", line)]
    assert found == ["4", "key", "shuffle", "16", "key", "shuffle"]
    assert lines[0].startswith("Zipf 1.4 over 200 keys: 3,000 messages, ")
    assert lines[-1].startswith("Use shuffle: the busiest of 16 instances gets 1.00 times the mean")
    assert "balance ≥ 1." in result.stdout
    assert max(map(len, lines[:-1])) <= 80
    assert result.stderr == ""


@pytest.mark.parametrize("charset", ["utf-8", "ascii"])
def test_no_header_is_cut_short_at_80_columns(charset: str) -> None:
    shown = CliRunner(charset=charset).invoke(main, ["compare", "--messages", "3000"])
    assert shown.exit_code == 0
    assert shown.stdout.isascii() == (charset == "ascii")
    assert all(word in shown.stdout for word in ("keys held", "state KB", "cardinality-aware"))


def test_the_same_seed_gives_the_same_results_and_another_seed_others() -> None:
    def loads(seed: str) -> list[float]:
        result = run(*SMALL, "--seed", seed, "--json", "-")
        return [row["imbalance"] for row in json.loads(result.stdout)]

    assert loads("1") == loads("1") != loads("2")


@pytest.mark.parametrize(
    ("arguments", "messages", "keys"),
    [
        pytest.param(["--input", "keys.txt"], 5, 3, id="lines of text"),
        pytest.param(["--input", "rides.csv", "--key", "city"], 4, 2, id="a column"),
        pytest.param(["--input", "rides.csv", "--key", "city,driver"], 4, 3, id="two columns"),
        pytest.param(
            ["--input", "nulls.csv", "--key", "city", "--nulls", "drop"], 2, 2, id="nulls dropped"
        ),
        pytest.param(
            ["--input", "nulls.csv", "--key", "city", "--nulls", "keep"], 3, 3, id="nulls kept"
        ),
        pytest.param(["--input", "whole.parquet"], 1000, 1000, id="a Parquet file of one column"),
        pytest.param(["--dataset", "ddos", "--messages", "50"], 50, None, id="a data set"),
        pytest.param(["--drift", "10", "--messages", "50", "--keys", "9"], 50, None, id="drift"),
        pytest.param(["--zipf", "0", "--messages", "50", "--keys", "1"], 50, 1, id="a single key"),
    ],
)
def test_workloads(arguments: list[str], messages: int, keys: int | None) -> None:
    result = run("compare", *arguments, "--instances", "2", "--groupings", "shuffle", "--json", "-")
    assert result.exit_code == 0, result.stderr
    [row] = json.loads(result.stdout)
    assert row["messages"] == messages
    assert keys in (None, row["keys"])


def test_max_imbalance_is_for_frugal() -> None:
    arguments = ["compare", "--messages", "20000", "--instances", "16", "--json", "-"]
    frugal = [*arguments, "--groupings", "frugal"]
    strict, loose = (
        json.loads(run(*frugal, "--max-imbalance", budget).stdout)[0]["replication_factor"]
        for budget in ("0.01", "2.0")
    )
    assert strict > loose
    refused = run(*arguments, "--groupings", "key", "--max-imbalance", "0.1")
    assert refused.exit_code == 2
    assert "frugal" in refused.stderr


@pytest.mark.parametrize("name", ["skew.png", "skew.svg"])
def test_a_chart_is_written_whole(name: str) -> None:
    before = files()
    result = run(*SMALL, "--instances", "4", "--chart", name)
    assert result.exit_code == 0
    assert files() - before == {name}
    start = {"png": b"\x89PNG", "svg": b"<svg"}[name[5:]]
    assert Path(name).read_bytes().startswith(start)


def test_a_file_with_marks_in_its_name_is_printed_as_it_is_called() -> None:
    name = "[red]keys[bold].txt"
    Path(name).write_text("a\nb\n")
    result = run("compare", "--input", name, "--instances", "2", "--groupings", "key")
    assert f"line of {name}: 2 messages, 2 keys" in result.stdout


def test_the_title_counts_in_the_singular_and_tells_what_was_left_out() -> None:
    arguments = ["--instances", "1", "--groupings", "key", "--nulls", "drop"]
    Path("one.csv").write_text("city,driver\nOslo,1\n,2\n")
    result = run("compare", "--input", "one.csv", "--key", "city", *arguments)
    text = " ".join(result.stdout.split())
    assert "city of one.csv: 1 message, 1 key, 1 row without a key left out" in text
    assert " 1 instance balance " in text
    assert "the busiest of 1 instance gets" in text


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        result = run(*SMALL, "--instances", "4", "--json", str(pipe))
        assert result.exit_code == 0
        content = reader.communicate(timeout=10)[0]
    assert len(json.loads(content)) == 2
    assert pipe.is_fifo()


BAD = {
    "an unknown grouping": (["--groupings", "key,nope"], r"no grouping 'nope'; choose one of"),
    "a missing file": (["--input", "gone.csv"], r"no file gone\.csv; check"),
    "an unknown column": (
        ["--input", "rides.csv", "--key", "town"],
        r"no column 'town'; choose among city, driver",
    ),
    "two columns and no key named": (
        ["--input", "rides.csv"],
        r"choose the key among city, driver, with --key COLUMN",
    ),
    "a file of unknown format": (
        ["--input", "out.bin"],
        r"cannot tell the format of out\.bin from its name; name it",
    ),
    "a directory for a file": (["--input", "directory.txt"], r"is a directory; name a single"),
    "zero instances": (["--instances", "0"], r"instances must be from 1 to \d+, not 0"),
    "negative instances": (["--instances", "16,-4"], r"instances must be .*, not -4"),
    "instances that are no numbers": (["--instances", "many"], r"'many' is not whole numbers"),
    "a comma too many": (["--instances", "4,,8"], r"--instances '4,,8' has a comma"),
    "no groupings": (["--groupings", ""], r"--groupings is empty; give"),
    "a drift of nothing": (["--drift", "0"], r"error: --drift must be .*, not 0"),
    "a drift with nothing to drift to": (
        ["--drift", "9", "--keys", "2"],
        r"--drift needs --keys of at least 3, not 2",
    ),
    "a negative budget": (["--max-imbalance", "-1"], r"error: --max-imbalance must be .*, not -1"),
    "a budget and no frugal": (
        ["--max-imbalance", "0.1", "--groupings", "key"],
        r"--max-imbalance is for frugal; add it to --groupings",
    ),
    "a column twice": (
        ["--input", "rides.csv", "--key", "city,city"],
        r"error: --key names column 'city' twice",
    ),
    "a word for a number": (
        ["--zipf", "steep"],
        r"Invalid value for '--zipf': 'steep' is not a valid float; see unskew compare --help",
    ),
    "an unknown option": (["--skew", "1"], r"No such option.*; see unskew compare --help"),
    "a stream too long for any disk": (
        ["--messages", "999999999999999"],
        r"999,999,999,999,999 messages take 12,000,000\.0 GB in .* GB are free; give fewer",
    ),
    "results over the input": (
        ["--input", "keys.txt", "--json", "./keys.txt"],
        r"--json keys\.txt would overwrite the input; name another",
    ),
    "results over the input by a symbolic link": (
        ["--input", "keys.txt", "--json", "link.json"],
        r"--json link\.json would overwrite the input",
    ),
    "a chart over the input by a hard link": (
        ["--input", "keys.txt", "--chart", "hard.svg"],
        r"--chart hard\.svg would overwrite the input",
    ),
    "no key in any row": (
        ["--input", "blank.csv", "--key", "city", "--nulls", "drop"],
        r"--nulls drop leaves them all out; choose another .* with --nulls keep",
    ),
    "more instances than messages": (
        ["--input", "keys.txt", "--instances", "6"],
        r"instances = 6 is more than the 5 messages of keys\.txt; give fewer",
    ),
    "more instances than rows of a batch": (
        ["--batch", "100", "--instances", "128"],
        r"instances = 128 is more than the 100 rows of a batch",
    ),
    "an empty file": (["--input", "empty.txt"], r"empty\.txt is empty; give"),
    "a header and no rows": (["--input", "header.csv"], r"header\.csv has no rows; give"),
    "null keys": (
        ["--input", "nulls.csv", "--key", "city", "--instances", "2"],
        r"'city' of nulls\.csv has no key in row 2.*with --nulls drop or .* with --nulls keep",
    ),
    "a key column that cannot be hashed": (["--input", "map.parquet"], r"column 'm' .*map"),
    "truncated Parquet": (["--input", "cut.parquet"], r"cannot read cut\.parquet; .*cut short"),
    "damaged Parquet": (["--input", "damaged.parquet"], r"cannot read damaged\.parquet"),
    "zero sources": (["--sources", "0"], r"sources must be .*, not 0"),
    "zero messages": (["--messages", "0"], r"messages must be .*, not 0"),
    "a negative exponent": (["--zipf", "-1"], r"error: --zipf must be at least 0, not -1"),
    "an exponent that is no number": (["--zipf", "nan"], r"error: --zipf must be .*nan"),
    "an unknown data set": (["--dataset", "moon"], r"no data set 'moon'; choose one of ddos"),
    "a file and a skew": (["--input", "keys.txt", "--zipf", "1"], r"--input and --zipf exclude"),
    "a data set and a skew": (["--dataset", "ddos", "--zipf", "1"], r"--dataset and --zipf"),
    "a key without a file": (["--key", "city"], r"--key is about a file; name it with --input"),
    "a negative seed": (["--seed", "-1"], r"seed must be .*, not -1"),
    "a chart of unknown format": (["--chart", "skew.gif"], r"'skew\.gif'; let its name end with"),
    "a chart in a missing directory": (["--chart", "no/skew.png"], r"no directory .*/no; make it"),
    "results in place of a directory": (["--json", "directory.txt"], r"it is a directory; name"),
    "two results in one file": (
        ["--json", "out.html", "--chart", "./out.html"],
        r"both write out\.html; name two",
    ),
    "a file name that would command the terminal": (
        ["--input", "a\n\x1b[31mb.csv"],
        r"no file a \\x1b\[31mb\.csv",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line_exit_code_2_and_no_file(arguments: list[str], message: str) -> None:
    before = files()
    outputs = ["--json", "out.json", "--chart", "out.png"]
    result = run("compare", *outputs, *arguments)
    assert result.exit_code == 2
    assert re.search(message, result.stderr), result.stderr
    [line] = result.stderr.splitlines()
    assert line.startswith("unskew: error: ")
    assert result.stdout == ""
    assert files() == before


@pytest.mark.parametrize("word", ["--skew", "contrast"])
def test_what_stands_for_the_command_is_refused_in_one_line_too(word: str) -> None:
    result = run(word)
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.fullmatch(rf"unskew: error: .*{word}.*; see unskew --help\n", result.stderr)


def test_an_error_leaves_an_earlier_result_as_it_was() -> None:
    Path("out.json").write_text("earlier")
    result = run("compare", "--input", "cut.parquet", "--json", "out.json")
    assert result.exit_code == 2
    assert Path("out.json").read_text() == "earlier"


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        pytest.param(KeyboardInterrupt(), 130, "unskew: interrupted", id="interrupted"),
        pytest.param(MemoryError(), 2, "unskew: error: not enough memory", id="out of memory"),
        pytest.param(
            OSError(28, "No space left on device"),
            2,
            "unskew: error: no space left",
            id="disk full",
        ),
        pytest.param(
            OSError(5, "Input/output error"), 2, "unskew: error: [Errno 5]", id="bad disk"
        ),
    ],
)
def test_what_happens_from_outside_ends_in_one_line(
    raised: BaseException, code: int, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compare(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(unskew.cli.compare, "compare", compare)
    before = files()
    result = run(*SMALL, "--json", "out.json")
    assert (result.exit_code, files()) == (code, before)
    assert result.stderr.startswith(line)
    assert len(result.stderr.splitlines()) == 1


def test_groupings_are_listed_with_summary_and_reference() -> None:
    text = " ".join(run("groupings").stdout.split())
    assert groupings()
    for name, cls in groupings().items():
        assert name in text
        assert cls.reference.split()[0] in text


def test_help_teaches_with_commands_that_parse() -> None:
    shown = run("compare", "--help").stdout
    examples = re.findall(r"^ +unskew (compare.*)$", shown, flags=re.MULTILINE)
    assert len(examples) >= 5
    for example in examples:
        _, *arguments = shlex.split(example.partition(" |")[0])
        with compare_command.make_context("compare", [*arguments]) as context:
            given = [
                name
                for name in context.params
                if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
            ]
        assert len(given) == sum(word.startswith("--") for word in arguments)
    assert "unskew compare" in run("--help").stdout


def process(*arguments: str, stdout: Any = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    python_path = os.pathsep.join(filter(None, sys.path))
    return subprocess.run(
        [sys.executable, "-c", "from unskew.cli import main; main()", *arguments],
        env={**os.environ, "PYTHONPATH": python_path, "PYTHONIOENCODING": "ascii"},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


def test_a_terminal_that_knows_only_ascii_gets_all_of_it() -> None:
    Path("Malmö.txt").write_text("a\nb\n")
    shown = process("compare", "--input", "Malmö.txt", "--instances", "2", "--groupings", "key")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "line of Malm\\xf6.txt: 2 messages, 2 keys" in shown.stdout
    assert "balance >=1.000" in shown.stdout
    assert shown.stdout.isascii()
    assert process("groupings").returncode == 0


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize(
    ("arguments", "target"),
    [
        pytest.param([*SMALL, "--json", "/dev/full"], "/dev/full", id="results"),
        pytest.param([*SMALL, "--json", "-"], "standard output", id="results on stdout"),
        pytest.param(SMALL, "standard output", id="the table"),
        pytest.param(["groupings"], "standard output", id="the groupings"),
    ],
)
def test_what_cannot_be_written_is_named(arguments: list[str], target: str) -> None:
    with FULL.open("w") as full:
        result = process(*arguments, stdout=full)
    expected = f"unskew: error: cannot write {target}: No space left on device\n"
    assert (result.returncode, result.stderr) == (2, expected)


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("arguments", [["--help"], ["compare", "--help"]], ids=" ".join)
def test_help_that_cannot_be_written_ends_in_one_line(arguments: list[str]) -> None:
    with FULL.open("w") as full:
        result = process(*arguments, stdout=full)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert result.stderr.startswith("unskew: error: ")


def test_a_failure_to_write_names_the_file_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: Path, *_: object) -> None:
        raise OSError(5, "Input/output error", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    result = run(*SMALL, "--json", "out.json")
    assert result.exit_code == 2
    assert result.stderr == "unskew: error: cannot write out.json: Input/output error\n"


def test_as_a_process_it_succeeds_with_0_and_fails_with_2() -> None:
    good = process(*SMALL, "--instances", "4", "--json", "-")
    assert good.returncode == 0
    assert len(json.loads(good.stdout)) == 2
    bad = process("compare", "--input", "gone.csv")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr == "unskew: error: there is no file gone.csv; check the path\n"
