from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from unskew.cli import main


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["reproduce", *args])


def test_the_list_names_experiments_and_figures() -> None:
    result = run("--list")

    assert result.exit_code == 0
    assert "pd-stream: Pd-Stream, Section VI" in result.stdout
    assert "  Figure 8: Imbalance on Zipf streams" in result.stdout


def test_one_table_is_run_and_shown_beside_the_paper_s(tmp_path: Path) -> None:
    result = run("pd-stream", "--quick", "--figure", "III", "--out", str(tmp_path / "out"))

    assert result.exit_code == 0, result.output
    assert "Report: " in result.stdout
    assert "62.99" in result.stdout
    data = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {entry["figure"] for entry in data} == {"III"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nothing", "--out", "x"], "there is no experiment 'nothing'; choose one of pd-stream"),
        (["pd-stream", "--figure", "99", "--out", "x"], "pd-stream has no figure '99'"),
        (["pd-stream"], "say where the results go, with --out DIR"),
        ([], "name an experiment, or see which there are with --list"),
        (["pd-stream", "--seed", "-1", "--out", "x"], "Invalid value for '--seed'"),
    ],
    ids=["experiment", "figure", "no folder", "nothing", "seed"],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    args: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*args)

    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("pd-stream", "--figure", "II", "--out", str(tmp_path / "file" / "out"))

    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
