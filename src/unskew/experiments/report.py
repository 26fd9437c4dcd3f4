"""Results as files: JSON, CSV, and one page with a chart for each figure that needs no network."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, fields
from html import escape
from pathlib import Path
from typing import Any

import altair as alt

from unskew import pages
from unskew.experiments.base import Experiment, Figure, Row, Sizes

COLOURS = {
    "partial-key": "#8c8c8c",
    "w-choices": "#d98c3f",
    "dagreedy": "#7a5195",
    "dalton": "#b56576",
    "pd-stream": "#2f6db3",
    "frugal": "#1b8a5a",
    "hash": "#8c8c8c",
    "contrand": "#d98c3f",
    "fastjoin": "#7a5195",
    "ls-stream": "#2f6db3",
    "zipf 0.4": "#2f6db3",
    "zipf 0.6": "#7a5195",
    "zipf 0.8": "#d98c3f",
    "storm": "#8c8c8c",
    "two-tier": "#1b8a5a",
    "S1": "#2f6db3",
    "S2": "#5fa3d9",
    "S3": "#1b8a5a",
    "S4": "#8a9a3b",
    "S5": "#d98c3f",
    "S6": "#b56576",
    "S7": "#7a5195",
    "highest": "#7a5195",
    "mean": "#2b2b2b",
    "lowest": "#2f6db3",
    "key": "#8c8c8c",
    "shuffle": "#d98c3f",
    "two-choices": "#7a5195",
    "bounded-ring": "#b56576",
    "random-choices": "#1b8a5a",
    "consistent": "#1b8a5a",
    "consistent as published": "#2f6db3",
    "ours": "#1b8a5a",
    "paper": "#2b2b2b",
}
FLOOR = 1e-7
"""What is drawn for less, zero included, on a logarithmic axis."""


def write_report(
    folder: Path,
    experiment: Experiment,
    sizes: Sizes,
    rows: Sequence[Row],
    figures: Sequence[Figure] | None = None,
) -> Path:
    """Write results.json, results.csv and report.html, each whole or not at all.

    Parameters
    ----------
    folder : Path
        Made if it is not there.
    experiment, sizes
        What was run, and how much of it.
    rows : list of Row
        What came out.
    figures : list of Figure, optional
        Those that were run, all unless given.

    Returns
    -------
    Path
        Of the page.
    """
    # All is made before anything is written.
    files = {
        "results.json": json.dumps([asdict(row) for row in rows], indent=1, allow_nan=False) + "\n",
        "results.csv": _csv(rows),
        "report.html": page(experiment, sizes, rows, figures or experiment.figures),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        part = folder / f".{name}.{os.getpid()}.part"
        try:
            part.write_text(text, encoding="utf-8", newline="")
            part.replace(folder / name)
        finally:
            part.unlink(missing_ok=True)
    return folder / "report.html"


def page(
    experiment: Experiment, sizes: Sizes, rows: Sequence[Row], figures: Sequence[Figure]
) -> str:
    """Return the page, with everything that it needs inside."""
    by_figure = {figure: [row for row in rows if row.figure == figure.number] for figure in figures}
    body = [f"<h1>{escape(experiment.reference)}</h1>", _sizes(experiment, sizes)]
    findings = experiment.findings(rows)
    if findings:
        items = "".join(f"<li>{escape(text)}</li>" for text in findings)
        body.append(f"<h2>Ours and the paper's</h2><ul>{items}</ul>")
    charts: dict[str, Any] = {}
    for figure, own in by_figure.items():
        name = f"figure-{len(charts)}"
        charts[name] = figure_chart(figure, own).to_dict()
        body += [
            f"<h2>{escape(figure.heading)}</h2>",
            f'<p class="remark">{escape(figure.remark)}</p>' if figure.remark else "",
            f'<div class="chart" id="{name}"></div>',
            _table(own),
        ]
    return pages.page(f"unskew: {experiment.name}", "\n".join(body), charts)


def figure_chart(figure: Figure, rows: Sequence[Row]) -> alt.HConcatChart:
    """Return the chart of one figure: a panel for each data set or number of instances.

    Lines are ours. A diamond is a number that the paper states, in the colour of its series.
    """
    drawn = [row for row in rows if row.metric == figure.metric]
    panels = list(dict.fromkeys(row.panel for row in drawn)) or [""]
    width = max(200, min(420, 960 // len(panels) - 90))
    parts = [
        _panel(figure, [row for row in drawn if row.panel == panel], panel, width)
        for panel in panels
    ]
    chart: alt.HConcatChart = (
        alt.hconcat(*parts, spacing=20)
        .properties(background="white", padding=8)
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=12, titleFontSize=12, titleFontWeight="normal")
        .configure_legend(labelFontSize=12, title=None, orient="bottom", columns=7)
    )
    return chart


def _panel(
    figure: Figure, rows: Sequence[Row], panel: str, width: int
) -> alt.LayerChart | alt.FacetChart:
    own_series = figure.series != ("paper", "ours")

    def values(paper: bool) -> list[dict[str, Any]]:
        numbers = [(row, row.paper if paper else row.ours) for row in rows]
        return [
            {
                "x": row.x,
                "y": max(y, FLOOR) if figure.y.log else y,
                "series": "paper" if paper and not own_series else row.series,
                "case": row.case,
                "value": y,
                "whose": "paper" if paper else "ours",
            }
            for row, y in numbers
            if y is not None
        ]

    xs = sorted({row.x for row in rows})
    x = alt.X(
        "x:Q",
        title=figure.x.title,
        scale=alt.Scale(type="log", base=2) if figure.x.log else alt.Scale(zero=False),
        axis=alt.Axis(grid=False, values=xs if len(xs) <= 8 else alt.Undefined, format="~f"),
    )
    y = alt.Y(
        "y:Q",
        title=figure.y.title,
        scale=alt.Scale(type="log") if figure.y.log else alt.Scale(zero=False),
        axis=alt.Axis(gridColor="#ececec", tickCount=5, format=_digits(rows)),
    )
    colour = alt.Color(
        "series:N",
        scale=alt.Scale(
            domain=list(figure.series), range=[COLOURS.get(s, "#555") for s in figure.series]
        ),
    )
    tip = ["whose:N", "case:N", alt.Tooltip("value:Q", format=".4~g")]
    ours = alt.Chart(alt.InlineData(values=values(paper=False)))
    stated = alt.Chart(alt.InlineData(values=values(paper=True)))
    return alt.layer(
        ours.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour),
        ours.mark_circle(size=36, opacity=1).encode(x=x, y=y, color=colour, tooltip=tip),
        stated.mark_point(
            shape="diamond", size=130, filled=True, opacity=1, stroke="black", strokeWidth=1
        ).encode(x=x, y=y, color=colour, tooltip=tip),
        width=width,
        height=240,
        title=alt.TitleParams(panel, fontSize=12, fontWeight="normal", anchor="start"),
    )


def _digits(rows: Sequence[Row]) -> str:
    """Return the format of an axis: powers for what is tiny, thousands with commas."""
    least = min((row.ours for row in rows if row.ours > 0), default=1.0)
    most = max((row.ours for row in rows), default=1.0)
    return ".0e" if least < 1e-3 else "," if most >= 1000 and least >= 1 else "~f"


def _sizes(experiment: Experiment, sizes: Sizes) -> str:
    text = (
        f"{sizes.zipf_messages:,} messages of each Zipf stream, "
        f"{'all' if sizes.dataset_messages is None else f'{sizes.dataset_messages:,}'} messages of "
        f"each data set, {sizes.simulated:,} of each simulation. The data sets are generated from "
        f"the statistics that the paper prints. Lines are ours, diamonds are the paper's."
    )
    if sizes is experiment.quick:
        text = f"{experiment.caution} {text}"
        return f'<p class="quick">{escape(text)}</p>'
    return f"<p>{escape(text)}</p>"


def _table(rows: Sequence[Row]) -> str:
    """Return the rows with a number of the paper, and all of them folded away."""
    stated = [row for row in rows if row.paper is not None]
    open_part = _html_rows(stated) if stated else ""
    folded = f"<details><summary>all {len(rows)} numbers</summary>{_html_rows(rows)}</details>"
    return open_part + (folded if len(stated) < len(rows) else "")


def _html_rows(rows: Sequence[Row]) -> str:
    head = (
        "<tr><th>case</th><th>metric</th><th class=n>paper</th><th class=n>ours</th>"
        "<th class=n>ours / paper</th><th>note</th></tr>"
    )
    lines = [
        f"<tr><td>{escape(row.case)}</td><td>{escape(row.metric)}</td>"
        f"<td class=n>{number(row.paper)}</td><td class=n>{number(row.ours)}</td>"
        f"<td class=n>{number(row.ratio)}</td><td>{escape(row.note)}</td></tr>"
        for row in rows
    ]
    return f"<table>{head}{''.join(lines)}</table>"


def number(value: float | None) -> str:
    """Return four digits, or nothing.

    Examples
    --------
    >>> number(1234567.0), number(0.000012345), number(None)
    ('1,234,567', '1.234e-05', '')
    """
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _csv(rows: Sequence[Row]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([field.name for field in fields(Row)])
    for row in rows:
        writer.writerow(["" if value is None else value for value in asdict(row).values()])
    return buffer.getvalue()
