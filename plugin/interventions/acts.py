"""Plans an intervention of a user, and executes the plan.

A plan lists the effects that the intervention would have now. A user confirms exactly these: before the execution the
plan is made again, and if it differs, nothing is done. Each change of the job is one swap of the head, which records
the user (semantics O1). Two users who confirm at once race for that swap, and the second is told that the job has
changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...checkpoint import Coordinator, system_runtime
from ...checkpoint.documents.entries import InterventionKind, SavepointEntry
from ...checkpoint.documents.head import Head, run_of_head
from ...checkpoint.documents.layout import run_id_of
from ...checkpoint.errors import InvalidConfigError, NoCheckpointError, NoSavepointError, RefusedError
from ...checkpoint.reasons import Reason
from ...checkpoint.rules.rewinds import Rewound
from ...checkpoint.savepoints import disposal
from ...checkpoint.savepoints.savepoint_format import open_entry
from ...checkpoint.savepoints.savepoint_request import SavepointRequest
from ...checkpoint.views import table_changes, wording
from ...storage.names import same_place
from ...storage.records import dataclass
from ...tasks import metrics
from ...tasks.reports import notes
from . import runs
from .plan import InterventionRefusedError, Kind, Means, Plan, RunKind, changed
from .runs import check_starts

NOTED = 20
"""Number of runs that get a note of a rewind, the newest ones: the user waits for the notes."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The intervention that a user wants."""

    kind: Kind
    checkpoint: int | None = None
    """The checkpoint or savepoint concerned; None for an intervention in the whole job."""
    stage: str = ""
    drain: bool = False
    """For a stop: whether a last run first emits the results that the stages hold back."""


def plan(coordinator: Coordinator, wanted: Wanted, means: Means) -> Plan:
    """Return the effects that an intervention would have now, without doing any of it.

    Raises:
        InterventionRefusedError: there is nothing to do, or the job would refuse it.
    """
    kind, checkpoint = wanted.kind, wanted.checkpoint
    if wanted.drain and kind is not InterventionKind.STOP:
        raise InterventionRefusedError(f"`drain` belongs to `stop`: `{kind}` has none.")
    match kind:
        case InterventionKind.RESUME:
            return plan_resume(coordinator.head())
        case InterventionKind.STOP if wanted.drain:
            return plan_drain(coordinator, means)
        case InterventionKind.SAVEPOINT | InterventionKind.STOP:
            return plan_taking(coordinator, InterventionKind(kind), means.target)
        case RunKind.CHECKPOINT:
            return runs.plan_checkpoint(coordinator.head(), means.api, means.dag_id)
    if checkpoint is None:
        raise InterventionRefusedError("Say which one: `checkpoint` is missing.")
    match kind:
        case InterventionKind.GIVE_UP:
            return plan_give_up(coordinator.head(), checkpoint)
        case InterventionKind.DISPOSE:
            return plan_disposal(coordinator, checkpoint, means)
        case RunKind.CLEAR:
            return runs.plan_clear(coordinator, checkpoint, wanted.stage, means.region_of, means.api, means.dag_id)
    head = coordinator.head()
    changes = table_changes.changes(coordinator.files, head, checkpoint)
    return plan_rewind(head, coordinator.rewind_plan(checkpoint), changes)


def perform(coordinator: Coordinator, agreed: Plan, actor: str, operation: str, means: Means) -> None:
    """Execute an agreed plan, and record the user; the same id starts a longer operation only once."""
    match agreed.kind:
        case InterventionKind.RESUME:
            return coordinator.resume(actor=actor)
        case InterventionKind.SAVEPOINT | InterventionKind.STOP:
            entry = open_savepoint(coordinator, agreed, operation, actor, means)
            if agreed.drains:
                runs.begin(coordinator, entry, means)
            return None
        case InterventionKind.DISPOSE:
            return dispose(coordinator, agreed, actor, means)
        case RunKind.CHECKPOINT:
            return runs.make_run(means.api, means.dag_id, operation)
        case RunKind.CLEAR:
            return runs.clear(means.api, means.dag_id, agreed, actor)
    assert agreed.checkpoint is not None  # the plans for all other kinds have one
    if agreed.kind is InterventionKind.GIVE_UP:
        return give_up(coordinator, agreed.checkpoint, actor)
    return rewind(coordinator, agreed.checkpoint, agreed.rewound, actor)


def note(job: str, done: Plan, actor: str, means: Means) -> None:
    """Write a note about an executed plan on its runs, without the job, so that the job's readers need not wait."""
    if done.rewound is None or done.checkpoint is None:
        return
    said = notes.rewound(done.checkpoint, actor)
    for epoch in done.rewound.epochs[-NOTED:]:
        if not notes.put(means.api, means.dag_id, run_id_of(epoch), job, said):
            break  # the rewind is done, and Airflow's API may be down: do not let the user wait for twenty tries


