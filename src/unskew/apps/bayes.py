"""Bayes: a naive Bayes model that is trained on one stream and classifies another."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf

from unskew import hash_keys
from unskew.aggregates import Count, Groups
from unskew.apps.base import App, Options, Summary, Watch
from unskew.apps.continuing import check_same_stream
from unskew.apps.converging import convergence, spread_of
from unskew.apps.following import Enough, committed, wait
from unskew.apps.generated import NUMBER, first_numbers, numbers, rows_of
from unskew.apps.log import Log
from unskew.apps.naive_bayes import NaiveBayes
from unskew.apps.quotas import Quotas, own_executors
from unskew.errors import NotVerified
from unskew.spark import Balance, BatchReport, HotRows, Pipeline, Settings
from unskew.workloads import Examples
from unskew.workloads.examples import CLASSES, SHARES

WORK = 200e-6
"""Seconds that a row takes where executors have speeds: without work none is slower."""

HOTTEST = 10
"""Counters of each batch that are told of."""

_SECOND = 2**32
"""Seeds of the second stream are those of the first, and this."""

_EXAMPLE = "class string, values array<string>"

Counts = dict[tuple[str, str], int]


class Counted(Count):
    """A count whose rows take a while.

    Parameters
    ----------
    seconds : float
        That a row takes.
    burns : bool
        Whether it computes; else it waits, and any number of rows can do so beside each other.
    """

    def __init__(self, seconds: float, burns: bool) -> None:
        self.seconds, self.burns = seconds, burns

    def __repr__(self) -> str:
        """Return what checkpoints go by: rows may take longer in another run."""
        return "Count()"

    def update(self, states: pa.Array, groups: Groups, *values: pa.Array) -> pa.Array:
        """Take the time, then count."""
        if self.burns:
            end = time.thread_time() + groups.size * self.seconds
            while time.thread_time() < end:
                pass
        else:
            time.sleep(groups.size * self.seconds)
        return super().update(states, groups, *values)


class Bayes(App):
    """Counters of (value, class) as Parquet, and the class of every example of another stream."""

    name = "bayes"
    title = "a naive Bayes model trained on a stream, on executors that may differ in speed"
    takes = frozenset({"balancer", "shards", "speeds", "change"})
    rows = 3000
    results = "counters"
    balancer = "consistent"

    def run(self, spark: SparkSession, options: Options, watch: Watch) -> Summary:
        """Train to the end, tell of every batch, then classify as many batches of the other."""
        checkpoint = options.out / "checkpoint"
        offsets = checkpoint / "spark"
        check_same_stream(self.name, options, offsets)
        found = options.out / self.results
        # Spark reads an empty folder, and none that is missing.
        found.mkdir(parents=True, exist_ok=True)
        last = committed(offsets) + options.batches - 1
        log = _Log(spark, options, watch)
        with _quotas(options) as quotas:
            how = "delay" if quotas is None else "quota"

            def before(number: int) -> None:
                if number > last:
                    raise Enough
                if quotas is not None and options.speeds is not None:
                    quotas.limit(options.speeds.at(number))

            counted = Pipeline(
                _values(spark, options, numbers(spark, options.rows)),
                instances=options.instances,
                shards=options.shards,
                balancer=options.balancer,
            ).aggregate(["value", "class"], {"n": _counter(options, quotas).of()}, name="counters")
            slowed = Settings(speeds=options.speeds if quotas is None else None)
            begin = time.perf_counter()
            query = counted.start(found, checkpoint, before=before, watch=log.note, settings=slowed)
            wait(query)
            seconds = time.perf_counter() - begin
        counts = _newest(spark.read.parquet(f"file:{found}"))
        second = _Second(spark, options)
        second.classify(NaiveBayes.of(counts))
        verified = None
        if options.verify:
            _verify(counts, _at_once(spark, options, last + 1), second)
            verified = True
        extra = {
            **_figures(log.reports, options),
            "slowed_by": how if options.speeds is not None else None,
            "accuracy": second.accuracy,
            "majority": second.majority,
        }
        return log.summary(
            self,
            options,
            seconds=seconds,
            verified=verified,
            notes=list(_told(extra)),
            extra=extra,
        )


def _values(spark: SparkSession, options: Options, tuples: DataFrame) -> DataFrame:
    """Return the rows that are counted: every value of every example, with its class."""
    made = tuples.select(rows_of(Examples(seed=options.seed).rows, _EXAMPLE).alias("made"))
    return made.select("made.class", F.explode("made.values").alias("value"))


def _counter(options: Options, quotas: Quotas | None) -> Count:
    return Count() if options.speeds is None else Counted(WORK, burns=quotas is not None)


@contextmanager
def _quotas(options: Options) -> Iterator[Quotas | None]:
    """Yield quotas of the executors' CPU time, if there are speeds and the system allows it."""
    executors = own_executors() if options.speeds is not None else {}
    quotas = Quotas(executors, max(1, options.instances // max(1, len(executors))))
    try:
        yield quotas if executors and quotas.start() else None
    finally:
        quotas.stop()


class _Log(Log):
    """What the batches did, as the pipeline tells and as the stream is known to be."""

    def __init__(self, spark: SparkSession, options: Options, watch: Watch) -> None:
        super().__init__(watch)
        self._examples, self._options = Examples(seed=options.seed), options
        values = [f"v{value}" for value in range(self._examples.values + 1)]
        self._pairs = [(value, name) for value in values for name in CLASSES]
        keys = pa.table(dict(zip(("value", "class"), zip(*self._pairs, strict=True), strict=True)))
        self._hashes = hash_keys(*keys.columns).tolist()
        home = F.pmod(F.hash("value", "class"), F.lit(options.instances)).alias("home")
        self._homes = np.array(spark.createDataFrame(keys).select(home).toArrow().column("home"))

    def note(self, report: BatchReport) -> None:
        """Take the report of a batch."""
        start = report.batch * self._options.rows
        classes, values = self._examples.draw(start, start + self._options.rows)
        counts = np.bincount(
            (values * len(CLASSES) + classes[:, None]).ravel(), minlength=len(self._pairs)
        )
        # A key that is split is told by each of its instances, every other one by one at most.
        told = Counter(key for task in report.facts["tasks"] for key, _ in task["hot"])
        instances = np.array([max(told[key], 1) for key in self._hashes])
        homes = np.bincount(self._homes, counts, self._options.instances)
        balance = Balance(
            loads=report.loads[0].tolist(),
            hash_loads=homes.astype(int).tolist(),
            partials=int(instances[counts > 0].sum()),
            hot=[
                HotRows(" in ".join(self._pairs[place]), int(counts[place]), int(instances[place]))
                for place in np.argsort(-counts, kind="stable")[:HOTTEST].tolist()
            ],
        )
        self._add(report, report.rows, int(np.count_nonzero(counts)), balance)


class _Second:
    """The second stream, each example of which is given a class."""

    def __init__(self, spark: SparkSession, options: Options) -> None:
        self._spark, self._options = spark, options
        self._examples = Examples(seed=options.seed + _SECOND)
        self._folder = options.out / "classified"
        self._checkpoint = options.out / "checkpoint" / "second"
        self._numbers = np.empty(0, dtype=np.int64)
        self._found: list[str] = []
        self._classes: list[str] = []

    def classify(self, model: NaiveBayes) -> None:
        """Classify as many batches as were trained."""
        begin = committed(self._checkpoint)
        end = begin + self._options.batches
        examples = numbers(self._spark, self._options.rows).select(
            NUMBER, rows_of(self._examples.rows, _EXAMPLE).alias("made")
        )

        def classes(values: pa.Array) -> pa.Array:
            return model.classify(values)

        # PySpark's own types know no functions with annotations.
        udf: Any = arrow_udf
        found = examples.select(
            NUMBER, "made.class", udf(classes, "string")("made.values").alias("found")
        )

        def save(df: DataFrame, number: int) -> None:
            if number >= end:
                raise Enough
            df.write.mode("overwrite").parquet(f"file:{self._folder}/batch={number}")

        writer = found.writeStream.foreachBatch(save)
        wait(writer.option("checkpointLocation", str(self._checkpoint)).start())
        folders = [f"file:{self._folder}/batch={number}" for number in range(begin, end)]
        rows = self._spark.read.parquet(*folders).orderBy(NUMBER).toArrow()
        self._numbers = rows.column(NUMBER).to_numpy()
        self._found = rows.column("found").to_pylist()
        self._classes = rows.column("class").to_pylist()

    @property
    def accuracy(self) -> float:
        """Part of the examples whose class was found."""
        right = sum(a == b for a, b in zip(self._found, self._classes, strict=True))
        return right / max(1, len(self._found))

    @property
    def majority(self) -> float:
        """Part of the examples that would be right if all were said to be of the largest class."""
        largest = CLASSES[int(np.argmax(SHARES))]
        return self._classes.count(largest) / max(1, len(self._classes))

    def differing(self, model: NaiveBayes) -> int:
        """Return how many examples another model gives another class."""
        wanted = model.classify(self._examples.rows(self._numbers).field("values")).to_pylist()
        return sum(a != b for a, b in zip(self._found, wanted, strict=True))


def _newest(found: DataFrame) -> Counts:
    """Return the last that came out of each counter."""
    newest = found.groupBy("value", "class").agg(F.max_by("n", "version").alias("n"))
    return {(row["value"], row["class"]): row["n"] for row in newest.collect()}


def _at_once(spark: SparkSession, options: Options, batches: int) -> Counts:
    """Count all examples at once by plain Spark."""
    rows = _values(spark, options, first_numbers(spark, batches * options.rows))
    counted = rows.groupBy("value", "class").count()
    return {(row["value"], row["class"]): row["count"] for row in counted.collect()}


def _verify(counts: Counts, wanted: Counts, second: _Second) -> None:
    """Compare the counters, and the classes that a model of those at once finds."""
    wrong = [pair for pair in counts.keys() | wanted.keys() if counts.get(pair) != wanted.get(pair)]
    if wrong:
        pair = min(wrong)
        raise NotVerified(
            f"{len(wrong):,} counters are not plain Spark's, such as {pair}: {counts.get(pair)}, "
            f"not {wanted.get(pair)}; report it, with the folder that --out names"
        )
    differing = second.differing(NaiveBayes.of(wanted))
    if differing:
        raise NotVerified(
            f"{differing:,} examples have another class than a model finds that is trained at once"
            f"; report it, with the folder that --out names"
        )


def _figures(reports: Sequence[BatchReport], options: Options) -> dict[str, Any]:
    spreads = [spread_of(report) for report in reports]
    return {
        "utilisation_spread": spreads[-1] if spreads else 0.0,
        "utilisation_spreads": spreads,
        "virtual_workers": int(reports[-1].reports[0].rows.size) if reports else 0,
        "virtual_workers_wanted": reports[-1].shards_wanted[0] if reports else 0,
        "convergence": convergence(reports, options.speeds),
        "migrations": sum(sum(report.moves) + sum(report.hot_moves) for report in reports),
        "migrated_bytes": sum(report.bytes_moved for report in reports),
    }


def _told(figures: dict[str, Any]) -> Iterator[str]:
    spreads = ", ".join(f"{each:.2f}" for each in figures["utilisation_spreads"])
    yield f"spread of utilisations, batch by batch: {spreads}"
    for number, batches in enumerate(figures["convergence"]):
        since = "the first batch" if number == 0 else "a change of speeds"
        after = "not yet" if batches is None else f"{batches} batches after"
        yield f"instances are used evenly: {after} {since}"
    if figures["virtual_workers_wanted"]:
        yield (
            f"{figures['virtual_workers']:,} shards are too few for these speeds: run it with "
            f"--shards {figures['virtual_workers_wanted']}, in another --out"
        )
    yield (
        f"accuracy on the second stream {figures['accuracy']:.1%}; all of the largest class would "
        f"be {figures['majority']:.1%}"
    )
