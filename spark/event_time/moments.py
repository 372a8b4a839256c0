"""Moments of event time: microseconds since 1970 in what is stored, datetimes and columns for people.

Spark has two types of moments. A `timestamp` is a moment. A `timestamp_ntz` is a reading of a clock without a zone, and
is taken to be UTC here, so that nothing depends on the zone of the session (semantics K6).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from ...checkpoint.errors import InvalidStateError
from ..stored.key_groups import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)

END_OF_TIME = datetime.max.replace(tzinfo=timezone.utc)
"""The watermark of a drain (semantics P2): nothing comes after it."""


def micros_of(moment: datetime) -> int:
    """Give a moment as microseconds since 1970; without a zone it is UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
    return (aware - _EPOCH) // _MICROSECOND


BEGIN_OF_TIME = micros_of(datetime.min.replace(tzinfo=timezone.utc))
"""The first moment that can be named."""


def moment_of(micros: int) -> datetime:
    """Give the moment of so many microseconds since 1970."""
    return _EPOCH + micros * _MICROSECOND


def length_of(what: str, length: object, *, may_be_nothing: bool) -> int:
    """Give a length of time in microseconds.

    Raises:
        InvalidStateError: it is no timedelta, is negative, or is nothing where that has no meaning.
    """
    if not isinstance(length, timedelta) or length < timedelta(0) or not (length or may_be_nothing):
        least = "not negative" if may_be_nothing else "longer than nothing"
        raise InvalidStateError(f"{what} is to be a timedelta, {least}, and is {length!r}. Give timedelta(minutes=10)")
    return length // _MICROSECOND


def column_of(what: str, df: DataFrame, column: str | Column) -> tuple[Column, DataType]:
    """Find the column that holds moments, and its type.

    Raises:
        InvalidStateError: `df` is no DataFrame or has no such column, or it is of another type than a timestamp.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if not isinstance(df, DataFrame):
        raise InvalidStateError(
            f"{what} needs a Spark DataFrame and got a {type(df).__name__}. Make one with spark.createDataFrame"
        )
    time = F.col(_named(column, df.columns)) if isinstance(column, str) else column
    try:
        kind = df.select(time).schema[0].dataType
    except AnalysisException as error:
        raise InvalidStateError(
            f"{what} names a column that the DataFrame does not have", column=column, columns=", ".join(df.columns)
        ) from error
    if not isinstance(kind, T.TimestampType | T.TimestampNTZType):
        raise InvalidStateError(
            f"{what} needs a column of timestamps, and {column} is of the type {kind.simpleString()}. Turn it into "
            "one, by to_timestamp or a cast",
            columns=", ".join(df.columns),
        )
    return time, kind


def literal(micros: int, kind: DataType) -> Column:
    """Give a moment as a value of the same type as a column."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if isinstance(kind, T.TimestampNTZType):
        return F.expr(f"TIMESTAMP_NTZ '{moment_of(micros).replace(tzinfo=None).isoformat(sep=' ')}'")
    return F.expr(f"timestamp_micros({micros}L)")


def newest(what: str, df: DataFrame, time: Column, kind: DataType) -> int | None:
    """Give the newest moment of a column in microseconds; None where it holds none. Runs the DataFrame.

    Raises:
        InvalidStateError: it is later than the year 9999.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    without_zone = isinstance(kind, T.TimestampNTZType)
    last = F.max(time)
    # A datetime of Python cannot hold what is later, so Spark must not hand it over.
    named = F.when(~is_beyond(last, kind), last if without_zone else F.unix_micros(last))
    [row] = df.agg(named, last.cast("string")).collect()
    if row[0] is None and row[1] is not None:
        raise beyond(what, row[1])
    return micros_of(row[0]) if without_zone and row[0] is not None else row[0]


def is_beyond(time: Column, kind: DataType) -> Column:
    """Give the condition that a moment is later than the year 9999, which Spark can hold and a datetime cannot."""
    return time > literal(micros_of(END_OF_TIME), kind)


def beyond(what: str, moment: str) -> InvalidStateError:
    """Make the error of a moment that is later than the year 9999."""
    return InvalidStateError(
        f"{what} has a moment later than the year 9999, which is the last that event time knows. Leave such rows out, "
        "or mend their time: it is often milliseconds taken for seconds",
        moment=moment,
    )


def _named(column: str, columns: Sequence[str]) -> str:
    """Give what Spark is to look for: a column of that very name, else a path into a struct such as `window.end`."""
    return quoted(column) if column in columns else column
