"""Chooses the executions that a new attempt takes over from the one before (semantics F1, F2).

The new attempt takes an execution over, running or acknowledged, or runs its stage again. If a stage has failed, its
region runs again, with all stages downstream and each stage whose output is lost (`rules/failures.py`); or all stages
do, if the job wants a full failover. In a job that runs at least once (B2) the stages downstream do not run again:
their next run reads the new output.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace

from ...storage.errors import DocumentError, GoneError, OutcomeUnknownError
from ...storage.port import ConditionFailed
from ...storage.records import dataclass
from ..answers import Restarted
from ..documents import layout
from ..documents.attempt import Execution, Handover, HooksRef, PendingDocument, StageSpec, execution_token
from ..documents.head import Head
from ..reasons import Status
from ..rules.failures import affected_regions as affected
from ..store import acks, metadata_file
from ..store.attempt_documents import AttemptDocuments
from ..store.job_files import FileCheck, JobFiles


@dataclass(frozen=True, slots=True)
class CarryOver:
    """Executions and hook answers that a new attempt takes over."""

    executions: Mapping[str, Execution]
    acknowledged: frozenset[str]
    """Stages of `executions` that have acknowledged already."""
    hooks: HooksRef | None = None
    """Answers of the master hooks, given or still to come, with which `executions` were computed."""
    declined: frozenset[str] = frozenset()
    """Stages that had declined in the attempt before; none of them is taken over."""
    before: PendingDocument | None = None
    """Document of the attempt before; None if there was none, or it is gone."""
    begun: frozenset[str] = frozenset()
    """Stages that a try had claimed in the attempt before."""
    failed: frozenset[str] = frozenset()
    """Stages that have failed by themselves, or are about to run again anyway."""

    def nothing(self) -> CarryOver:
        """Return a copy that takes over nothing, but keeps the knowledge of the attempt before."""
        return replace(self, executions={}, acknowledged=frozenset(), hooks=None)


NOTHING = CarryOver({}, frozenset())


def carry(
    files: JobFiles,
    before: PendingDocument,
    stages: tuple[StageSpec, ...],
    *,
    rejected: Collection[str] = (),
    restart: str | None = None,
    again: bool = False,
    running: bool = True,
    missing: Collection[str] = (),
) -> CarryOver:
    """Choose the executions that a new attempt takes over.

    Costs three listings for each checkpoint that is an execution's home. The inputs of stages that run again are
    checked too (semantics F1).

    Args:
        files: the job's files.
        before: document of the attempt before.
        stages: of the new attempt; a stage that the DAG has changed runs again.
        rejected: tokens of executions and hook answers that were rejected.
        restart: a stage to run again unless it has acknowledged.
        again: run that stage again even if it has acknowledged, because a person has asked for it (semantics F5).
        running: take over executions that have not acknowledged, too.
        missing: stages whose output is known to be gone or altered.
    """
    executions = before.executions
    acknowledged = acks.marked(files, executions, "acks")
    declined = acks.marked(files, executions, "declines") - acknowledged
    # A stage whose execution was rejected had begun, though a cleaner may have deleted its handover since.
    answered = {uid for uid, execution in executions.items() if execution.token in rejected}
    begun = acks.marked(files, executions, "handover") | acknowledged | answered
    missing = frozenset(missing).union(*(_unreadable(files, uid, executions[uid]) for uid in declined))
    gone = declined
    if again or restart not in acknowledged:
        gone |= {restart} if restart else set()
    if not running:
        gone |= executions.keys() - acknowledged
    expected = {spec.uid: spec for spec in before.stages}
    gone |= {
        spec.uid
        for spec in stages
        if spec.uid not in executions or executions[spec.uid].token in rejected or expected.get(spec.uid) != spec
    }
    gone &= {spec.uid for spec in stages}
    out = _out(files, before, stages, gone, begun, missing, acknowledged)
    sound = {spec.uid: executions[spec.uid] for spec in stages if spec.uid not in out}
    hooks = before.hooks if before.hooks is not None and before.hooks.token not in rejected else None
    failed = declined | ({restart} if restart else frozenset())
    return CarryOver(sound, acknowledged & sound.keys(), hooks, declined, before, begun, failed)


def carried_by(
    files: JobFiles,
    documents: AttemptDocuments,
    head: Head,
    epoch: str,
    stages: tuple[StageSpec, ...],
    *,
    restart: str | None = None,
    running: bool = True,
    at_least_once: bool | None = None,
) -> CarryOver:
    """Choose the executions that the epoch's next attempt takes over from the one before, which has ended (F2).

    Args:
        files: the job's files.
        documents: reads the document of the attempt before.
        head: the version decided on.
        epoch: the epoch's name.
        stages: of the next attempt.
        at_least_once: whether its stages run at least once (semantics B2); None: as in the attempt before.
        restart: a stage to run again unless it has acknowledged.
        running: take over executions that have not acknowledged, too.
    """
    ended = next(head.ended_of_epoch(epoch), None)
    document = documents.lent_by(ended)
    if ended is None or document is None:
        return NOTHING
    carried = carry(files, document, stages, rejected=ended.rejected, restart=restart, running=running)
    if head.carryable(epoch) is None or at_least_once not in (None, document.limits.at_least_once):
        # The other mode would take all input of an acknowledgement for read.
        return carried.nothing()
    return carried


def _out(
    files: JobFiles,
    before: PendingDocument,
    stages: tuple[StageSpec, ...],
    gone: frozenset[str],
    begun: frozenset[str],
    missing: frozenset[str],
    acknowledged: frozenset[str],
) -> frozenset[str]:
    """Give the stages that are not taken over: those in `gone`, and the stages that these take along."""
    consumers = not before.limits.at_least_once
    # A stage that never began takes no other of its region along, except one that has read from it.
    renewed = affected(tuple(replace(spec, pipelined=()) for spec in stages), gone, consumers=consumers)
    failed = renewed & begun
    while True:
        out = affected(stages, failed, consumers=consumers) | renewed
        needed = {uid for spec in stages if spec.uid in out for uid in spec.upstream} - out
        missing |= damaged_inputs(files, before, needed & acknowledged - missing).keys()
        if not needed & missing:
            return frozenset(spec.uid for spec in stages) if before.limits.full_failover and out & begun else out
        failed |= needed & missing


def _unreadable(files: JobFiles, stage: str, execution: Execution) -> tuple[str, ...]:
    """Give the upstreams that a stage which declined could not read."""
    try:
        decline = acks.read_decline(files, stage, execution)
    except DocumentError:
        return ()  # its next try finds the unreadable input again
    return decline.unreadable if decline else ()


# Checks whether the upstream output that a stage reads is there and unaltered (semantics F1, R1). Only later attempts
# of an epoch check, so the healthy path costs no request more. A store that does not answer is an error, no damage.


def damaged_inputs(files: JobFiles, document: PendingDocument, stages: Collection[str]) -> dict[str, str]:
    """Give the stages whose acknowledged output is gone or altered, each with its problem."""
    found = {uid: _input_problem(files, uid, document.executions[uid]) for uid in sorted(stages)}
    return {uid: problem for uid, problem in found.items() if problem is not None}


def _input_problem(files: JobFiles, stage: str, execution: Execution) -> str | None:
    """Describe the damage of an execution's acknowledged output; None if all of it is whole."""
    try:
        ack = acks.read_ack(files, stage, execution)
        handles = [handle for subtask in acks.subtasks_of(files, ack) for handle in subtask.handles]
        for listed in [handle for handle in handles if metadata_file.is_list(handle)]:
            handles.extend(metadata_file.read_table(files, listed).handles)
    except GoneError as error:
        return f"its acknowledgement, or the list of a table that grows, is gone: {error}"
    except DocumentError as error:
        return str(error)
    return next((f"{handle.path}: {problem}" for handle, problem in FileCheck(files).damaged(handles)), None)


