"""Profile: sample a DataFrame once and plan where its keys should go."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from io import StringIO
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from unskew.balance import Plan
from unskew.balance.fitting import fit_plan, loads_under
from unskew.errors import BadInput, BadParameter, BadPlan, MissingPlan
from unskew.metrics import imbalance
from unskew.parameters import number, whole_number
from unskew.spark.columns import check_data_frame, key_columns, key_names, key_types, row_hash
from unskew.spark.replay import order_of
from unskew.spark.versions import check_session

if TYPE_CHECKING:
    from rich.console import Group

FORMAT = 1
"""Version of the JSON form of a profile."""

_MOST_ROWS = 10_000_000
"""Rows of a sample at most: so many distinct keys come to the driver in the worst case."""

_BUCKETS = 64
"""Parts by content that the rows of a hot key are counted in."""

_KEY_WIDTH = 60
"""Characters of a key that are kept to be shown."""


@dataclass(frozen=True)
class HotKey:
    """A key that is placed on its own.

    Attributes
    ----------
    key : str
        Its value as text, cut to 60 characters; several key columns are parted by commas.
    hash : int
        Its hash, as an unsigned number.
    share : float
        Part of all rows that are its.
    instances : int
        Number of instances that share it.
    """

    key: str
    hash: int
    share: float
    instances: int


@dataclass(frozen=True)
class Profile:
    """What a sample showed, and the plan that follows; prints as a table.

    Attributes
    ----------
    keys, types : list of str
        The key columns that it is of, and their types.
    rows : int
        Rows in the sample.
    hot : list of HotKey
        Keys that are placed on their own, the hottest first.
    imbalance, hash_imbalance : float
        Of the sample, under the plan and under Spark's hash partitioning: how far the busiest
        instance is above the mean, in parts of the mean.
    plan : Plan
        What `repartition` takes.
    varied : list of str
        Columns in which the rows of every split key differ enough for a hash of them to spread the
        rows; none if they do not. Looked at after a shuffle only, where it matters.
    """

    keys: list[str]
    types: list[str]
    rows: int
    hot: list[HotKey]
    imbalance: float
    hash_imbalance: float
    plan: Plan
    varied: list[str] = field(default_factory=list)

    @property
    def instances(self) -> int:
        """Number of instances that the plan is for."""
        return self.plan.instances

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile as JSON; readers see the old file or the new one, never a part."""
        data = {
            "unskew": "profile",
            "format": FORMAT,
            **{name: value for name, value in vars(self).items() if name not in {"hot", "plan"}},
            # JSON readers round large numbers: hashes are text.
            "hot": [{**asdict(key), "hash": str(key.hash)} for key in self.hot],
            "plan": self.plan.to_json(),
        }
        target = Path(path)
        if not target.parent.is_dir():
            raise BadParameter(
                f"cannot write {target}: there is no folder {target.parent}; make it"
            )
        with NamedTemporaryFile(
            "w", encoding="utf-8", dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as file:
            try:
                json.dump(data, file)
                file.flush()
                os.fsync(file.fileno())
                os.replace(file.name, target)
            except BaseException:
                Path(file.name).unlink()
                raise

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Profile:
        """Read what `save` wrote.

        Raises
        ------
        MissingPlan
            If there is no file.
        BadPlan
            If it is no profile, is damaged, or was written by a newer version.
        """
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise MissingPlan(f"there is no profile at {os.fspath(path)!r}") from error
        except ValueError as error:
            raise BadPlan(f"{os.fspath(path)!r} is no JSON ({error}); profile again") from error
        if not isinstance(data, dict) or data.get("unskew") != "profile":
            raise BadPlan(f"{os.fspath(path)!r} is not a profile of unskew; profile again")
        if not isinstance(data.get("format"), int) or data["format"] > FORMAT:
            raise BadPlan(
                f"{os.fspath(path)!r} has format {data.get('format')!r} and this version of unskew "
                f"reads up to {FORMAT}; read it with a newer unskew"
            )
        try:
            return cls(
                list(map(str, data["keys"])),
                list(map(str, data["types"])),
                int(data["rows"]),
                [HotKey(**{**key, "hash": int(key["hash"])}) for key in data["hot"]],
                float(data["imbalance"]),
                float(data["hash_imbalance"]),
                Plan.from_json(data["plan"]),
                list(map(str, data["varied"])),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BadPlan(
                f"{os.fspath(path)!r} is damaged ({type(error).__name__}: {error}); profile again"
            ) from error

    def __rich__(self) -> Group:
        """Return what rich prints."""
        # Only here: every Python worker imports this module, and none prints.
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table()
        table.add_column("hot key", overflow="fold")
        table.add_column("share", justify="right")
        table.add_column("instances", justify="right")
        for key in self.hot:
            table.add_row(Text(key.key), f"{key.share:.2%}", str(key.instances))
        if not self.hot:
            table.add_row("none", "", "")
        named = ", ".join(self.keys)
        return Group(
            Text(f"{named}: {self.rows:,} rows sampled, {self.instances} instances"),
            table,
            Text(
                f"imbalance {self.imbalance:.3g} under this plan, {self.hash_imbalance:.3g} under "
                f"Spark's hash partitioning"
            ),
        )

    def __str__(self) -> str:
        """Return the table as text."""
        from rich.console import Console

        text = StringIO()
        Console(file=text, width=100).print(self)
        return text.getvalue().rstrip("\n")


def profile(
    df: DataFrame,
    *keys: str | Column,
    instances: int,
    sample: float = 1_000_000,
    seed: int = 0,
) -> Profile:
    """Sample a DataFrame once and return a plan that balances its keys.

    `repartition(..., plan=profile)` then routes natively, with an exception that is told there:
    keys that the sample calls hot go to as few instances as their share needs, all others with
    their shard. What becomes hot later stays where it is: profile again when `imbalance` no longer
    holds.

    Parameters
    ----------
    df : DataFrame
        Not streaming; read what a stream reads as a batch to profile that.
    *keys : str or Column
        The key, as of `repartition`.
    instances : int
        Number of instances to plan for.
    sample : int or float, default 1,000,000
        How many rows to sample, up to 10 million, for which they are counted first; or, below 1,
        which part of them, without counting.
    seed : int, default 0
        Chooses the sample.

    Returns
    -------
    Profile
        With the plan, the hot keys and their shares, and the imbalance to expect.

    Examples
    --------
    >>> from unskew.spark import profile, repartition
    >>> found = profile(tweets, "hashtag", instances=16)              # doctest: +SKIP
    >>> print(found)                                                  # doctest: +SKIP
    >>> balanced = repartition(tweets, 16, "hashtag", plan=found)     # doctest: +SKIP
    """
    instances = whole_number("instances", instances, least=1, most=2**20)
    number("sample", sample, above=0)
    check_data_frame(df)
    check_session(df.sparkSession.version)
    columns = key_columns(df, keys)
    if df.isStreaming:
        raise BadParameter(
            "a streaming DataFrame cannot be sampled; profile a batch of what it reads, as in "
            "spark.read instead of spark.readStream"
        )
    ordered = order_of(df).same
    found = _counted(_sampled(df, sample, seed), columns, instances, by_content=not ordered)
    if not found["rows"].size:
        raise BadInput("the sample has no rows, so nothing can be planned; sample more of them")
    hashes, first, group = np.unique(found["hash"], return_index=True, return_inverse=True)
    rows = np.bincount(group, found["rows"]).astype(np.int64)
    plan = fit_plan(hashes, rows, instances)
    total = int(rows.sum())
    shares = dict(zip(hashes.tolist(), (rows / total).tolist(), strict=True))
    texts = {
        int(key): str(text)
        for key, text in zip(found["hash"], found["key"], strict=True)
        if text is not None and int(key) in plan.hot
    }
    hot = [
        HotKey(texts.get(key, "?"), key, shares[key], len(plan.instances_of(key)))
        for key in sorted(plan.hot, key=lambda key: (-shares[key], key))
    ]
    spark_loads = np.bincount(found["home"][first], rows, instances)
    return Profile(
        key_names(df, keys),
        key_types(df, keys),
        total,
        hot,
        imbalance(loads_under(plan, hashes, rows)),
        imbalance(spark_loads),
        plan,
        df.columns if not ordered and _is_varied(plan, found) else [],
    )


def _sampled(df: DataFrame, sample: float, seed: int) -> DataFrame:
    """Return a part of the rows, of bounded size if a number of rows is asked for."""
    seed = whole_number("seed", seed, least=0, most=2**63 - 1)
    if sample < 1:
        return df.sample(fraction=sample, seed=seed)
    wanted = whole_number("sample", int(sample), least=1, most=_MOST_ROWS)
    there = df.count()
    return df if there <= wanted else df.sample(fraction=wanted / there, seed=seed)


def _counted(
    df: DataFrame, keys: list[Column], instances: int, *, by_content: bool
) -> dict[str, NDArray[Any]]:
    """Return rows by key hash and, if asked for, bucket of content, with key and Spark's home."""
    bucket = F.pmod(row_hash(df), F.lit(_BUCKETS)) if by_content else F.lit(0)
    text = F.concat_ws(", ", *(F.coalesce(key.cast("string"), F.lit("null")) for key in keys))
    rows = F.count(F.lit(1))
    counted = (
        df.select(
            F.xxhash64(*keys).alias("hash"),
            bucket.cast("int").alias("bucket"),
            F.substring(text, 1, _KEY_WIDTH).alias("key"),
            F.pmod(F.hash(*keys), F.lit(instances)).alias("home"),
        )
        .groupBy("hash", "bucket")
        .agg(
            rows.alias("rows"),
            # Most keys come once; their texts would be most of what is collected.
            F.when(rows > 1, F.first("key")).alias("key"),
            F.first("home").alias("home"),
        )
        .toArrow()
    )
    found = {name: counted.column(name).to_numpy() for name in counted.column_names}
    return {**found, "hash": found["hash"].view(np.uint64)}


def _is_varied(plan: Plan, found: dict[str, NDArray[Any]]) -> bool:
    """Return whether each split key has its rows in all buckets of content alike."""
    for key in plan.hot:
        if len(plan.instances_of(key)) > 1:
            rows = found["rows"][found["hash"] == np.uint64(key)]
            mean = rows.sum() / _BUCKETS
            # Chance alone gives each bucket its mean, give or take a few roots of it.
            if rows.max() > 1.25 * mean + 5 * np.sqrt(mean):
                return False
    return True
