"""A stage by `LivyOperator` on real Spark: Livy is a stand-in of its REST API, whose batches are spark-submit."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from airflow.sdk import DAG

from airflow_cairn.checkpoint.savepoints.savepoint_request import SavepointRequest
from airflow_cairn.operators import SparkEpochOperator, epoch_stage
from airflow_cairn.operators.stage import launched
from airflow_cairn.operators.stage.trial import ask_by_stage
from airflow_cairn.storage import open_store
from airflow_cairn.tasks.health.facts import ClusterFacts
from scripts.harness.spark.start import small_conf
from scripts.setup.java import ensure_java
from tests.matrix import keyed_pipeline
from tests.real.spark.pipeline import Pipeline
from tests.support.airflow_stage import Job, Ti, context
from tests.support.livy_batches import Batches

pytestmark = [
    pytest.mark.spark,
    # tests/unit/operators/stage/test_launched.py kills workers on each service, test_clouds.py submits with a zip.
    pytest.mark.soak,
]

RUNS = [f"manual__200{n}-01-01T00:00:00+00:00" for n in (1, 2)]


def spark_submit(body: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Give the command and the environment of a batch."""
    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", **small_conf(), **body["conf"]}
    conf = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    words = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]", "--name", body["name"], *conf]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return [*words, "--py-files", ",".join(body["pyFiles"]), body["file"], *body.get("args", ())], {
        **environ,
        "JAVA_HOME": str(ensure_java()),
        "PYSPARK_PYTHON": sys.executable,
    }


@pytest.fixture
def livy(tmp_path: Path, connections: Callable[[str, str], None]) -> Iterator[Batches]:
    with Batches(tmp_path, spark_submit) as it:
        connections(*it.connection())
        yield it


@pytest.mark.usefixtures("launcher_providers")
def test_two_epochs_of_which_one_outlives_its_worker(
    job: Job, livy: Batches, tmp_path: Path, connections: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver needs nothing but its zip from the storage; the retry waits for it, and the totals are exact.

    Before, the doctor asks the cluster by the same operator, and the driver looks at the storage. A job that resumes
    from a savepoint of the first epoch goes on by spark-submit.
    """
    from airflow.providers.apache.livy.operators.livy import LivyOperator

    monkeypatch.setattr(launched, "LOOK_S", 0.5)

    kind: Any = epoch_stage(LivyOperator, storage=job.storage, job=job.name)
    with DAG("asked"):
        asked = kind(task_id="routes", file="{{ ds }}.py")
    facts = ask_by_stage(asked, {})
    assert isinstance(facts, ClusterFacts), facts
    assert (facts.spark, facts.failed) == (pyspark.__version__, {})
    assert facts.storage is not None
    assert (facts.storage.passed, facts.storage.findings) == (["storage", "clock", "rights", "conditional writes"], [])

    def run(number: int, try_number: int) -> Any:
        task = kind(task_id="routes", file=str(keyed_pipeline.APPLICATION), retries=3)
        return task.execute(context(Ti(run_id=RUNS[number], try_number=try_number, max_tries=3)))

    job.trigger(RUNS[0], reads=keyed_pipeline.slice_of(0))
    assert run(0, 1)["checkpoint"] == 1, (tmp_path / "batch-2.log").read_text()
    saved = job.coordinator.savepoint(SavepointRequest(f"file://{tmp_path}/saved", "by hand"), open_store)
    job.trigger(RUNS[1], reads=keyed_pipeline.slice_of(1))

    def dies(_seconds: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(launched, "system_sleep", dies)
        with pytest.raises(KeyboardInterrupt):
            run(1, 1)
    assert run(1, 2)["attempt"] == 1
    assert livy.submitted == 3
    assert keyed_pipeline.stored_totals(Pipeline(job.storage, None, job=job.name)) == keyed_pipeline.totals_of(2)

    moved = Job(job.folder, "moved")
    moved.coordinator.start_from(open_store(saved.uri))
    moved.trigger(RUNS[1], reads=keyed_pipeline.slice_of(1))
    connections("spark_here", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("JAVA_HOME", str(ensure_java()))
    SparkEpochOperator(
        task_id="routes",
        application=str(keyed_pipeline.APPLICATION),
        storage=moved.storage,
        job=moved.name,
        conn_id="spark_here",
        conf={"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", **small_conf()},
    ).execute(context(Ti(run_id=RUNS[1])))
    assert keyed_pipeline.stored_totals(Pipeline(job.storage, None, job="moved")) == keyed_pipeline.totals_of(2)
