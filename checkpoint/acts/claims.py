"""Claims the right to submit a stage's application (semantics F2, F5, W4).

The claim is the create-once handover of the stage's current execution. The driver asks whether that still counts when
its block begins, so a try that has made the handover does not ask. If the program has no block, or the handover was
there before, the try reads the head again.

If another try holds the handover and has not acknowledged, that try is dead or a zombie, and the stage fails over,
whether or not a callback ran before. The exception is a driver that lives on a cluster: the new try takes it over
(`Drivers`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Protocol

from ...storage.errors import DocumentError, GoneError
from ...storage.port import ConditionFailed
from ...storage.records import dataclass
from ..answers import (
    AbandonedRegion,
    BeginAnswer,
    Cancelled,
    Failed,
    Reconnect,
    Restarted,
    StageAcknowledged,
    Submit,
    UpstreamsNotReady,
)
from ..documents import layout
from ..documents.attempt import Execution, Handover, PendingDocument, run_of_slice
from ..documents.head import Head
from ..documents.programs import Program
from ..errors import CheckpointFailedError, CheckpointNotReadyError, FencedError, RetryLaterError
from ..masking import one_line
from ..rules import transitions
from ..rules.admission import StateOf, always_running
from ..rules.failures import members_of
from ..store import acks, attempt_documents
from ..store.attempt_documents import execution_of
from ..store.job_files import JobFiles
from . import acknowledgements, carry_over
from .failover import Failover, FailureReport, was_given_up
from .resume import Resumption
from .use_case import UseCase

MAX_TRIES = 32
"""Attempts that may replace each other during one `begin`, before it raises."""


CLEARED = "its task was cleared after the stage had acknowledged, so it runs again"
"""Detail of an attempt that ended because a person has run a stage again."""
CLEARED_WHILE_IT_RAN = "its task was cleared while its driver ran, so it runs again"
"""Cause of the failover of a cleared stage that had not acknowledged."""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A request of one try of a stage for the right to submit."""

    epoch: str
    stage: str
    claimant: str
    """Name of the try that would submit; unique per try."""
    cleared_by_user: bool = False
    """A user has cleared the task for this try, so it is not a retry. Only such a try may go on after a final failure,
    and only after one that was final when the try began. Otherwise the answer is `Failed` and no attempt is opened
    (semantics F4)."""
    rescheduled: bool = False
    """This try has asked before and was told to wait for stages that run again (`UpstreamsNotReady`). An attempt was
    pending at that time, so any final failure has happened since."""
    drivers: Drivers | None = None
    """Finds out what became of a driver that can outlive its task. While the driver lives the answer is `Reconnect`,
    and the attempt goes on. None: drivers end with their tasks."""
    try_number: int = 0
    """Airflow's try number of the claimant, which counts on over retries and clears; 0: unknown."""
    first_try: int = 0
    """Number of the first try after the task's newest clear; 0 or 1: never cleared."""
    state_of: StateOf = always_running
    """Gives the state of a DAG run whose place in the queue is before this one's."""
    timeout_ms: int | None = None
    """Timeout of an attempt that this try opens, as the DAG file has it now; None: as in the attempt before."""
    program: Program | None = None
    """Outputs of a program that knows nothing of Cairn, as the DAG declares them now; None: the driver acknowledges."""
    after_success: bool = False
    """The tasks of all stages before this one have succeeded, by Airflow's trigger rules: no decline is looked for."""
    triggers: bool = False
    """The stage's task triggers if the epoch has no attempt, so that answer needs no second look at the head."""


@dataclass(frozen=True, slots=True)
class _Current:
    """The stage's execution in the epoch's pending attempt."""

    document: PendingDocument
    execution: Execution


