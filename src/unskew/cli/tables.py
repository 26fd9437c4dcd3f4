"""Results as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from unskew.compare import Comparison, Recommendation, counted

_COLUMNS = (
    "imbalance",
    "replication\nfactor",
    "distinct\nkeys held",
    "hot\nkeys",
    "ns per\ntuple",
    "router\nstate KB",
)


def comparison_table(
    rows: Sequence[Comparison], recommendation: Recommendation, title: str, *, ascii_only: bool
) -> Table:
    """Return a table with a part for each number of instances, the recommended grouping bold."""
    at_least = ">=" if ascii_only else "≥ "
    table = Table(
        title=Text(title, style="bold"),
        title_justify="left",
        show_edge=False,
        collapse_padding=True,
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        # Data may hold what looks like markup.
        highlight=False,
    )
    table.add_column("grouping", no_wrap=True)
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for instances in dict.fromkeys(row.instances for row in rows):
        group = [row for row in rows if row.instances == instances]
        table.add_section()
        bound = f"{group[0].lower_bound:.3f}"
        table.add_row(
            Text(counted(instances, "instance"), "cyan"),
            "",
            Text(f"balance {at_least}{bound}", "dim"),
        )
        for row in group:
            picked = row.grouping == recommendation.grouping
            cells = (row.grouping, *_cells(row))
            table.add_row(*map(Text, cells), style="bold green" if picked else None)
    return table


def groupings_table(entries: Iterable[tuple[str, str, str]]) -> Table:
    """Return a table of names, summaries and references."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("grouping", no_wrap=True, style="bold")
    table.add_column("what it does", ratio=3)
    table.add_column("reference", ratio=2)
    for entry in entries:
        table.add_row(*map(Text, entry))
    return table


def _cells(row: Comparison) -> tuple[str, ...]:
    return (
        _imbalance(row.imbalance),
        f"{row.replication_factor:.3f}",
        f"{row.memory_keys:,}",
        f"{row.hot_keys:,}",
        f"{row.ns_per_tuple:.1f}",
        f"{row.state_bytes / 1024:,.1f}",
    )


def _imbalance(value: float) -> str:
    """Return what tells 0.00001 from 0.01 and 20.6 from 40.3 alike."""
    if 0 < value < 0.001:
        return f"{value:.1e}"
    return f"{value:.3f}" if value < 10 else f"{value:,.1f}"
