"""The contract of an experiment: a paper's figures and tables, ours beside the paper's.

A figure says which tasks it needs and makes rows of their answers. Figures that need the same task
share its answer, so nothing is measured twice, and a figure itself is only a declaration.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unskew.errors import BadParameter

Progress = Callable[[str, int, int], None]
"""Called with what is being done, the tasks done and how many there are."""


@dataclass(frozen=True)
class Row:
    """One number of a figure or table.

    Attributes
    ----------
    seed : int
        Of the workload, the groupings and the simulator.
    figure : str
        Which one, as "8" or "IV".
    case : str
        What was measured, readable: "zipf 1.4, 64 instances, pd-stream".
    metric : str
        Name and unit of the number.
    paper : float or None
        What the paper states, where it does.
    ours : float
        What we measured.
    note : str
        What a reader has to know to compare the two.
    panel, x, series : str, float, str
        Where the number is drawn.
    """

    seed: int
    figure: str
    case: str
    metric: str
    paper: float | None
    ours: float
    note: str = ""
    panel: str = ""
    x: float = 0.0
    series: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours over the paper's, if there is one."""
        return None if not self.paper else self.ours / self.paper


@dataclass(frozen=True)
class Sizes:
    """How much is run: messages and settings.

    Attributes
    ----------
    name : str
        What the report calls it.
    zipf_messages, dataset_messages, simulated : int or None
        Messages of a Zipf stream, of a data set (None for the paper's), of a simulation.
    exponents : tuple of float
        Zipf exponents.
    counts : tuple of int
        Numbers of instances.
    seeds : int
        Draws of each simulation.
    """

    name: str
    zipf_messages: int
    dataset_messages: int | None
    simulated: int
    exponents: tuple[float, ...]
    counts: tuple[int, ...]
    seeds: int = 1


class Task(ABC):
    """One measurement; frozen and hashable, so that figures can share it."""

    @property
    @abstractmethod
    def label(self) -> str:
        """What the progress bar calls it."""

    @abstractmethod
    def run(self, seed: int) -> Any:
        """Measure."""


@dataclass(frozen=True)
class Axis:
    """What an axis shows."""

    title: str
    log: bool = False


Answers = Mapping[Task, Any]


@dataclass(frozen=True)
class Figure:
    """A figure, or a table where the number is Roman.

    Attributes
    ----------
    number, title : str
        As in the paper.
    x, y : Axis
        What is drawn.
    series : tuple of str
        Lines of the chart.
    tasks : callable
        Returns what has to be measured.
    rows : callable
        Makes rows of the answers.
    metric : str
        The metric that is drawn.
    remark : str
        How it was measured, and with what choices of ours.
    """

    number: str
    title: str
    x: Axis
    y: Axis
    series: tuple[str, ...]
    tasks: Callable[[Sizes], Sequence[Task]]
    rows: Callable[[Answers, Sizes, int], list[Row]]
    metric: str
    remark: str = ""

    @property
    def heading(self) -> str:
        """Its number in words, and its title."""
        kind = "Figure" if self.number.isdigit() else "Table"
        return f"{kind} {self.number}: {self.title}"


@dataclass(frozen=True)
class Experiment:
    """All figures of one paper.

    Attributes
    ----------
    name, reference : str
        What it is called here, and the paper.
    figures : tuple of Figure
        In the order of the report.
    full, quick : Sizes
        The paper's settings, and those that take about a minute.
    findings : callable
        Returns sentences about where ours and the paper's agree, made from the rows.
    caution : str
        What a reader of a quick run has to know.
    """

    name: str
    reference: str
    figures: tuple[Figure, ...]
    full: Sizes
    quick: Sizes
    findings: Callable[[Sequence[Row]], list[str]] = field(default=lambda rows: [])
    caution: str = "A quick run, with fewer messages than the paper's. Quote the full run."

    def choose(self, numbers: Sequence[str]) -> tuple[Figure, ...]:
        """Return the figures of these numbers, all if there are none."""
        known = {figure.number.lower(): figure for figure in self.figures}
        for number in numbers:
            if number.lower() not in known:
                raise BadParameter(
                    f"{self.name} has no figure {number!r}; choose among "
                    f"{', '.join(figure.number for figure in self.figures)}"
                )
        wanted = {number.lower() for number in numbers} or set(known)
        return tuple(figure for number, figure in known.items() if number in wanted)

    def run(
        self,
        sizes: Sizes,
        *,
        seed: int = 0,
        figures: Sequence[Figure] | None = None,
        progress: Progress | None = None,
    ) -> list[Row]:
        """Measure what the figures need, once each, and return their rows in order.

        Parameters
        ----------
        sizes : Sizes
            `full`, `quick`, or others.
        seed : int, default 0
            The same seed gives the same rows, but for measured times.
        figures : list of Figure, optional
            All unless given.
        progress : callable, optional
            Called before each task and at the end.
        """
        chosen = self.figures if figures is None else figures
        tasks = list(dict.fromkeys(task for figure in chosen for task in figure.tasks(sizes)))
        answers: dict[Task, Any] = {}
        for done, task in enumerate(tasks):
            if progress is not None:
                progress(task.label, done, len(tasks))
            answers[task] = task.run(seed)
        if progress is not None:
            progress("done", len(tasks), len(tasks))
        return [row for figure in chosen for row in figure.rows(answers, sizes, seed)]