# A try that comes after its stage has acknowledged (semantics F5) submits nothing, and Airflow shows it as the stage's
# task from then on. A failover clears the task that the handover names. So before the try succeeds, it writes its name
# and number there, in one swap. Airflow counts tries on over retries and clears, so the numbers order all tries.
#
# Races. Two later tries: one swap wins, the other try looks again. A zombie of an earlier try: its number is lower, so
# it writes nothing. A failover that has read the older name: if its swap of the head comes before the try's last look
# at the head, the try claims the new execution. If it comes after, the task succeeds and nobody claims the new
# execution: clearing looks for exactly this (`tasks/clearing.py`). The failed stage itself may be the one, if its next
# try came before the report of the first (`another_try_holds`). A crash before the swap leaves the older name and a
# task that Airflow tries again; a crash after it leaves the right name.


def was_cleared_since(handover: Handover | DocumentError, first_try: int) -> bool:
    """Tell whether a person has cleared a stage's task since the try that holds its acknowledged execution.

    Then the first try after the clear has a higher number than that try. Cairn itself clears only after it has replaced
    the execution, so a try after its clear never gets here.

    Args:
        handover: of the acknowledged execution, or the error if it cannot be read.
        first_try: number of the first try after the task's newest clear; 1 or less: never cleared.
    """
    holder = handover.try_number if isinstance(handover, Handover) else 0
    return first_try > 1 and holder < first_try


