"""The pipeline: a stream through keyed stages whose state can move, exactly once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructType

from unskew.aggregates import Applied, count
from unskew.balance import Balancer
from unskew.balance import balancer as make_balancer
from unskew.errors import BadParameter
from unskew.operators import PerKey
from unskew.operators.parting import MOST_FOLLOWERS
from unskew.operators.per_key import Expired, Function
from unskew.operators.step import Step, StepFunction
from unskew.parameters import one_of, whole_number
from unskew.spark import stages
from unskew.spark.aggregation_request import arrow_type
from unskew.spark.batch_report import BatchReport
from unskew.spark.columns import check_data_frame, has_watermark
from unskew.spark.cycle import Cycle
from unskew.spark.listening import register
from unskew.spark.nodes import check_executors
from unskew.spark.pipeline_query import PipelineQuery
from unskew.spark.replay import check_checksums, order_of
from unskew.spark.settings import Settings
from unskew.spark.sinks import Sink, SinkLike, check_apart, check_columns, sink_of
from unskew.spark.spark_checkpoint import SparkCheckpoint
from unskew.spark.stages import Bound, Keys, Stage
from unskew.spark.versions import check_session, check_workers
from unskew.state import Checkpoint
from unskew.state.files import local_folder

_MODES = ("update", "append", "rows")


class Pipeline:
    """Keyed stages with state, under a balancer that moves shards between instances.

    Each stage takes what comes out of one before it; one stage may feed several.

    A pipeline is a Structured Streaming query: sources, offsets, triggers and watermarks are
    Spark's. Its state is not: shards of keys live in files of their own, so that any executor can
    take any shard between two batches, with nothing in flight. Every batch counts once, in the
    state and in the sink, whatever is killed when.

    A task holds 128 MB of entries (`Settings.most_bytes`), and beside them one shard's state at a
    time where those do not fit; the rest is on disk. A stage that lets rows through (`mode="rows"`)
    also holds the results of all keys of its batch.

    Parameters
    ----------
    df : DataFrame
        A stream.
    instances : int, optional
        Of each stage; by default as many as Spark has cores.
    shards : int, optional
        Of each stage; by default as many as the checkpoint has, or 16 an instance, or as many as
        the balancer needs: 100 for "consistent". Cannot be changed later without re-sharding.
    balancer : str or Balancer, default "greedy"
        Decides, after each batch, which instance each shard is on.

    Examples
    --------
    >>> from unskew.aggregates import count, quantiles
    >>> query = (
    ...     Pipeline(clicks, instances=16)
    ...     .aggregate("user", {"clicks": count(), "slow": quantiles(0.99).of("ms")})
    ...     .start("clicks-by-user", checkpoint="checkpoint")
    ... )                                                             # doctest: +SKIP
    """

    shards_per_instance: ClassVar[int] = 16

    def __init__(
        self,
        df: DataFrame,
        *,
        instances: int | None = None,
        shards: int | None = None,
        balancer: str | Balancer = "greedy",
    ) -> None:
        check_data_frame(df)
        check_session(df.sparkSession.version)
        check_checksums(df.sparkSession)
        if not df.isStreaming:
            raise BadParameter(
                "a pipeline takes a stream, as spark.readStream gives one; for a batch use "
                "unskew.spark.aggregate"
            )
        if instances is None:
            instances = df.sparkSession.sparkContext.defaultParallelism
        self.instances = whole_number("instances", instances, least=1, most=2**16)
        self._is_given = shards is not None
        made = make_balancer(balancer)
        if made.needs_queues:
            raise BadParameter(
                f"{made.name} goes by queues, and nothing waits between the batches of a pipeline; "
                f'give it another signal, such as "busy"'
            )
        if shards is None:
            shards = max(self.shards_per_instance, made.shards_per_instance) * self.instances
        self.shards = whole_number("shards", shards, least=1, most=2**20)
        if self.shards < self.instances:
            raise BadParameter(
                f"shards={shards} is fewer than there are instances, {self.instances}; every "
                f"instance needs at least one"
            )
        self.balancer = balancer
        self.df = df
        self.stages: tuple[Stage, ...] = ()

    def count(
        self,
        keys: Keys,
        *,
        window: Column | None = None,
        mode: str = "update",
        name: str | None = None,
        after: str | None = None,
    ) -> Pipeline:
        """Return the pipeline with a stage that counts the rows of each key, as ``count``."""
        counted = {"count": count()}
        return self.aggregate(keys, counted, window=window, mode=mode, name=name, after=after)

    def aggregate(
        self,
        keys: Keys,
        aggregates: Mapping[str, Applied],
        *,
        window: Column | None = None,
        mode: str = "update",
        name: str | None = None,
        after: str | None = None,
    ) -> Pipeline:
        """Return the pipeline with a stage that keeps aggregates of each key.

        Parameters
        ----------
        keys : str, Column, or sequence of them
            Group by these.
        aggregates : mapping of str to Applied
            As of `unskew.spark.aggregate`, without Spark's own.
        window : Column, optional
            ``F.window("time", "10 minutes")``. A window is kept until the watermark has passed it,
            and rows that come later are counted and dropped; without a watermark it is kept for
            ever.
        mode : {"update", "append", "rows"}, default "update"
            What comes out of a batch: the keys that it changed; windows that became final; or every
            row, with the aggregates of its key beside it, for the next stage.
        name : str, optional
            Of the stage.
        after : str, optional
            Name of the stage whose rows it takes; the last one that was added by default. One stage
            may feed several.
        """
        one_of("mode", mode, _MODES)
        if mode == "append":
            self._check_watermark('mode="append" gives windows when they are final')
        if mode == "rows":
            if window is not None:
                raise BadParameter('mode="rows" lets every row through, and has no window')
            made = stages.passing(self._input(after), keys, aggregates)
        else:
            made = stages.aggregation(self._input(after), keys, aggregates, window, mode)
        return self.with_stage(made, name or f"aggregate {len(self.stages)}", after)

    def per_key(
        self,
        keys: Keys,
        function: Function,
        *,
        state: str | StructType,
        output: str | StructType,
        ttl: float | None = None,
        expired: Expired | None = None,
        time: str | None = None,
        name: str | None = None,
        after: str | None = None,
    ) -> Pipeline:
        """Return the pipeline with a stage that calls a function for each key.

        Parameters
        ----------
        keys : str, Column, or sequence of them
            Group by these.
        function : callable
            ``function(key, rows, state) -> (state, output)``; see `unskew.operators.PerKey`.
        state, output : str or StructType
            Columns, as Spark writes them: ``"most long, last timestamp"``.
        ttl, expired
            When state expires, in seconds of event time, and what then comes out.
        time : str, optional
            Column of event time; the one with the watermark by default.
        name, after : str, optional
            As of `aggregate`.
        """
        if ttl is not None:
            self._check_watermark("ttl= lets state expire")
        operator = PerKey(
            function,
            state=arrow_schema(state),
            output=arrow_schema(output),
            ttl=ttl,
            expired=expired,
        )
        made = stages.per_key(self._input(after), keys, operator, time)
        return self.with_stage(made, name or f"per key {len(self.stages)}", after)

    def apply(
        self, function: StepFunction, *, output: str | StructType, after: str | None = None
    ) -> Pipeline:
        """Return the pipeline with a step without state after a stage, run where its rows are.

        It costs no exchange: the task of the stage calls the function with what comes out, and
        what it returns goes on, or to the sink. Pairs of keys are counted of the columns as they
        come out of it, if the keys of the stage are among them, by name and type.

        Parameters
        ----------
        function : callable
            Of a pyarrow RecordBatch, returns one; pure, as a task may run twice, and whatever rows
            come in one call. With a key that is split it is called in the driver, too.
        output : str or StructType
            Columns that it returns, as Spark writes them: ``"tag string, reach long"``.
        after : str, optional
            Name of the stage, which feeds no other yet; the last one that was added by default.

        Raises
        ------
        BadParameter
            Before the first stage: that is what DataFrames are for.
        """
        if not self.stages:
            raise BadParameter(
                "a step comes after a stage; before the first one let Spark do it: Pipeline("
                "df.select(...)), or df.mapInArrow(...)"
            )
        number = self._place(after)
        assert number is not None
        stage = self.stages[number]
        following = stages.followers_of(self.stages, number)
        if following:
            raise BadParameter(
                f"stage {stage.name!r} feeds {self.stages[following[0]].name!r} already; put the "
                f"step before the stages that get its rows"
            )
        step = Step(function, arrow_schema(output))
        made = replace(stage, steps=(*stage.steps, step), output=_columns(output))
        return self._with((*self.stages[:number], made, *self.stages[number + 1 :]))

    def start(
        self,
        sink: SinkLike | Mapping[str, SinkLike],
        checkpoint: str | os.PathLike[str],
        *,
        state: str | os.PathLike[str] | None = None,
        initial: DataFrame | None = None,
        name: str | None = None,
        before: Callable[[int], None] | None = None,
        watch: Callable[[BatchReport], None] | None = None,
        settings: Settings | None = None,
        **trigger: Any,
    ) -> PipelineQuery:
        """Start the query.

        Parameters
        ----------
        sink : str, path, Sink or callable, or a mapping of str to them
            A folder for Parquet files, "console", a `MemorySink`, or a function of a DataFrame and
            a number, which grows with every call but for one that is made again after a failure.
            Where the pipeline ends in several stages, one for each by the name of the stage.
        checkpoint : path
            Folder of Spark's checkpoint, and of the state unless that is named.
        state : path, optional
            Folder of the state: one that the driver and all executors see.
        initial : DataFrame, optional
            Rows that count as if they had come before the stream, of the same columns and not a
            stream; used by the first start on a checkpoint, and nothing comes out of them.
        name : str, optional
            Of the query.
        before : callable, optional
            Is called with the number of every batch before anything of it is done; what it raises
            stops the query, and the next start goes on with that batch.
        watch : callable, optional
            Is called with a `BatchReport` after every batch.
        settings : Settings, optional
            How state is kept.
        **trigger
            As of ``writeStream.trigger``: ``availableNow=True``, ``processingTime="10 seconds"``.
        """
        if not self.stages:
            raise BadParameter("a pipeline needs a stage; add one with .aggregate or .per_key")
        sinks = self._sinks(sink)
        for number, each in sinks.items():
            check_columns(each, self.stages[number].output)
        context = self.df.sparkSession.sparkContext
        check_workers(context.master or "", context.pythonExec)
        folder = local_folder(checkpoint)
        for each in sinks.values():
            each.check_query(folder)
        own = Checkpoint(folder / "unskew" if state is None else local_folder(state))
        stages = self._fitting(own)
        own.open([stage.spec for stage in stages])
        check_executors(self.df.sparkSession, own.folder)
        cycle = Cycle(
            stages=stages,
            checkpoint=own,
            spark_checkpoint=SparkCheckpoint(folder / "spark"),
            order=order_of(self.df),
            sinks=sinks,
            settings=settings or Settings(),
            before=before,
            watch=watch,
        )
        if initial is not None:
            self._begin(cycle, initial)
        writer = self.df.writeStream.foreachBatch(cycle.__call__)
        writer = writer.option("checkpointLocation", str(folder / "spark"))
        if name is not None:
            writer = writer.queryName(name)
        if trigger:
            writer = writer.trigger(**trigger)
        started = writer.start()
        register(str(started.runId), cycle)
        ends = bool(trigger.get("availableNow") or trigger.get("once"))
        query = PipelineQuery(started._jsq, cycle, self.df, ends=ends)
        cycle.until(query.is_over)
        return query

    def _sinks(self, given: SinkLike | Mapping[str, SinkLike]) -> dict[int, Sink]:
        """Return the sink of each stage that feeds no other."""
        ends = {self.stages[number].name: number for number in stages.ends_of(self.stages)}
        names = ", ".join(map(repr, ends))
        if not isinstance(given, Mapping):
            if len(ends) > 1:
                raise BadParameter(
                    f"the pipeline ends in {len(ends)} stages, {names}, and each has a sink of its "
                    f"own: start({{name: sink, ...}}, ...), not {given!r}"
                )
            given = dict.fromkeys(ends, given)
        if set(given) != set(ends):
            raise BadParameter(
                f"sinks are for the stages that feed no other, {names}, each of them, and those "
                f"given are for {', '.join(map(repr, given)) or 'none'}"
            )
        made = {number: sink_of(given[name]) for name, number in ends.items()}
        check_apart(made.values())
        return made

    def _fitting(self, checkpoint: Checkpoint) -> tuple[Stage, ...]:
        """Return the stages, with as many shards as the checkpoint has unless that was asked."""
        if self._is_given or not (checkpoint.folder / "pipeline.json").exists():
            return self.stages
        shards = checkpoint.specs()[0].shards
        if shards < self.instances:
            raise BadParameter(
                f"{checkpoint.folder} has {shards} shards, too few for {self.instances} instances; "
                f"unskew state CHECKPOINT --reshard changes that"
            )
        return tuple(replace(stage, shards=shards) for stage in self.stages)

    def _begin(self, cycle: Cycle, initial: DataFrame) -> None:
        """Make the initial state, unless the stream has begun."""
        check_data_frame(initial)
        if initial.isStreaming or initial.columns != self.df.columns:
            raise BadParameter(
                f"initial must be a batch with the columns of the stream, "
                f"{', '.join(self.df.columns)}, not {', '.join(initial.columns)}"
                f"{' of a stream' if initial.isStreaming else ''}"
            )
        if not cycle.spark_checkpoint.has_begun():
            cycle.begin(initial)

    def _check_watermark(self, why: str) -> None:
        """Refuse what would never happen: without a watermark event time never passes."""
        if not has_watermark(self.df):
            raise BadParameter(
                f"{why}, which takes a watermark: give the source one, "
                f'df.withWatermark("time", "10 minutes")'
            )

    def _place(self, after: str | None) -> int | None:
        """Return the number of a stage by its name, or of the last one; None if there is none."""
        names = [stage.name for stage in self.stages]
        if after is None:
            return len(names) - 1 if names else None
        if after not in names:
            raise BadParameter(
                f"after={after!r} is no stage; there are {', '.join(map(repr, names)) or 'none'}"
            )
        return names.index(after)

    def _input(self, after: str | None) -> DataFrame:
        """Return a DataFrame with the columns that the next stage gets."""
        number = self._place(after)
        if number is None:
            return self.df
        return self.df.sparkSession.createDataFrame([], self.stages[number].output)

    def with_stage(self, bound: Bound, name: str, after: str | None = None) -> Pipeline:
        """Return the pipeline with one more stage, of an operator that is bound to its input."""
        if any(stage.name == name for stage in self.stages):
            raise BadParameter(f"there is a stage {name!r} already; call this one otherwise")
        number = self._place(after)
        if number is not None:
            fed = len(stages.followers_of(self.stages, number))
            if fed >= MOST_FOLLOWERS:
                raise BadParameter(
                    f"{self.stages[number].name!r} feeds {fed} stages already, and can feed no more"
                    f"; let some of them follow on another one"
                )
        is_next = number is None or number == len(self.stages) - 1
        stage = Stage(
            name=name,
            operator=bound.operator,
            columns=bound.columns,
            output=bound.output,
            kind=bound.kind,
            taken=bound.taken,
            instances=self.instances,
            shards=self.shards,
            balancer=self._balancer(),
            after=number,
            after_name=None if number is None or is_next else self.stages[number].name,
        )
        return self._with((*self.stages, stage))

    def _with(self, changed: tuple[Stage, ...]) -> Pipeline:
        added = type(self)(
            self.df, instances=self.instances, shards=self.shards, balancer=self.balancer
        )
        added._is_given = self._is_given
        added.stages = changed
        return added

    def _balancer(self) -> Balancer:
        """Return the balancer of the next stage: they remember, so that each stage has its own."""
        made = make_balancer(self.balancer)
        if made.is_joint and self.stages:
            return self.stages[0].balancer
        return deepcopy(made)


def arrow_schema(given: str | StructType) -> pa.Schema:
    """Return the Arrow columns of what Spark writes as text or a StructType."""
    kind = _columns(given)
    return pa.schema([pa.field(field.name, arrow_type(field.dataType)) for field in kind])


def _columns(given: str | StructType) -> StructType:
    kind = StructType.fromDDL(given) if isinstance(given, str) else given
    if not isinstance(kind, StructType):
        raise BadParameter(
            f'columns are named and typed, as in "n long, at timestamp", not {given!r}'
        )
    return kind
