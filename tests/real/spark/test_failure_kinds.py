"""Failures that no retry cures, as a driver reports them (semantics F4)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_cairn.checkpoint.answers import Failed
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.spark.execution.failure_kinds import is_incurable
from airflow_cairn.storage import UnavailableError
from airflow_cairn.storage.errors import InvalidKeyError
from tests.real.spark.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InvalidStateError("written twice"), True),
        (InvalidKeyError("no name", code="invalid_name"), True),
        (UnavailableError("later"), False),
        (ValueError("bad row"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_what_is_wrong_with_the_application_itself(error: BaseException, expected: bool) -> None:
    assert is_incurable(error) is expected


def test_what_was_raised_from_something_else_may_be_cured() -> None:
    error = InvalidStateError("the step before the snapshot failed")
    error.__cause__ = UnavailableError("the database did not answer")
    assert not is_incurable(error)


def test_what_wraps_an_incurable_failure_is_incurable() -> None:
    from pyspark.errors import AnalysisException

    class Analysis(AnalysisException):
        """Error of the JVM, by the condition that it names."""

        def __init__(self, condition: str) -> None:
            super().__init__(f"[{condition}] what Spark says")
            self._said = condition

        def getCondition(self) -> str:
            return self._said

    plan, files = Analysis("UNRESOLVED_COLUMN.WITHOUT_SUGGESTION"), Analysis("PATH_NOT_FOUND")
    cause: Exception
    for cause, expected in ((plan, True), (files, False), (InvalidStateError("twice"), True), (OSError("disk"), False)):
        wrapped = RuntimeError("the author's own words")
        wrapped.__cause__ = ValueError("and once more")
        wrapped.__cause__.__cause__ = cause
        assert is_incurable(wrapped) is expected, cause
    beside = RuntimeError("while the first was handled")
    beside.__context__ = plan
    assert not is_incurable(beside), "what only happened before is no cause"
    plan.__cause__ = wrapped
    wrapped.__cause__ = plan
    assert is_incurable(wrapped), "a circle has an end"


@pytest.mark.spark
def test_a_plan_that_cannot_be_analysed_is_tried_by_nobody_again(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:  # semantics F4, D1
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException) as missing:
        spark.read.parquet(str(tmp_path / "nothing"))
    assert not is_incurable(missing.value), "files may come back"
    pipeline.trigger("one")
    with pytest.raises(AnalysisException), pipeline.epoch("one"):
        spark.range(3).select("no_such_column")
    assert pipeline.declined().incurable
    answer = pipeline.coordinator.begin(epoch_name("one"), "routes", "another try")
    assert isinstance(answer, Failed)
    assert answer.detail.startswith("no retry cures this: routes: AnalysisException: [UNRESOLVED_COLUMN")