class Claims(UseCase):
    """Hands out the right to submit."""

    @cached_property
    def _failover(self) -> Failover:
        return Failover(self._job)

    @cached_property
    def _resumption(self) -> Resumption:
        return Resumption(self._job)

    def begin(self, request: ClaimRequest) -> BeginAnswer:
        """Claim the right to submit a stage's application; settle what an earlier try left (semantics F5).

        If an upstream stage has declined, nothing is claimed and this stage declines too (B4), unless stages run at
        least once and wait for no upstream (B2). In a later attempt of the epoch the upstreams are checked first: the
        stage waits for those that run again, and output that is gone or altered causes a failover (F1).

        A stage that has acknowledged has nothing to submit, unless a person has cleared its task since. Then it runs
        again in the next attempt, with its region and its downstream stages (F5).

        Args:
            request: the try, and its stage. Asking again gives the same answer while the execution lives.

        Raises:
            InvalidConfigError: no checkpoint was triggered for the epoch, or it does not expect the stage.
            CheckpointNotReadyError: the master hooks have not answered, so the trigger has not finished (T7).
            CheckpointFailedError: the stage was given up, and the checkpoint goes on without its region (F6).
            FencedError: another try took over while this one was claiming.
            RetryLaterError: other tries took over again and again.
        """
        claimed, cleared_by_user = False, request.cleared_by_user and not request.rescheduled
        for _ in range(MAX_TRIES):
            current = self._look(request.epoch, request.stage)
            if current is None:
                if request.triggers:
                    self._resumption.check_known(request.epoch)
                answer: BeginAnswer | None = self._resumption.resume_for(
                    request.epoch,
                    request.stage,
                    cleared_by_user=cleared_by_user,
                    state_of=request.state_of,
                    timeout_ms=request.timeout_ms,
                )
                if answer is not None:
                    return answer
                continue
            # The person who asked for this try has not seen a final failure that happens from here on (semantics F4).
            cleared_by_user = False
            unready = self._unready(request, current)
            if isinstance(unready, LostInputs):
                answer = self._fail_over(request, current, unready.why, missing=unready.missing)
            elif unready is not None:
                return unready
            else:
                handover, made = self._claim(request, current)
                # No driver can have acknowledged an execution before its handover was written.
                if handover is None:
                    answer = None
                elif not made and acks.has_acknowledged(self._files, request.stage, current.execution):
                    answer = self._acknowledged(request, current, handover)
                elif isinstance(handover, Handover) and handover.claimant == request.claimant:
                    claimed, answer = True, self._submit(request, current, handover, made=made)
                elif claimed:
                    raise self._fenced(request, current, handover)
                else:
                    answer = self._take_over(request, current, handover)
            if answer is not None:
                return answer
        raise RetryLaterError(
            "other tries of the stage kept taking over; nothing was submitted, try again",
            code="too_much_contention",
            job=self._files.job,
            epoch=layout.run_id_of(request.epoch),
            stage=request.stage,
            tries=MAX_TRIES,
        )

    def _unready(self, request: ClaimRequest, current: _Current) -> Cancelled | UpstreamsNotReady | LostInputs | None:
        """Say why the stage may not begin; None if it may."""
        cancelled = None
        if not request.after_success:
            cancelled = acknowledgements.pass_on(self._files, current.document, request.stage)
        if cancelled is not None:
            return cancelled
        self._check_hooks(current.document, request.stage)
        return check_upstreams(self._files, current.document, request.stage)

    def _acknowledged(
        self, request: ClaimRequest, current: _Current, handover: Handover | DocumentError
    ) -> BeginAnswer | None:
        """Answer a try whose stage has acknowledged; None where it has to look again."""
        if carry_over.was_cleared_since(handover, request.first_try):
            return self._fail_over(request, current, CLEARED, again=True)
        recorded = carry_over.record_try(self._files, handover, request.claimant, request.try_number)
        if recorded and self._still_current(request, current):
            return StageAcknowledged(current.document.checkpoint, self._others(request, current))
        return None

    def _submit(
        self, request: ClaimRequest, current: _Current, handover: Handover, *, made: bool
    ) -> Submit | Reconnect | None:
        """Answer a try that holds the execution; None where that no longer counts and the try has to look again."""
        driver_looks = made and request.program is None
        if not driver_looks and not self._still_current(request, current):
            return None
        others = self._others(request, current)
        if handover.adopted:
            return Reconnect(handover, others)
        return Submit(handover, layout.handover(handover.checkpoint, request.stage, handover.token), others)

    def _take_over(self, request: ClaimRequest, current: _Current, handover: Handover | DocumentError) -> Failed | None:
        """Take over the driver of another try, or fail it over; None where the try has to look again."""
        if isinstance(handover, DocumentError):
            gone: str | None = f"no application can start from its handover: {handover}"
        elif handover.program is not None and (
            declined := acks.why_declined(self._files, request.stage, current.execution)
        ):
            gone = declined[1]  # its driver has ended well, so only the operator's check knows of the failure
        elif carry_over.was_cleared_since(handover, request.first_try):
            return self._fail_over(request, current, CLEARED_WHILE_IT_RAN, again=True)
        elif request.drivers is None or not handover.durable:
            gone = "the try before ended without acknowledging"
        else:
            gone = request.drivers.driver_loss_reason(handover)
            if gone is None:
                carry_over.pass_on_handover(self._files, handover, request.claimant, request.try_number, adopted=True)
        return None if gone is None else self._fail_over(request, current, gone)

    def _fenced(self, request: ClaimRequest, current: _Current, handover: Handover | DocumentError) -> FencedError:
        return FencedError(
            "another try of the stage has taken over while this one was starting; this one submits nothing",
            job=self._files.job,
            epoch=run_of_slice(request.epoch, current.document.slice),
            stage=request.stage,
            claimant=request.claimant,
            holder=handover.claimant if isinstance(handover, Handover) else "unknown",
        )

    def unclaimed(self, epoch: str) -> frozenset[str]:
        """Give the stages of the epoch's pending attempt whose execution no try has claimed (semantics F5).

        Empty where no attempt of the epoch is pending, or where its document cannot be read.

        Raises:
            UnavailableError: the store did not answer.
        """

        def look(head: Head, _now_ms: int) -> frozenset[str]:
            document = self._documents.readable(head.pending_of_epoch(epoch))
            return carry_over.unclaimed(self._files, document) if document is not None else frozenset()

        return self._heads.observe(look)

    def stand_in(self, epoch: str, stage: str, claimant: str) -> Handover | None:
        """Give the handover of a stage that will not run to the task that acknowledges in its place.

        The execution is claimed, so that a later try of the stage finds the acknowledgement. If a try holds the
        execution already, nothing fails over: the first acknowledgement counts (semantics A2).

        Returns:
            None where no attempt is pending, where the stage has acknowledged, and where stages may be left out, as
            this one then is (semantics B3, F6).

        Raises:
            InvalidConfigError: the pending checkpoint does not expect the stage.
        """
        current = self._look(epoch, stage)
        if current is None or current.document.limits.leave_out is not None:
            return None
        if acks.has_acknowledged(self._files, stage, current.execution):
            return None
        self._claim(ClaimRequest(epoch, stage, claimant), current)
        return handover_of(current.document, stage, claimant)

    def _fail_over(
        self,
        request: ClaimRequest,
        current: _Current,
        why: str,
        *,
        missing: frozenset[str] = frozenset(),
        again: bool = False,
    ) -> Failed | None:
        """Fail over because of an earlier try or of lost input; None where the stage may be tried again."""
        stage = request.stage
        anew = request.cleared_by_user and not again and was_given_up(self._files, stage, current.execution)
        report = FailureReport(request.epoch, stage, why, missing=missing, anew=anew, again=again)
        answer = self._failover.fail_over(report, current.execution.token)
        if isinstance(answer, AbandonedRegion):
            raise CheckpointFailedError(
                "nothing was submitted: the stage was given up, and the checkpoint goes on without it. Its input is "
                "kept for the next epoch; to have it in this one, clear the stage now",
                job=self._files.job,
                epoch=run_of_slice(request.epoch, current.document.slice),
                checkpoint=answer.checkpoint,
                stage=stage,
                without=", ".join(answer.stages),
            )
        return answer if isinstance(answer, Failed) and answer.job_failed else None

    def _look(self, epoch: str, stage: str) -> _Current | None:
        def look(head: Head, now_ms: int) -> _Current | None:
            entry = head.pending_of_epoch(epoch)
            if entry is None or now_ms >= entry.expires_at_ms or transitions.why_overtaken(head, entry) is not None:
                return None
            document = self._documents.of(entry)
            return _Current(document, execution_of(document, stage))

        # Right on any version: after the claim the driver looks, or `_still_current`.
        return self._heads.observe(look, own=True)

    def _others(self, request: ClaimRequest, current: _Current) -> tuple[Restarted, ...]:
        """Give the other stages that have to run again and have not begun; costs a request only after a failover."""
        if not current.document.restarted:
            return ()
        waiting = carry_over.restarts_waiting(self._files, current.document)
        return tuple(each for each in waiting if each.stage != request.stage)

    def _check_hooks(self, document: PendingDocument, stage: str) -> None:
        missing = attempt_documents.hooks_missing(self._files, document.hooks)
        if missing:
            raise CheckpointNotReadyError(
                "the master hooks have not answered, and the stage may need what they fix: run (or clear) the task "
                "that triggers the checkpoint, then this one",
                job=document.job,
                checkpoint=document.checkpoint,
                stage=stage,
                hooks=", ".join(missing),
            )

    def _claim(self, request: ClaimRequest, current: _Current) -> tuple[Handover | DocumentError | None, bool]:
        """Create the handover, or read the existing one.

        Returns:
            The handover, and whether this call created it. None if a cleaner deleted it in between; the error if it is
            broken, because then no task holds it and no application can start from it.
        """
        durable = request.drivers is not None and request.drivers.outlive()
        handover = replace(
            handover_of(
                current.document, request.stage, request.claimant, durable=durable, try_number=request.try_number
            ),
            program=request.program,
        )
        key = layout.handover(current.execution.home, request.stage, current.execution.token)
        if not isinstance(self._files.create(key, handover), ConditionFailed):
            return handover, True
        try:
            return self._files.read(Handover, key)[0], False
        except GoneError:
            return None, False
        except DocumentError as error:
            return error, False

    def _still_current(self, request: ClaimRequest, current: _Current) -> bool:
        """Tell by the head, after the claim was made, whether it counts (W4); one read where nothing has changed."""

        def look(head: Head, _now_ms: int) -> bool:
            entry = head.pending_of_epoch(request.epoch)
            if entry is None or transitions.why_overtaken(head, entry) is not None:
                return False
            if entry.token == current.document.token:
                return True
            document = self._documents.of(entry)
            return document.execution(request.stage) == current.execution

        return self._heads.observe(look)


