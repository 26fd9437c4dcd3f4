"""Charts that open without a network: PNG, SVG, or HTML with all scripts inside."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import altair as alt
import vl_convert

from unskew.compare import Comparison, Recommendation
from unskew.errors import BadParameter
from unskew.pages import page

FLOOR = 1e-6
"""Imbalance that is drawn for anything less: a logarithm has no place for zero."""

_ROW, _WIDTH = 24, 250
_BAND, _INK, _NOTE = "#fdf1d3", "#2b2b2b", "#6f6f6f"


def comparison_chart(
    rows: Sequence[Comparison], recommendation: Recommendation, title: str
) -> alt.HConcatChart:
    """Return imbalance, replication factor and cost of every grouping, one line each.

    Each grouping has a row of its own, labelled at its start, and a dot for each number of
    instances, the darker the more; the best balanced is on top and the recommended one has a band.

    Parameters
    ----------
    rows : list of Comparison
        What `compare` returned.
    recommendation : Recommendation
        What `recommend` made of them; its line is the subtitle.
    title : str
        What the workload is called.
    """
    largest = max(row.instances for row in rows)
    final = {row.grouping: row for row in rows if row.instances == largest}
    order = sorted(final, key=lambda name: (final[name].imbalance, final[name].replication_factor))
    counts = sorted({row.instances for row in rows})
    values = [
        {
            "grouping": row.grouping,
            "instances": row.instances,
            "imbalance": row.imbalance,
            "imbalance drawn": max(row.imbalance, FLOOR),
            "replication factor": row.replication_factor,
            "ns per tuple": max(row.ns_per_tuple, 0.1),
        }
        for row in rows
    ]
    floored = any(row.imbalance < FLOOR for row in rows)
    panels = [
        ("imbalance drawn", "imbalance: busiest instance above the mean", ".0e"),
        ("replication factor", "replication factor: instances per key", "~g"),
        ("ns per tuple", "ns per tuple in the router", "~g"),
    ]
    marked = recommendation.grouping
    charts = [
        _panel(values, field, label, form, order=order, counts=counts, marked=marked, first=not i)
        for i, (field, label, form) in enumerate(panels)
    ]
    subtitle = [str(recommendation)]
    if floored:
        subtitle.append(f"Imbalance below {FLOOR:.0e}, zero included, is drawn at {FLOOR:.0e}.")
    chart: alt.HConcatChart = (
        alt.hconcat(*charts, spacing=18)
        .properties(
            title=alt.TitleParams(
                text=title,
                subtitle=_wrapped(subtitle),
                anchor="start",
                fontSize=16,
                subtitleFontSize=12,
                subtitleColor=_NOTE,
                subtitlePadding=6,
                offset=16,
            ),
            background="white",
            padding=16,
        )
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=12, titleFontSize=12, titleFontWeight="normal")
        .configure_legend(labelFontSize=12, titleFontSize=12, titleFontWeight="normal")
    )
    return chart


def loads_chart(
    loads: Mapping[str, Sequence[int]], title: str, *, of: str = "tuples"
) -> alt.HConcatChart:
    """Return the load of every instance, the busiest first, one panel for each grouping.

    Parameters
    ----------
    loads : dict of list of int
        Tuples of each instance by grouping, as `Grouping.loads` tells them.
    title : str
        What the workload is called.
    of : str, default "tuples"
        What the loads are counts of.
    """
    times = {
        name: sorted((load * len(counts) / max(sum(counts), 1) for load in counts), reverse=True)
        for name, counts in loads.items()
    }
    highest = max(max(values) for values in times.values())
    panels = [
        alt.Chart(
            alt.InlineData(values=[{"rank": i, "load": load} for i, load in enumerate(values)]),
            width=360,
            height=180,
            title=alt.TitleParams(f"{name}: the busiest has {values[0]:.2f} times the mean"),
        )
        .mark_bar(color="#6b93b8" if values[0] < 1.1 else "#c8553d")
        .encode(
            x=alt.X("rank:O", title=f"{len(values)} instances", axis=alt.Axis(labels=False)),
            y=alt.Y(
                "load:Q",
                title=f"{of}, in units of the mean",
                scale=alt.Scale(domain=[0, highest]),
                axis=alt.Axis(gridColor="#ececec"),
            ),
        )
        for name, values in times.items()
    ]
    chart: alt.HConcatChart = (
        alt.hconcat(*panels, spacing=24)
        .properties(title=alt.TitleParams(title, anchor="start"), background="white", padding=16)
        .configure_view(stroke=None)
    )
    return chart


def _panel(
    values: list[dict[str, Any]],
    field: str,
    label: str,
    form: str,
    *,
    order: list[str],
    counts: list[int],
    marked: str,
    first: bool,
) -> alt.LayerChart | alt.FacetChart:
    """Return one measure: a row for each grouping, a dot for each number of instances."""
    bold = f"datum.value === {json.dumps(marked)}"
    y = alt.Y(
        "grouping:N",
        sort=order,
        title=None,
        axis=alt.Axis(
            labels=first,
            labelFontWeight={"condition": {"test": bold, "value": "bold"}, "value": "normal"},
            labelColor=_INK,
            labelLimit=200,
            labelPadding=8,
            ticks=False,
            domain=False,
            grid=True,
            gridColor="#ececec",
        ),
    )
    x = alt.X(
        f"{field}:Q",
        title=label,
        scale=alt.Scale(type="log", nice=False, padding=12),
        axis=alt.Axis(format=form, grid=False, tickCount=5, labelOverlap=True, domainColor="#bbb"),
    )
    colour = alt.Color(
        "instances:O",
        title="instances",
        sort=counts,
        scale=alt.Scale(range=_shades(len(counts))),
        legend=alt.Legend(orient="bottom", direction="horizontal", symbolType="circle")
        if first
        else None,
    )
    tooltip = ["grouping:N", "instances:O"] + [
        alt.Tooltip(name, type="quantitative", format=".4~g")
        for name in ("imbalance", "replication factor", "ns per tuple")
    ]
    base = alt.Chart(alt.InlineData(values=values))
    band = (
        alt.Chart(alt.InlineData(values=[{"grouping": marked}]))
        .mark_bar(color=_BAND, size=_ROW)
        .encode(y=y, x=alt.value(0), x2=alt.value(_WIDTH))
    )
    span = base.mark_rule(color="#b9c6d2", strokeWidth=2).encode(
        y=y, x=alt.X(f"min({field}):Q", title=label), x2=f"max({field}):Q"
    )
    dots = base.mark_circle(size=90, opacity=1, stroke="white", strokeWidth=0.8).encode(
        x=x, y=y, color=colour, tooltip=tooltip
    )
    return alt.layer(band, span, dots, width=_WIDTH, height=_ROW * len(order))


def _shades(number: int) -> list[str]:
    """Return blues from light to dark, as many as there are numbers of instances."""
    light, dark = (158, 202, 225), (8, 48, 107)
    mixes = [1.0 if number == 1 else i / (number - 1) for i in range(number)]
    return [
        "#" + "".join(f"{round(a + (b - a) * mix):02x}" for a, b in zip(light, dark, strict=True))
        for mix in mixes
    ]


def _wrapped(lines: Sequence[str], width: int = 130) -> list[str]:
    """Return the lines broken at spaces: a title is not broken by itself."""
    broken: list[str] = []
    for line in lines:
        broken.append("")
        for word in line.split():
            if broken[-1] and len(broken[-1]) + len(word) >= width:
                broken.append("")
            broken[-1] = f"{broken[-1]} {word}".strip()
    return broken


def _png(specification: dict[str, Any]) -> bytes:
    return vl_convert.vegalite_to_png(specification, scale=2)


def _svg(specification: dict[str, Any]) -> bytes:
    return vl_convert.vegalite_to_svg(specification).encode()


def _html(specification: dict[str, Any]) -> bytes:
    return page("unskew", '<div id="chart"></div>', {"chart": specification}).encode()


_FORMATS: dict[str, Callable[[dict[str, Any]], bytes]] = {
    ".png": _png,
    ".svg": _svg,
    ".html": _html,
}


def chart_format(path: PurePath) -> str:
    """Return the suffix of a chart file, or raise `BadParameter` if no chart has it.

    Examples
    --------
    >>> chart_format(PurePath("skew.PNG"))
    '.png'
    """
    suffix = path.suffix.lower()
    if suffix not in _FORMATS:
        raise BadParameter(
            f"cannot draw a chart as {path.name!r}; let its name end with {', '.join(_FORMATS)}"
        )
    return suffix


def render(chart: alt.HConcatChart, suffix: str) -> bytes:
    """Return a chart as the bytes of a file of this format, without asking the network.

    Parameters
    ----------
    chart : altair chart
        The chart.
    suffix : str
        One of those that `chart_format` returns.
    """
    return _FORMATS[suffix](chart.to_dict())
