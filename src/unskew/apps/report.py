"""The page that a run leaves behind: its batches as charts, its figures as a table."""

from __future__ import annotations

from html import escape
from typing import Any

import altair as alt

from unskew.apps.base import Series, Summary
from unskew.charts import loads_chart
from unskew.pages import page

_OURS, _HASH = "#2f6db3", "#c8553d"


def run_report(summary: Summary) -> str:
    """Return one page that opens without a network."""
    figures = "".join(
        f"<tr><td>{escape(name.replace('_', ' '))}</td><td class=n>{escape(_text(value))}</td></tr>"
        for name, value in summary.as_dict().items()
    )
    last = summary.batches[-1]
    charts = {
        **{f"series{i}": _series(summary, each) for i, each in enumerate(summary.series)},
        "balance": _balance(summary),
        "speed": _speed(summary),
        "loads": loads_chart(
            {"Spark's hash": last.balance.hash_loads, summary.strategy: last.balance.loads},
            f"{summary.balanced.capitalize()} of each instance in batch {last.number}",
            of=summary.balanced,
        ).to_dict(),
    }
    notes = "".join(f"<pre>{escape(note)}</pre>" for note in summary.notes)
    own = "".join(
        f'<h2>{escape(each.title)}</h2>\n<div class="chart" id="series{i}"></div>\n'
        for i, each in enumerate(summary.series)
    )
    outcome = "" if summary.outcome is None else f"<p>{escape(summary.outcome)}</p>"
    body = "\n".join(
        [
            f"<h1>unskew run {escape(summary.app)}</h1>",
            outcome,
            f"<table>{figures}</table>",
            own,
            f"<h2>Imbalance of each batch, by {escape(summary.balanced)}</h2>",
            '<p class="remark">How far the busiest instance is above the mean: 0.01 is 1 %.</p>',
            '<div class="chart" id="balance"></div>',
            "<h2>Rows a second</h2>",
            '<div class="chart" id="speed"></div>',
            "<h2>Loads</h2>",
            '<div class="chart" id="loads"></div>',
            f"<h2>Hot keys of batch {last.number}</h2>",
            _hot(summary),
            "<h2>What was done, and what came out</h2>",
            notes,
        ]
    )
    return page(f"unskew run {summary.app}", body, charts)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _hot(summary: Summary) -> str:
    last = summary.batches[-1]
    rows = "".join(
        f"<tr><td>{escape(hot.key)}</td><td class=n>{hot.rows:,}</td>"
        f"<td class=n>{hot.rows / max(last.rows, 1):.1%}</td><td class=n>{hot.instances}</td></tr>"
        for hot in last.balance.hot[:10]
    )
    head = (
        "<tr><th>key</th><th class=n>rows</th><th class=n>share</th><th class=n>instances</th></tr>"
    )
    return f"<table>{head}{rows}</table>"


def _balance(summary: Summary) -> dict[str, Any]:
    ours = [batch.balance.imbalance for batch in summary.batches]
    hashed = [batch.balance.hash_imbalance for batch in summary.batches]
    return _series(summary, Series("", "imbalance", ours, hashed))


def _series(summary: Summary, series: Series) -> dict[str, Any]:
    """Return two lines over the batches: ours, and what would have been by hash."""
    values = [
        {"batch": batch.number, series.measure: value, "routing": routing}
        for batch, *both in zip(summary.batches, series.ours, series.hashed, strict=True)
        for routing, value in zip((summary.strategy, "Spark's hash"), both, strict=True)
    ]
    colour = alt.Color(
        "routing:N",
        title=None,
        scale=alt.Scale(domain=[summary.strategy, "Spark's hash"], range=[_OURS, _HASH]),
    )
    return _lines(values, series.measure, colour)


def _speed(summary: Summary) -> dict[str, Any]:
    values = [
        {"batch": batch.number, "rows a second": batch.rows_per_second} for batch in summary.batches
    ]
    return _lines(values, "rows a second", alt.value(_OURS))


def _lines(values: list[dict[str, Any]], measure: str, colour: Any) -> dict[str, Any]:
    chart = (
        alt.Chart(alt.InlineData(values=values), width=640, height=200)
        .mark_line(point=True)
        .encode(
            x=alt.X("batch:Q", axis=alt.Axis(tickMinStep=1, grid=False, format="d")),
            y=alt.Y(f"{measure}:Q", axis=alt.Axis(gridColor="#ececec", tickCount=5)),
            color=colour,
            tooltip=["batch:Q", alt.Tooltip(f"{measure}:Q", format=".4~g")],
        )
        .configure_view(stroke=None)
    )
    made: dict[str, Any] = chart.to_dict()
    return made
