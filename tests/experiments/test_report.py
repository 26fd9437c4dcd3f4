from __future__ import annotations

import csv
import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from unskew.experiments import Experiment, Row, Sizes
from unskew.experiments.pd_stream import EXPERIMENT
from unskew.experiments.report import write_report

NASTY = "</script><img src=x onerror=alert(1)>"
TINY = Sizes("tiny", 2000, 2000, 3000, (1.4,), (4,))


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def written(folder: Path, rows: list[Row], experiment: Experiment = EXPERIMENT) -> str:
    figures = experiment.choose(["8"])
    return write_report(folder, experiment, TINY, rows, figures).read_text(encoding="utf-8")


@pytest.fixture
def rows() -> list[Row]:
    return EXPERIMENT.run(TINY, figures=EXPERIMENT.choose(["8"]))


def test_json_and_csv_have_every_row(tmp_path: Path, rows: list[Row]) -> None:
    written(tmp_path, rows)

    data = json.loads((tmp_path / "results.json").read_text())
    with (tmp_path / "results.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [Row(**entry) for entry in data] == rows
    assert [float(line["ours"]) for line in lines] == [row.ours for row in rows]
    assert lines[0]["paper"] == ""


def test_nothing_but_the_three_files_is_left(tmp_path: Path, rows: list[Row]) -> None:
    written(tmp_path / "new" / "folder", rows)

    names = sorted(path.name for path in (tmp_path / "new" / "folder").iterdir())
    assert names == ["report.html", "results.csv", "results.json"]


def test_the_page_is_whole_and_asks_no_network(tmp_path: Path, rows: list[Row]) -> None:
    page = written(tmp_path, rows)
    tags = Tags()
    tags.feed(page)

    assert tags.links == []
    assert tags.tags.count("script") == 2
    assert 'id="figure-0"' in page
    assert "default-src 'none'" in page


def test_text_cannot_leave_its_place(tmp_path: Path, rows: list[Row]) -> None:
    nasty = [replace(row, case=NASTY, note=NASTY, panel=NASTY) for row in rows]
    experiment = replace(EXPERIMENT, reference=NASTY, findings=lambda rows: [NASTY])
    tags = Tags()
    tags.feed(written(tmp_path, nasty, experiment))

    assert "img" not in tags.tags
    assert tags.tags.count("script") == 2


def test_a_quick_run_says_so(tmp_path: Path, rows: list[Row]) -> None:
    figures = EXPERIMENT.choose(["8"])
    quick = write_report(tmp_path, EXPERIMENT, EXPERIMENT.quick, rows, figures).read_text()

    assert "A quick run" in quick
    assert "A quick run" not in written(tmp_path, rows)


def test_a_number_that_is_not_finite_is_refused_before_a_file_is_touched(
    tmp_path: Path, rows: list[Row]
) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        written(tmp_path / "out", [replace(rows[0], ours=float("nan"))])
    assert not (tmp_path / "out").exists()