# A later try of a stage takes over the driver that an earlier try left running (semantics F5, A2).
#
# The handover names the try that holds the execution; one conditional swap passes it on (`pass_on_handover`). The
# claimant's name marks the swap, so a lost answer is settled by reading again. Nothing else changes: the execution
# keeps its token, its driver's files and acknowledgement count as before, and the try that took over never submits.
#
# Before the swap the earlier try holds the execution: a late report of its failure fails the execution over, and the
# later try sees that. After the swap the same report finds another claimant and changes nothing. If two tries take over
# at once, one wins and the other asks again.


class Drivers(Protocol):
    """Finds drivers that may outlive the task that submitted them."""

    def outlive(self) -> bool:
        """Tell whether a driver that is submitted now may live on without its task, and can be found again."""
        ...

    def driver_loss_reason(self, handover: Handover) -> str | None:
        """Say why the driver of an execution cannot be waited for; None while it lives.

        Raises:
            CairnError: the cluster could not be asked, so nothing is decided.
        """
        ...


def handover_of(
    document: PendingDocument, stage: str, claimant: str, *, durable: bool = False, try_number: int = 0
) -> Handover:
    """Make the handover of a stage's current execution.

    Args:
        document: of the pending attempt.
        stage: the stage's uid.
        claimant: the try that would submit.
        durable: whether the driver may outlive the task that submits it.
        try_number: the claimant's try number; 0: unknown.
    """
    execution, spec = execution_of(document, stage), document.stage(stage)
    return Handover(
        job=document.job,
        checkpoint=execution.home,
        epoch=document.epoch,
        attempt=execution.attempt,
        stage=stage,
        token=execution.token,
        claimant=claimant,
        # The application does not need the positions, which may be large.
        slice=replace(document.slice, positions=None),
        restore=document.restore,
        replay=document.replay,
        upstream={uid: execution_of(document, uid) for uid in (spec.upstream if spec else ())},
        parallelism=spec.parallelism if spec else None,
        hooks=document.hooks,
        backlog=document.backlogs.get(stage, ()),
        at_least_once=document.limits.at_least_once,
        members=members_of(document.members, spec.upstream) if spec and spec.upstream else {},
        durable=durable,
        draining=document.draining,
        max_parallelism=document.max_parallelism.get(stage),
        try_number=try_number,
    )


