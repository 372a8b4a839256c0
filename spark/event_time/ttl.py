"""How long rows of a state live: `StateTtl`, judged by the epoch's own time, never by a clock (semantics K6).

A retry of the epoch a day later drops the same rows. They are dropped when the state is written, and left out when it
is read, as Flink does by default.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from ...checkpoint.documents.metadata import TTL
from ...checkpoint.documents.strict_json import Json
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.validation import refuses_unknown
from ...storage.errors import DocumentError
from . import moments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VALUE = TTL
"""The value with the time to live of each state that has one, by its name."""

_TIMES = ("event", "processing")


@refuses_unknown
@dataclass(frozen=True, slots=True)
class StateTtl:
    """The time to live of a state's rows.

    Args:
        after: how long a row lives after the moment in its column; more than zero.
        column: a column of timestamps, such as the time of a key's last event. A row with null in it lives on.
        time: by which time that is judged. `event`: the watermark. `processing`: `epoch.time`.

    Raises:
        InvalidStateError: `after` is no such timedelta, or there is no such `time`.
    """

    after: timedelta
    column: str
    time: Literal["event", "processing"] = "event"

    def __post_init__(self) -> None:
        """Check the arguments."""
        moments.length_of("the time to live of a state", self.after, may_be_nothing=False)
        if self.time not in _TIMES:
            raise InvalidStateError(
                f"there is no time {self.time!r} to judge the time to live of a state by. Use event or processing"
            )

    @property
    def micros(self) -> int:
        """How long a row lives, in microseconds."""
        return moments.length_of("the time to live of a state", self.after, may_be_nothing=False)


def alive(what: str, df: DataFrame, ttl: StateTtl, tell: Callable[[], int | None]) -> DataFrame:
    """Leave out the rows whose time is over.

    Args:
        what: the state, for error texts.
        df: its rows.
        ttl: how long they live.
        tell: gives the time that they are judged by, in microseconds; None: it has not begun, and all live.

    Raises:
        InvalidStateError: the rows have no such column, or it holds no timestamps.
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
    """Read the value `VALUE`.

    Raises:
        DocumentError: it holds something else.
    """
    if plain is None:
        return {}
    try:
        return {name: _one(each) for name, each in dict(plain).items()}
    except (TypeError, ValueError, KeyError, InvalidStateError) as error:
        raise DocumentError("the checkpoint holds no time to live by this name", where=VALUE) from error


def _one(plain: Any) -> StateTtl:
    return StateTtl(timedelta(microseconds=plain["after"]), str(plain["column"]), plain["time"])


def plain_of(ttls: Mapping[str, StateTtl], states: Collection[str]) -> Json:
    """Give the value `VALUE`, of the states that there still are."""
    return {
        name: {"after": ttl.micros, "column": ttl.column, "time": ttl.time}
        for name, ttl in sorted(ttls.items())
        if name in states
    }
