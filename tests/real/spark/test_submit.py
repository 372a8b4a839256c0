"""A real `spark-submit` with nothing but the runtime zip: cells of `make matrix`, and what fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from airflow_cairn.checkpoint.answers import Failed
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.spark.execution.log_lines import Application
from tests.matrix import keyed_pipeline
from tests.matrix.cells import DRIVERS, MAIN, DriverCell
from tests.matrix.environments import programs_of
from tests.matrix.place import on_disk
from tests.matrix.submitter import Submitter, said
from tests.real.spark.pipeline import Pipeline

# In `make test` test_bad_application.py has an application that declines, test_function_submitted.py the zip alone.
pytestmark = [pytest.mark.spark, pytest.mark.soak]

PROGRAMS = Path(sys.executable).parent


@pytest.mark.parametrize("cell", [cell for cell in DRIVERS if cell.with_tests], ids=lambda cell: cell.name)
def test_a_cell_of_the_matrix(cell: DriverCell, tmp_path: Path) -> None:
    """The cell is that of the Python that runs the tests, whichever that is."""
    here = DriverCell(cell.pyspark, ".".join(map(str, sys.version_info[:2])))
    locked = cell.pyspark == MAIN
    programs = PROGRAMS if locked else programs_of(here.name, sys.executable, [f"pyspark=={cell.pyspark}"])
    keyed_pipeline.check(here, Submitter(programs, tmp_path), on_disk(tmp_path))


def test_a_failing_application_declines(tmp_path: Path) -> None:
    pipeline = Pipeline(f"file://{tmp_path}/lake", None)
    pipeline.trigger("one", keyed_pipeline.slice_of(0))
    failed = Submitter(PROGRAMS, tmp_path).submit(
        keyed_pipeline.APPLICATION, pipeline.conf(pipeline.begin("one")), "fail"
    )
    assert failed.returncode != 0
    assert "ValueError: this day is broken" in said(failed)
    (application,) = filter(None, map(Application.in_line, said(failed).splitlines()))
    assert application.id.startswith("local-"), "the task's page leads there"
    assert pipeline.listing("chk-0000000001/state/") == []
    progress = pipeline.coordinator.progress(epoch_name("one"))
    assert isinstance(progress, Failed)
    assert progress.detail == "routes: ValueError: this day is broken"
