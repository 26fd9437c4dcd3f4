"""What comes out of a task, parted between the stages that follow: written once for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from unskew.operators.hop import Hop, Hopping

FOLDED = "unskew_folded"
"""Column of the rows that several stages read: a bit for each of them that has the row already."""

MOST_HOPS = 62
"""Bits that there are."""


class Parting:
    """Fold rows for the stages whose next key lives here; leave what some of them have to read.

    A row that all stages that follow have folded is not written at all, and any other once. Where
    several follow, a column says which of them are not to read it again.

    Parameters
    ----------
    followers : sequence of int
        Numbers of the stages that follow, in order.
    hops : mapping of int to Hop
        Of those that can fold rows here, at least one.
    instance : int
        Which one this is.
    most_bytes : int
        Entries to hold, of all of them.
    """

    def __init__(
        self, followers: Sequence[int], hops: Mapping[int, Hop], instance: int, most_bytes: int
    ) -> None:
        self._followers = list(followers)
        share = most_bytes // len(hops)
        self._hoppings = {
            number: Hopping(hop, instance, share) for number, hop in sorted(hops.items())
        }

    @property
    def near(self) -> dict[int, int]:
        """Return the rows that were folded for each stage that follows."""
        return {number: each.near for number, each in self._hoppings.items()}

    @property
    def late(self) -> int:
        """Return how many of them were late there."""
        return sum(each.late for each in self._hoppings.values())

    @property
    def pairs(self) -> dict[int, bytes]:
        """Return the pairs of keys that were counted, with each stage that follows."""
        counted = {number: each.pairs for number, each in self._hoppings.items()}
        return {number: each.to_bytes() for number, each in counted.items() if each.counts.size}

    def part(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Fold what lives here; return what is to be written."""
        if len(self._followers) == 1:
            (hopping,) = self._hoppings.values()
            return hopping.part(rows)
        folded = np.zeros(rows.num_rows, dtype=np.int64)
        for number, hopping in self._hoppings.items():
            folded |= hopping.take(rows).astype(np.int64) << self._followers.index(number)
        far = folded != (1 << len(self._followers)) - 1
        schema = rows.schema.append(pa.field(FOLDED, pa.int64()))
        marked = pa.RecordBatch.from_arrays([*rows.columns, pa.array(folded)], schema=schema)
        return marked if far.all() else marked.filter(pa.array(far))

    def write(self, path: Path) -> dict[int, list[str]]:
        """Write what was folded, to a file for each stage that follows; return their names."""
        written: dict[int, list[str]] = {}
        for number, hopping in self._hoppings.items():
            own = path.with_name(f"{path.name}-{number}.entries.arrow")
            if hopping.write(own):
                written[number] = [own.name]
        return written