def record_try(files: JobFiles, handover: Handover | DocumentError, claimant: str, try_number: int) -> bool:
    """Write the try that found its stage acknowledged into the handover.

    Args:
        files: the job's files.
        handover: of the acknowledged execution, as it was read.
        claimant: the asking try.
        try_number: its try number; 0: unknown.

    Returns:
        True if the handover names this try or a later one; False if the caller has to read the handover again.

    Raises:
        ConflictError: the store refused again and again to say who was first; nothing landed.
    """
    if not isinstance(handover, Handover) or handover.claimant == claimant or handover.try_number > try_number:
        return True
    return pass_on_handover(files, handover, claimant, try_number)


def another_try_holds(files: JobFiles, stage: str, execution: Execution, claimant: str) -> bool:
    """Tell whether a try other than `claimant` holds an execution by now."""
    standing = readable_handover(files, stage, execution.home, execution.token)
    return standing is not None and standing.claimant != claimant


# Replaced executions of a stage, which may still run (semantics V2, F3): a Spark Connect server goes on with a client's
# operations even if the client and its task are dead. So a stage's next execution has to know the executions before
# it. Their tokens follow from those of their attempts, which the head has: no cleaner can have deleted them.


MAX_REPLACED = 8
"""Replaced executions that the next one is told of. One is not enough: it may have ended before it could interrupt the
execution before it."""


def replaced_executions(head: Head, stage: str, token: str) -> tuple[str, ...]:
    """Give the tokens of a stage's replaced executions, the newest first; at most `MAX_REPLACED`.

    Executions that acknowledged in a completed checkpoint have ended by themselves and are left out.

    Args:
        head: as it is after the stage's current execution was claimed.
        stage: the stage's uid.
        token: of the current execution, which may have begun in an attempt that has ended (F2).
    """
    pending = {each.token for each in head.pending}
    ended = (
        each.token
        for each in reversed(head.history)
        if (each.status is not Status.COMPLETED or stage in each.left_out) and each.token not in pending
    )
    found = (execution_token(attempt, stage) for attempt in ended)
    return tuple(each for each in found if each != token)[:MAX_REPLACED]


# Stages that have to run again although their own tasks have not failed (semantics F1, F2). The swap that opens the
# next attempt replaces their executions; their tasks are cleared later. So the pending document names the tasks: after
# a crash between the two, the next process reads there which tasks to clear. A task that has claimed its new execution
# runs again, and is left out from then on.


def restarted_by(carried: CarryOver, executions: Mapping[str, Execution]) -> frozenset[str]:
    """Give the stages that had begun in the attempt before and run again in the next (semantics F1)."""
    before = carried.before
    if before is None:
        return frozenset()
    return frozenset(uid for uid in carried.begun if uid in executions and executions[uid] != before.executions[uid])


def restart_claimants(files: JobFiles, carried: CarryOver, executions: Mapping[str, Execution]) -> dict[str, str]:
    """Give the stages that have to run again in the next attempt, each with the task that held it last.

    The task is empty for a stage that has failed by itself, since Airflow or a person tries that again; and for a stage
    whose handover is gone or broken.
    """
    if carried.before is None:
        return {}
    still = {
        uid: who for uid, who in carried.before.restarted.items() if uid in executions and uid not in carried.begun
    }
    again = restarted_by(carried, executions)
    found = still | dict.fromkeys(carried.failed & (still.keys() | again), "")
    for uid in sorted(again - carried.failed):
        execution = carried.before.executions[uid]
        handover = readable_handover(files, uid, execution.home, execution.token)
        found[uid] = handover.claimant if handover is not None else ""
    return found


