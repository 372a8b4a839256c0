"""OpenLineage events: `lineage_checks.py`, run where the provider is, and that Cairn does without it."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from airflow.sdk import DAG

from airflow_cairn.checkpoint.views.data_sets import StateRow
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator
from airflow_cairn.storage.names import parse_storage_uri
from airflow_cairn.tasks.reports import lineage
from scripts.setup.beside import ensure_lineage

CHECKS = Path(__file__).with_name("lineage_checks.py")


def test_with_the_provider() -> None:
    """In a process of its own, because Airflow looks for providers when it is imported."""
    path = os.pathsep.join(filter(None, [str(ensure_lineage()), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", str(CHECKS)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "6 passed" in done.stdout


def test_without_the_provider() -> None:
    """The provider is not here: an import of it before it has asked fails this test."""
    assert find_spec("openlineage") is None
    with DAG("flights", schedule=None) as dag, CheckpointedTaskGroup("epoch", reads_window=False, storage="file:///x"):
        SparkEpochOperator(task_id="routes", application="x.py")
    for task in dag.tasks:
        asked = getattr(task, "get_openlineage_facets_on_complete", None)
        assert callable(asked) == (task.task_type in ("SparkEpochOperator", "CheckpointSensor")), task.task_id


def test_names_on_s3() -> None:
    """The bucket is the namespace, and no name begins with a slash."""
    row = StateRow("routes", "state", "totals")
    for storage, name in (("s3://lake/cairn", "cairn/flights"), ("s3://lake", "flights")):
        names = lineage.Names(parse_storage_uri(storage), "flights")
        assert (names.namespace, names.name(row)) == ("s3://lake", f"{name}/states/routes/totals")
