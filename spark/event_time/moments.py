"""Moments of event time: stored as microseconds since 1970; datetimes and columns for people.

Spark has two types of moments. A `timestamp` is a moment. A `timestamp_ntz` is a clock reading without a zone; here it
is taken as UTC, so that nothing depends on the session's zone (semantics K6).
"""

from __future__ import annotations

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
"""The watermark of a drain (semantics P2): no moment is later."""


def micros_of(moment: datetime) -> int:
    """Convert a moment to microseconds since 1970; without a zone it is UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
    return (aware - _EPOCH) // _MICROSECOND


BEGIN_OF_TIME = -(2**63)
"""Spark's first moment, in the year -290308; datetimes begin with the year 1."""


def moment_of(micros: int) -> datetime | None:
    """Convert microseconds since 1970 to a moment; None before the year 1, which no datetime can hold."""
    try:
        return _EPOCH + micros * _MICROSECOND
    except OverflowError:
        return None


def utc_of(moment: datetime) -> datetime:
    """Convert a moment to UTC; without a zone it is UTC already."""
    return moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment.astimezone(timezone.utc)


def shown(micros: int) -> str:
    """Format a moment for people."""
    moment = moment_of(micros)
    return f"before the year 1 ({micros} microseconds from 1970)" if moment is None else moment.isoformat()


def length_of(what: str, length: object, *, may_be_nothing: bool) -> int:
    """Convert a timedelta to microseconds.

    Raises:
        InvalidStateError: `length` is not a timedelta, is negative, or is zero where zero has no meaning.
    """
    if not isinstance(length, timedelta) or length < timedelta(0) or not (length or may_be_nothing):
        least = "not negative" if may_be_nothing else "longer than nothing"
        raise InvalidStateError(f"{what} must be a timedelta, {least}, and is {length!r}. Give timedelta(minutes=10)")
    return length // _MICROSECOND


def column_of(what: str, df: DataFrame, column: str | Column) -> tuple[Column, DataType]:
    """Find a column of moments, and its type.

    Raises:
        InvalidStateError: `df` is not a DataFrame, the column is missing, or its type is not a timestamp.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if not isinstance(df, DataFrame):
        raise InvalidStateError(
            f"{what} needs a Spark DataFrame and got a {type(df).__name__}. Make one with spark.createDataFrame"
        )
    time = F.col(quoted(column) if column in df.columns else column) if isinstance(column, str) else column
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
    """Make a moment a literal of a column's type."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if isinstance(kind, T.TimestampNTZType):
        # Before Spark 4.0 `timestampadd` takes only an int, and Python formats no text of the year 0.
        sign = "-" if micros < 0 else ""
        seconds, rest = divmod(abs(micros), 1_000_000)
        days, seconds = divmod(seconds, 86_400)
        since = f"make_dt_interval({sign}{days}, 0, 0, {sign}{seconds}.{rest:06d})"
        return F.expr(f"TIMESTAMP_NTZ '1970-01-01' + {since}")
    return F.expr(f"timestamp_micros({micros}L)")


def newest(what: str, df: DataFrame, column: str | Column, time: Column, kind: DataType) -> int | None:
    """Return the newest moment of a column in microseconds; None if it holds none. Runs the DataFrame.

    Raises:
        InvalidStateError: the newest moment is later than the year 9999.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    last = F.max(time)
    text = last.cast("string")
    # Spark computes the number: a datetime holds only the years 1 to 9999. A cast would shift by the session's zone.
    moment = F.concat(text, F.lit("Z")).cast("timestamp") if isinstance(kind, T.TimestampNTZType) else last
    [row] = df.agg(F.unix_micros(moment), text).collect()
    micros: int | None = row[0]
    if micros is not None and micros > micros_of(END_OF_TIME):
        raise beyond(what, row[1], column=column)
    return micros


def is_beyond(time: Column, kind: DataType) -> Column:
    """Return the condition that a moment is later than the year 9999, which Spark can hold and a datetime cannot."""
    return time > literal(micros_of(END_OF_TIME), kind)


def beyond(what: str, moment: str, **where: object) -> InvalidStateError:
    """Make the error for a moment later than the year 9999, naming its column or source."""
    return InvalidStateError(
        f"{what} has a moment later than the year 9999 in UTC, which is the last that event time knows. Leave such "
        "rows out, or correct their time: it is often milliseconds taken for seconds",
        moment=moment,
        **where,
    )