# Plans and executes: rewind to an older checkpoint, resume a stopped job, give up a pending attempt.


RUNS = 20
"""Number of DAG runs that a plan names."""


def plan_resume(head: Head) -> Plan:
    """Return the plan for resuming the job.

    Raises:
        InterventionRefusedError: the job is not stopped.
    """
    stopping, latest = head.stopping(), head.latest_id()
    if head.stopped is None and stopping is None:
        raise InterventionRefusedError("The job is not stopped: there is nothing to resume.")
    effects = []
    if head.stopped is not None:
        effects.append(f"The job is {wording.how_stopped(head.stopped)}. It takes requests again.")
    if stopping is not None:
        effects.append(f"The job is being stopped with savepoint {stopping.id}. The savepoint is cancelled.")
    goes_on = f"The next run restores checkpoint {latest}." if latest else "The next run starts empty."
    return Plan(InterventionKind.RESUME, None, "Let the job go on", (*effects, goes_on))


def plan_give_up(head: Head, checkpoint: int) -> Plan:
    """Return the plan for giving up a pending checkpoint.

    Raises:
        NoCheckpointError: the checkpoint is not pending.
    """
    entry = head.pending_by_id(checkpoint)
    if entry is None:
        raise NoCheckpointError("the checkpoint is not pending: it has ended", job=head.job, checkpoint=checkpoint)
    return Plan(
        InterventionKind.GIVE_UP,
        checkpoint,
        f"Give up checkpoint {checkpoint}",
        (
            f"Attempt {entry.attempt} of {run_of_head(head, entry.epoch)} ends as failed.",
            "What its stages still write is thrown away, and its wait_for_checkpoint fails.",
            "Nothing of the job's state changes.",
            "The next try of a stage has the task that triggers run again, which opens another attempt.",
        ),
    )


def give_up(coordinator: Coordinator, checkpoint: int, actor: str) -> None:
    """Return up a pending checkpoint.

    Raises:
        InterventionRefusedError: the checkpoint has ended since.
    """
    reason = Reason.CHECKPOINT_COORDINATOR_SUSPEND
    if not coordinator.abort(checkpoint, reason, f"{actor} gave it up", actor=actor):
        raise changed()


def plan_rewind(head: Head, found: Rewound, changes: Sequence[Mapping[str, Any]]) -> Plan:
    """Return the plan for a rewind; `changes` is what later checkpoints have done to tables outside of the storage.

    Raises:
        InterventionRefusedError: the job is at that checkpoint already.
    """
    if not found.undone:
        raise InterventionRefusedError(f"The job is at checkpoint {found.checkpoint} already: nothing comes after it.")
    undone = ", ".join(str(each) for each in found.undone)
    holds = f"which holds everything up to {run_of_head(head, found.epoch)}"
    effects = [
        f"The next run restores checkpoint {found.checkpoint}, {holds}.",
        f"Undone: {undone}. Their files are deleted.",
        f"To be run again, in this order: {_runs(head, found.epochs)}.",
    ]
    if found.aborted:
        effects.append(
            f"Pending, and ended: {', '.join(map(str, found.aborted))}; after the others, run again "
            f"{_runs(head, found.aborted_epochs)}."
        )
    for each in changes:
        table = f"the table {each['table']}" if each["table"] else "tables"
        done = table_changes.what(each)
        effects.append(f"Checkpoint {each['checkpoint']} and {table}, {done}: {table_changes.said(each)}.")
    effects.append(f"What {'else ' if changes else ''}sinks have committed outside stays there.")
    title = f"Go back to checkpoint {found.checkpoint}"
    return Plan(InterventionKind.REWIND, found.checkpoint, title, tuple(effects), found)


def rewind(coordinator: Coordinator, checkpoint: int, agreed: Rewound | None, actor: str) -> None:
    """Rewind to an older checkpoint.

    Raises:
        InterventionRefusedError: the job has changed since.
        NoCheckpointError: the checkpoint is damaged, or no longer retained.
    """
    try:
        coordinator.rewind(checkpoint, abort_pending=True, agreed=agreed, actor=actor)
    except RefusedError as error:
        raise changed() from error


def _runs(head: Head, epochs: tuple[str, ...]) -> str:
    return wording.some([run_of_head(head, epoch) for epoch in epochs], RUNS) or "none"


# Takes a savepoint, stops with one, and disposes of one (semantics P1, P2, P3). A savepoint is only opened here: one
# swap, which assigns its id and pins its checkpoint. Any process may copy its files, so none has to live for it. All
# savepoints are below the target that the job's DAG names: a target that only the job's record names is not opened
# (semantics W10).


REQUEST = "page-"
"""Prefix of the request ids of pages; an operation's id follows."""


def plan_taking(coordinator: Coordinator, kind: InterventionKind, target: str | None) -> Plan:
    """Return the plan for taking a savepoint, or for stopping with one."""
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
    """Return the plan for disposing of a savepoint, which has to be below the DAG's target.

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