def restarted_in(document: PendingDocument) -> tuple[Restarted, ...]:
    """Give the stages whose tasks had to run again when an attempt was opened."""
    return tuple(Restarted(uid, claimant) for uid, claimant in sorted(document.restarted.items()) if claimant)


def restarts_waiting(files: JobFiles, document: PendingDocument, *, failed: bool = False) -> tuple[Restarted, ...]:
    """Give the stages whose tasks have to run again and have not begun since.

    Costs one listing for each checkpoint that is an execution's home; nothing where no stage has to run again.

    Args:
        files: the job's files.
        document: of the pending attempt.
        failed: include stages without a task. Mostly Airflow tries such a stage again; but that try may have ended
            before the failover, because it found an acknowledgement that had just landed, and succeeded.
    """
    due = restarted_in(document)
    if failed:
        due += tuple(Restarted(uid, "") for uid, claimant in sorted(document.restarted.items()) if not claimant)
    begun = acks.marked(files, {each.stage: document.executions[each.stage] for each in due}, "handover")
    return tuple(each for each in due if each.stage not in begun)


def begun_since(files: JobFiles, before: PendingDocument, document: PendingDocument) -> tuple[Restarted, ...]:
    """Give the stages that began in an attempt while its successor was being opened, and are replaced in it (F5).

    Such a stage may have acknowledged, and its task have succeeded, before the swap replaced its execution; the new
    attempt's document does not name it. So ask after the swap. If the process dies before it asks,
    `wait_for_checkpoint` clears the stage (`tasks/stage_states.py`).
    """
    replaced = {
        uid: execution
        for uid, execution in before.executions.items()
        if uid not in document.restarted and document.executions.get(uid, execution) != execution
    }
    found = []
    for uid in sorted(acks.marked(files, replaced, "handover")):
        handover = readable_handover(files, uid, replaced[uid].home, replaced[uid].token)
        found.append(Restarted(uid, handover.claimant if handover is not None else ""))
    return tuple(found)


def was_missed(files: JobFiles, document: PendingDocument, handover: Handover) -> bool:
    """Tell whether an attempt has replaced an execution without having seen its claim, so no process clears its task.

    The claim came after the look by which the attempt was opened, and the try that made it has to begin anew. False if
    the document names the try, because its task is cleared then; if the stage itself had failed, because Airflow tries
    it again; or if another try has claimed the new execution (semantics F5).

    Args:
        files: the job's files.
        document: of the epoch's pending attempt.
        handover: of the execution, as the try knows it.
    """
    stage = handover.stage
    execution = document.execution(stage)
    if execution is None or execution == handover.execution or document.restarted.get(stage) in ("", handover.claimant):
        return False
    return readable_handover(files, stage, execution.home, execution.token) is None


def unclaimed(files: JobFiles, document: PendingDocument) -> frozenset[str]:
    """Give the stages whose execution no try has claimed; one listing for each checkpoint that began one of them."""
    return frozenset(document.executions) - acks.marked(files, document.executions, "handover")


def readable_handover(files: JobFiles, stage: str, home: int, token: str) -> Handover | None:
    """Read the handover of an execution; None where it is gone or broken."""
    try:
        return files.read(Handover, layout.handover(home, stage, token))[0]
    except (GoneError, DocumentError):
        return None


def pass_on_handover(
    files: JobFiles, handover: Handover, claimant: str, try_number: int, *, adopted: bool = False
) -> bool:
    """Name another claimant in a handover, unless it has changed since it was read; False where it has, or may have.

    Args:
        files: the job's files.
        handover: as it was read.
        claimant: the try that holds the execution from now on.
        try_number: its try number; 0: unknown.
        adopted: whether it watches a driver that another try has submitted.

    Raises:
        ConflictError: the store refused again and again to say who was first; nothing landed.
    """
    key = layout.handover(handover.checkpoint, handover.stage, handover.token)
    named = replace(handover, claimant=claimant, try_number=try_number, adopted=adopted or handover.adopted)
    with suppress(GoneError, DocumentError, OutcomeUnknownError):
        standing, blob = files.read(Handover, key)
        if standing == handover:
            return not isinstance(files.replace(key, named, expected_etag=blob.etag), ConditionFailed)
    return False
