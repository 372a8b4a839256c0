"""Checks that an application makes of its data: one that fails has the stage decline, whatever the application does.

The input of an epoch is fixed, so another try would find the same rows: a failed check is incurable (semantics F4).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..checkpoint.documents.metadata import EXAMPLES
from ..checkpoint.documents.strict_json import Json
from ..checkpoint.errors import CheckpointError, InvalidStateError
from ..checkpoint.secrets.masking import MASK, masked
from ..checkpoint.secrets.names import names_a_secret
from ..storage.errors import ErrorKind
from ..storage.names import shorten
from ..storage.printable import printable
from .stored.outputs import as_text, text_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

log = logging.getLogger("airflow_cairn")

_EXAMPLES = 3
_VALUE = 40
"""Characters of one value in an example."""
_NAME = 100
_NOTES = 10
"""Failed checks that the checkpoint keeps; all are logged."""
_NOTE = 300
"""Characters of one of them."""


class DataCheckError(CheckpointError):
    """A check that the application makes of its data failed; the stage declines, and no other try follows (F4)."""

    kind = ErrorKind.INVALID


class DataChecks:
    """Those of one driver."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._failed: DataCheckError | None = None
        self._noted: list[str] = []

    def check(self, name: str, condition: Column | str | bool, df: DataFrame | None, *, warn: bool) -> bool:
        """Make a check now; see `Epoch.check`.

        Raises:
            DataCheckError: it failed.
            InvalidStateError: name, condition or DataFrame are none.
        """
        if not isinstance(name, str) or not name.strip() or len(name) > _NAME:
            raise InvalidStateError(
                f"a check has a name of 1 to {_NAME} characters, for people: epoch.check('no negative delay', …)",
                stage=self._stage,
                name=shorten(str(name)),
            )
        broken = self._broken(name, condition, df)
        if broken is None:
            log.info("stage %s: the check '%s' passed", self._stage, printable(name))
            return True
        if warn:
            self._noted.append(_cut(f"the check {printable(name)!r} failed: {broken}", _NOTE))
            log.warning("stage %s: the check '%s' failed, and the stage goes on: %s", self._stage, name, broken)
            return False
        error = DataCheckError(
            f"the check {name!r} failed: {broken}. Mend the data or the check, then clear the task", stage=self._stage
        )
        self._failed = self._failed or error
        raise error

    def raise_if_failed(self) -> None:
        """Have the stage decline where a check failed, also if the application has caught the error.

        Raises:
            DataCheckError: the first that failed.
        """
        if self._failed is not None:
            raise self._failed

    def to_keep(self, token: str) -> Json:
        """Give what the checkpoint is to keep of the checks that failed and only warn; None where there is none.

        Args:
            token: of the execution; a later one that carries the value over is not meant.
        """
        if not self._noted:
            return None
        left_out = len(self._noted) - _NOTES
        more = [f"{left_out} more checks failed, which the log of the stage names"] if left_out > 0 else []
        return {"execution": token, "failed": [*self._noted[:_NOTES], *more]}

    def _broken(self, name: str, condition: Column | str | bool, df: DataFrame | None) -> str | None:
        """Say what breaks it; None where nothing does."""
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
    """Write a row for people; what a secret's name stands over is masked."""
    pairs = (f"{name}={MASK if names_a_secret(name) else _cut(text_of(value))}" for name, value in row.asDict().items())
    return printable(masked(f"({', '.join(pairs)})"))


def _cut(value: object, most: int = _VALUE) -> str:
    text = str(value)
    return text if len(text) <= most else f"{text[:most]}…"
