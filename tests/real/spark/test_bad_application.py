"""Mistakes of an application, in the error of its task: a real `spark-submit`, and the provider's own hook."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_cairn.checkpoint.answers import Failed
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.operators import SparkEpochOperator
from scripts.harness.spark.start import small_conf
from tests.support.airflow_stage import Job, Ti, context
from tests.unit.hooks.test_driver_output import folded

pytestmark = pytest.mark.spark

APPLICATION = """
from airflow_cairn.spark import Epoch

with Epoch.current() as epoch:
    totals = epoch.spark.range(3)
    epoch.snapshot("totals", totals)
    epoch.snapshot("totals", totals)
"""


def test_an_application_that_is_not_there(
    job: Job, tmp_path: Path, connections: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics F4
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    connections("spark_default", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    job.trigger("r1")
    missing = tmp_path / "missing.py"
    operator = SparkEpochOperator(
        task_id="routes", application=str(missing), storage=job.storage, job=job.name, conf=small_conf()
    )
    with pytest.raises(AirflowFailException, match=f"stage routes failed: the application {missing} does not exist"):
        operator.execute(context(Ti(run_id="r1")))


@pytest.mark.soak  # its decline: tests/unit/spark/; the test above fails here as well
def test_one_name_for_two_states(
    job: Job,
    tmp_path: Path,
    connections: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # semantics D1, F4
    caplog.set_level(logging.INFO)
    application = tmp_path / "twice.py"
    application.write_text(APPLICATION)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    connections("spark_default", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    job.trigger("r1")
    operator = SparkEpochOperator(
        task_id="routes",
        application=str(application),
        storage=job.storage,
        job=job.name,
        conf={
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "1",
            **small_conf(),
        },
    )
    with pytest.raises(AirflowFailException) as caught:
        operator.execute(context(Ti(run_id="r1")))
    said = "the state 'totals' was written or dropped before in this epoch; each name is used once. Give the second one"
    assert f"stage routes failed: InvalidStateError: {said}" in str(caught.value)
    # Of the driver's log, which has hundreds of lines, warnings, errors and Cairn's lines are in sight, the cause last.
    seen = folded([(each.name, each.levelname, each.getMessage()) for each in caplog.records])
    printed = [text for logger, _, text in seen if logger == "spark"]
    assert any(text == "::group::Spark's log" for text in printed)
    assert not [text for text in printed if " INFO " in text or text.startswith("  File ")]
    assert seen[-1][:2] == ("airflow_cairn", "ERROR")
    assert f"stage routes: failed: InvalidStateError: {said}" in seen[-1][2]
    # The first snapshot's files are gone, and the checkpoint's history says the same.
    assert not list((job.folder / "flights").glob("chk-*/state/**/*.parquet"))
    progress = job.coordinator.progress(epoch_name("r1"))
    assert isinstance(progress, Failed)
    assert said in progress.detail
