"""What was done to a DataFrame, and why: notes that travel in its plan.

A note is a text within the expression that Spark partitions by, in a branch that is never taken.
The optimizer removes it; the analyzed plan, which stays with the DataFrame and with all that is
made from it, keeps it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from unskew.errors import UnsupportedSpark

_MARK = "unskew note "


@dataclass(frozen=True)
class Note:
    """One thing that unskew did.

    Attributes
    ----------
    title : str
        What, in a line.
    facts : dict of str to str
        How and why, each with a label.
    """

    title: str
    facts: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the title, and below it the facts in two columns."""
        width = max(map(len, self.facts), default=0)
        lines = [f"  {label:<{width}}  {text}" for label, text in self.facts.items()]
        return "\n".join([self.title, *lines])


@dataclass(frozen=True)
class Explanation:
    """What `explain` found; prints as text.

    Attributes
    ----------
    notes : list of Note
        What unskew did, the last step first.
    """

    notes: list[Note]

    def __str__(self) -> str:
        """Return all notes as text."""
        if not self.notes:
            return "unskew did nothing here: Spark runs this as it is"
        return "\n\n".join(map(str, self.notes))

    __repr__ = __str__


def explain(df: DataFrame) -> Explanation:
    """Say what unskew did to a DataFrame, or to any that it was made from, and why.

    Reads the plan; runs no job.

    Parameters
    ----------
    df : DataFrame
        What `repartition`, or operations after it, returned; batch or streaming.

    Raises
    ------
    UnsupportedSpark
        On Spark Connect, which does not show the plan.
    """
    if not isinstance(df, ClassicDataFrame):
        raise UnsupportedSpark(
            "explain reads the plan of a DataFrame, which Spark Connect does not show; the routing "
            "itself works there"
        )
    return Explanation(list(_notes(df._jdf.queryExecution().analyzed())))


def noted(instance: Column, note: Note) -> Column:
    """Return an integer column that carries a note, to partition by; it costs nothing to run."""
    text = _MARK + json.dumps({"title": note.title, "facts": note.facts})
    return F.when(F.lit(False), F.length(F.lit(text))).otherwise(instance)


def _notes(node: Any) -> Iterator[Note]:
    """Yield the notes in a plan, from its root down."""
    # The exchange of repartition and the filter of aggregate; others repeat what those have.
    if node.getClass().getSimpleName() in {"RepartitionByExpression", "Filter"}:
        text = _first_mark(node.expressions())
        if text is not None:
            read = json.loads(text.removeprefix(_MARK))
            yield Note(read["title"], read["facts"])
    children = node.children()
    for number in range(children.size()):
        yield from _notes(children.apply(number))


def _first_mark(expressions: Any) -> str | None:
    """Return the text of a note among expressions, nearest to the first, or None."""
    for number in range(expressions.size()):
        expression = expressions.apply(number)
        if expression.getClass().getSimpleName() == "Literal":
            text = str(expression.value())
            if text.startswith(_MARK):
                return text
        found = _first_mark(expression.children())
        if found is not None:
            return found
    return None
