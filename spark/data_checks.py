"""Checks of an application's data: a failed check makes the stage decline, whatever the application does.

The input of an epoch is fixed, so another try would find the same rows: no try follows a failed check (semantics F4).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..checkpoint.documents.metadata import EXAMPLES
from ..checkpoint.documents.strict_json import Json
from ..checkpoint.errors import CheckpointError, InvalidStateError
from ..checkpoint.masking import MASK, masked, names_a_secret
from ..storage.errors import ErrorKind, printable
from ..storage.names import shorten
from .stored.outputs import as_text, text_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

log = logging.getLogger("airflow_cairn")

_EXAMPLES = 3
_VALUE = 40
"""Longest value in an example, in characters."""
_NAME = 100
_NOTES = 10
"""Most failed checks that the checkpoint keeps; all are logged."""
_NOTE = 300
"""Longest message of a failed check that the checkpoint keeps, in characters."""


class DataCheckError(CheckpointError):
    """A check of the application's data failed; the stage declines and is not retried (semantics F4)."""

    kind = ErrorKind.INVALID


class DataChecks:
    """The checks of one driver."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._failed: DataCheckError | None = None
        self._noted: list[str] = []

    def check(self, name: str, condition: Column | str | bool, df: DataFrame | None, *, warn: bool) -> bool:
        """Run a check now; see `Epoch.check`.

        Raises:
            DataCheckError: the check failed.
            InvalidStateError: name, condition or DataFrame is invalid.
        """
        if not isinstance(name, str) or not name.strip() or len(name) > _NAME:
            raise InvalidStateError(
                f"a check has a name of 1 to {_NAME} characters, for people: epoch.check('no negative delay', …)",
                stage=self._stage,
                name=shorten(str(name)),
            )
        broken = self._broken(name, condition, df)
        if broken is None:
            log.info("Stage %s: the check '%s' passed", self._stage, printable(name))
            return True
        if warn:
            self._noted.append(_cut(f"the check {printable(name)!r} failed: {broken}", _NOTE))
            log.warning("Stage %s: the check '%s' failed, and the stage goes on: %s", self._stage, name, broken)
            return False
        error = DataCheckError(
            f"the check {name!r} failed: {broken}. Mend the data or the check, then clear the task", stage=self._stage
        )
        self._failed = self._failed or error
        raise error

    def raise_if_failed(self) -> None:
        """Make the stage decline after a failed check, even if the application caught the error.

        Raises:
            DataCheckError: the first check that failed.
        """
        if self._failed is not None:
            raise self._failed

    def to_keep(self, token: str) -> Json:
        """Return the failed checks that only warn, for the checkpoint to keep; None if there are none.

        The token, of this execution, marks the value as old once a later execution carries it over.
        """
        if not self._noted:
            return None
        left_out = len(self._noted) - _NOTES
        more = [f"{left_out} more checks failed, which the log of the stage names"] if left_out > 0 else []
        return {"execution": token, "failed": [*self._noted[:_NOTES], *more]}

    def _broken(self, name: str, condition: Column | str | bool, df: DataFrame | None) -> str | None:
        """Describe how the data break the check; None if they pass."""
        from pyspark.sql import DataFrame

        if isinstance(condition, bool) and df is None:
            return None if condition else "its condition is false"
        if isinstance(condition, bool) or not isinstance(df, DataFrame):
            raise InvalidStateError(
                f"the check {name!r} takes a condition and the DataFrame whose rows must fulfil it: "
                f"epoch.check({name!r}, 'delay >= 0', flights); or a truth value alone: "
                f"epoch.check({name!r}, flights.count() > 0)",
                stage=self._stage,
                condition=type(condition).__name__,
                df=type(df).__name__,
            )
        return _rows(df, condition)


def _rows(df: DataFrame, condition: Column | str) -> str | None:
    from pyspark.sql import functions as F

    holds = F.expr(condition) if isinstance(condition, str) else condition
    broken = df.where(~F.coalesce(holds, F.lit(False)))
    number = broken.count()
    if not number:
        return None
    examples = "; ".join(_example(row) for row in as_text(broken.limit(_EXAMPLES)).collect())
    return f"{number} {'row breaks' if number == 1 else 'rows break'}{EXAMPLES}{examples}"


def _example(row: Row) -> str:
    """Format a row for people; mask values under the names of secrets."""
    pairs = (f"{name}={MASK if names_a_secret(name) else _cut(text_of(value))}" for name, value in row.asDict().items())
    return printable(masked(f"({', '.join(pairs)})"))


def _cut(value: object, most: int = _VALUE) -> str:
    text = str(value)
    return text if len(text) <= most else f"{text[:most]}…"
