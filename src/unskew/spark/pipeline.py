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
from unskew.operators.per_key import Expired, Function
from unskew.parameters import whole_number
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
from unskew.spark.sinks import SinkLike, sink_of
from unskew.spark.spark_checkpoint import SparkCheckpoint
from unskew.spark.stages import Bound, Keys, Stage
from unskew.spark.versions import check_session
from unskew.state import Checkpoint
from unskew.state.files import local_folder


class Pipeline:
    """Chains of keyed stages with state, under a balancer that moves shards between instances.

    A pipeline is a Structured Streaming query: sources, offsets, triggers and watermarks are
    Spark's. Its state is not: shards of keys live in files of their own, so that any executor can
    take any shard between two batches, with nothing in flight. Every batch counts once, in the
    state and in the sink, whatever is killed when.

    A task holds 128 MB of entries (`Settings.most_bytes`), and beside them one shard's state at a
    time where those do not fit; the rest is on disk.

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
    ) -> Pipeline:
        """Return the pipeline with a stage that counts the rows of each key, as ``count``."""
        return self.aggregate(keys, {"count": count()}, window=window, mode=mode, name=name)

    def aggregate(
        self,
        keys: Keys,
        aggregates: Mapping[str, Applied],
        *,
        window: Column | None = None,
        mode: str = "update",
        name: str | None = None,
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
        """
        if mode == "append":
            self._check_watermark('mode="append" gives windows when they are final')
        if mode == "rows":
            if window is not None:
                raise BadParameter('mode="rows" lets every row through, and has no window')
            made = stages.passing(self._input(), keys, aggregates)
        else:
            made = stages.aggregation(self._input(), keys, aggregates, window, mode)
        return self.with_stage(made, name or f"aggregate {len(self.stages)}")

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
        name : str, optional
            Of the stage.
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
        made = stages.per_key(self._input(), keys, operator, time)
        return self.with_stage(made, name or f"per key {len(self.stages)}")

    def start(
        self,
        sink: SinkLike,
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
        sink : str, path, Sink or callable
            A folder for Parquet files, "console", a `MemorySink`, or a function of a DataFrame and
            a number, which grows with every call but for one that is made again after a failure.
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
        target = sink_of(sink)
        folder = local_folder(checkpoint)
        own = Checkpoint(folder / "unskew" if state is None else local_folder(state))
        stages = self._fitting(own)
        own.open([stage.spec for stage in stages])
        check_executors(self.df.sparkSession, own.folder)
        cycle = Cycle(
            stages=stages,
            checkpoint=own,
            spark_checkpoint=SparkCheckpoint(folder / "spark"),
            order=order_of(self.df),
            sink=target,
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
        return PipelineQuery(started._jsq, cycle, self.df, ends=ends)

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

    def _input(self) -> DataFrame:
        """Return a DataFrame with the columns that the next stage gets."""
        if not self.stages:
            return self.df
        return self.df.sparkSession.createDataFrame([], self.stages[-1].output)

    def with_stage(self, bound: Bound, name: str) -> Pipeline:
        """Return the pipeline with one more stage, of an operator that is bound to its input."""
        if any(stage.name == name for stage in self.stages):
            raise BadParameter(f"there is a stage {name!r} already; call this one otherwise")
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
        )
        added = type(self)(
            self.df, instances=self.instances, shards=self.shards, balancer=self.balancer
        )
        added._is_given = self._is_given
        added.stages = (*self.stages, stage)
        return added

    def _balancer(self) -> Balancer:
        """Return the balancer of the next stage: they remember, so that each stage has its own."""
        made = make_balancer(self.balancer)
        if made.is_joint and self.stages:
            return self.stages[0].balancer
        return deepcopy(made)


def arrow_schema(given: str | StructType) -> pa.Schema:
    """Return the Arrow columns of what Spark writes as text or a StructType."""
    kind = StructType.fromDDL(given) if isinstance(given, str) else given
    if not isinstance(kind, StructType):
        raise BadParameter(
            f'columns are named and typed, as in "n long, at timestamp", not {given!r}'
        )
    return pa.schema([pa.field(field.name, arrow_type(field.dataType)) for field in kind])
