"""What a recovery costs, against running everything again, and against Airflow's retry of one task.

Run it as `.venv/bin/python -m bench.recovery [--json]` on a machine that does nothing else; it takes some minutes. It
starts a real Airflow (LocalExecutor) and runs the same ten Spark applications four times, in a line, so that wall time
and task time say the same and no stage slows another down. They lie in three regions of 3, 3 and 4 stages. Of the sixth
stage, the last of the second region, the driver is killed by SIGKILL when it has written all and told nobody: the
whole region has then to run again, and the third region has not begun.

| arm | what runs | runs again |
|---|---|---|
| region | with Cairn's region failover | stages 4 to 6 |
| full | with Cairn and `failover="full"` | all that had begun: stages 1 to 6 |
| retry | plain `SparkSubmitOperator`s and Airflow's retry | stage 6 |
| healthy | with Cairn; nothing dies | nothing |

The figures, all of one run on one machine:

- `rerun_share`: task-seconds that run again in `region`, of those of the healthy run. A task-second is one second of a
  stage's try; the try that was killed is its first, and counts as work lost, not as run again.
- `region_share`: the region's task-seconds of all, in the healthy run.
- `wall_ratio_full`, `wall_ratio_retry`: the wall time of `region` to that of `full` and of `retry`, each from the begin
  of the first task to the end of the last.
- `fixed_share`: what one epoch takes beside its stages, to trigger and to complete its checkpoint, of the healthy wall.
- `recovery_share`: the time from the killed try's end to where its stage has succeeded, of the healthy wall. It and
  `rerun_share` should be at most `target`, the region's share and one epoch's fixed cost.
- `wall_again_share`: how much longer `region` takes than `healthy`. It also holds that `region` runs first, on an
  Airflow that has just started, and `healthy` last: the order in which a cold start counts against Cairn.
- `result_rows`: rows in what the stage that died has written in the end, each in its arm. Airflow's retry is the
  cheapest, because it repeats one task whatever that task has done before: here it appends to its table twice.
- `arms`: the seconds behind all this. `until_it_runs_again_s` is from the killed try's end to the next begin.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.storage import open_store
from scripts.demo.stored_state import state_rows
from scripts.harness.airflow_home import AirflowHome
from scripts.harness.spark.start import ensure_archive, fast_conf

from .measuring.airflow import airflow_for
from .measuring.recovery_figures import Run, Try, figures
from .measuring.results import machine, tell

REGIONS = (("s1", "s2", "s3"), ("s4", "s5", "s6"), ("s7", "s8", "s9", "s10"))
DIES = "s6"
KEYS = 1_000
"""Rows in what the stage that dies writes, if it is written once."""
ARMS = REGION, FULL, RETRY, HEALTHY = ("region", "full", "retry", "healthy")
"""In the order in which they run."""
HERE = Path(__file__).parent / "recovery_airflow"


def run_of(told: list[dict[str, Any]]) -> Run:
    """Make a run of what Airflow's API tells about each try."""

    def one(raw: dict[str, Any]) -> Try:
        begin, end = (datetime.fromisoformat(raw[name]).timestamp() for name in ("start_date", "end_date"))
        stage = raw["task_id"].removeprefix("epoch.")
        return Try(stage, raw["try_number"], begin, end, any(stage in region for region in REGIONS))

    return Run([one(raw) for raw in told])


def play(airflow: AirflowHome, arm: str) -> Run:
    """Run an arm's DAG to its end.

    Raises:
        RuntimeError: it failed.
    """
    api = airflow.api
    api.unpause(arm)
    api.trigger(arm, "e1")
    api.wait_for_run(arm, "e1", timeout=900)
    state = api.run_state(arm, "e1")
    if state != "success":
        raise RuntimeError(f"the arm {arm} ended as {state}, which says nothing\n{api.explain(arm, 'e1')}")
    tasks = [task.task_id for task in api.task_instances(arm, "e1")]
    return run_of([each.raw for task in tasks for each in api.tries(arm, "e1", task)])


def rows(folder: Path, arm: str) -> int:
    """Count the rows of what the stage that dies has written in the end."""
    if arm == RETRY:
        return sum(pq.read_metadata(file).num_rows for file in (folder / "plain" / f"totals-{DIES}").glob("*.parquet"))
    return len(state_rows(Coordinator(open_store(f"file://{folder}/storage"), arm), DIES, "totals"))


def problems(runs: Mapping[str, Run], found: Mapping[str, int]) -> list[str]:
    """Say what is not as the arms' table has it: then the figures would tell of something else.

    Args:
        runs: each arm's run.
        found: the rows that each has written in the end.
    """
    line = [stage for region in REGIONS for stage in region]
    again = {HEALTHY: [], REGION: _region(), FULL: line[: line.index(DIES) + 1], RETRY: [DIES]}
    texts = []
    for arm, run in runs.items():
        tries = sorted((each.task, each.number) for each in run.stages)
        if tries != sorted([(stage, 1) for stage in line] + [(stage, 2) for stage in again[arm]]):
            texts.append(f"{arm}: tries {tries}; expected that once more ran: {again[arm]}")
        expected = 2 * KEYS if arm == RETRY else KEYS
        if found[arm] != expected:
            texts.append(f"{arm}: {found[arm]} rows in the end; expected {expected}")
    return texts


def _region() -> list[str]:
    return next(list(region) for region in REGIONS if DIES in region)


def told_to_dags(folder: Path) -> dict[str, object]:
    """Give what the DAG file is told."""
    return {
        "folder": str(folder),
        "application": str(HERE / "recovery_stage.py"),
        "regions": REGIONS,
        "dies": DIES,
        "keys": KEYS,
        "conf": {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", **fast_conf()},
    }


def measure(folder: Path) -> dict[str, object]:
    """Measure everything on an Airflow that is started for it.

    Raises:
        RuntimeError: a run did not end as it should, or something else ran again.
    """
    ensure_archive()
    (folder / "storage").mkdir()
    with airflow_for(folder, HERE / "recovery.py", told_to_dags(folder), cores=2) as home:
        home.api.wait_for_dag_files({"recovery.py"})
        runs = {arm: play(home, arm) for arm in ARMS}
    written = {arm: rows(folder, arm) for arm in ARMS}
    if wrong := problems(runs, written):
        raise RuntimeError("\n".join(wrong))
    return {
        **figures(**runs, together=_region(), died=DIES),
        "result_rows": written,
        **machine(),
    }


def main() -> None:
    """Measure and print."""
    lines = (__doc__ or "").split("\n", 1)
    parser = argparse.ArgumentParser(prog="bench.recovery", description=lines[0])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as name:
        result = measure(Path(name))
    tell(result, as_json=options.json)


if __name__ == "__main__":
    main()
