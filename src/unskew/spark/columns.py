"""Columns: keys as the user gives them, the hash of a whole row, names that nobody has."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StructType,
    VariantType,
)

from unskew.errors import BadParameter, UnhashableKey, UnknownColumn


def check_data_frame(df: object) -> None:
    """Refuse what is no DataFrame, of Spark or of Spark Connect."""
    if not isinstance(df, DataFrame):
        raise BadParameter(f"df must be a Spark DataFrame, not {type(df).__name__}")


def quoted(name: str) -> str:
    """Return a name so that Spark reads it as one column, whatever is in it.

    Examples
    --------
    >>> quoted("a.b")
    '`a.b`'
    """
    return "`" + name.replace("`", "``") + "`"


def fresh_name(df: DataFrame, wanted: str) -> str:
    """Return a name that no column has, in any spelling: `wanted`, or that with underscores."""
    taken = {name.lower() for name in df.columns}
    while wanted.lower() in taken:
        wanted += "_"
    return wanted


def key_columns(df: DataFrame, keys: tuple[str | Column, ...]) -> list[Column]:
    """Return the key columns, once it is sure that the DataFrame has them and they hash.

    Raises
    ------
    UnknownColumn
        For a name that does not stand for a column.
    UnhashableKey
        For a map or a variant, alone or nested: equal ones need not have equal hashes.
    BadParameter
        For no key, or one that is neither a str nor a Column.
    """
    if not keys:
        raise BadParameter(
            f"name at least one key column; there are {', '.join(map(repr, df.columns))}"
        )
    for key in keys:
        if not isinstance(key, str | Column):
            raise BadParameter(f"a key is a column name or a Column, not {key!r}")
        _check_key(df, key)
    return [F.col(key) if isinstance(key, str) else key for key in keys]


def key_names(df: DataFrame, keys: tuple[str | Column, ...]) -> list[str]:
    """Return how Spark names each key; expressions get their text."""
    return list(df.select(*keys).columns)


def key_types(df: DataFrame, keys: tuple[str | Column, ...]) -> list[str]:
    """Return the type of each key: it is part of what is hashed."""
    return [field.dataType.simpleString() for field in df.select(*keys).schema.fields]


def row_hash(df: DataFrame) -> Column:
    """Return the hash of all that a row holds, as a native column.

    ``xxhash64`` alone skips nulls and knows no maps: (1, null) and (null, 1) would be equal rows.
    Columns that may be null add whether they are, nested ones go in as JSON with all digits of
    their times. Floats add their text, which tells -0.0 from 0.0.
    """
    names = df.columns
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise BadParameter(
            f"several columns are named {', '.join(map(repr, doubled))}, and after a shuffle rows "
            f"are routed by all that they hold; rename them first"
        )
    parts: list[Column] = []
    for field in df.schema.fields:
        column = F.col(quoted(field.name))
        if _is_plain(field.dataType):
            parts.append(column)
            if field.nullable:
                parts.append(column.isNull())
            if isinstance(field.dataType, FloatType | DoubleType):
                parts.append(column.cast("string"))
        else:
            parts.append(F.to_json(F.struct(column), _AS_JSON))
    return F.xxhash64(*parts) if parts else F.xxhash64(F.lit(0))


_AS_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def _is_plain(kind: DataType) -> bool:
    return not isinstance(kind, ArrayType | StructType | MapType | VariantType)


def check_names(df: DataFrame, names: Iterable[str]) -> None:
    """Refuse plain names that no column has, before Spark does, which logs pages of it."""
    there = {name.lower() for name in df.columns}
    for name in names:
        if name.isidentifier() and name.lower() not in there:
            raise UnknownColumn(
                f"there is no column {name!r}; there are {', '.join(map(repr, df.columns))}"
            )


def _check_key(df: DataFrame, key: str | Column) -> None:
    if isinstance(key, str):
        check_names(df, [key])
    try:
        kind = df.select(key).schema.fields
    except AnalysisException as error:
        check_known(error, df, _text(key))
        raise
    if len(kind) != 1:
        raise BadParameter(f"{_text(key)} stands for {len(kind)} columns; name each key")
    inner = _unhashable(kind[0].dataType)
    if inner is not None:
        raise UnhashableKey(
            f"key {_text(key)} of type {kind[0].dataType.simpleString()} cannot be hashed, as "
            f"{inner} has no order that equal ones share; use one of its entries, or "
            f"array_sort(map_entries(...)) of a map"
        )


def check_known(error: AnalysisException, df: DataFrame, name: str | None = None) -> None:
    """Raise `UnknownColumn` if that is what Spark complains of."""
    condition = error.getCondition() or ""
    if condition.startswith(("UNRESOLVED_COLUMN", "FIELD_NOT_FOUND")):
        unknown = (error.getMessageParameters() or {}).get("objectName") or name or "of this name"
        raise UnknownColumn(
            f"there is no column {unknown}; there are {', '.join(map(repr, df.columns))}"
        ) from error


def _unhashable(kind: DataType) -> str | None:
    """Return what within a type has no hash, or None."""
    if isinstance(kind, MapType):
        return "a map"
    if isinstance(kind, VariantType):
        return "a variant"
    if isinstance(kind, ArrayType):
        return _unhashable(kind.elementType)
    if isinstance(kind, StructType):
        return next(filter(None, (_unhashable(field.dataType) for field in kind.fields)), None)
    return None


def _text(key: str | Column) -> str:
    return repr(key) if isinstance(key, str) else str(key)


def has_watermark(df: DataFrame) -> bool:
    """Return whether event time passes in a stream."""
    return "EventTimeWatermark" in df._jdf.queryExecution().analyzed().treeString()
