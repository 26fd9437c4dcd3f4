"""Where the tuples of a join go: kept at one instance, looking for partners at all that matter."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Copies(NamedTuple):
    """Copies of tuples, in the order of the tuples.

    Attributes
    ----------
    rows : array of int64
        The tuple that each is a copy of.
    instances : array of int32
        Where it goes.
    parts, also : array of int64
        Where it looks there, the second -1 where there is only one place.
    is_kept : array of bool
        Whether it is the copy that is kept, in the first of its parts.
    """

    rows: NDArray[np.int64]
    instances: NDArray[np.int32]
    parts: NDArray[np.int64]
    also: NDArray[np.int64]
    is_kept: NDArray[np.bool_]
