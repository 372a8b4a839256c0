"""Requests a run from Airflow now, and clears a failed region so that it runs again (semantics T2, T3, F1).

Both go through Airflow's own API, as the user: Airflow checks the user's rights and keeps its own audit log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...checkpoint import Coordinator, system_runtime
from ...checkpoint.documents.entries import Stopped
from ...checkpoint.documents.head import Head, run_of_head
from ...checkpoint.documents.layout import run_id_of
from ...checkpoint.errors import InvalidConfigError, NoCheckpointError
from ...checkpoint.views import wording
from ...hooks.airflow_api import AirflowApiHook
from ...tasks.reports.notes import as_code
from .plan import InterventionRefusedError, Plan, Region, RunKind, changed, sentence

NAMED = 20
"""Number of tasks that a plan names."""


def run_of(operation: str) -> str:
    """Return the id of the DAG run for an operation: Airflow takes an id once, so the run is made once."""
    return f"cairn__{operation}"


def plan_checkpoint(head: Head, api: AirflowApiHook, dag_id: str) -> Plan:
    """Return the plan for requesting a checkpoint now.

    Args:
        head: the job's head.
        api: Airflow's API.
        dag_id: the DAG that will run.

    Raises:
        InterventionRefusedError: the run would not begin.
    """
    if head.stopped is Stopped.SHUTDOWN:
        raise InterventionRefusedError(
            f"The job is {wording.how_stopped(head.stopped)}, so it refuses all runs. Let it go on first."
        )
    if head.stopping() is not None:
        raise InterventionRefusedError("The job is being stopped with a savepoint, so no other run begins.")
    check_starts(api, dag_id)
    effects = [f"Airflow makes a run of {dag_id} now. The checkpoint completes when all its stages have."]
    effects += under_way(head, "The new run")
    if head.waiting:
        effects.append("Its request comes before those of the schedule.")
    return Plan(RunKind.CHECKPOINT, None, "Make a checkpoint now", tuple(effects))


def check_starts(api: AirflowApiHook, dag_id: str) -> None:
    """Check that Airflow would start a run of a DAG.

    Raises:
        InterventionRefusedError: Airflow would not start it.
    """
    try:
        api.check_runs(dag_id)
    except InvalidConfigError as error:
        raise InterventionRefusedError(sentence(error.message)) from error


def under_way(head: Head, new: str) -> Iterator[str]:
    """Yield the runs for which a new one may have to wait, if any."""
    runs = [run_of_head(head, entry.epoch) for entry in head.pending]
    if runs:
        yield f"Under way now: {', '.join(runs)}. {new} may have to wait for a free place."


def make_run(api: AirflowApiHook, dag_id: str, operation: str) -> None:
    """Have Airflow make the run, once for each operation."""
    api.start_run(dag_id, run_of(operation), system_runtime().now_ms())


def plan_clear(
    coordinator: Coordinator,
    checkpoint: int,
    stage: str,
    region_of: Callable[[str], Region],
    api: AirflowApiHook,
    dag_id: str,
) -> Plan:
    """Return the plan for clearing the region of a stage.

    Args:
        coordinator: the job's coordinator.
        checkpoint: an attempt of the epoch.
        stage: the stage.
        region_of: returns the stage's region, as the DAG declares it now.
        api: Airflow's API.
        dag_id: the DAG that ran.

    Raises:
        InterventionRefusedError: the stage does not exist, or no task of its region has failed.
        NoCheckpointError: the job does not remember the checkpoint.
    """
    head, region = coordinator.head(), region_of(stage)
    entry = head.pending_by_id(checkpoint) or head.ended_by_id(checkpoint)
    if entry is None:
        raise NoCheckpointError("the job remembers no such checkpoint", job=head.job, checkpoint=checkpoint)
    tasks = tuple(sorted(task for each in region.values() for task in each))
    if not tasks:
        raise InterventionRefusedError(f"The DAG has no task of a stage `{stage}`.")
    run_id = run_id_of(entry.epoch)
    cleared = api.clear_failed(dag_id, run_id, list(tasks), _note(stage), dry_run=True)
    if not cleared:
        raise InterventionRefusedError(
            "None of these tasks has failed, so nothing is to run again. To have work done again that has completed, "
            "go back to an older checkpoint."
        )
    named = wording.some([str(task) for task in cleared], NAMED)
    effects = [f"Cleared in {run_of_head(head, entry.epoch)}, so that they run again: {named}."]
    if len(region) > 1:
        effects.append(f"These stages run again together: {', '.join(sorted(region))}.")
    effects.append("Stages that have acknowledged and are in no such region keep what they did.")
    return Plan(
        RunKind.CLEAR,
        checkpoint,
        f"Let {stage} run again",
        tuple(effects),
        run_id=run_id,
        tasks=tasks,
        failed=cleared,
        stage=stage,
    )


def clear(api: AirflowApiHook, dag_id: str, agreed: Plan, actor: str) -> None:
    """Clear the region, so that it runs again.

    Raises:
        InterventionRefusedError: another user has cleared it since.
        AirflowApiError: Airflow did not answer, or refuses the user; the tasks may have been cleared.
    """
    note = f"{_note(agreed.stage)}, asked for by {as_code(actor)}"
    if not api.clear_failed(dag_id, agreed.run_id, list(agreed.tasks), note, dry_run=False):
        raise changed()


def _note(stage: str) -> str:
    return f"Cairn: the region of `{stage}` runs again"
