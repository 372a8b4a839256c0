"""Requests a run from Airflow now, and clears a failed region so that it runs again (semantics T2, T3, F1, P2).

Both go through Airflow's own API, as the user: Airflow checks the user's rights and keeps its own audit log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...checkpoint import Coordinator, system_runtime
from ...checkpoint.documents.entries import SavepointEntry, Stopped
from ...checkpoint.documents.head import Head, run_of_head
from ...checkpoint.documents.layout import epoch_name, run_id_of
from ...checkpoint.errors import AirflowApiError, InvalidConfigError, NoCheckpointError
from ...checkpoint.savepoints.savepoint_request import drain_run
from ...checkpoint.views import wording
from ...hooks.airflow_api import AirflowApiHook
from ...tasks.reports.notes import as_code
from .plan import InterventionRefusedError, Means, Plan, Region, RunKind, changed, sentence

NAMED = 20
"""Number of tasks that a plan names."""


def run_of(operation: str) -> str:
    """Return the id of the DAG run for an operation: Airflow takes an id once, so the run is made once."""
    return f"cairn__{operation}"


def plan_checkpoint(head: Head, api: AirflowApiHook, dag_id: str) -> Plan:
    """Return the plan for requesting a checkpoint now.

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
    """Return the plan for clearing the region of a stage, as the DAG declares it now.

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
            "None of these tasks has failed, so nothing is to run again. To repeat work that has completed, go back to "
            "an older checkpoint."
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


# The last run of a job that drains before it stops with a savepoint (semantics P2). The stop is written to the head
# before the run is created: otherwise nothing would mark the run as the last one. If the process crashes in between,
# a user who continues the stop creates the run. Its id is fixed, so there is no second run.


def last_epoch(request: str) -> str:
    """Return the epoch of a job's last run: the same request always gives the same epoch."""
    return epoch_name(drain_run(request))


def effects(head: Head, dag_id: str) -> Iterator[str]:
    """Yield the effects before the savepoint, for the page that asks for confirmation."""
    yield f"Airflow makes one more run of {dag_id} now, the last one. Its stages emit what they hold back."
    yield from under_way(head, "The last run")
    yield "The savepoint waits until the last run has completed, and holds everything up to it."


def begin(coordinator: Coordinator, entry: SavepointEntry, means: Means) -> None:
    """Create the last run in Airflow, after the stop is recorded. If Airflow refuses, the stop fails.

    If Airflow does not answer, the run may exist; `go_on` looks for it.

    Raises:
        InterventionRefusedError: Airflow refused to create the run; the job continues.
    """
    if not entry.waits:
        return
    try:
        means.api.start_run(means.dag_id, run_id_of(entry.epoch), system_runtime().now_ms())
    except AirflowApiError as error:
        if not _was_refused(error):
            return
        detail = f"Airflow makes no last run: {error.message}"
        if _give_up(coordinator, entry, detail, means):
            raise InterventionRefusedError(f"{detail}. So the stop has failed, and the job goes on.") from error


def missing(entry: SavepointEntry, api: AirflowApiHook, dag_id: str) -> str | None:
    """Return why the last run needs a user's action; None if Airflow has it, and it has not ended."""
    run_id = run_id_of(entry.epoch)
    try:
        if api.run_state(dag_id, run_id) is None:
            return f"Airflow has no DAG run {run_id} yet. A person who may make runs makes it with Go on"
        if api.is_over(dag_id, run_id):
            return f"the DAG run {run_id} has ended. A person who may edit runs gives the stop up with Go on"
    except AirflowApiError as error:
        return f"Airflow does not say whether it has the DAG run {run_id}: {error.message}"
    return None


def go_on(coordinator: Coordinator, entry: SavepointEntry, means: Means) -> None:
    """Create an awaited last run, or give the stop up if the run has ended without its checkpoint.

    Raises:
        InterventionRefusedError: Airflow does not create the run now; the stop keeps waiting.
    """
    now = coordinator.look_for_savepoint(entry.request)
    if now is None or not (now.drains and now.waits):
        return
    run_id = run_id_of(entry.epoch)
    try:
        if means.api.run_state(means.dag_id, run_id) is None:
            means.api.start_run(means.dag_id, run_id, system_runtime().now_ms())
        elif means.api.is_over(means.dag_id, run_id):
            _give_up(coordinator, now, f"the DAG run {run_id} has ended", means)
    except AirflowApiError as error:
        # This user may have fewer rights than the one who stopped the job: no reason to give the stop up.
        raise InterventionRefusedError(f"The last run has not been made: {error.message}.") from error


def _was_refused(error: AirflowApiError) -> bool:
    """Tell whether Airflow has refused the request for good: then it has done nothing."""
    status = error.fields.get("status")
    return isinstance(status, int) and 400 <= status < 500 and status not in (408, 429)


def _give_up(coordinator: Coordinator, entry: SavepointEntry, detail: str, means: Means) -> bool:
    """Fail the stop and empty its folder, unless an attempt of the last run is in progress."""
    given_up = coordinator.give_up_stop(entry.epoch, detail)
    if given_up:
        coordinator.go_on_with_savepoint(entry.request, means.target, means.open_folder)
    return given_up
