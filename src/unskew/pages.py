"""Pages that open without a network: text, tables and charts in one HTML file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from html import escape
from typing import Any

import vl_convert

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="UTF-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval';
 style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #2b2b2b; margin: 2rem auto; padding: 0 1rem;
  max-width: 1120px }}
h1 {{ font-size: 1.6rem }} h2 {{ font-size: 1.15rem; margin: 2.5rem 0 .3rem }}
table {{ border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums }}
td, th {{ padding: .2rem .7rem .2rem 0; text-align: left; border-bottom: 1px solid #ececec }}
td.n, th.n {{ text-align: right }}
.remark {{ color: #6f6f6f; max-width: 75ch }} .quick {{ background: #fdf1d3; padding: .6rem 1rem }}
.chart {{ overflow-x: auto }} details {{ margin-top: .5rem }} pre {{ white-space: pre-wrap }}
</style>
</head>
<body>
{body}
<script>{scripts}</script>
<script>
const charts = {charts};
for (const [id, specification] of Object.entries(charts)) {{
  vegaEmbed("#" + id, specification, {{renderer: "svg",
    actions: {{export: true, source: false, compiled: false, editor: false}}}});
}}
</script>
</body>
</html>
"""


def page(title: str, body: str, charts: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a page with everything that it needs inside.

    Parameters
    ----------
    title : str
        Text.
    body : str
        HTML, in which whatever comes from data is escaped already.
    charts : dict
        Vega-Lite specifications by the id of the element that shows them.
    """
    return _PAGE.format(
        title=escape(title),
        body=body,
        scripts=_scripts(),
        # Inside a script only "<" can end it, and a file name may well contain "</script>".
        charts=json.dumps(charts, allow_nan=False).replace("<", "\\u003c"),
    )


@cache
def _scripts() -> str:
    """Return vega and all it needs, which takes seconds to bundle."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
