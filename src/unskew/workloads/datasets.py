"""The data sets of the papers, generated from the statistics that the papers print.

The data themselves are not ours to ship. What the papers tell of each is its messages, the keys
seen in them and the share of the most frequent key; `fit` finds a law with those statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unskew.errors import BadParameter
from unskew.parameters import number
from unskew.workloads.zipf import Zipf

_WIDEST = 1000
"""A pure Zipf law that needs more than this many times the keys seen is not taken for a fit."""


@dataclass(frozen=True)
class Law:
    """A `Zipf` law without a length: its exponent, its keys and, where it is set apart, p1."""

    exponent: float
    keys: int
    p1: float | None = None


@dataclass(frozen=True)
class Dataset:
    """One row of a paper's table, and the law that `fit` finds for it."""

    messages: int
    keys_seen: int
    p1: float
    paper: str
    law: Law


_PD_STREAM, _CONSISTENT = "Pd-Stream, Table V", "Consistent Grouping, Table I"

DATASETS = {
    "ddos": Dataset(12_000_000, 2_400_000, 0.202, _PD_STREAM, Law(1.0, 23_760_000, 0.202)),
    "hashtags": Dataset(67_000_000, 2_200_000, 0.085, _PD_STREAM, Law(1.03904, 2_419_000)),
    "wikipedia": Dataset(22_000_000, 2_900_000, 0.0932, _CONSISTENT, Law(1.06705, 24_470_000)),
    "twitter": Dataset(1_200_000_000, 31_000_000, 0.0267, _CONSISTENT, Law(0.92081, 31_100_000)),
}
"""Every data set that is known by its statistics, with the law that `fit` gives, rounded."""


def dataset(
    name: str,
    *,
    messages: int | None = None,
    seed: int = 0,
    exponent: float | None = None,
) -> Zipf:
    """Return a data set of the papers, generated from its statistics.

    At full length its p1 and the keys seen are within 5 % of the paper's table. A shorter stream
    follows the same law and so sees fewer keys.

    Parameters
    ----------
    name : str
        "ddos" or "hashtags" (Pd-Stream, Table V), "wikipedia", "twitter" or "zipf" (Consistent
        Grouping, Table I).
    messages : int, optional
        Length of the stream, if not the paper's.
    seed : int, default 0
        Chooses the draws.
    exponent : float, optional
        For "zipf" only, 0.1 to 2.0 in the paper; 1.0 unless given.

    Examples
    --------
    >>> workload = dataset("ddos", messages=1000)
    >>> workload.name, workload.p(1)
    ('ddos (generated)', 0.202)

    References
    ----------
    Pd-Stream, Table V; Consistent Grouping, Table I.
    """
    if name == "zipf":
        return Zipf(
            1.0 if exponent is None else exponent,
            keys=100_000,
            messages=10_000_000 if messages is None else messages,
            seed=seed,
        )
    if name not in DATASETS:
        raise BadParameter(
            f"there is no data set {name!r}; choose one of {', '.join([*DATASETS, 'zipf'])}"
        )
    if exponent is not None:
        raise BadParameter(
            f"the law of {name!r} is fitted to its statistics; exponent = {exponent} is for 'zipf' "
            f"only, leave it out"
        )
    table = DATASETS[name]
    workload = Zipf(
        table.law.exponent,
        table.law.keys,
        table.messages if messages is None else messages,
        seed=seed,
        p1=table.law.p1,
    )
    workload.name = f"{name} (generated)"
    workload.description = f"generated from the statistics of {name} in {table.paper}"
    return workload


def fit(messages: int, keys_seen: int, p1: float) -> Law:
    """Return the law whose streams have, on average, these statistics.

    A pure Zipf law has two unknowns, exponent and keys, for the two statistics. Where none fits,
    because with such a p1 the tail is too thin for so many keys, the first key is set apart, one
    flooded key over ordinary traffic of exponent 1, and only the keys are fitted.

    Parameters
    ----------
    messages : int
        Length of the stream.
    keys_seen : int
        Distinct keys in it.
    p1 : float
        Share of its most frequent key.

    Examples
    --------
    >>> law = fit(1_000_000, 50_000, 0.08)
    >>> round(Zipf(law.exponent, law.keys, 1).expected_keys(1_000_000), -2)
    50000.0
    """
    number("p1", p1, above=0, below=1)
    if not 0 < keys_seen <= messages:
        raise BadParameter(f"keys_seen must be from 1 to messages = {messages}, not {keys_seen}")

    def pure(keys: int) -> Zipf:
        exponent = _bisect(lambda s: Zipf(s, keys, messages).p(1) - p1, 0.0, 8.0)
        return Zipf(exponent, keys, messages)

    def flooded(keys: int) -> Zipf:
        return Zipf(1.0, keys, messages, p1=p1)

    for make in (pure, flooded):
        keys = _fitting_keys(make, keys_seen)
        if keys is not None:
            return Law(make(keys).exponent, keys, p1 if make is flooded else None)
    raise BadParameter(
        f"no Zipf law over at most {_WIDEST} times the keys has {keys_seen} keys in {messages} "
        f"messages and a first key of {p1}; give fewer keys, a smaller p1 or more messages"
    )


def _fitting_keys(make: Callable[[int], Zipf], keys_seen: int) -> int | None:
    """Return the number of keys to draw from so that `keys_seen` are seen, if there is one."""

    def excess(keys: float) -> float:
        return make(round(keys)).expected_keys() - keys_seen

    if excess(keys_seen) > 0 or excess(keys_seen * _WIDEST) < 0:
        return None
    return round(_bisect(excess, keys_seen, keys_seen * _WIDEST))


def _bisect(rising: Callable[[float], float], low: float, high: float) -> float:
    """Return where a rising function passes zero, to seven digits."""
    while high - low > 1e-7 * max(high, 1e-2):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
