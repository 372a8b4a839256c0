"""docs/reference/operators.md has a row for each argument of what a DAG file uses."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import airflow_cairn as authors
from airflow_cairn.operators import RestoreLatestCheckpointOperator, TriggerCheckpointOperator
from airflow_cairn.sensors import CheckpointSensor
from tests.support.documented import DOCS

IN_ERRORS = {"retry_policy"}
"""Arguments that the page of the errors explains."""
DOCTOR = (authors.CairnDoctorOperator, "doctor", "In a DAG")
OTHERS: list[type] = [
    authors.CheckpointedTaskGroup,
    authors.ConnectSession,
    authors.CheckpointTimetable,
    authors.CheckpointConfig,
    authors.SparkEpochOperator,
    TriggerCheckpointOperator,
    CheckpointSensor,
    authors.CompletedEpochSensor,
    authors.SavepointOperator,
    authors.StopWithSavepointOperator,
    authors.DisposeSavepointOperator,
    RestoreLatestCheckpointOperator,
]


@pytest.mark.parametrize(
    ("made", "page", "title"), [DOCTOR, *((each, "operators", f"`{each.__name__}`") for each in OTHERS)]
)
def test_each_argument_has_its_row(made: Any, page: str, title: str) -> None:
    text = (Path(DOCS) / f"reference/{page}.md").read_text()
    section = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    first = re.findall(r"^\| (`[^|]+)\|", section, re.MULTILINE)
    rows = {name for cell in first for name in re.findall(r"`(\w+)`", cell)}
    taken = {name for name in inspect.signature(made.__init__).parameters if name not in {"self", "args", "kwargs"}}
    assert taken - rows <= IN_ERRORS
