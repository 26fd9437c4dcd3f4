"""Draw the pictures of the README: `.venv/bin/python docs/pictures.py`."""

from __future__ import annotations

from pathlib import Path

import altair as alt
import numpy as np

import unskew
from unskew.charts import comparison_chart, loads_chart, render
from unskew.compare import compare, recommend
from unskew.workloads import Zipf

HERE = Path(__file__).parent
INSTANCES = 32


def main() -> None:
    """Draw the loads before and after, and all groupings beside each other."""
    workload = Zipf(1.4, keys=100_000, messages=1_000_000)
    keys = np.concatenate(list(workload.batches()))
    routers = {name: unskew.grouping(name, INSTANCES) for name in ("key", "frugal")}
    for router in routers.values():
        router.route(keys)
    loads = {name: router.loads.tolist() for name, router in routers.items()}
    write("before-after.svg", loads_chart(loads, workload.description))
    rows = compare(workload, [16, 32, 64, 128])
    write("compare.svg", comparison_chart(rows, recommend(rows), workload.description))


def write(name: str, chart: alt.HConcatChart) -> None:
    """Write one picture."""
    (HERE / name).write_bytes(render(chart, ".svg"))


if __name__ == "__main__":
    main()
