"""Taking a savepoint, stopping with one, and disposing of one (semantics P1, P2, P3).

A savepoint is only opened here: one swap, which hands out its id and pins its checkpoint. Its files are copied by
whichever process comes by, so no process has to live for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...checkpoint import Coordinator, system_runtime
from ...checkpoint.documents.entries import InterventionKind, SavepointEntry
from ...checkpoint.documents.head import Head
from ...checkpoint.documents.run_window import run_of_head
from ...checkpoint.errors import InvalidConfigError, NoCheckpointError, NoSavepointError, SavepointRefusedError
from ...checkpoint.savepoints import disposal
from ...checkpoint.savepoints.savepoint_request import OpenFolder, SavepointRequest
from ...checkpoint.views import wording
from ...hooks.airflow_api import AirflowApiHook
from ...tasks import metrics
from . import of_last_run
from .plan import InterventionRefusedError, Plan

REQUEST = "page-"
"""How the ids of requests begin that pages make; an operation's id follows."""


def plan_taking(coordinator: Coordinator, kind: InterventionKind) -> Plan:
    """Say what taking a savepoint, or stopping with one, would do.

    Args:
        coordinator: of the job.
        kind: which of them.

    Raises:
        InterventionRefusedError: it would be refused.
    """
    stops = kind is InterventionKind.STOP
    head = _taken_in(coordinator, stops=stops, drains=False)
    title = "Stop the job with a savepoint" if stops else "Take a savepoint"
    meanwhile = f"The job stays {wording.how_stopped(head.stopped)}." if head.stopped else "The job goes on meanwhile."
    copied = _copied(head)
    return Plan(kind, None, title, (*_holds(head), copied, *(_of_stop() if stops else (meanwhile,))))


def plan_drain(coordinator: Coordinator, api: AirflowApiHook, dag_id: str) -> Plan:
    """Say what stopping with a savepoint would do, after a last run in which the stages emit what they hold back.

    Args:
        coordinator: of the job.
        api: Airflow's, asked as the person.
        dag_id: the DAG that makes the job's checkpoints.

    Raises:
        InterventionRefusedError: it would be refused, or Airflow would not start the last run.
        AirflowApiError: Airflow did not answer, or refuses the person.
    """
    head = _taken_in(coordinator, stops=True, drains=True)
    of_last_run.check(head, api, dag_id)
    said = (
        *of_last_run.effects(head, dag_id),
        _copied(head),
        *_of_stop("If the last run or the savepoint fails, the job goes on from its checkpoint before that run."),
    )
    return Plan(InterventionKind.STOP, None, "Drain the job and stop it with a savepoint", said, drains=True)


def open_savepoint(
    coordinator: Coordinator, agreed: Plan, operation: str, actor: str, open_folder: OpenFolder
) -> SavepointEntry:
    """Have the head take a savepoint in, once for each operation.

    Args:
        coordinator: of the job.
        agreed: whether the job stops with it, and drains before.
        operation: the same one gives the same savepoint.
        actor: who wants it.
        open_folder: opens the savepoint's folder.

    Raises:
        InterventionRefusedError: it was refused; nothing was opened.
        CairnError: a store refused, or did not answer.
    """
    try:
        stops = agreed.kind is InterventionKind.STOP
        return coordinator.open_savepoint(_request(operation, actor, stops=stops, drains=agreed.drains), open_folder)
    except (InvalidConfigError, NoCheckpointError, SavepointRefusedError) as error:
        raise InterventionRefusedError(f"{error.message}.") from error


