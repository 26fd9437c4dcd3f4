"""Charts are files of their kind that need no network."""

from __future__ import annotations

import json
import re
from pathlib import PurePath
from typing import Any

import pytest

from unskew.charts import FLOOR, chart_format, comparison_chart, render
from unskew.compare import Comparison, recommend
from unskew.errors import BadParameter

NAMES = ["key", "shuffle", "frugal"]
ROWS = [
    Comparison(name, n, 1, 1000, 50, worst * n, copies, 60, 9.0 + i, 128, i, 1.0)
    for n in (16, 4)
    for i, (name, worst, copies) in enumerate(
        zip(NAMES, (0.3, 0.0, 0.0005), (1.0, 7.5, 1.02), strict=True)
    )
]
TITLE = "keys of </script><script>alert(1)</script>"


def specification(rows: list[Comparison]) -> dict[str, Any]:
    chart: dict[str, Any] = comparison_chart(rows, recommend(rows), TITLE).to_dict()
    return chart


def drawn(chart: dict[str, Any], layer: int) -> list[dict[str, Any]]:
    values: list[dict[str, Any]] = chart["datasets"][
        chart["hconcat"][0]["layer"][layer]["data"]["name"]
    ]
    return values


def test_every_row_is_drawn_and_zero_has_a_place_on_the_logarithmic_axis() -> None:
    chart = specification(ROWS)
    assert len(drawn(chart, layer=2)) == len(ROWS)
    zero = [value for value in drawn(chart, layer=2) if value["grouping"] == "shuffle"]
    assert [value["imbalance drawn"] for value in zero] == [FLOOR, FLOOR]
    assert [value["imbalance"] for value in zero] == [0.0, 0.0]
    assert "drawn at 1e-06" in chart["title"]["subtitle"][-1]


def test_the_note_about_zero_is_only_there_for_a_zero() -> None:
    chart = specification([row for row in ROWS if row.grouping != "shuffle"])
    assert "drawn at" not in " ".join(chart["title"]["subtitle"])


def test_the_best_balanced_grouping_is_on_top_and_the_recommended_one_has_the_band() -> None:
    chart = specification(ROWS)
    band = chart["hconcat"][0]["layer"][0]
    assert band["encoding"]["y"]["sort"] == ["shuffle", "frugal", "key"]
    assert drawn(chart, layer=0) == [{"grouping": "frugal"}]


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1]], ids=["six rows", "a single row"])
def test_png_and_svg_are_pictures(rows: list[Comparison]) -> None:
    chart = comparison_chart(rows, recommend(rows), TITLE)
    assert render(chart, ".png").startswith(b"\x89PNG\r\n")
    svg = render(chart, ".svg").decode()
    assert svg.startswith("<svg")
    assert "NaN" not in svg
    assert rows[0].grouping in svg


def test_html_has_its_scripts_inside_and_text_cannot_end_them() -> None:
    page = render(comparison_chart(ROWS, recommend(ROWS), TITLE), ".html").decode()
    assert re.findall(r"<script[^>]*>", page) == ["<script>", "<script>"]
    assert "<link" not in page.partition("<script>")[0]
    inline = page.rpartition("<script>")[2]
    found = re.search(r"const charts = (\{.*\});\n", inline)
    assert found is not None
    assert json.loads(found.group(1))["chart"]["title"]["text"] == TITLE


def test_a_file_that_no_chart_can_be_is_refused_by_its_name() -> None:
    with pytest.raises(BadParameter, match=r"'skew\.gif'.*\.png, \.svg, \.html"):
        chart_format(PurePath("out/skew.gif"))
