"""Takes a savepoint, stops with one, and disposes of one (semantics P1, P2, P3).

A savepoint is only opened here: one swap, which assigns its id and pins its checkpoint. Any process may copy its files,
so none has to live for it. All savepoints are below the target that the job's DAG names: a target that only the job's
record names is not opened (semantics W10).
"""

from __future__ import annotations

from collections.abc import Iterator

from ...checkpoint import Coordinator, system_runtime
from ...checkpoint.documents.entries import InterventionKind, SavepointEntry
from ...checkpoint.documents.head import Head, run_of_head
from ...checkpoint.errors import InvalidConfigError, NoCheckpointError, NoSavepointError, RefusedError
from ...checkpoint.savepoints import disposal
from ...checkpoint.savepoints.savepoint_format import open_entry
from ...checkpoint.savepoints.savepoint_request import SavepointRequest
from ...checkpoint.views import wording
from ...storage.names import same_place
from ...tasks import metrics
from . import runs
from .plan import InterventionRefusedError, Means, Plan, changed
from .runs import check_starts

REQUEST = "page-"
"""Prefix of the request ids of pages; an operation's id follows."""


def plan_taking(coordinator: Coordinator, kind: InterventionKind, target: str | None) -> Plan:
    """Return the plan for taking a savepoint, or for stopping with one.

    Args:
        coordinator: the job's coordinator.
        kind: which of the two.
        target: the DAG's target for the job's savepoints.
    """
    stops = kind is InterventionKind.STOP
    head = _taken_in(coordinator, target, stops=stops, drains=False)
    title = "Stop the job with a savepoint" if stops else "Take a savepoint"
    state = f"The job stays {wording.how_stopped(head.stopped)}." if head.stopped else "The job goes on."
    return Plan(kind, None, title, (*_holds(head), _copied(target), *(_of_stop() if stops else (state,))))


def plan_drain(coordinator: Coordinator, means: Means) -> Plan:
    """Return the plan for stopping with a savepoint after a last run in which the stages emit what they hold back."""
    head = _taken_in(coordinator, means.target, stops=True, drains=True)
    check_starts(means.api, means.dag_id)
    said = (
        *runs.effects(head, means.dag_id),
        _copied(means.target),
        *_of_stop("If the last run or the savepoint fails, the job goes on from its checkpoint before that run."),
    )
    return Plan(InterventionKind.STOP, None, "Drain the job and stop it with a savepoint", said, drains=True)


def open_savepoint(coordinator: Coordinator, agreed: Plan, operation: str, actor: str, means: Means) -> SavepointEntry:
    """Have the head open a savepoint, once for each operation.

    Args:
        coordinator: the job's coordinator.
        agreed: the plan: whether the job stops with it, and drains before.
        operation: the same id returns the same savepoint.
        actor: the user.
        means: the DAG's target for savepoints.

    Raises:
        InterventionRefusedError: the job refused it; nothing was opened.
    """
    try:
        stops = agreed.kind is InterventionKind.STOP
        request = _request(operation, actor, means.target, stops=stops, drains=agreed.drains)
        return coordinator.open_savepoint(request, means.open_folder)
    except (InvalidConfigError, NoCheckpointError, RefusedError) as error:
        raise InterventionRefusedError(f"{error.message}.") from error


def plan_disposal(coordinator: Coordinator, savepoint: int, means: Means) -> Plan:
    """Return the plan for disposing of a savepoint.

    Args:
        coordinator: the job's coordinator.
        savepoint: its id.
        means: the DAG's target for savepoints; a savepoint elsewhere is refused.

    Raises:
        InterventionRefusedError: the savepoint is still needed, or is being made.
        NoSavepointError: the job does not remember it.
    """
    entry = coordinator.head().savepoint_by_id(savepoint)
    if entry is None:
        raise NoSavepointError("the job remembers no such savepoint", job=coordinator.job, savepoint=savepoint)
    if not entry.ended:
        raise InterventionRefusedError("The savepoint is being made. Wait for its end.")
    _check_named(entry, means.target)
    try:
        folder = open_entry(entry, means.target, means.open_folder)
        found = disposal.plan(coordinator.files.store, folder, means.open_folder, (coordinator.job, entry))
    except RefusedError as error:
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


def dispose(coordinator: Coordinator, agreed: Plan, actor: str, means: Means) -> None:
    """Dispose of a savepoint. After a crash the rest of it is still listed, and disposing again continues.

    Args:
        coordinator: the job's coordinator.
        agreed: the plan as made just before.
        actor: the user.
        means: the DAG's target for savepoints.

    Raises:
        InterventionRefusedError: the savepoint is needed by now, or a file could not be deleted.
        CairnError: a store refused, or did not answer.
    """
    store, runtime = coordinator.files.store, system_runtime()
    entry = next((each for each in coordinator.head().savepoints if each.id == agreed.checkpoint), None)
    if entry is None or entry.uri != agreed.folder:
        raise changed()
    try:
        done = disposal.dispose(
            store,
            open_entry(entry, means.target, means.open_folder),
            runtime,
            means.open_folder,
            recorded=(coordinator.job, entry),
            actor=actor,
            after_swap=metrics.report,
        )
    except RefusedError as error:
        raise InterventionRefusedError(f"{error.message}.") from error
    if done.failures:
        (first, *_) = done.failures
        raise InterventionRefusedError(
            f"Not everything could be deleted: {first.key}: {first.reason}. The savepoint is still listed; dispose of "
            "it again to go on."
        )


def _check_named(entry: SavepointEntry, target: str | None) -> None:
    if not same_place(entry.target, target):
        raise InterventionRefusedError(
            f"By the job's record the savepoint lies in {entry.target}. That is not the `savepoint_target` of the DAG, "
            f"and this page opens no other place. To delete it, type `cairn dispose {entry.uri}`."
        )


def _taken_in(coordinator: Coordinator, target: str | None, *, stops: bool, drains: bool) -> Head:
    """Return the head of a job that would accept a savepoint request."""
    head = coordinator.head()
    if target is None:
        raise InterventionRefusedError(
            "The job has no place for savepoints. Give the DAG `CheckpointConfig(savepoint_target=…)`. To take one "
            "elsewhere, type `cairn savepoint`."
        )
    try:
        coordinator.check_savepoint(_request("to-check", "", target, stops=stops, drains=drains))
    except (InvalidConfigError, NoCheckpointError, RefusedError) as error:
        raise InterventionRefusedError(f"{error.message}.") from error
    return head


def _request(operation: str, actor: str, target: str | None, *, stops: bool, drains: bool) -> SavepointRequest:
    request = f"{REQUEST}{operation}"
    drain = runs.last_epoch(request) if drains else None
    return SavepointRequest(target, request, stop=stops, drain=drain, actor=actor)


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


def _copied(target: str | None) -> str:
    return f"Its files are copied into a new folder below {target}."


def _of_stop(after_failure: str = "If the savepoint fails, the job goes on by itself.") -> Iterator[str]:
    yield "No other run begins from now on."
    yield "When the savepoint is complete the job stops. It then refuses all runs until somebody lets it go on."
    yield after_failure
    yield "The DAG is not paused. Pause it once the job has stopped, so that its runs do not fail."
