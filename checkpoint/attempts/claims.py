"""Who may submit a stage's application (semantics F2, F5, W4).

The claim is the create-once handover of the stage's current execution, judged by the head after it was made. Where
another try holds it and has not acknowledged, that try is dead or a zombie: this is a failover, whether or not a
callback ran before. Unless its driver runs on a cluster and lives: then the new try takes it over (`driver_takeover`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...storage.errors import DocumentError, GoneError
from ...storage.port import ConditionFailed
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
from ..decisions import overtaken
from ..decisions.abandoned import StateOf, always_running
from ..documents import layout
from ..documents.attempt import Execution, Handover, PendingDocument
from ..documents.head import Head
from ..documents.run_window import run_of_slice
from ..errors import CheckpointFailedError, CheckpointNotReadyError, FencedError, TooMuchContentionError
from ..executions import driver_takeover, handovers, latest_tries, readiness, restarted_stages, stored_handover
from ..open_job import OpenJob, UseCase
from ..store import acks, hook_documents
from ..store.attempt_documents import execution_of
from . import cancellation, give_up
from .failover import Failover, FailureReport
from .resume import Resumption

MAX_TRIES = 32
"""Attempts that may replace each other under one `begin` before it gives up."""


CLEARED = "its task was cleared after the stage had acknowledged, so it runs again"
"""Why an attempt ends whose stage a person has run again."""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A try of a stage that asks for the right to submit."""

    epoch: str
    stage: str
    claimant: str
    """Who would submit, one per try."""
    cleared_by_user: bool = False
    """A user has cleared the task for this try; it is no retry. Only such a try follows a final failure, and only
    one that was final when it began: otherwise the answer is `Failed`, and nothing is opened (semantics F4)."""
    rescheduled: bool = False
    """This try has asked before, and was sent to wait for stages that run again (`UpstreamsNotReady`). An attempt was
    pending then, so what has finally failed by now has failed since."""
    drivers: driver_takeover.Drivers | None = None
    """Tells what became of a driver that can outlive who submitted it. While it lives the answer is `Reconnect`: the
    same attempt goes on. None: no driver does."""
    try_number: int = 0
    """Which try of its task the claimant is, counted on over retries and clears; 0: not known."""
    first_try: int = 0
    """Number of the first try after the task's newest clear; 0 or 1: it was never cleared."""
    state_of: StateOf = always_running
    """Tells what is known of a DAG run that holds a place before this one."""


@dataclass(frozen=True, slots=True)
class _Current:
    """The stage's execution in the epoch's pending attempt."""

    document: PendingDocument
    execution: Execution


