"""Consistent Grouping, Figures 4, 6 to 8 and 11: what groupings do, on the real kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from unskew.compare import Comparison, compare
from unskew.experiments.base import Answers, Axis, Figure, Row, Sizes, Task
from unskew.workloads import Zipf, dataset
from unskew.workloads.datasets import DATASETS

SCHEMES = ("key", "partial-key", "two-choices", "shuffle", "bounded-ring", "random-choices")
GROUPINGS = ("key", "partial-key", "two-choices", "shuffle", "bounded-ring", "consistent")
BINS, WORKERS, SOURCES = (50, 100, 500, 1000), (5, 10, 50, 100), (1, 10, 50, 100)
ZIPF_BINS = (10, 100, 1000)
E = 0.01
SWEEP = (0.001, 0.01, 0.05, 0.1, 0.5, 1.0)

IMBALANCE, MEMORY = "imbalance", "memory over that of key"
BY_SOURCES = tuple(f"{each} workers" for each in WORKERS)


@dataclass(frozen=True)
class Schemes(Task):
    """Route one stream by some groupings at some numbers of instances."""

    source: str
    messages: int
    counts: tuple[int, ...]
    names: tuple[str, ...]
    sources: int = 1
    e: float = E

    @property
    def label(self) -> str:
        """What the progress bar calls it."""
        return f"{self.source}, {self.sources} sources, e {self.e:g}"

    def run(self, seed: int) -> list[Comparison]:
        """Measure."""
        bounded = {"bounded-ring", "random-choices", "consistent"}
        parameters = {name: {"e": self.e} for name in self.names if name in bounded}
        return compare(
            open_source(self.source, self.messages, seed),
            self.counts,
            self.names,
            parameters=parameters,
            sources=self.sources,
            seed=seed,
        )


def open_source(source: str, messages: int, seed: int) -> Zipf:
    """Return "zipf 1.4", or a data set of Table I, generated."""
    if source.startswith("zipf "):
        exponent = float(source.removeprefix("zipf "))
        return dataset("zipf", messages=messages, seed=seed, exponent=exponent)
    return dataset(source, messages=messages, seed=seed)


def whole(sizes: Sizes) -> int:
    """Return how many messages of Wikipedia are used."""
    most = DATASETS["wikipedia"].messages
    return most if sizes.dataset_messages is None else min(most, sizes.dataset_messages)


def part(sizes: Sizes) -> int:
    """Return how many of them where many settings are measured."""
    return min(whole(sizes), sizes.zipf_messages)


def _zipf(sizes: Sizes) -> list[Schemes]:
    return [
        Schemes(f"zipf {z:g}", sizes.zipf_messages, ZIPF_BINS, SCHEMES) for z in sizes.exponents
    ]


def _bins(sizes: Sizes) -> list[Schemes]:
    return [Schemes("wikipedia", whole(sizes), BINS, SCHEMES)]


def _workers(sizes: Sizes) -> list[Schemes]:
    return [Schemes("wikipedia", whole(sizes), WORKERS, GROUPINGS)]


def _sweep(sizes: Sizes) -> list[Schemes]:
    names = ("key", "shuffle", "consistent")
    return [Schemes("wikipedia", part(sizes), (10,), names, e=e) for e in SWEEP]


def _sources(sizes: Sizes) -> list[Schemes]:
    names = ("key", "consistent")
    return [Schemes("wikipedia", part(sizes), WORKERS, names, sources=s) for s in SOURCES]


def rows_of(
    figure: str,
    tasks: Callable[[Sizes], Sequence[Schemes]],
    place: Callable[[Schemes, Comparison], tuple[str, float, str]],
    case: str,
    stated: Callable[[Comparison], float | None] = lambda found: None,
) -> Callable[[Answers, Sizes, int], list[Row]]:
    """Return what makes the rows of a figure: imbalance and memory of each grouping.

    Parameters
    ----------
    figure : str
        Its number.
    tasks : callable
        What is measured.
    place : callable
        Panel, x and series of what was measured.
    case : str
        What it is, with places for panel, x and series.
    stated : callable
        What the paper says of its imbalance.
    """

    def rows(answers: Answers, sizes: Sizes, seed: int) -> list[Row]:
        made = []
        for task in tasks(sizes):
            keys = {each.instances: each.keys for each in answers[task]}
            for found in answers[task]:
                panel, x, series = place(task, found)
                what = case.format(panel=panel, x=x, series=series)
                bound = f"at most {task.e + found.instances / found.messages:.5f} is promised"
                note = bound if found.grouping == "random-choices" else ""
                for metric, paper, ours in (
                    (IMBALANCE, stated(found), found.imbalance),
                    (MEMORY, None, found.memory_keys / keys[found.instances]),
                ):
                    made.append(
                        Row(
                            *(seed, figure, what, metric, paper, ours),
                            *(note if metric == IMBALANCE else "", panel, x, series),
                        )
                    )
        return made

    return rows


def _bounded(found: Comparison) -> float | None:
    """Return the e that the paper says imbalance is close to."""
    return E if found.grouping in ("random-choices", "bounded-ring") else None


_SCHEME = (
    "key is the paper's KG, partial-key PKG, two-choices PoTC, shuffle SG, bounded-ring CH and "
    "random-choices PoRC, whose walk ends after 100 choices at the least loaded. Memory is keys of "
    "all instances together, over the keys that there are."
)
_WIKIPEDIA = "Wikipedia, generated from Table I."
_X: Mapping[str, Axis] = {
    "zipf": Axis("Zipf exponent"),
    "bins": Axis("bins", log=True),
    "workers": Axis("workers", log=True),
    "e": Axis("e", log=True),
    "sources": Axis("sources", log=True),
}

FIGURE_4 = Figure(
    number="4",
    title="Imbalance and memory on Zipf streams",
    x=_X["zipf"],
    y=Axis("imbalance", log=True),
    series=SCHEMES,
    tasks=_zipf,
    rows=rows_of(
        "4",
        _zipf,
        lambda task, found: (
            f"{found.instances} bins",
            float(task.source.removeprefix("zipf ")),
            found.grouping,
        ),
        "zipf {x:.1f}, {panel}, {series}",
    ),
    metric=IMBALANCE,
    remark=_SCHEME,
)

FIGURES = (
    Figure(
        number="6",
        title="What e trades",
        x=_X["e"],
        y=Axis("imbalance", log=True),
        series=("key", "shuffle", "consistent"),
        tasks=_sweep,
        rows=rows_of(
            *("6", _sweep, lambda task, found: ("", task.e, found.grouping)), "e {x:g}, {series}"
        ),
        metric=IMBALANCE,
        remark=f"{_WIKIPEDIA} 10 workers that are alike, 10 shards each.",
    ),
    Figure(
        number="7",
        title="Keys onto bins",
        x=_X["bins"],
        y=Axis("imbalance", log=True),
        series=SCHEMES,
        tasks=_bins,
        rows=rows_of(
            "7",
            _bins,
            lambda task, found: ("", float(found.instances), found.grouping),
            "{x:.0f} bins, {series}",
            _bounded,
        ),
        metric=IMBALANCE,
        remark=f"{_WIKIPEDIA} {_SCHEME}",
    ),
    Figure(
        number="8",
        title="Keys onto workers that are alike",
        x=_X["workers"],
        y=Axis("imbalance", log=True),
        series=GROUPINGS,
        tasks=_workers,
        rows=rows_of(
            "8",
            _workers,
            lambda task, found: ("", float(found.instances), found.grouping),
            "{x:.0f} workers, {series}",
        ),
        metric=IMBALANCE,
        remark=f"{_WIKIPEDIA} consistent has 10 shards for each worker. {_SCHEME}",
    ),
)

FIGURE_11 = Figure(
    number="11",
    title="Many sources",
    x=_X["sources"],
    y=Axis("imbalance", log=True),
    series=("key", "consistent"),
    tasks=_sources,
    rows=rows_of(
        "11",
        _sources,
        lambda task, found: (f"{found.instances} workers", float(task.sources), found.grouping),
        "{panel}, {x:.0f} sources, {series}",
    ),
    metric=IMBALANCE,
    remark=f"{_WIKIPEDIA} 10 shards for each worker; sources know only what they sent themselves.",
)
