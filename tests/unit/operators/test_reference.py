"""The reference has the arguments of what a DAG file uses, each with what its docstring says of it."""

import inspect
from typing import Any

import pytest

import airflow_cairn as authors
from airflow_cairn.operators import RestoreLatestCheckpointOperator, TriggerCheckpointOperator
from airflow_cairn.sensors import CheckpointSensor
from scripts.reference import arguments, marks

IN_ERRORS = {"retry_policy"}
"""Arguments that the page of the errors explains."""
MADE: list[type] = [
    authors.CairnDoctorOperator,
    authors.CheckpointedTaskGroup,
    authors.ConnectSession,
    authors.CheckpointTimetable,
    authors.CheckpointConfig,
    authors.RegionalCheckpoints,
    authors.SparkEpochOperator,
    TriggerCheckpointOperator,
    CheckpointSensor,
    authors.CompletedEpochSensor,
    authors.SavepointOperator,
    authors.StopWithSavepointOperator,
    authors.DisposeSavepointOperator,
    RestoreLatestCheckpointOperator,
]


@pytest.mark.parametrize("made", MADE)
def test_each_argument_has_its_row(made: Any) -> None:
    assert f"arguments {made.__name__}" in marks()
    written = arguments(made.__name__)
    assert " at 0x" not in written, "a default that only its memory tells apart"
    assert "FACTORY" not in written
    rows = {row.split("`")[1] for row in written.splitlines()[2:] if row.startswith("| `")}
    taken = {name for name in inspect.signature(made.__init__).parameters if name not in {"self", "args", "kwargs"}}
    assert taken - rows <= IN_ERRORS
