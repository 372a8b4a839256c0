"""Who may submit a stage's application, and what a failed try means (semantics F2, F5, W4).

The claim is the create-once handover of the stage's current execution, judged by the head after it was made. Where
another try holds it and has not acknowledged, that try is dead or a zombie: this is a failover, whether or not a
callback ran before. Unless its driver runs on a cluster and lives: then the new try takes it over (`adopting`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...storage.errors import DocumentError, GoneError
from ...storage.port import Lost
from ..answers import (
    BeginAnswer,
    EpochCompleted,
    FailAnswer,
    Failed,
    FailedOver,
    GivenUp,
    NothingToDo,
    Reconnect,
    Restarted,
    StageAcknowledged,
    Submit,
    UpstreamsNotReady,
    failed,
)
from ..decisions import overtaken
from ..decisions.abandoned import StateOf, always_running
from ..documents import layout
from ..documents.attempt import Execution, Handover, PendingDocument
from ..documents.head import Head
from ..documents.run_window import run_of_slice
from ..errors import CheckpointFailedError, CheckpointNotReadyError, FencedError, TooMuchContentionError
from ..executions import claimants, driver_takeover, holders, readiness
from ..executions.handovers import handover_of
from ..store import acks, hook_documents
from ..store.head_store import HeadStore
from ..store.job_files import JobFiles
from . import cancellation, give_up
from .resume import TakingUp
from .trigger import Attempts

MAX_TRIES = 32
"""Attempts that may replace each other under one `begin` before it gives up."""


CLEARED = "its task was cleared after the stage had acknowledged, so it runs again"
"""Why an attempt ends whose stage a person has run again."""


@dataclass(frozen=True, slots=True)
class _Current:
    """The stage's execution in the epoch's pending attempt."""

    document: PendingDocument
    execution: Execution


class Claims:
    """Hands out the right to submit.

    Args:
        files: the job's files.
        heads: the job's head.
        attempts: opens the next attempt where a try has failed.
        taking_up: opens it where the one before ended without a successor.
    """

    def __init__(self, files: JobFiles, heads: HeadStore, attempts: Attempts, taking_up: TakingUp) -> None:
        self._files = files
        self._heads = heads
        self._attempts = attempts
        self._taking_up = taking_up

    def begin(
        self,
        epoch: str,
        stage: str,
        claimant: str,
        *,
        by_hand: bool = False,
        came_back: bool = False,
        drivers: driver_takeover.Drivers | None = None,
        try_number: int = 0,
        first_try: int = 0,
        state_of: StateOf = always_running,
    ) -> BeginAnswer:
        """Claim the right to submit a stage's application; settle what an earlier try left (semantics F5).

        Where a stage that this one reads from has declined, nothing is claimed and the stage declines too (B4), unless
        it reads what is there and waits for no stage (B2). Where the epoch is tried again, what the stage is to read is
        looked at: one that runs again is waited for, and output that is gone or altered is a failover (F1).

        A stage that has acknowledged has nothing to submit, unless a person has cleared its task since: then it runs
        again in the next attempt, with its region and what reads from it (F5).

        Args:
            epoch: the epoch's name.
            stage: the stage's uid.
            claimant: who would submit, one per try; asking again gives the same answer while its execution lives.
            by_hand: a person has asked for this try, and not a retry. Only that follows a final failure, and only
                one that stood when it began: otherwise the answer is `Failed`, and nothing is opened (semantics F4).
            came_back: this try has asked before, and was sent to wait for stages that run again (`UpstreamsNotReady`).
                An attempt was pending then, so what has finally failed by now has failed since.
            drivers: tells what became of a driver that can outlive who submitted it. While it lives the answer is
                `Reconnect`: the same attempt goes on. None: no driver does.
            try_number: which try of its task the claimant is, counted on over retries and clears; 0: not known.
            first_try: number of the first try after the task's newest clear; 0 or 1: it was never cleared.
            state_of: tells what is known of a DAG run that holds a place before this one.

        Raises:
            InvalidConfigError: no checkpoint was triggered for the epoch, or it does not expect the stage.
            CheckpointNotReadyError: the master hooks have not answered, so the trigger has not come to its end (T7).
            CheckpointFailedError: the stage was given up, and the checkpoint goes on without its region (F6).
            FencedError: another try took over while this one was claiming.
            TooMuchContentionError: others kept winning.
        """
        claimed, asked_for = False, by_hand
        by_hand = by_hand and not came_back
        for _ in range(MAX_TRIES):
            current = self._look(epoch, stage)
            if current is None:
                ended = self._taking_up.take_up(epoch, stage, by_hand=by_hand, state_of=state_of)
                if ended is not None:
                    return ended
                continue
            # What finally fails from here on, the person who asked for this try has not seen (semantics F4).
            by_hand = False
            cancelled = cancellation.pass_on(self._files, current.document, stage)
            if cancelled is not None:
                return cancelled
            self._check_hooks(current.document, stage)
            unready = readiness.look(self._files, current.document, stage)
            if isinstance(unready, UpstreamsNotReady):
                return unready
            if unready is not None:
                lost = self._fail_over(current, epoch, stage, unready.why, unready.missing, asked_for=asked_for)
                if lost is not None:
                    return lost
                continue
            durable = drivers is not None and drivers.outlive()
            handover, made = self._claim(current, stage, claimant, durable=durable, try_number=try_number)
            if handover is None:
                continue
            # No driver can have acknowledged an execution before its handover stood.
            if not made and acks.has_acknowledged(self._files, stage, current.execution):
                if holders.was_cleared_since(handover, first_try):
                    lost = self._fail_over(current, epoch, stage, CLEARED, asked_for=asked_for, again=True)
                    if lost is not None:
                        return lost
                elif holders.record(self._files, handover, claimant, try_number) and self._still_current(
                    current, epoch, stage
                ):
                    return StageAcknowledged(current.document.checkpoint, self._others(current, stage))
                continue
            if isinstance(handover, Handover) and handover.claimant == claimant:
                claimed = True
                if self._still_current(current, epoch, stage):
                    others = self._others(current, stage)
                    if handover.adopted:
                        return Reconnect(handover, others)
                    return Submit(handover, layout.handover(handover.checkpoint, stage, handover.token), others)
            elif claimed:
                raise FencedError(
                    "another try of the stage has taken over while this one was starting; this one submits nothing",
                    job=self._files.job,
                    epoch=run_of_slice(epoch, current.document.slice),
                    stage=stage,
                    claimant=claimant,
                    holder=handover.claimant if isinstance(handover, Handover) else "unknown",
                )
            else:
                why = self._take_over(handover, claimant, try_number, drivers)
                if why is None:
                    continue
                lost = self._fail_over(current, epoch, stage, why, asked_for=asked_for)
                if lost is not None:
                    return lost
        raise TooMuchContentionError(
            "other tries of the stage kept taking over; nothing was submitted, try again",
            job=self._files.job,
            epoch=layout.run_id_of(epoch),
            stage=stage,
            tries=MAX_TRIES,
        )

    def to_run_again(self, epoch: str) -> tuple[Restarted, ...]:
        """Give the stages whose tasks have to run again after a failover, and have not begun (semantics F1, F5).

        None where no attempt of the epoch is pending, or where its document cannot be read.

        Args:
            epoch: the epoch's name.

        Raises:
            UnavailableError: the store did not answer.
        """

        def look(head: Head, _now_ms: int) -> tuple[Restarted, ...]:
            document = self._attempts.readable(head.pending_of_epoch(epoch))
            return claimants.waiting(self._files, document, failed=True) if document is not None else ()

        return self._heads.observe(look)

    def stand_in(self, epoch: str, stage: str, claimant: str) -> Handover | None:
        """Give the handover of a stage that will not run, to the task that acknowledges in its place.

        It is claimed, so that a later try of the stage finds the acknowledgement. Never a failover: if a try holds it
        already, whose acknowledgement comes first stays (semantics A2).

        Args:
            epoch: the epoch's name.
            stage: the stage's uid.
            claimant: who acknowledges.

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
        self._claim(current, stage, claimant)
        return handover_of(current.document, stage, claimant)

    def fail(
        self,
        epoch: str,
        stage: str,
        claimant: str,
        detail: str,
        *,
        final: bool = False,
        curable: bool = True,
        unknown: bool = False,
    ) -> FailAnswer:
        """Report that a try of a stage failed (semantics F2, F5): idempotent, from any process, in any order.

        Args:
            epoch: the epoch's name.
            stage: the stage's uid.
            claimant: the try that failed, as it was given to `begin`.
            detail: the root cause in one line; a decline of the stage itself goes before it.
            final: no other try follows by itself. Where stages may be left out, the checkpoint goes on without the
                stage's region if that may fail (F6), and has failed if not.
            curable: False: another try would fail alike, so none is opened (semantics F4).
            unknown: it is not known what became of the application itself: who watched it was killed, or the cluster
                did not say any more. Where its driver may live on, that is left to the try that follows, if one does.

        Raises:
            InvalidConfigError: the pending checkpoint does not expect the stage.
            NoCheckpointError: a failover is due and every retained checkpoint is damaged.
        """

        def look(head: Head, _now_ms: int) -> Execution | NothingToDo | EpochCompleted | FailedOver | Failed:
            entry = head.pending_of_epoch(epoch)
            if entry is None:
                completed = self._attempts.completed_epoch(head, epoch)
                if completed is not None:
                    return EpochCompleted(epoch, completed)
                newest = next(head.ended_of_epoch(epoch), None)
                if newest is not None and newest.for_good:
                    return failed(newest)
                return NothingToDo("no attempt of the epoch is pending; the next try opens one")
            document = self._attempts.document_of(entry)
            execution = self._attempts.execution_of(document, stage)
            try:
                handover, _ = self._files.read(Handover, layout.handover(execution.home, stage, execution.token))
            except GoneError:
                return self._settled(document, "the current attempt has not submitted this stage")
            if handover.claimant != claimant:
                return self._settled(document, "another try holds the current attempt")
            if unknown and handover.durable and not final:
                return NothingToDo("its driver may have outlived it; the next try waits for that, or fails it over")
            return execution

        found = self._heads.observe(look)
        if not isinstance(found, Execution):
            return found
        answer = self._attempts.fail_over(epoch, stage, found.token, detail, final=final, curable=curable)
        if not isinstance(answer, FailedOver) or not answer.created:
            return answer
        if holders.has_passed(self._files, stage, found, claimant):
            # Its next try has found an acknowledgement that landed while this failover was on its way, and has ended.
            return replace(answer, restarted=(*answer.restarted, Restarted(stage, "")))
        return answer

    def _fail_over(
        self,
        current: _Current,
        epoch: str,
        stage: str,
        why: str,
        missing: frozenset[str] = frozenset(),
        *,
        asked_for: bool,
        again: bool = False,
    ) -> Failed | None:
        """Settle what an earlier try left, or what it is to read has lost; None where the stage may be tried again.

        Raises:
            CheckpointFailedError: the checkpoint goes on without it.
        """
        token = current.execution.token
        anew = asked_for and not again and give_up.was_given_up(self._files, stage, current.execution)
        answer = self._attempts.fail_over(epoch, stage, token, why, missing=missing, anew=anew, again=again)
        if isinstance(answer, GivenUp):
            raise CheckpointFailedError(
                "nothing was submitted: the stage was given up, and the checkpoint goes on without it. Its input is "
                "kept for the next epoch; to have it in this one, clear the stage now",
                job=self._files.job,
                epoch=run_of_slice(epoch, current.document.slice),
                checkpoint=answer.checkpoint,
                stage=stage,
                without=", ".join(answer.stages),
            )
        return answer if isinstance(answer, Failed) and answer.job_failed else None

    def _settled(self, document: PendingDocument, why: str) -> NothingToDo | FailedOver:
        """Say that a failure is settled already, and which tasks are still to be run again because of it (F5)."""
        restarted = claimants.waiting(self._files, document)
        if restarted:
            return FailedOver(document, created=False, restarted=restarted)
        return NothingToDo(f"{why}; the failure is settled already")

    def _look(self, epoch: str, stage: str) -> _Current | None:
        def look(head: Head, now_ms: int) -> _Current | None:
            entry = head.pending_of_epoch(epoch)
            if entry is None or now_ms >= entry.expires_at_ms or overtaken.why(head, entry) is not None:
                return None
            document = self._attempts.document_of(entry)
            return _Current(document, self._attempts.execution_of(document, stage))

        return self._heads.observe(look)

    def _others(self, current: _Current, stage: str) -> tuple[Restarted, ...]:
        """Give the other stages that have to run again and have not begun; asks only where a failover named some."""
        if not current.document.restarted:
            return ()
        return tuple(each for each in claimants.waiting(self._files, current.document) if each.stage != stage)

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

    def _claim(
        self, current: _Current, stage: str, claimant: str, *, durable: bool = False, try_number: int = 0
    ) -> tuple[Handover | DocumentError | None, bool]:
        """Make the handover, or read the one that stands; None if a cleaner came between.

        A broken one comes back as what is wrong with it: no task holds it, no application can start from it.

        Returns:
            The handover, and whether this call made it.
        """
        handover = handover_of(current.document, stage, claimant, durable=durable, try_number=try_number)
        key = layout.handover(current.execution.home, stage, current.execution.token)
        if not isinstance(self._files.create(key, handover), Lost):
            return handover, True
        try:
            return self._files.read(Handover, key)[0], False
        except GoneError:
            return None, False
        except DocumentError as error:
            return error, False

    def _take_over(
        self,
        handover: Handover | DocumentError,
        claimant: str,
        try_number: int,
        drivers: driver_takeover.Drivers | None,
    ) -> str | None:
        """Take over the driver that another try left running; give why that cannot be, None if it is to be looked at.

        Args:
            handover: by which the other try holds the execution.
            claimant: who asks.
            try_number: which try of its task that is; 0: not known.
            drivers: tells what became of the driver; None: nothing can.
        """
        if isinstance(handover, DocumentError):
            return f"no application can start from its handover: {handover}"
        if drivers is None or not handover.durable:
            return "the try before ended without acknowledging"
        gone = drivers.why_gone(handover)
        if gone is None:
            driver_takeover.take_over(self._files, handover, claimant, try_number)
        return gone

    def _still_current(self, current: _Current, epoch: str, stage: str) -> bool:
        """Judge the claim by the head, now that it stands (semantics W4); one read where nothing has changed."""

        def look(head: Head, _now_ms: int) -> bool:
            entry = head.pending_of_epoch(epoch)
            if entry is None or overtaken.why(head, entry) is not None:
                return False
            if entry.token == current.document.token:
                return True
            document = self._attempts.document_of(entry)
            return document.executions.get(stage) == current.execution

        return self._heads.observe(look)
