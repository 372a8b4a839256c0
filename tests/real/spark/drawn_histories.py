"""Histories of states that grow: what each epoch changes and what happens around it, drawn, and three that are not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = ["NULL", "double('NaN')", "double('0.0')", "double('-0.0')", "double('1.5')", "double('-1e300')"]
NULL, NAN, ZERO, MINUS_ZERO, SOME, OTHER = KEYS
VALUES = [None, "0.10", "-99.99"]
NONE, DIME, LOSS = VALUES
ALIKE = {MINUS_ZERO: ZERO}
"""Keys that Spark holds equal."""

Rows = Mapping[str, str | None]
"""The value of each key."""


@dataclass(frozen=True)
class Step:
    """One epoch of a history."""

    changed: Rows = field(default_factory=dict)
    """Rows that it writes for the updated state, partials for the aggregated one."""
    deleted: frozenset[str] = frozenset()
    parallelism: int = 2
    rewind: bool = False
    """Whether the newest checkpoint is given up before it, if there is another."""
    compact: str = ""
    """`before` it begins, or `beside` it: after it has restored and before it writes."""
    tried: str = ""
    """The end of a try before the one that counts: it `fails`, or its driver is `killed`."""
    at: int = 0
    """Number of the driver's own write at which it is killed."""

    def given(self) -> dict[str, tuple[str, str | None]]:
        """Give what it writes once for each key that Spark holds equal: the key as written, and the value."""
        return {ALIKE.get(key, key): (key, value) for key, value in self.changed.items()}

    def gone(self) -> dict[str, str]:
        """Give the keys that it deletes, and does not write."""
        given = self.given()
        return {ALIKE.get(key, key): key for key in self.deleted if ALIKE.get(key, key) not in given}


@dataclass(frozen=True)
class History:
    """The epochs of a job, and where its states get a new base."""

    steps: tuple[Step, ...]
    most: int = 3
    """Epochs until a new base."""
    small: bool = False
    """Whether the states count as small, so that each epoch writes them whole."""


STEPS = st.builds(
    Step,
    changed=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=4),
    deleted=st.frozensets(st.sampled_from(KEYS), max_size=3),
    parallelism=st.integers(1, 4),
    rewind=st.sampled_from([False, False, False, True]),
    compact=st.sampled_from(["", "", "before", "beside"]),
    tried=st.sampled_from(["", "", "fails", "killed"]),
    at=st.integers(0, 4),
)
HISTORIES = st.builds(
    History,
    steps=st.lists(STEPS, min_size=3, max_size=6).map(tuple),
    most=st.sampled_from([3, 9]),
    small=st.sampled_from([False, False, True]),
).filter(lambda history: sum(bool(step.changed) for step in history.steps) >= 3)
"""Without those that hardly change anything: the first that is drawn would be one."""

_TRIES = (
    Step({ZERO: DIME, SOME: DIME, NAN: LOSS, NULL: DIME}),
    Step({MINUS_ZERO: LOSS}, frozenset({SOME}), 3),
    Step({SOME: LOSS, NAN: NONE}, frozenset({NULL}), 1, tried="fails"),
    Step({NULL: LOSS}, frozenset({MINUS_ZERO}), 4, tried="killed"),
    Step({ZERO: NONE}, frozenset({NAN}), rewind=True),
)
TRIES_AND_A_REWIND = History(_TRIES)
SMALL = History((*_TRIES[:2], _TRIES[-1]), small=True)
COMPACTED = History(
    (
        Step({ZERO: DIME, SOME: DIME, NAN: LOSS, NULL: DIME}),
        Step({SOME: LOSS, OTHER: DIME}),
        # An update is compacted, and the epoch that adopts the base deletes keys of base and run.
        Step({ZERO: LOSS}, frozenset({SOME, NULL}), 3, compact="before"),
        # The deletes are compacted beside an epoch that writes a deleted key again; the next one adopts the base.
        Step({SOME: DIME}, frozenset({NAN}), compact="beside"),
        Step({NULL: LOSS, NAN: DIME}, frozenset({OTHER}), 4),
        # The epoch above is given up, and the base that it had adopted is compacted with the runs beside.
        Step({OTHER: LOSS}, frozenset({SOME}), 1, rewind=True, compact="before", tried="killed", at=1),
        Step({NULL: NONE, SOME: NONE}, frozenset({MINUS_ZERO}), compact="before"),
    ),
    most=9,
)
"""Compactions after an update, after a delete, before and after keys come back, and after a rewind."""


def frame(spark: SparkSession, pairs: Rows) -> DataFrame:
    """Make a frame of keys and values."""
    lines = [
        f"SELECT CAST({key} AS DOUBLE) AS k, CAST({value or 'NULL'} AS DECIMAL(5,2)) AS v"
        for key, value in pairs.items()
    ]
    empty = "SELECT CAST(NULL AS DOUBLE) AS k, CAST(NULL AS DECIMAL(5,2)) AS v WHERE false"
    return spark.sql(" UNION ALL ".join(lines) or empty).coalesce(1)


def texts(found: Iterable[Any]) -> list[str]:
    """Give rows as texts, sorted, in which keys are equal as Spark holds them."""
    return sorted(str((None if row[0] is None else row[0] + 0.0, *row[1:])) for row in found)  # -0.0 + 0.0 is 0.0


MERGE = {"epochs": "sum", "paid": "sum", "low": "min", "high": "max"}


def partials(rows: DataFrame, number: int) -> DataFrame:
    """Make the partials of an epoch; of the sums in `epochs` each digit says how often an epoch counts."""
    return rows.selectExpr(
        "k", f"CAST({10**number} AS BIGINT) AS epochs", "CAST(v AS DECIMAL(20,2)) AS paid", "v AS low", "v AS high"
    )


def totals(written: Iterable[tuple[int, Rows]]) -> list[str]:
    """Compute the totals plainly, of the numbers of epochs and what each has written, as `texts` gives them."""
    values: dict[str, list[tuple[int, Decimal | None]]] = {}
    for number, rows in written:
        for key, value in rows.items():
            values.setdefault(key, []).append((10**number, None if value is None else Decimal(value)))
    found = []
    for key, each in values.items():
        there = [value for _, value in each if value is not None]
        merged = (sum(there, Decimal("0.00")), min(there), max(there)) if there else (None, None, None)
        found.append((_VALUE[key], sum(counted for counted, _ in each), *merged))
    return texts(found)


def latest(rows: Rows) -> list[str]:
    """Give the rows of the updated state, as `texts` gives them."""
    return texts((_VALUE[key], None if value is None else Decimal(value)) for key, value in rows.items())


_VALUE = {NULL: None, NAN: float("nan"), ZERO: 0.0, SOME: 1.5, OTHER: -1e300}