def plan_disposal(coordinator: Coordinator, savepoint: int, open_folder: OpenFolder) -> Plan:
    """Say what disposing of a savepoint would delete.

    Args:
        coordinator: of the job.
        savepoint: its id.
        open_folder: opens savepoints' folders.

    Raises:
        InterventionRefusedError: it is still needed, or is being made.
        NoSavepointError: the job does not remember it.
    """
    entry = coordinator.head().savepoint_by_id(savepoint)
    if entry is None:
        raise NoSavepointError("the job remembers no such savepoint", job=coordinator.job, savepoint=savepoint)
    if not entry.ended:
        raise InterventionRefusedError("The savepoint is being made. Wait for its end.")
    try:
        found = disposal.plan(coordinator.files.store, open_folder(entry.uri), open_folder)
    except SavepointRefusedError as error:
        raise InterventionRefusedError(f"{error.message}.") from error
    if found.against:
        reasons = "; ".join(found.against)
        raise InterventionRefusedError(
            f"The savepoint is still needed: {reasons}. To delete it anyway, type `cairn dispose {entry.uri} --force`."
        )
    effects = (
        f"Deleted, and cannot come back: {found.files} files, {wording.size(found.size_bytes)}, in {entry.uri}.",
        "Other files in that folder stay.",
        f"{found.job} forgets the savepoint.",
    )
    return Plan(InterventionKind.DISPOSE, savepoint, f"Dispose of savepoint {savepoint}", effects, folder=found.uri)


def dispose(coordinator: Coordinator, agreed: Plan, actor: str, open_folder: OpenFolder) -> None:
    """Dispose of a savepoint. What a crash leaves of it is still listed, and disposing again goes on.

    Args:
        coordinator: of the job.
        agreed: as planned just before.
        actor: who wants it.
        open_folder: opens savepoints' folders.

    Raises:
        InterventionRefusedError: it is needed by now, or something could not be deleted.
        CairnError: a store refused, or did not answer.
    """
    store, runtime = coordinator.files.store, system_runtime()
    try:
        done = disposal.dispose(
            store, open_folder(agreed.folder), runtime, open_folder, actor=actor, after_swap=metrics.report
        )
    except SavepointRefusedError as error:
        raise InterventionRefusedError(f"{error.message}.") from error
    if done.failures:
        (first, *_) = done.failures
        raise InterventionRefusedError(
            f"Not everything could be deleted: {first.key}: {first.reason}. The savepoint is still listed; dispose of "
            "it again to go on."
        )


def _taken_in(coordinator: Coordinator, *, stops: bool, drains: bool) -> Head:
    """Give the head of a job that would take a savepoint in."""
    head = coordinator.head()
    if head.savepoint_target is None:
        raise InterventionRefusedError(
            "The job has no place for savepoints. Give the DAG `CheckpointConfig(savepoint_target=…)`: it holds from "
            "the next run on. To take one elsewhere, type `cairn savepoint`."
        )
    try:
        coordinator.check_savepoint(_request("to-check", "", stops=stops, drains=drains))
    except (InvalidConfigError, NoCheckpointError, SavepointRefusedError) as error:
        raise InterventionRefusedError(f"{error.message}.") from error
    return head


def _request(operation: str, actor: str, *, stops: bool, drains: bool) -> SavepointRequest:
    request = f"{REQUEST}{operation}"
    drain = of_last_run.last_epoch(request) if drains else None
    return SavepointRequest(None, request, stop=stops, drain=drain, actor=actor)


def _holds(head: Head) -> Iterator[str]:
    latest = head.latest_completed()
    if head.pending:
        waited_for = run_of_head(head, head.pending[0].epoch)
        yield f"The savepoint waits until {waited_for} has completed, and holds everything up to it."
    elif latest is not None and latest.left_out:
        without = ", ".join(latest.left_out)
        yield (
            f"The newest checkpoint was made without {without}. So the savepoint waits for the next run, and holds "
            "everything up to it."
        )
    elif latest is not None:
        until = run_of_head(head, latest.epoch)
        yield f"The savepoint is made of checkpoint {latest.id}, which holds everything up to {until}."
        if latest.owing:
            yield f"It takes along what these stages have still to read: {', '.join(latest.owing)}."


def _copied(head: Head) -> str:
    return f"Its files are copied into a new folder below {head.savepoint_target}."


def _of_stop(after_failure: str = "If the savepoint fails, the job goes on by itself.") -> Iterator[str]:
    yield "No other run begins from now on."
    yield "When the savepoint is complete the job stops. It then refuses all runs until somebody lets it go on."
    yield after_failure
    yield "The DAG is not paused. Pause it once the job has stopped, so that its runs do not fail."
