"""Pd-Stream: hot keys split as far as their popularity in a sampling window asks."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from unskew.errors import BadParameter
from unskew.grouping.base import Grouping
from unskew.grouping.choices import home_of, key_bits, place_of, second_of
from unskew.grouping.least_loaded import (
    Levels,
    Sets,
    clear,
    include,
    least_loaded,
    least_of,
    new_levels,
    new_sets,
    send,
)
from unskew.kernel import kernel
from unskew.parameters import number, whole_number
from unskew.sketches.sampling_window import FILLED, Window, enter, make_room, new_window
from unskew.sketches.slots import Slots, slot_type

_STAGES = 3
"""Window lengths that `adaptive` chooses from, each twice the one before."""

_STAGE, _SEEN, _MOST = 0, 1, 2
"""Places in `pace`: the stage, the tuples since it was last looked at whether it fits, and the most
that a key was held since then."""


class PdStream(Grouping):
    """Split a hot key over as many instances as the sampling window says it needs.

    The window holds the last N = alpha / theta keys. A key that it holds once has its two choices.
    A key that it holds n_k >= 2 times is hot, and wants floor(p n) of the n instances, where p is
    the share for which n_k or more tuples are seen with the chance P. A hot key starts with its two
    choices and, while it wants more, gains the least loaded instance of all if that is below all of
    its candidates, one a tuple at most; the least loaded of its candidates takes the tuple, the
    first place of several. Of two choices that are alike the home takes it. When it leaves the
    window its candidates are forgotten. The largest load stays within a tuple or two of the mean on
    Zipf streams; there is no bound on the imbalance. Memory is bounded by the window, with n / 8
    bytes of candidates for each place. O(1) a tuple, amortised, where the paper scans the window
    and the candidates.

    The paper's text says P = 99.9 %, the caption of its Table III 99 %, and the table's values are
    those of 99 %. Its binary search for p is a closed form here, the inverse of the regularised
    incomplete beta function.

    Parameters
    ----------
    instances, seed, source
        As of `Grouping`.
    alpha : float, default 4
        Length coefficient: a key of share theta misses the window with a chance of exp(-alpha).
    theta : float, optional
        Share of a hot key, 2 / instances by default.
    expected : float, default 0.99
        P, the chance that the share of a key is not underestimated. Lower is less splitting: at 0.5
        the balance is as good and far fewer keys are split.
    adaptive : bool, default False
        Let alpha and theta follow the skew that is seen. While the hottest key fills more than 4
        instances the window doubles, up to 4 times its length, and a key must be in it 4 or 8 times
        to become hot: shares are estimated better and fewer keys are split. When the hottest key no
        longer fills 2 instances the window shrinks again. This is the paper's future work.

    Examples
    --------
    >>> router = PdStream(8)
    >>> keys = np.array([1, 1, 1, 2], dtype=np.uint64)
    >>> chosen = router.route(np.tile(keys, 200))
    >>> np.bincount(chosen).tolist()
    [100, 100, 100, 100, 100, 100, 100, 100]

    References
    ----------
    Pd-Stream, Section V, Algorithms 1 and 2.
    """

    name: ClassVar[str] = "pd-stream"
    reference: ClassVar[str] = "Pd-Stream, Algorithms 1 and 2"
    _per_batch: ClassVar[tuple[str, ...]] = ("loads", "levels")

    def __init__(
        self,
        instances: int,
        *,
        seed: int = 0,
        source: int = 0,
        alpha: float = 4.0,
        theta: float | None = None,
        expected: float = 0.99,
        adaptive: bool = False,
    ) -> None:
        super().__init__(instances, seed=seed, source=source)
        self.alpha = number("alpha", alpha, above=0)
        self.theta = number("theta", 2 / self.instances if theta is None else theta, above=0)
        self.expected = number("expected", expected, above=0, below=1)
        if not isinstance(adaptive, bool):
            raise BadParameter(f"adaptive must be True or False, not {adaptive!r}")
        self.adaptive = adaptive
        length = round(self.alpha / self.theta)
        if length < 1:
            raise BadParameter(
                f"alpha / theta, the length of the window, must be at least 1, not "
                f"{self.alpha} / {self.theta}"
            )
        stages = _STAGES if self.adaptive else 1
        self.lengths = tuple(length << stage for stage in range(stages))
        room = whole_number("alpha / theta", self.lengths[-1], least=1, most=2**28)
        self._wanted = np.zeros((stages, room + 1), dtype=slot_type(self.instances))
        for stage, held in enumerate(self.lengths):
            self._wanted[stage, : held + 1] = candidates_wanted(held, self.instances, self.expected)
            # While the window shrinks it holds more than its length.
            self._wanted[stage, held + 1 :] = self._wanted[stage, held]
        self._first = self._place_of_source()
        self._window = new_window(room)
        self._keep("window", self._window)
        self._candidates = new_sets(room, self.instances)
        self._keep("candidates", self._candidates)
        self._levels = new_levels(self.instances)
        self._keep("levels", self._levels)
        self._state["pace"] = self._pace = np.zeros(3, dtype=np.int64)

    @property
    def fan_out(self) -> int:
        """Every instance, for a key hot enough."""
        return self.instances

    @property
    def hot_keys(self) -> int:
        """Keys that have candidates of their own."""
        inside = self._window.counts > 0
        return int(np.count_nonzero(self._candidates.sizes[inside]))

    @property
    def state_bytes(self) -> int:
        """Bytes of router state, the table of wanted candidates included."""
        return super().state_bytes + self._wanted.nbytes

    def _route(self, keys: NDArray[np.uint64], chosen: NDArray[np.int32]) -> None:
        _kernel(
            keys,
            chosen,
            self._loads,
            self._levels,
            self._window,
            self._candidates,
            self._wanted,
            self._pace,
            self._key_seed,
            self._first,
            self.lengths[0],
        )


def key_shares(length: int, expected: float) -> NDArray[np.float64]:
    """Return the share of a key that is in a window of `length` 0, 1, ..., `length` times.

    The share is the p for which P(X >= n_k) is `expected` when X is binomial with `length` trials:
    Algorithm 1 of Pd-Stream in closed form.

    Examples
    --------
    >>> key_shares(16, 0.99)[[1, 6, 16]].round(4).tolist()
    [0.2501, 0.6299, 0.9994]
    """
    held = np.arange(1, length + 1)
    shares = betaincinv(held, length - held + 1, expected)
    return np.concatenate(([0.0], np.asarray(shares, dtype=np.float64)))


def candidates_wanted(length: int, instances: int, expected: float) -> NDArray[np.int32]:
    """Return how many candidates a key wants that is in the window 0, 1, ..., `length` times.

    Examples
    --------
    >>> candidates_wanted(16, 8, 0.99)[[1, 2, 6]].tolist()
    [2, 2, 5]
    """
    return np.floor(key_shares(length, expected) * instances).astype(np.int32)


@kernel
def _kernel(
    keys: NDArray[np.uint64],
    chosen: NDArray[np.int32],
    loads: NDArray[np.int64],
    levels: Levels,
    window: Window,
    candidates: Sets,
    wanted: Slots,
    pace: NDArray[np.int64],
    seed: np.uint64,
    first: int,
    length: int,
) -> None:
    n = loads.size
    for i in range(keys.size):
        key = keys[i]
        stage = pace[_STAGE]
        make_room(window, length << stage)
        slot = enter(window, key)
        held = int(window.counts[slot])
        place = 0
        if held == 1 and candidates.sizes[slot] > 0:
            # They belong to a key that had the slot before.
            clear(candidates, slot)
        if candidates.sizes[slot] == 0:
            bits = key_bits(key, seed)
            place = place_of(home_of(bits, n), first, n)
            other = place_of(second_of(bits, n), first, n)
            if held >= 2 << stage:
                include(candidates, slot, place)
                if other != place:
                    include(candidates, slot, other)
            elif loads[other] < loads[place]:
                place = other
        if candidates.sizes[slot] > 0:
            place = least_of(candidates, slot, loads, levels)
            if wanted[stage, held] > candidates.sizes[slot]:
                emptiest = least_loaded(levels)
                if loads[emptiest] < loads[place]:
                    include(candidates, slot, emptiest)
                    place = emptiest
        send(loads, levels, place)
        chosen[i] = place
        if wanted.shape[0] > 1:
            _follow_skew(window, pace, held, n, length, wanted.shape[0])


@kernel
def _follow_skew(
    window: Window,
    pace: NDArray[np.int64],
    held: int,
    instances: int,
    length: int,
    stages: int,
) -> None:
    """Lengthen or shorten the window once for each time it was filled."""
    now = length << pace[_STAGE]
    if window.scalars[FILLED] > now:
        # Shrinking: one more leaves than comes, until the window has its length.
        make_room(window, now)
        return
    pace[_SEEN] += 1
    pace[_MOST] = max(pace[_MOST], held)
    if pace[_SEEN] < now:
        return
    filled = pace[_MOST] * instances
    if filled > 4 * now and pace[_STAGE] < stages - 1:
        pace[_STAGE] += 1
    elif filled < 2 * now and pace[_STAGE] > 0:
        pace[_STAGE] -= 1
    pace[_SEEN] = 0
    pace[_MOST] = 0
