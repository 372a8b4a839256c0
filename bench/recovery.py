"""Measures a recovery, against running everything again, and against Airflow's retry of one task.

Run it as `.venv/bin/python -m bench.recovery [--json]` on an idle machine; it takes some minutes. It starts a real
Airflow (LocalExecutor) and runs the same ten Spark applications four times, in a line, so that wall time and task time
agree and no stage slows another down. They lie in three regions of 3, 3 and 4 stages. The driver of the sixth stage,
the last of the second region, is killed by SIGKILL after all its writes and before its acknowledgement: then the whole
region has to run again, and the third region has not begun.

| arm | what runs | runs again |
|---|---|---|
| region | with Cairn's region failover | stages 4 to 6 |
| full | with Cairn and `failover="full"` | all that had begun: stages 1 to 6 |
| retry | plain `SparkSubmitOperator`s and Airflow's retry | stage 6 |
| healthy | with Cairn; nothing dies | nothing |

The figures, all of one run on one machine:

- `rerun_share`: task-seconds that run again in `region`, as a share of those of the healthy run. A task-second is one
  second of a stage's try; the killed try is a first try, and counts as lost work, not as run again.
- `region_share`: the region's share of all task-seconds, in the healthy run.
- `wall_ratio_full`, `wall_ratio_retry`: the wall time of `region` to that of `full` and of `retry`, each from the start
  of the first task to the end of the last.
- `fixed_share`: an epoch's time beside its stages, to trigger and to complete its checkpoint, to the healthy wall time.
- `recovery_share`: the time from the killed try's end to its stage's success, to the healthy wall time. It and
  `rerun_share` should be at most `target`, the region's share and one epoch's fixed cost.
- `wall_again_share`: how much longer `region` takes than `healthy`. This includes the cold start: `region` runs first,
  on an Airflow that has just started, and `healthy` last, an order that counts against Cairn.
- `result_rows`: rows in the final output of the killed stage, for each arm. Airflow's retry is the cheapest, because it
  repeats one task whatever that task has done before: here it appends to its table twice.
- `arms`: the seconds behind these figures. `until_it_runs_again_s`: from the killed try's end to the next start.
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
"""Rows that the killed stage writes, if it writes them once."""
ARMS = REGION, FULL, RETRY, HEALTHY = ("region", "full", "retry", "healthy")
"""In the order of the runs."""
HERE = Path(__file__).parent / "recovery_airflow"


def run_of(told: list[dict[str, Any]]) -> Run:
    """Convert the tries from Airflow's API to a run."""

    def one(raw: dict[str, Any]) -> Try:
        begin, end = (datetime.fromisoformat(raw[name]).timestamp() for name in ("start_date", "end_date"))
        stage = raw["task_id"].removeprefix("epoch.")
        return Try(stage, raw["try_number"], begin, end, any(stage in region for region in REGIONS))

    return Run([one(raw) for raw in told])


def play(airflow: AirflowHome, arm: str) -> Run:
    """Run an arm's DAG to its end.

    Raises:
        RuntimeError: the run failed.
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
    """Count the rows in the final output of the killed stage."""
    if arm == RETRY:
        return sum(pq.read_metadata(file).num_rows for file in (folder / "plain" / f"totals-{DIES}").glob("*.parquet"))
    return len(state_rows(Coordinator(open_store(f"file://{folder}/storage"), arm), DIES, "totals"))


def problems(runs: Mapping[str, Run], found: Mapping[str, int]) -> list[str]:
    """List deviations from the arms' table, which would make the figures meaningless."""
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
    """Return the facts for the DAG file."""
    return {
        "folder": str(folder),
        "application": str(HERE / "recovery_stage.py"),
        "regions": REGIONS,
        "dies": DIES,
        "keys": KEYS,
        "conf": {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", **fast_conf()},
    }


def measure(folder: Path) -> dict[str, object]:
    """Measure everything on a new Airflow.

    Raises:
        RuntimeError: a run did not end as it should, or other tasks ran again.
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
