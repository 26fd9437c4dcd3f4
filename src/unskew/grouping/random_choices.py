"""Power of random choices: each instance has a capacity, a key takes the first with room."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.grouping.base import Grouping
from unskew.grouping.choices import key_bits, place_of, scatter
from unskew.grouping.least_loaded import Levels, least_loaded, look_anew, new_levels, send
from unskew.kernel import kernel
from unskew.mixing import counter_bits
from unskew.parameters import number, whole_number


class RandomChoices(Grouping):
    """Try the choices of a key one after the other until an instance has room.

    Room is (1 + e) m / n tuples after m tuples on n instances, the current one included, so the
    imbalance is never above e + n / m. A hot key tries as often as it needs; the paper lets it try
    for ever, here the least loaded instance takes the tuple after `tries`, which keeps the bound.

    Parameters
    ----------
    instances, seed, source
        As of `Grouping`.
    e : float, default 0.01
        Room above the mean, above 0. Less room is less imbalance and more splitting.
    tries : int, default 100
        Choices of a key to try, at least 1.

    Examples
    --------
    >>> router = RandomChoices(2, e=0.01)
    >>> router.route(np.zeros(7, dtype=np.uint64)).tolist()
    [0, 0, 1, 0, 1, 0, 1]

    References
    ----------
    Consistent Grouping, Section IV-A, Algorithm 1.
    """

    name: ClassVar[str] = "random-choices"
    reference: ClassVar[str] = "PoRC: Consistent Grouping, Algorithm 1"
    _per_batch: ClassVar[tuple[str, ...]] = ("loads", "levels", "messages")

    def __init__(
        self,
        instances: int,
        *,
        seed: int = 0,
        source: int = 0,
        e: float = 0.01,
        tries: int = 100,
    ) -> None:
        super().__init__(instances, seed=seed, source=source)
        self.e = number("e", e, above=0)
        self.tries = whole_number("tries", tries, least=1, most=2**31 - 1)
        self._first = self._place_of_source()
        self._levels = new_levels(self.instances)
        self._keep("levels", self._levels)
        self._state["messages"] = self._messages = np.zeros(1, dtype=np.int64)

    @property
    def fan_out(self) -> int:
        """Every instance, for a key hot enough."""
        return self.instances

    def begin_with(self, loads: NDArray[np.int64]) -> None:
        """Go on as if so many tuples had been sent to each instance."""
        self._loads[...] = np.roll(loads, -self._first)
        self._messages[0] = loads.sum()
        look_anew(self._loads, self._levels)

    def _route(self, keys: NDArray[np.uint64], chosen: NDArray[np.int32]) -> None:
        _kernel(
            keys,
            chosen,
            self._loads,
            self._levels,
            self._messages,
            self._key_seed,
            self._first,
            (1.0 + self.e) / self.instances,
            self.tries,
        )


@kernel
def _kernel(
    keys: NDArray[np.uint64],
    chosen: NDArray[np.int32],
    loads: NDArray[np.int64],
    levels: Levels,
    messages: NDArray[np.int64],
    seed: np.uint64,
    first: int,
    share: float,
    tries: int,
) -> None:
    for i in range(keys.size):
        messages[0] += 1
        room = share * messages[0]
        bits = key_bits(keys[i], seed)
        place = -1
        for j in range(tries):
            choice = scatter(counter_bits(bits, np.uint64(j)), loads.size)
            place = place_of(choice, first, loads.size)
            if loads[place] < room:
                break
        else:
            place = least_loaded(levels)
        send(loads, levels, place)
        chosen[i] = place
