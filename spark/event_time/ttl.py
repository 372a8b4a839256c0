"""The time to live of a state's rows: `StateTtl`, judged by the epoch's time, never by a clock (semantics K6).

A retry a day later drops the same rows. As in Flink's default, ended rows are dropped when the state is written and
left out when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from ...checkpoint.documents.metadata import TTL
from ...checkpoint.documents.strict_json import Json
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.validation import refuses_unknown
from ...storage.errors import DocumentError
from ...storage.records import dataclass
from . import moments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VALUE = TTL
"""The value that holds each state's time to live, by the state's name."""

_TIMES = ("event", "processing")


@refuses_unknown
@dataclass(frozen=True, slots=True)
class StateTtl:
    """The time to live of a state's rows.

    Args:
        after: the time that a row lives after the moment in its column; more than zero.
        column: a timestamp column, such as the time of a key's last event. A row with null in it does not end.
        time: the time to judge by. `event`: the watermark. `processing`: `epoch.time`.

    Raises:
        InvalidStateError: `after` is not a positive timedelta, or `time` is unknown.
    """

    after: timedelta
    column: str
    time: Literal["event", "processing"] = "event"

    def __post_init__(self) -> None:
        moments.length_of("the time to live of a state", self.after, may_be_nothing=False)
        if self.time not in _TIMES:
            raise InvalidStateError(
                f"there is no time {self.time!r} to judge the time to live of a state by. Use event or processing"
            )

    @property
    def micros(self) -> int:
        """The time to live in microseconds."""
        return moments.length_of("the time to live of a state", self.after, may_be_nothing=False)


def alive(what: str, df: DataFrame, ttl: StateTtl, tell: Callable[[], int | None]) -> DataFrame:
    """Leave out the ended rows.

    `tell` returns the current time in microseconds; None: time has not begun, and no row has ended.
    """
    time, kind = moments.column_of(f"the time to live of {what}", df, ttl.column)
    now = tell()
    if now is None:
        return df
    last = now - ttl.micros
    if last < moments.BEGIN_OF_TIME:
        return df
    return df.where(time.isNull() | (time > moments.literal(last, kind)))


def parse(plain: Json) -> dict[str, StateTtl]:
    """Parse the value `VALUE`.

    Raises:
        DocumentError: the value holds something else.
    """
    if plain is None:
        return {}
    try:
        return {name: _one(each) for name, each in dict(plain).items()}
    except (TypeError, ValueError, KeyError, OverflowError, InvalidStateError) as error:
        raise DocumentError("the checkpoint holds no time to live by this name", where=VALUE) from error


def _one(plain: Any) -> StateTtl:
    return StateTtl(timedelta(microseconds=plain["after"]), str(plain["column"]), plain["time"])


def plain_of(ttls: Mapping[str, StateTtl], states: Collection[str]) -> Json:
    """Make the value `VALUE` for the states that still exist."""
    return {
        name: {"after": ttl.micros, "column": ttl.column, "time": ttl.time}
        for name, ttl in sorted(ttls.items())
        if name in states
    }
