"""Cost per tuple and imbalance as the instances grow to 10,000, in the simulator.

Zipf 1.2 over 10M keys at half the rate that even loads could be served at. 10M tuples for each case
take a minute; docs/scale.md has the figures for `--messages 100000000 --chart docs/scale.svg`.
"""

from __future__ import annotations

import resource
import time
from pathlib import Path

import altair as alt
import click

from unskew.charts import render
from unskew.simulator import Constant, Poisson, Stage, simulate
from unskew.workloads import Zipf

NAMES = ("partial-key", "pd-stream", "frugal")
INSTANCES = (100, 1_000, 10_000)
SERVICE = 1e-3


@click.command(help=__doc__)
@click.option("--messages", default=10_000_000, show_default=True)
@click.option("--sources", default=1, show_default=True, help="Routers that share the stream.")
@click.option("--chart", type=click.Path(path_type=Path), help="Draw the results, as .svg or .png.")
def main(messages: int, sources: int, chart: Path | None) -> None:
    """Run every case, print a Markdown table and draw."""
    rows = []
    print("| instances | grouping | ns per tuple | imbalance | mean latency ms | peak memory MB |")
    print("| ---: | --- | ---: | ---: | ---: | ---: |")
    for instances in INSTANCES:
        for name in NAMES:
            row = measure(name, instances, messages, sources)
            rows.append(row)
            print(
                f"| {instances:,} | {name} | {row['ns per tuple']:.0f} | {row['imbalance']:.1e} | "
                f"{row['latency']:.2f} | {row['memory']:.0f} |",
                flush=True,
            )
    if chart is not None:
        chart.write_bytes(render(draw(rows), chart.suffix))


def measure(name: str, instances: int, messages: int, sources: int) -> dict[str, float | str]:
    """Simulate one case."""
    stage = Stage("count", instances, Constant(SERVICE), name)
    arrivals = Poisson(0.5 * instances / SERVICE)
    start = time.perf_counter()
    result = simulate(Zipf(1.2, 10_000_000, messages), arrivals, [stage], sources=sources)
    return {
        "grouping": name,
        "instances": instances,
        "ns per tuple": (time.perf_counter() - start) / messages * 1e9,
        "imbalance": result.stages[0].imbalance,
        "latency": 1000 * result.latency.mean,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def draw(rows: list[dict[str, float | str]]) -> alt.HConcatChart:
    """Return two panels: cost and imbalance over the number of instances."""
    panels = [
        alt.Chart(alt.InlineData(values=rows), width=300, height=220)
        .mark_line(point=True)
        .encode(
            x=alt.X("instances:Q", scale=alt.Scale(type="log"), title="instances"),
            y=alt.Y(f"{field}:Q", scale=alt.Scale(type="log"), title=title),
            color=alt.Color("grouping:N", sort=list(NAMES), title=None),
        )
        for field, title in (
            ("ns per tuple", "ns per simulated tuple"),
            ("imbalance", "imbalance"),
        )
    ]
    chart: alt.HConcatChart = alt.hconcat(*panels, spacing=30, background="white", padding=16)
    return chart


if __name__ == "__main__":
    main()
