"""Run groupings side by side on one workload and say which to use.

The workload is read once. Its key hashes and the dense numbers of its keys go to temporary files,
12 bytes a tuple, from which every case is replayed in chunks: a file larger than memory works, and
no grouping is charged for reading or hashing.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedRandom
from statistics import median
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.errors import BadInput, BadParameter
from unskew.grouping.base import Grouping, grouping, groupings
from unskew.metrics import imbalance, replication_lower_bound
from unskew.parameters import number, whole_number
from unskew.tally import KeyIndex, KeyTally
from unskew.workloads.base import Workload

CHUNK = 1 << 16
"""Tuples that one source routes in a call: enough to time, few enough to time often."""

MOST_IN_MEMORY = 1 << 20
"""Tuples of all sources together that are in memory at once."""

MOST_INSTANCES = 1 << 20
MOST_SOURCES = 1 << 16

BYTES_PER_TUPLE = 12
"""On disk, while a workload is compared: a hash of 8 and a key number of 4."""

TOLERANCE = 0.05
"""Imbalance that nobody would notice: below it, `recommend` looks at replication alone."""

Progress = Callable[[str, int, int | None], None]
"""Called with what is being done, the tuples done and their total, None while it is unknown."""


@dataclass(frozen=True)
class Comparison:
    """What one grouping did to the workload at one number of instances.

    Attributes
    ----------
    grouping : str
        Its name.
    instances, sources : int
        Number of instances, and of sources that the tuples were dealt to.
    messages, keys : int
        Tuples of the workload, and distinct keys among them.
    imbalance : float
        How far the busiest instance is above the mean, in units of the mean. In batches: the mean
        over them, each weighted by its tuples, which is the time lost if each batch waits for its
        busiest instance.
    replication_factor : float
        Instances per key over the whole stream, whichever source sent it there.
    memory_keys : int
        Distinct keys held, summed over the instances.
    ns_per_tuple : float
        Time in `route` alone, once it is compiled: the median over chunks, which a disturbance of
        a few of them does not move.
    state_bytes : int
        Router state of one source, the largest if they differ.
    hot_keys : int
        Keys treated as hot at the end of the stream, by the source that has the most.
    lower_bound : float
        The least replication factor that perfect balance allows.
    """

    grouping: str
    instances: int
    sources: int
    messages: int
    keys: int
    imbalance: float
    replication_factor: float
    memory_keys: int
    ns_per_tuple: float
    state_bytes: int
    hot_keys: int
    lower_bound: float


@dataclass(frozen=True)
class Recommendation:
    """The grouping to use, and why in one line, which is its `str`."""

    grouping: str
    instances: int
    reason: str

    def __str__(self) -> str:
        """Return the one line."""
        return f"Use {self.grouping}: {self.reason}"


def compare(
    workload: Workload,
    instances: Sequence[int],
    names: Sequence[str] | None = None,
    *,
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    sources: int = 1,
    seed: int = 0,
    batch: int | None = None,
    chunk: int = CHUNK,
    progress: Progress | None = None,
) -> list[Comparison]:
    """Route one workload by every grouping at every number of instances, and measure.

    Parameters
    ----------
    workload : Workload
        The stream of keys, read once.
    instances : list of int
        Numbers of instances, none larger than the number of messages.
    names : list of str, optional
        Groupings, all that are registered unless given.
    parameters : dict of dict, optional
        Parameters of single groupings, by the name of the grouping.
    sources : int, default 1
        Tuples are dealt round robin to this many groupings with one seed, as to upstream tasks
        that know only what they sent themselves.
    seed : int, default 0
        Seed of the groupings; the workload has its own.
    batch : int, optional
        Rows of a micro-batch. Each begins with `begin_batch` and is dealt out afresh.
    chunk : int, default CHUNK
        Tuples that a source routes in one call. It changes the times, nothing else.
    progress : callable, optional
        Called after every chunk.

    Returns
    -------
    list of Comparison
        By number of instances, then by grouping, each in the order given.

    Examples
    --------
    >>> from unskew.workloads import Zipf
    >>> rows = compare(Zipf(1.4, keys=1000, messages=20_000), [4, 8], ["key", "shuffle"])
    >>> [(row.grouping, row.instances) for row in rows]
    [('key', 4), ('shuffle', 4), ('key', 8), ('shuffle', 8)]
    >>> rows[0].replication_factor, rows[1].imbalance
    (1.0, 0.0)
    """
    counts = [
        whole_number("instances", count, least=1, most=MOST_INSTANCES)
        for count in dict.fromkeys(instances)
    ]
    chosen = list(dict.fromkeys(groupings() if names is None else names))
    if not counts or not chosen:
        raise BadParameter("there is nothing to compare; give at least one count and one grouping")
    given = dict(parameters or {})
    for name in given:
        for own in given[name].keys() & {"seed", "source"}:
            raise BadParameter(f"{own!r} is not a parameter of {name!r} here; give seed to compare")
        if name not in chosen:
            raise BadParameter(f"parameters are for {name!r}, which is not compared; leave it out")
    sources = whole_number("sources", sources, least=1, most=MOST_SOURCES)
    chunk = whole_number("chunk", chunk, least=1, most=MOST_IN_MEMORY)
    if batch is not None:
        batch = whole_number("batch", batch, least=1, most=2**62)
        _check_enough(batch, "row", f"of a batch of {workload.name}", counts)
    if workload.messages is not None:
        _check_enough(workload.messages, "message", f"of {workload.name}", counts)
        _check_space(workload.messages)

    cases = [
        _Case(name, count, sources, seed, given.get(name, {}))
        for count in counts
        for name in chosen
    ]
    # An unknown name or a wrong parameter shows here, before a long file is read for nothing.
    for case in cases:
        case.router(source=0)

    report = progress or _silent
    step = min(chunk * sources, MOST_IN_MEMORY)
    with _spooled(workload, len(cases), report) as stream:
        _check_enough(stream.messages, "message", f"of {workload.name}", counts)
        bounds = {count: replication_lower_bound(stream.key_counts, count) for count in counts}
        total = stream.messages * (1 + len(cases))
        rows = []
        for number, case in enumerate(cases, start=1):
            before = number * stream.messages

            def done(tuples: int, *, case: _Case = case, before: int = before) -> None:
                label = f"{case.name}, {counted(case.instances, 'instance')}"
                report(label, before + tuples, total)

            rows.append(case.run(stream, batch, step, bounds[case.instances], done))
    return rows


def recommend(rows: Sequence[Comparison], *, tolerance: float = TOLERANCE) -> Recommendation:
    """Return the grouping to use at the largest number of instances among `rows`.

    It is the one with the least product of the busiest instance's load, in units of the mean, and
    instances per key: to split keys is worth it where it divides that load by more than it
    multiplies their copies. An imbalance within the tolerance counts as the tolerance, instances
    per key count to two decimals, and of several with the same product it is the fastest.

    Parameters
    ----------
    rows : list of Comparison
        What `compare` returned.
    tolerance : float, default 0.05
        Imbalance that does not matter.

    Examples
    --------
    >>> key = Comparison("key", 8, 1, 900, 90, 2.1, 1.0, 90, 5.0, 64, 0, 1.03)
    >>> frugal = Comparison("frugal", 8, 1, 900, 90, 0.01, 1.04, 94, 40.0, 4096, 3, 1.03)
    >>> print(recommend([key, frugal]))  # doctest: +ELLIPSIS
    Use frugal: the busiest of 8 instances gets 1.01 times the mean at 1.04 instances per key (...
    """
    number("tolerance", tolerance, above=0)
    if not rows:
        raise BadParameter("there are no rows to recommend from; compare some groupings first")
    largest = max(row.instances for row in rows)
    there = [row for row in rows if row.instances == largest]

    def price(row: Comparison) -> tuple[float, float]:
        # Without rounding, a key more or less in a million would outweigh any cost.
        copies = round(row.replication_factor, 2)
        return (1 + max(row.imbalance, tolerance)) * copies, row.ns_per_tuple

    pick = min(there, key=price)
    reason = (
        f"the busiest of {counted(largest, 'instance')} gets {_times(pick)} the mean at "
        f"{_digits(pick.replication_factor)} instances per key (balance needs "
        f"{_digits(pick.lower_bound)})"
    )
    plain = next((row for row in there if row.grouping == "key"), None)
    if plain is not None and pick is not plain:
        reason += f"; with key grouping it gets {_times(plain)} the mean"
    balanced = [row for row in there if row.imbalance <= tolerance]
    if pick is plain and pick in balanced:
        reason += "; no key needs to be split"
    elif balanced and pick not in balanced:
        other = min(balanced, key=price)
        reason += (
            f"; {other.grouping} would make it {_times(other)} but takes "
            f"{_digits(other.replication_factor)} instances per key, which costs more than it saves"
        )
    elif not balanced:
        reason += (
            f"; none of the compared groupings balances this stream within {100 * tolerance:g} %"
        )
        if all(row.grouping != "frugal" for row in there):
            reason += ", compare frugal too"
    return Recommendation(pick.grouping, largest, reason)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural where there is not one.

    Examples
    --------
    >>> counted(1, "key"), counted(1000, "key")
    ('1 key', '1,000 keys')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _times(row: Comparison) -> str:
    return f"{_digits(1 + row.imbalance)} times"


def _digits(value: float) -> str:
    """Return three digits: balance of 20.6 and of 1.01 alike are told from their neighbours."""
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"


def _silent(label: str, done: int, total: int | None) -> None:
    """Report nothing."""


def _check_enough(tuples: int, noun: str, where: str, counts: Sequence[int]) -> None:
    """Refuse more instances than tuples: some would idle whatever the grouping does."""
    if 0 < tuples < max(counts):
        raise BadParameter(
            f"instances = {max(counts):,} is more than the {counted(tuples, noun)} {where}; give "
            f"fewer instances or more tuples"
        )


def _check_space(tuples: int) -> None:
    """Refuse at once what would fill the disk after hours."""
    folder = tempfile.gettempdir()
    needed, free = BYTES_PER_TUPLE * tuples, shutil.disk_usage(folder).free
    if needed > free:
        raise BadParameter(
            f"{counted(tuples, 'message')} take {needed / 1e9:,.1f} GB in {folder} while they are "
            f"compared, and {free / 1e9:,.1f} GB are free; give fewer, or name a larger place with "
            f"TMPDIR"
        )


@dataclass(frozen=True)
class _Stream:
    """The key hashes and key numbers of a workload, on disk."""

    messages: int
    key_counts: NDArray[np.int64]
    hashes: BufferedRandom
    ids: BufferedRandom

    def read(self, start: int, stop: int) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
        """Return hashes and key numbers of a part, in memory, so that no disk is timed."""
        hashes = np.empty(stop - start, dtype=np.uint64)
        ids = np.empty(stop - start, dtype=np.uint32)
        for file, part in ((self.hashes, hashes), (self.ids, ids)):
            file.seek(start * part.itemsize)
            file.readinto(part.data)
        return hashes, ids


@contextmanager
def _spooled(workload: Workload, cases: int, report: Progress) -> Iterator[_Stream]:
    """Read the workload to disk for as long as the context lasts."""
    # The system removes files without a name whatever ends the process, a kill included.
    with tempfile.TemporaryFile() as hashes, tempfile.TemporaryFile() as ids:
        index = KeyIndex()
        messages = 0
        total = None if workload.messages is None else workload.messages * (1 + cases)
        for batch in workload.batches(MOST_IN_MEMORY):
            hashes.write(np.ascontiguousarray(batch).data)
            ids.write(index.ids(batch).data)
            messages += batch.size
            report("reading", messages, total)
        if not messages:
            raise BadInput(f"{workload.name} is empty; give a workload with at least one tuple")
        yield _Stream(messages, index.counts, hashes, ids)


@dataclass(frozen=True)
class _Case:
    """One grouping at one number of instances."""

    name: str
    instances: int
    sources: int
    seed: int
    parameters: Mapping[str, Any]

    def router(self, source: int) -> Grouping:
        """Make the grouping of one source."""
        own = {**self.parameters, "seed": self.seed, "source": source}
        return grouping(self.name, self.instances, **own)

    def run(
        self,
        stream: _Stream,
        batch: int | None,
        step: int,
        lower_bound: float,
        done: Callable[[int], None],
    ) -> Comparison:
        """Replay the stream and measure."""
        self._warm_up(stream)
        routers = [self.router(source) for source in range(self.sources)]
        tally = KeyTally(self.instances)
        costs: list[tuple[int, int]] = []
        lost = 0.0
        for begin, end in _cuts(0, stream.messages, batch or stream.messages):
            if batch is not None:
                for router in routers:
                    router.begin_batch()
            before = tally.loads
            for start, stop in _cuts(begin, end, step):
                hashes, ids = stream.read(start, stop)
                chosen, elapsed = _deal(routers, hashes, start - begin)
                tally.add(ids, chosen)
                costs.append((stop - start, elapsed))
                done(stop)
            lost += imbalance(tally.loads - before) * (end - begin)
        return Comparison(
            grouping=self.name,
            instances=self.instances,
            sources=self.sources,
            messages=stream.messages,
            keys=tally.distinct_keys,
            imbalance=lost / stream.messages,
            replication_factor=tally.replication_factor,
            memory_keys=tally.memory_keys,
            ns_per_tuple=_typical_cost(costs),
            state_bytes=max(router.state_bytes for router in routers),
            hot_keys=max(router.hot_keys for router in routers),
            lower_bound=lower_bound,
        )

    def _warm_up(self, stream: _Stream) -> None:
        """Have the kernels compiled, on a grouping that is then thrown away."""
        hashes, _ = stream.read(0, min(stream.messages, 1 << 10))
        router = self.router(source=0)
        router.begin_batch()
        router.route(hashes)


def _deal(
    routers: Sequence[Grouping], hashes: NDArray[np.uint64], position: int
) -> tuple[NDArray[np.int32], int]:
    """Route tuple i of the stream by router i modulo their number; return also the ns it took."""
    chosen = np.empty(hashes.size, dtype=np.int32)
    elapsed = 0
    for source, router in enumerate(routers):
        own = slice((source - position) % len(routers), None, len(routers))
        part = np.ascontiguousarray(hashes[own])
        start = perf_counter_ns()
        targets = router.route(part)
        elapsed += perf_counter_ns() - start
        chosen[own] = targets
    return chosen, elapsed


def _typical_cost(costs: Sequence[tuple[int, int]]) -> float:
    """Return the median ns per tuple, without chunks too short to say anything."""
    longest = max(tuples for tuples, _ in costs)
    return median(elapsed / tuples for tuples, elapsed in costs if 2 * tuples >= longest)


def _cuts(start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of consecutive parts, the last one shorter."""
    for begin in range(start, stop, size):
        yield begin, min(begin + size, stop)