class Claims(UseCase):
    """Hands out the right to submit."""

    def __init__(self, job: OpenJob, failover: Failover, resumption: Resumption) -> None:
        super().__init__(job)
        self._failover = failover
        self._resumption = resumption

    def begin(self, request: ClaimRequest) -> BeginAnswer:
        """Claim the right to submit a stage's application; settle what an earlier try left (semantics F5).

        Where a stage that this one reads from has declined, nothing is claimed and the stage declines too (B4), unless
        it reads what is there and waits for no stage (B2). Where the epoch is tried again, what the stage is to read is
        looked at: one that runs again is waited for, and output that is gone or altered is a failover (F1).

        A stage that has acknowledged has nothing to submit, unless a person has cleared its task since: then it runs
        again in the next attempt, with its region and what reads from it (F5).

        Args:
            request: who asks, and for which stage; asking again gives the same answer while its execution lives.

        Raises:
            InvalidConfigError: no checkpoint was triggered for the epoch, or it does not expect the stage.
            CheckpointNotReadyError: the master hooks have not answered, so the trigger has not come to its end (T7).
            CheckpointFailedError: the stage was given up, and the checkpoint goes on without its region (F6).
            FencedError: another try took over while this one was claiming.
            TooMuchContentionError: others kept winning.
        """
        claimed, cleared_by_user = False, request.cleared_by_user and not request.rescheduled
        for _ in range(MAX_TRIES):
            current = self._look(request.epoch, request.stage)
            if current is None:
                answer: BeginAnswer | None = self._resumption.resume_for(
                    request.epoch, request.stage, cleared_by_user=cleared_by_user, state_of=request.state_of
                )
                if answer is not None:
                    return answer
                continue
            # What finally fails from here on, the person who asked for this try has not seen (semantics F4).
            cleared_by_user = False
            unready = self._unready(request, current)
            if isinstance(unready, readiness.LostInputs):
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
                    claimed, answer = True, self._submit(request, current, handover)
                elif claimed:
                    raise self._fenced(request, current, handover)
                else:
                    answer = self._take_over(request, current, handover)
            if answer is not None:
                return answer
        raise TooMuchContentionError(
            "other tries of the stage kept taking over; nothing was submitted, try again",
            job=self._files.job,
            epoch=layout.run_id_of(request.epoch),
            stage=request.stage,
            tries=MAX_TRIES,
        )

    def _unready(
        self, request: ClaimRequest, current: _Current
    ) -> Cancelled | UpstreamsNotReady | readiness.LostInputs | None:
        """Say why the stage may not begin; None if it may."""
        cancelled = cancellation.pass_on(self._files, current.document, request.stage)
        if cancelled is not None:
            return cancelled
        self._check_hooks(current.document, request.stage)
        return readiness.look(self._files, current.document, request.stage)

    def _acknowledged(
        self, request: ClaimRequest, current: _Current, handover: Handover | DocumentError
    ) -> BeginAnswer | None:
        """Answer a try whose stage has acknowledged; None where it is to look again."""
        if latest_tries.was_cleared_since(handover, request.first_try):
            return self._fail_over(request, current, CLEARED, again=True)
        recorded = latest_tries.record(self._files, handover, request.claimant, request.try_number)
        if recorded and self._still_current(request, current):
            return StageAcknowledged(current.document.checkpoint, self._others(request, current))
        return None

    def _submit(self, request: ClaimRequest, current: _Current, handover: Handover) -> Submit | Reconnect | None:
        """Answer a try that holds the execution, if that still counts; None where it is to look again."""
        if not self._still_current(request, current):
            return None
        others = self._others(request, current)
        if handover.adopted:
            return Reconnect(handover, others)
        return Submit(handover, layout.handover(handover.checkpoint, request.stage, handover.token), others)

    def _take_over(self, request: ClaimRequest, current: _Current, handover: Handover | DocumentError) -> Failed | None:
        """Settle what another try left: take its driver over, or fail it over; None where the try is to look again."""
        if isinstance(handover, DocumentError):
            gone: str | None = f"no application can start from its handover: {handover}"
        elif request.drivers is None or not handover.durable:
            gone = "the try before ended without acknowledging"
        else:
            gone = request.drivers.why_gone(handover)
            if gone is None:
                stored_handover.pass_on(self._files, handover, request.claimant, request.try_number, adopted=True)
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

    def to_run_again(self, epoch: str) -> tuple[Restarted, ...]:
        """Give the stages whose tasks have to run again after a failover, and have not begun (semantics F1, F5).

        None where no attempt of the epoch is pending, or where its document cannot be read.

        Raises:
            UnavailableError: the store did not answer.
        """

        def look(head: Head, _now_ms: int) -> tuple[Restarted, ...]:
            document = self._documents.readable(head.pending_of_epoch(epoch))
            return restarted_stages.waiting(self._files, document, failed=True) if document is not None else ()

        return self._heads.observe(look)

    def stand_in(self, epoch: str, stage: str, claimant: str) -> Handover | None:
        """Give the handover of a stage that will not run, to the task that acknowledges in its place.

        It is claimed, so that a later try of the stage finds the acknowledgement. Never a failover: if a try holds it
        already, whose acknowledgement comes first stays (semantics A2).

        Returns:
            None where no attempt is pending, where stages may be left out (this one is then, semantics B3, F6), and
            where it has acknowledged.

        Raises:
            InvalidConfigError: the pending checkpoint does not expect the stage.
        """
        current = self._look(epoch, stage)
        if current is None or current.document.limits.leave_out is not None:
            return None
        if acks.has_acknowledged(self._files, stage, current.execution):
            return None
        self._claim(ClaimRequest(epoch, stage, claimant), current)
        return handovers.handover_of(current.document, stage, claimant)

    def _fail_over(
        self,
        request: ClaimRequest,
        current: _Current,
        why: str,
        *,
        missing: frozenset[str] = frozenset(),
        again: bool = False,
    ) -> Failed | None:
        """Settle what an earlier try left, or what it is to read has lost; None where the stage may be tried again.

        Raises:
            CheckpointFailedError: the checkpoint goes on without it.
        """
        stage = request.stage
        anew = request.cleared_by_user and not again and give_up.was_given_up(self._files, stage, current.execution)
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
            if entry is None or now_ms >= entry.expires_at_ms or overtaken.why(head, entry) is not None:
                return None
            document = self._documents.of(entry)
            return _Current(document, execution_of(document, stage))

        return self._heads.observe(look)

    def _others(self, request: ClaimRequest, current: _Current) -> tuple[Restarted, ...]:
        """Give the other stages that have to run again and have not begun; asks only where a failover named some."""
        if not current.document.restarted:
            return ()
        waiting = restarted_stages.waiting(self._files, current.document)
        return tuple(each for each in waiting if each.stage != request.stage)

    def _check_hooks(self, document: PendingDocument, stage: str) -> None:
        missing = hook_documents.missing(self._files, document.hooks)
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
        """Make the handover, or read the one that stands; None if a cleaner came between.

        A broken one comes back as what is wrong with it: no task holds it, no application can start from it.

        Returns:
            The handover, and whether this call made it.
        """
        durable = request.drivers is not None and request.drivers.outlive()
        handover = handovers.handover_of(
            current.document, request.stage, request.claimant, durable=durable, try_number=request.try_number
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
        """Judge the claim by the head, now that it stands (semantics W4); one read where nothing has changed."""

        def look(head: Head, _now_ms: int) -> bool:
            entry = head.pending_of_epoch(request.epoch)
            if entry is None or overtaken.why(head, entry) is not None:
                return False
            if entry.token == current.document.token:
                return True
            document = self._documents.of(entry)
            return document.executions.get(request.stage) == current.execution

        return self._heads.observe(look)