# Check of a stage's input before it begins in a later attempt of its epoch (semantics B1, F1).
#
# In an epoch's first attempt Airflow's task order suffices, so the healthy path costs no request more. Later, an
# upstream may have to run again, or its output may be gone.


@dataclass(frozen=True, slots=True)
class LostInputs:
    """Input of a stage is gone or altered."""

    missing: frozenset[str]
    """Upstream stages that wrote it."""
    why: str
    """The problem of the first of these stages, for people."""


def check_upstreams(files: JobFiles, document: PendingDocument, stage: str) -> UpstreamsNotReady | LostInputs | None:
    """Say why a stage may not begin; None if it may.

    Needs no request in an epoch's first attempt, nor for stages that run at least once (B2). A stage that has
    acknowledged is not checked.
    """
    if document.attempt == 1 or document.limits.at_least_once:
        return None
    spec = document.stage(stage)
    if spec is None or not spec.upstream:
        return None
    near = {uid: execution_of(document, uid) for uid in (stage, *spec.upstream)}
    acknowledged = acks.marked(files, near, "acks")
    if stage in acknowledged:
        return None
    late = {uid for uid in spec.upstream if uid not in acknowledged}
    if late:
        due = carry_over.restarts_waiting(files, document, failed=True)
        restarted = tuple(each for each in due if each.claimant or each.stage in late)
        return UpstreamsNotReady(document.checkpoint, document.attempt, tuple(sorted(late)), restarted)
    wrong = carry_over.damaged_inputs(files, document, spec.upstream)
    if not wrong:
        return None
    first = min(wrong)
    return LostInputs(frozenset(wrong), one_line(f"what {first} wrote cannot be read: {wrong[first]}"))
