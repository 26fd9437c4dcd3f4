"""Every formula that the papers measure by, each once, with its paper and equation.

Loads may be counts, times or shares: all of them are ratios or differences, and none looks at the
unit. Each takes one number per instance unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.errors import BadParameter
from unskew.parameters import whole_number

MOST_INSTANCES = 2**31 - 1
"""Instances are int32."""


def imbalance(loads: ArrayLike) -> float:
    """Return how far the most loaded instance is above the mean, in units of the mean.

    0 is perfect balance; n - 1 is everything on one of n instances.

    Parameters
    ----------
    loads : array of numbers
        Load of each instance.

    Examples
    --------
    >>> round(imbalance([4, 3, 2]), 4)
    0.3333

    References
    ----------
    Pd-Stream, eq. 4.
    """
    values = _per_instance("loads", loads)
    mean = _mean("loads", values)
    return float((values.max() - mean) / mean)


def replication_factor(keys_per_instance: ArrayLike, distinct_keys: int) -> float:
    """Return on how many instances a key lives on average.

    1 is no splitting. A key counts once per instance, whatever the number of sources that sent it
    there; the paper's eq. 3 would count it once per source, which no state is held for.

    Parameters
    ----------
    keys_per_instance : array of int
        Distinct keys that each instance received.
    distinct_keys : int
        Distinct keys of the whole stream.

    Examples
    --------
    >>> replication_factor([3, 2, 1], 3)
    2.0

    References
    ----------
    Pd-Stream, eq. 7.
    """
    held = memory(keys_per_instance)
    distinct = whole_number("distinct_keys", distinct_keys, least=1, most=2**62)
    if held < distinct:
        raise BadParameter(
            f"the instances hold {held} keys, fewer than distinct_keys = {distinct}; every key is "
            f"on at least one instance"
        )
    return held / distinct


def replication_lower_bound(key_counts: ArrayLike, instances: int) -> float:
    """Return the least replication factor that perfect balance allows.

    Every key is on one instance, and a key with a larger share p than one of the n instances can
    carry is on at least ceil(p n).

    Parameters
    ----------
    key_counts : array of int
        Tuples of each key; keys without tuples do not count.
    instances : int
        Number of instances.

    Examples
    --------
    >>> replication_lower_bound([5, 1, 1, 1], instances=4)
    1.5

    References
    ----------
    Ours. Pd-Stream, eq. 16, gives a hot key floor(p n) candidates, beside at least two.
    """
    given = _whole_numbers("key_counts", key_counts, each="key", counter="KeyIndex")
    counts = given[given > 0].astype(np.int64)
    if counts.size == 0:
        raise BadParameter(
            f"none of the {given.size} keys in key_counts has a tuple; count a stream first"
        )
    n = whole_number("instances", instances, least=1, most=MOST_INSTANCES)
    total = int(counts.sum())
    # Only these can need more than one instance: in exact integers, without overflow.
    hot = [int(count) for count in counts[counts > total // n]]
    extra = sum(-(-count * n // total) - 1 for count in hot)
    return 1.0 + extra / counts.size


def memory(keys_per_instance: ArrayLike) -> int:
    """Return the keys held by all instances together, a split key once for each of them.

    Parameters
    ----------
    keys_per_instance : array of int
        Distinct keys that each instance received.

    Examples
    --------
    >>> memory([3, 2, 1])
    6

    References
    ----------
    Consistent Grouping, Section IV, M_w(t) summed over the workers.
    """
    values = _whole_numbers(
        "keys_per_instance", keys_per_instance, each="instance", counter="KeyTally"
    )
    return int(values.sum(dtype=np.int64))


def utilisation(loads: ArrayLike, capacities: ArrayLike) -> NDArray[np.float64]:
    """Return the load of each instance as a share of what it can carry, U = L / c.

    Parameters
    ----------
    loads : array of numbers
        Load of each instance.
    capacities : array of numbers
        What each can carry in the same time, above 0.

    Examples
    --------
    >>> utilisation([8, 8], [20, 5]).tolist()
    [0.4, 1.6]

    References
    ----------
    Consistent Grouping, Section IV, U_w(t).
    """
    values = _per_instance("loads", loads)
    limits = _per_instance("capacities", capacities)
    _same_size("loads", values, "capacities", limits)
    if (limits == 0).any():
        raise BadParameter(
            f"capacities must be above 0, not 0 as of instance {limits.argmin()}; leave out "
            f"instances that cannot work"
        )
    return values / limits


def utilisation_imbalance(utilisations: ArrayLike) -> float:
    """Return how far the most utilised instance is above the average, in points.

    Parameters
    ----------
    utilisations : array of numbers
        Utilisation of each instance.

    Examples
    --------
    >>> round(utilisation_imbalance([0.4, 1.6]), 3)
    0.6

    References
    ----------
    Consistent Grouping, Section IV, I(t).
    """
    values = _per_instance("utilisations", utilisations)
    return float(values.max() - values.mean())


def utilisation_spread(utilisations: ArrayLike) -> float:
    """Return the distance between the most and the least utilised instance, or node.

    Parameters
    ----------
    utilisations : array of numbers
        Utilisation of each instance or node.

    Examples
    --------
    >>> utilisation_spread([11.25, 40.0, 88.5])
    77.25

    References
    ----------
    Consistent Grouping, Fig. 9 to 13, where it is called imbalance; St-Stream, Fig. 12.
    """
    values = _per_instance("utilisations", utilisations)
    return float(values.max() - values.min())


def shard_load(stored: ArrayLike, probing: ArrayLike, *, g: float = 0.5) -> NDArray[np.float64]:
    """Return the load of each shard of a stream join, R = g (S + Q) + (1 - g) S Q.

    The sum is what the shard keeps in memory, the product the pairs that it compares. The load of
    an instance is the sum over its shards (eq. 12).

    Parameters
    ----------
    stored : array of numbers
        Tuples S that each shard stores.
    probing : array of numbers
        Tuples Q that probe each shard in the window.
    g : float, default 0.5
        Weight of memory against computation, from 0 to 1.

    Examples
    --------
    >>> shard_load([4, 4, 2, 1], [3, 4, 2, 3]).tolist()
    [9.5, 12.0, 4.0, 3.5]

    References
    ----------
    LS-Stream, eq. 7, 9 and 11.
    """
    s, q = _per_instance("stored", stored), _per_instance("probing", probing)
    _same_size("stored", s, "probing", q)
    if not 0 <= g <= 1:
        raise BadParameter(f"g must be from 0 to 1, not {g}")
    load: NDArray[np.float64] = g * (s + q) + (1 - g) * s * q
    return load


def load_imbalance(loads: ArrayLike) -> float:
    """Return the largest distance from the mean, up or down, in units of the mean.

    Unlike `imbalance` it also sees an idle instance among loaded ones, though never as more than 1.

    Parameters
    ----------
    loads : array of numbers
        Load of each instance.

    Examples
    --------
    >>> round(load_imbalance([21.5, 7.5]), 4)
    0.4828

    References
    ----------
    LS-Stream, eq. 13 and 14.
    """
    values = _per_instance("loads", loads)
    mean = _mean("loads", values)
    return float(max(values.max() - mean, mean - values.min()) / mean)


def offset_degree(tuples: ArrayLike, keys: ArrayLike, high: ArrayLike) -> float:
    """Return how much denser the data are on the highly loaded instances of a node.

    It is the share of the node's tuples that is on the highly loaded instances, over the share of
    its keys that is there. 1 where none is highly loaded: nothing is off then.

    Parameters
    ----------
    tuples : array of numbers
        Tuples of each instance of the node.
    keys : array of numbers
        Distinct keys of each.
    high : array of bool
        Whether each counts as highly loaded.

    Examples
    --------
    >>> round(offset_degree([60, 20, 20], [10, 10, 20], [True, False, False]), 2)
    2.4

    References
    ----------
    St-Stream, eq. 5.
    """
    data, held = _per_instance("tuples", tuples), _per_instance("keys", keys)
    flags = np.asarray(high)
    if flags.dtype != np.bool_ or flags.ndim != 1:
        raise BadParameter(
            f"high must be one True or False for each instance, not {flags.dtype} of shape "
            f"{flags.shape}; compare the loads with a limit, as in loads > limit"
        )
    _same_size("tuples", data, "keys", held)
    _same_size("tuples", data, "high", flags)
    _mean("tuples", data)
    _mean("keys", held)
    if not flags.any():
        return 1.0
    if held[flags].sum() == 0:
        raise BadParameter(
            f"the highly loaded instances have {data[flags].sum():g} tuples of 0 keys; count "
            f"tuples and keys over the same time"
        )
    return float((data[flags].sum() / data.sum()) / (held[flags].sum() / held.sum()))


def node_load(
    parts: Mapping[str, ArrayLike], *, q: float = 1.0, weights: Mapping[str, float] | None = None
) -> NDArray[np.float64]:
    """Return the load of each node: how much of its CPU, its memory and others is in use.

    Each part is in use from 0 to 1, so that they can be added; the paper adds GHz and GB. CPU and
    memory share what the weights of others leave: W = q cpu + (1 - q) memory.

    Parameters
    ----------
    parts : mapping of str to array of numbers
        How much of each resource is in use, "cpu" among them, for each node.
    q : float, default 1.0
        Weight of the CPU against memory, from 0 to 1.
    weights : mapping of str to float, optional
        Of other parts, together below 1.

    Examples
    --------
    >>> parts = {"cpu": [0.8, 0.2], "memory": [0.4, 0.4], "disk": [0.0, 1.0]}
    >>> node_load(parts, q=0.5).round(2).tolist()
    [0.6, 0.3]
    >>> node_load(parts, weights={"disk": 0.25}).round(2).tolist()
    [0.6, 0.4]

    References
    ----------
    St-Stream, eq. 1 to 3 and 7; network and disk are its future work.
    """
    others = weights or {}
    cpu = _per_instance("cpu", parts["cpu"])
    load = q * cpu
    if q < 1:
        load = load + (1 - q) * _per_instance("memory", parts["memory"])
    load = load * (1 - sum(others.values()))
    for name, weight in others.items():
        load = load + weight * _per_instance(name, parts[name])
    return load


def balance_degree(loads: ArrayLike) -> float:
    """Return the load of the most loaded instance or node in means: 1 is perfect balance.

    Parameters
    ----------
    loads : array of numbers
        Load of each.

    Examples
    --------
    >>> balance_degree([4, 3, 2])
    1.3333333333333333

    References
    ----------
    St-Stream, Section 5.4, where b is not defined; the ratio of two is what it calls recovery.
    """
    return 1.0 + imbalance(loads)


def locality(origins: ArrayLike, targets: ArrayLike, counts: ArrayLike | None = None) -> float:
    """Return the share of the hops between two operators that stay where they are.

    Give instances to ask for hops within an instance, nodes to ask for hops within a node.

    Parameters
    ----------
    origins : array of int
        Where each hop starts.
    targets : array of int
        Where each ends.
    counts : array of numbers, optional
        How often each hop was made, once unless given.

    Examples
    --------
    >>> locality([0, 0, 1, 2], [0, 1, 1, 0])
    0.5
    >>> locality([0, 0], [0, 1], counts=[3, 1])
    0.75

    References
    ----------
    Locality-aware routing, Section 3, its objective; Fig. 11 and 12.
    """
    start, end = np.asarray(origins), np.asarray(targets)
    if start.ndim != 1 or start.size == 0:
        raise BadParameter(
            f"origins must be a list of at least one hop, not an array of shape {start.shape}; "
            f"give one instance or node for each hop"
        )
    _same_size("origins", start, "targets", end)
    if counts is None:
        return float((start == end).mean())
    weights = _per_instance("counts", counts)
    _same_size("origins", start, "counts", weights)
    _mean("counts", weights)
    return float(weights[start == end].sum() / weights.sum())


def _whole_numbers(
    name: str, values: ArrayLike, *, each: str, counter: str
) -> NDArray[np.integer[Any]]:
    """Return whole numbers from 0 up, at least one, such as `counter` counts them."""
    array = np.asarray(values)
    if array.ndim != 1 or array.size == 0 or not np.issubdtype(array.dtype, np.integer):
        raise BadParameter(
            f"{name} must be one whole number for each {each}, not {array.dtype} of shape "
            f"{array.shape}; count them with {counter}"
        )
    if (array < 0).any():
        raise BadParameter(
            f"{name} must be 0 or more, not {array.min()}; count them with {counter}"
        )
    return array


def _per_instance(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return numbers from 0 up as floats, at least one."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadParameter(f"{name} must be numbers: {error}") from error
    if array.ndim != 1 or array.size == 0:
        raise BadParameter(
            f"{name} must be a list of at least one number, not an array of shape {array.shape}"
        )
    wrong = ~(np.isfinite(array) & (array >= 0))
    if wrong.any():
        raise BadParameter(f"{name} must be finite and 0 or more, not {array[wrong][0]}")
    return array


def _mean(name: str, values: NDArray[np.float64]) -> float:
    """Return the mean, which everything is divided by."""
    mean = float(values.mean())
    if mean == 0:
        raise BadParameter(f"{name} are all 0: there is nothing to compare; measure first")
    return mean


def _same_size(
    name: str, one: NDArray[np.generic], other_name: str, other: NDArray[np.generic]
) -> None:
    if one.shape != other.shape:
        raise BadParameter(
            f"{name} and {other_name} must have the same length, not {one.shape} and {other.shape}"
        )
