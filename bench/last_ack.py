"""Measures how soon a checkpoint completes after its last acknowledgement, against the sensor's task.

Run it as `.venv/bin/python -m bench.last_ack [--json] [--epochs N]`; it takes some minutes. It starts a real Airflow
(LocalExecutor) and runs epochs of two stages in a line, each a Spark application.

The stage that acknowledges last completes the checkpoint as soon as its application has ended. Before version 0.2 the
task that waits for the checkpoint did this, and so not before it began. Both times are of the same epochs:

- `completed_s`: the median time from the last acknowledgement to the swap that completes the checkpoint. It includes
  the end of the Spark application.
- `sensor_began_s`: the median time from the last acknowledgement to the start of the task that waits.
- `ratio`: the median of the first to the second, epoch by epoch.
- `epochs`: their number. `load` and `cores` are the machine's.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from datetime import datetime
from pathlib import Path

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.views.details import details
from airflow_cairn.storage import open_store
from scripts.harness.airflow_home import AirflowHome
from scripts.harness.spark.start import ensure_archive, fast_conf

from .measuring.airflow import airflow_for
from .measuring.results import machine, tell

DAG_ID = "last_ack"
HERE = Path(__file__).parent / "last_ack_airflow"


def spans(home: AirflowHome, storage: Path, run_id: str) -> tuple[float, float]:
    """Run an epoch; return seconds from its last acknowledgement to its completion, and to the start of its sensor.

    Raises:
        RuntimeError: the run failed.
    """
    home.api.trigger(DAG_ID, run_id)
    if home.api.wait_for_run(DAG_ID, run_id, timeout=600) != "success":
        raise RuntimeError(home.api.explain(DAG_ID, run_id))
    job = Coordinator(open_store(f"file://{storage}"), DAG_ID)
    found = details(job, job.head().completed[-1].id)
    (metrics,) = (stage.metrics for stage in found.stages if stage.stage == "last")
    assert metrics is not None
    assert found.row.ended_at_ms is not None
    acked = (found.row.triggered_at_ms + metrics.end_to_end_ms) / 1000
    tasks = {task.task_id: task.raw for task in home.api.task_instances(DAG_ID, run_id)}
    began = datetime.fromisoformat(tasks["epoch.wait_for_checkpoint"]["start_date"]).timestamp()
    return found.row.ended_at_ms / 1000 - acked, began - acked


def measure(folder: Path, epochs: int) -> dict[str, object]:
    """Measure on a new Airflow.

    One more epoch runs before the measured ones, on an Airflow that has just started.
    """
    ensure_archive()
    storage = folder / "storage"
    storage.mkdir()
    facts = {
        "storage": f"file://{storage}",
        "application": str(HERE / "last_ack_stage.py"),
        "conf": {"spark.ui.enabled": "false", **fast_conf()},
    }
    with airflow_for(folder, HERE / "last_ack.py", facts, cores=1) as home:
        home.api.wait_for_dag_files({"last_ack.py"})
        home.api.unpause(DAG_ID)
        found = [spans(home, storage, f"e{number}") for number in range(epochs + 1)][1:]
    return {
        "completed_s": round(statistics.median(completed for completed, _ in found), 2),
        "sensor_began_s": round(statistics.median(began for _, began in found), 2),
        "ratio": round(statistics.median(completed / began for completed, began in found), 2),
        "epochs": epochs,
        **machine(),
    }


def main() -> None:
    """Measure and print."""
    lines = (__doc__ or "").split("\n", 1)
    parser = argparse.ArgumentParser(prog="bench.last_ack", description=lines[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as name:
        result = measure(Path(name), options.epochs)
    tell(result, as_json=options.json)


if __name__ == "__main__":
    main()
