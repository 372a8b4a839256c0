"""Reports a checkpoint's progress, and completes or aborts it, once (semantics C1 to C3, C6, D1 to D3).

Completing reads every acknowledgement, writes the metadata, swaps the head once, and cleans. A crash before the swap
leaves nothing to undo: the metadata's name belongs to this checkpoint, and its content does not depend on its writer.
A crash after the swap leaves unreferenced files, which any cleaner deletes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from ...storage.errors import DocumentError, GoneError
from ...storage.records import dataclass
from ..answers import EpochCompleted, Failed, Progress, Ready, Waiting, failed
from ..documents.acknowledgement import AckDocument
from ..documents.attempt import PendingDocument
from ..documents.entries import EndedEntry, InterventionKind, PendingEntry, Stopped
from ..documents.head import Head
from ..errors import CheckpointFailedError, CheckpointNotReadyError
from ..reasons import Reason, Status, cause_first
from ..rules import partial_completion, rewinds, transitions
from ..rules.admission import StateOf, always_running
from ..rules.history import EpochEnded, EpochPending, EpochUnknown
from ..rules.transitions import Ending
from ..store import acks, attempt_documents, completed_epochs
from ..store.head_store import Decision
from . import carry_over, failover
from .resume import Resumed, Resumption
from .use_case import UseCase, finalized, reports_of

NO_ATTEMPT = (
    "no checkpoint of the epoch is known: none was triggered, or the last one ended so long ago that the history "
    "has forgotten it: clear the whole run, or the task that triggers the checkpoint"
)


ASKED_BY_NAME = 6
"""Stages whose markers are asked for one by one, again if the head is outdated: on S3 a listing costs as much as twelve
such questions."""


@dataclass(frozen=True, slots=True)
class _NotCompleted:
    """A checkpoint did not complete."""

    why: str


class Completion(UseCase):
    """Completes and aborts the checkpoints of one job."""

    @cached_property
    def _resumption(self) -> Resumption:
        return Resumption(self._job)

    def progress(self, epoch: str) -> Progress:
        """Report how far the epoch's checkpoint is; end it if it has expired or a stage has declined (D1, D2).

        If stages may be left out, the task that reports the failed try (`Failover.fail`) settles a decline, because it
        knows whether another try follows; the timeout settles unreported ones.

        Costs one read of the head and two listings for each checkpoint that is an execution's home; acknowledgements
        are not read. Master hooks, a document that is too large for the head, and tasks that have to run again although
        they have not failed cost one request more each.

        Raises:
            DocumentError: the pending document is broken.
        """

        def decide(head: Head, now_ms: int) -> Decision[Progress]:
            place = completed_epochs.where_is(self._files, head, epoch)
            if not isinstance(place, EpochPending):
                return Decision(_ended(head, place))
            entry = place.entry
            document = self._documents.of(entry)
            executions = document.executions
            seen = reports_of(self._files, entry, document)
            done = seen.acknowledged
            missing = tuple(sorted(executions.keys() - done))
            declined: frozenset[str] = frozenset()
            # A decline after the acknowledgement does not count (D1), so declines matter only while a stage is missing.
            if missing and document.limits.leave_out is None:
                declined = acks.marked(self._files, executions, "declines") - done
            if declined:
                root, *others = acks.causes(self._files, executions, declined)
                (detail,) = acks.describe([root])
                # The job's limit may allow a next attempt, but no task would run the stage in it (F4, D5).
                for_good = bool(failover.incurable_stages(self._files, document, declined))
                ending = Ending(
                    root[1],
                    f"{failover.NO_CURE}: {detail}" if for_good else detail,
                    acks=len(done),
                    others=acks.describe(others),
                    for_good=for_good,
                )
                aborted = transitions.abort(head, entry, ending, now_ms)
                ended = completed_epochs.where_is(self._files, aborted, epoch)
                assert not isinstance(ended, EpochPending)
                return Decision(_ended(aborted, ended), aborted)
            hooks = attempt_documents.hooks_missing(self._files, document.hooks)
            without = partial_completion.decide(head, entry, document, seen, now_ms)
            if without is not None and not hooks:
                return Decision(Ready(entry.id, tuple(sorted(without.stages))))
            restarted = carry_over.restarts_waiting(self._files, document, failed=True)
            quiet = _quiet_until_ms(head, document)
            waiting = Waiting(entry.id, entry.attempt, tuple(sorted(done)), missing, hooks, restarted, quiet)
            return Decision(waiting)

        return self._update_settled(decide)[1]

    def go_on(self, epoch: str, state_of: StateOf = always_running) -> Progress:
        """Report how far the epoch's checkpoint is; resume it if the job tolerates its failure (D5, S1, C2).

        For `wait_for_checkpoint`. `Failed.tolerated` means that the next attempt waits for a free place
        (T2) or for the end of a pause (`Failed.paused`): ask again. `Failed.trigger_first` means that only the task
        that triggers can open it: have that task run again.

        Args:
            epoch: the epoch's name.
            state_of: gives the state of a DAG run whose place in the queue is before this one's.

        Raises:
            DocumentError: the pending document is broken.
            InvalidConfigError: the attempt that failed left no document; only a trigger can start the next one.
            NoCheckpointError: the next attempt is due and every retained checkpoint is damaged.
        """
        found = self.progress(epoch)
        if not isinstance(found, Failed) or not found.tolerated:
            return found
        resumed = self._resumption.resume(epoch, state_of)
        if resumed is Resumed.TRIGGER_FIRST:
            return replace(found, trigger_first=True)
        return self.progress(epoch) if resumed is Resumed.PENDING else found

    def abort(self, checkpoint: int, reason: Reason, detail: str, *, actor: str = "") -> bool:
        """Abort a pending checkpoint; True if this call did, False if it was not pending (semantics D3).

        Args:
            checkpoint: its id.
            reason: of its end.
            detail: the reason in words, for users.
            actor: the person who gives the checkpoint up, for the record; empty where none does.
        """

        def decide(head: Head, now_ms: int) -> Decision[bool]:
            entry = head.pending_by_id(checkpoint)
            if entry is None:
                return Decision(result=False)
            after = transitions.abort(head, entry, Ending(reason, detail), now_ms)
            after = transitions.done_by(actor, InterventionKind.GIVE_UP, head, after, now_ms, checkpoint)
            return Decision(result=True, head=after)

        return self._update_settled(decide)[1]

    def complete(self, checkpoint: int) -> EpochCompleted:
        """Complete a checkpoint all of whose stages have acknowledged or may be left out (semantics C1, B3, F6).

        Returns:
            The epoch and the checkpoint that completed it, by this call or an earlier one.

        Raises:
            CheckpointFailedError: the checkpoint has ended without completing, or cannot complete; the text says why.
            CheckpointNotReadyError: a stage has not acknowledged and may not be left out, or the master hooks have not
                answered; the checkpoint stays pending.
        """
        epoch: str | None = None

        def decide(head: Head, now_ms: int) -> Decision[EpochCompleted | _NotCompleted]:
            nonlocal epoch
            entry = head.pending_by_id(checkpoint)
            if entry is None:
                # An expiry that this call finds is stored even though the call then fails (D2).
                return Decision(self._outcome(head, checkpoint, epoch))
            epoch = entry.epoch
            document = self._documents.readable(entry)
            finished = finalized(self._files, head, entry, now_ms, document, self._job.known)
            ended = finished.ended_by_id(checkpoint)
            assert ended is not None
            return Decision(_answer(ended), finished)

        answer = self._update_settled(decide, known=True)[1]
        if isinstance(answer, _NotCompleted):
            raise CheckpointFailedError(
                f"checkpoint {checkpoint} did not complete: {answer.why}", job=self._files.job, checkpoint=checkpoint
            )
        return answer

    def complete_if_last(
        self, epoch: str, stage: str, *, looked: bool = True, own: AckDocument | None = None
    ) -> EpochCompleted | None:
        """Complete the epoch's checkpoint if all stages have acknowledged; called by each stage that has (C1, D3).

        So the checkpoint completes before `wait_for_checkpoint` has started. That task settles all other cases: stages
        left out, declines, an overtaken epoch. If this process dies, that task completes the checkpoint, too.

        The call begins with the head that this process has read last. By an outdated one nothing completes: the swap
        fails, and what only the newest shows is left to `wait_for_checkpoint`. A stage that another one reads from
        costs nothing, because the latter acknowledges later. Of the other stages that nothing reads from, up to
        `ASKED_BY_NAME` have their acknowledgements read, until one is missing; completing does not read them again.
        Where there are more, or stages wait for no upstream (B2) or may be left out, the markers are listed, once for
        each checkpoint that is an execution's home.

        Args:
            epoch: the epoch's name.
            stage: the stage's uid.
            looked: whether this process has read the head since the stage acknowledged. If not, it is read now where
                epochs may overlap, except for a stage that another one reads from.
            own: the stage's acknowledgement, if the caller has read it. It is used if it is of the execution that the
                head lists, whichever of the two was read first.

        Returns:
            The checkpoint that completed the epoch, by this call or another. None where `wait_for_checkpoint` has to
            settle it, or where another process completed it and deleted the markers while this call looked for them.

        Raises:
            UnavailableError: the store did not answer.
            DocumentError: the pending document is broken.
        """

        def decide(head: Head, now_ms: int) -> Decision[int | None]:
            place = completed_epochs.where_is(self._files, head, epoch)
            if not isinstance(place, EpochPending):
                completed = place.checkpoint if isinstance(place, EpochCompleted) else None
                return Decision(completed)
            entry = place.entry
            document = self._documents.of(entry)
            found = self._acks_if_last(entry, document, stage, own) if read_of != entry.token else read
            if found is None:
                return Decision(None)
            try:
                finished = finalized(self._files, head, entry, now_ms, document, self._job.known, found)
            except CheckpointNotReadyError:
                return Decision(None)
            ended = finished.ended_by_id(entry.id)
            assert ended is not None
            return Decision(entry.id if ended.status is Status.COMPLETED else None, finished)

        # Documents never change. Another attempt, in which the stage may be the last, is left to `wait_for_checkpoint`.
        entry, document = self._attempt(self._heads.known, epoch)
        # With other epochs beside it the head has mostly changed, and the metadata would be written for nothing.
        suffices = document is not None and (document.limits.max_concurrent == 1 or _is_read(document, stage))
        if not (looked or suffices):
            entry, document = self._attempt(self._heads.load(), epoch)
        read: dict[str, AckDocument] | None = None
        read_of = ""
        if entry is not None and document is not None:
            read, read_of = self._acks_if_last(entry, document, stage, own), entry.token
            if read is None:
                return None
        checkpoint = self._update_settled(decide, known=True)[1]
        return None if checkpoint is None else EpochCompleted(epoch, checkpoint)

    def _attempt(self, head: Head | None, epoch: str) -> tuple[PendingEntry | None, PendingDocument | None]:
        entry = head.pending_of_epoch(epoch) if head is not None else None
        return entry, self._documents.readable(entry)

    def _acks_if_last(
        self, entry: PendingEntry, document: PendingDocument, stage: str, own: AckDocument | None
    ) -> dict[str, AckDocument] | None:
        """Read the acknowledgements of the other stages that nothing reads from; None if the stage is not the last.

        Gives `own` with them, if it is of the attempt's execution; alone where the markers were listed instead.
        """
        if _is_read(document, stage):
            return None
        limits = document.limits
        read = {uid for each in document.stages for uid in each.upstream}
        others = document.executions.keys() - read - {stage}
        found: dict[str, AckDocument] = {}
        if own is not None and (own.epoch, own.execution) == (document.epoch, document.executions.get(stage)):
            found[stage] = own
        if limits.at_least_once or limits.leave_out is not None or len(others) > ASKED_BY_NAME:
            if not reports_of(self._files, entry, document).acknowledged >= document.executions.keys():
                return None
        else:
            for uid in sorted(others):
                try:
                    found[uid] = acks.read_ack(self._files, uid, document.executions[uid], document.epoch)
                except GoneError:
                    return None
                except DocumentError:
                    break  # completing finds it broken, too, and ends the attempt
        return None if attempt_documents.hooks_missing(self._files, document.hooks) else found

    def _outcome(self, head: Head, checkpoint: int, epoch: str | None) -> EpochCompleted | _NotCompleted:
        """Give the outcome of a checkpoint that is not pending; `epoch` is known if this call has seen it pending."""
        ended = head.ended_by_id(checkpoint)
        if ended is not None:
            return _answer(ended)
        for known, by in head.completions().items():
            if by == checkpoint:
                return EpochCompleted(known, checkpoint)
        if epoch is not None:
            place = completed_epochs.where_is(self._files, head, epoch)
            if isinstance(place, EpochCompleted) and place.checkpoint == checkpoint:
                return place
        if checkpoint >= head.next_id:
            return _NotCompleted("there is no such checkpoint yet")
        return _NotCompleted("it ended so long ago that the history has forgotten how")


def _is_read(document: PendingDocument, stage: str) -> bool:
    """Tell whether another stage reads from this one, and waits for it."""
    return not document.limits.at_least_once and any(stage in each.upstream for each in document.stages)


def _quiet_until_ms(head: Head, document: PendingDocument) -> int:
    """Give the time until which only a swap of the head can change a pending checkpoint's progress; 0: look each time.

    The last stage's task completes the checkpoint (`complete_if_last`), a failing task reports its failure, and the
    timeout ends it. A checkpoint that may leave out stages, waits for master hooks, or shares the job with savepoints
    or a stop has to be looked at each time.
    """
    if document.limits.leave_out is not None or document.hooks is not None:
        return 0
    if head.stopped is not None or head.importing is not None or any(not each.ended for each in head.savepoints):
        return 0
    return min(each.expires_at_ms for each in head.pending)


def _ended(head: Head, place: EpochCompleted | EpochEnded | EpochUnknown) -> Progress:
    if isinstance(place, EpochCompleted):
        return place
    if isinstance(place, EpochUnknown):
        return Failed(0, 0, Reason.TRIGGER_CHECKPOINT_FAILURE, NO_ATTEMPT)
    newest = place.newest
    if newest.status is Status.COMPLETED or (newest.tolerated and place.rewind is not None):
        reason, why = Reason.CHECKPOINT_COORDINATOR_SUSPEND, rewinds.undone(head, newest)
        return Failed(newest.id, newest.attempt, reason, f"{why}: clear the whole run, so that it runs again")
    # However the attempt ended, a paused job goes on only after the pause; from then on the epoch waits for a place.
    found = failed(newest)
    return replace(found, paused=found.tolerated and head.stopped is Stopped.PAUSED)


def _answer(ended: EndedEntry) -> EpochCompleted | _NotCompleted:
    if ended.status is Status.COMPLETED:
        return EpochCompleted(ended.epoch, ended.id)
    return _NotCompleted(cause_first(ended.detail, ended.reason))
