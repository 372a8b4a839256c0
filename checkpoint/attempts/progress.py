"""How far a checkpoint is, and its end: completed or aborted, once (semantics C1 to C3, C6, D1 to D3).

Order of completing: read every acknowledgement, write the metadata, one swap of the head, then clean. Before the swap
nothing has to be undone: the metadata's name belongs to this checkpoint and its content does not depend on who wrote
it. After the swap everything can be redone: what is left is to delete what nothing refers to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..answers import EpochCompleted, Failed, Progress, Ready, Waiting, failed
from ..completion import settle
from ..decisions import partial_completion, rewinds, transitions
from ..decisions.abandoned import StateOf, always_running
from ..decisions.epoch import EpochEnded, EpochPending, EpochUnknown
from ..decisions.transitions import Ending
from ..documents.attempt import PendingDocument
from ..documents.entries import EndedEntry, InterventionKind, Stopped
from ..documents.head import Head
from ..errors import CheckpointFailedError
from ..executions import restarted_stages
from ..open_job import OpenJob, UseCase
from ..reasons import Reason, Status
from ..store import acks, completed_epochs, hook_documents
from ..store.head_store import Decision, changed
from . import cancellation, next_attempt
from .resume import Resumed, Resumption

NO_ATTEMPT = (
    "no checkpoint of the epoch is known: none was triggered, or the last one ended so long ago that the history "
    "has forgotten it: clear the whole run, or the task that triggers the checkpoint"
)


@dataclass(frozen=True, slots=True)
class _NotCompleted:
    """What to say about a checkpoint that did not complete."""

    why: str


class CheckpointProgress(UseCase):
    """Completes and aborts the checkpoints of one job."""

    def __init__(self, job: OpenJob, resumption: Resumption) -> None:
        super().__init__(job)
        self._resumption = resumption

    def progress(self, epoch: str) -> Progress:
        """Say how far the epoch's checkpoint is; settle it if it has expired or a stage has declined (D1, D2).

        Where stages may be left out, a decline is settled by the task that reports the failed try (`Failover.fail`),
        which knows whether another try follows; the timeout settles what is not reported.

        Costs one read of the head and two listings for each checkpoint in which executions are at home;
        acknowledgements themselves are not read. A job with master hooks costs one more, and so does a document that
        is too large for the head, and an attempt for which tasks have to run again that have not failed.

        Raises:
            DocumentError: the pending document is broken.
        """

        def decide(head: Head, now_ms: int) -> Decision[Progress]:
            settled = settle.settle(self._files, head, now_ms)
            place = completed_epochs.where_is(self._files, settled, epoch)
            if not isinstance(place, EpochPending):
                return Decision(_ended(settled, place), changed(head, settled))
            entry = place.entry
            document = self._documents.of(entry)
            executions = document.executions
            seen = settle.look(self._files, entry, document)
            done = seen.acknowledged
            missing = tuple(sorted(executions.keys() - done))
            declined: frozenset[str] = frozenset()
            # A decline after the acknowledgement does nothing (D1), so they are looked up while a stage is missing.
            if missing and document.limits.leave_out is None:
                declined = acks.marked(self._files, executions, "declines") - done
            if declined:
                root, *others = cancellation.causes(self._files, executions, declined)
                (detail,) = cancellation.described([root])
                # No task would run it again in the next attempt, which the job's limit may allow to open (F4, D5).
                for_good = bool(next_attempt.incurable(self._files, document, declined))
                ending = Ending(
                    root[1],
                    f"{next_attempt.NO_CURE}: {detail}" if for_good else detail,
                    acks=len(done),
                    others=cancellation.described(others),
                    for_good=for_good,
                )
                aborted = transitions.abort(settled, entry, ending, now_ms)
                ended = completed_epochs.where_is(self._files, aborted, epoch)
                assert not isinstance(ended, EpochPending)
                return Decision(_ended(aborted, ended), aborted)
            hooks = hook_documents.missing(self._files, document.hooks)
            without = partial_completion.decide(settled, entry, document, seen, now_ms)
            if without is not None and not hooks:
                return Decision(Ready(entry.id, tuple(sorted(without.stages))), changed(head, settled))
            restarted = restarted_stages.waiting(self._files, document, failed=True)
            quiet = _quiet_until_ms(settled, document)
            waiting = Waiting(entry.id, entry.attempt, tuple(sorted(done)), missing, hooks, restarted, quiet)
            return Decision(waiting, changed(head, settled))

        return self._heads.update(decide)[1]

    def go_on(self, epoch: str, state_of: StateOf = always_running) -> Progress:
        """Say how far the epoch's checkpoint is; take it up again if the job tolerates how it failed (D5, S1, C2).

        Who waits for the epoch asks this. While `Failed.tolerated` comes back, the next attempt waits for a free place
        (T2), or for the end of a pause (`Failed.paused`): ask again. With `Failed.trigger_first` only the task that
        triggers can open it: have that run again.

        Args:
            epoch: the epoch's name.
            state_of: tells what is known of a DAG run that holds a place before this one.

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
        """End a pending checkpoint; True if this call ended it, False if it was not pending (semantics D3).

        Args:
            checkpoint: its id.
            reason: why it ends.
            detail: the same, for users to read.
            actor: the person who gives it up, for the record; empty where it is no person.
        """

        def decide(head: Head, now_ms: int) -> Decision[bool]:
            settled = settle.settle(self._files, head, now_ms)
            entry = settled.pending_by_id(checkpoint)
            if entry is None:
                return Decision(result=False, head=changed(head, settled))
            after = transitions.abort(settled, entry, Ending(reason, detail), now_ms)
            after = transitions.done_by(actor, InterventionKind.GIVE_UP, settled, after, now_ms, checkpoint)
            return Decision(result=True, head=after)

        return self._heads.update(decide)[1]

    def complete(self, checkpoint: int) -> EpochCompleted:
        """Complete a checkpoint whose every stage has acknowledged or may be left out (semantics C1, B3, F6).

        Returns:
            The epoch and the checkpoint that completed it, whether by this call or by another party before.

        Raises:
            CheckpointFailedError: it has ended without completing, or cannot complete; the text says why.
            CheckpointNotReadyError: a stage has not acknowledged and may not be left out, or the master hooks have not
                answered; the checkpoint stays pending.
        """
        epoch: str | None = None

        def decide(head: Head, now_ms: int) -> Decision[EpochCompleted | _NotCompleted]:
            nonlocal epoch
            settled = settle.settle(self._files, head, now_ms)
            entry = settled.pending_by_id(checkpoint)
            if entry is None:
                # An expiry found here must be stored even though this call then fails: D2.
                return Decision(self._outcome(settled, checkpoint, epoch), changed(head, settled))
            epoch = entry.epoch
            document = self._documents.readable(entry)
            finished = settle.complete(self._files, settled, entry, now_ms, document, self._known)
            ended = finished.ended_by_id(checkpoint)
            assert ended is not None
            return Decision(_answer(ended), finished)

        answer = self._heads.update(decide, known=True)[1]
        if isinstance(answer, _NotCompleted):
            raise CheckpointFailedError(
                f"checkpoint {checkpoint} did not complete: {answer.why}", job=self._files.job, checkpoint=checkpoint
            )
        return answer

    def complete_if_last(self, epoch: str, stage: str) -> EpochCompleted | None:
        """Complete the epoch's checkpoint if all have acknowledged; asked by a stage that has (semantics C1, D3).

        So the checkpoint completes before the task has started that waits for it. That one settles everything else: who
        is left out, who has declined, what has been overtaken. A process that dies here leaves the checkpoint to it.

        Costs one read of the head, and nothing more for a stage that another one reads from, for that one acknowledges
        later. Otherwise the acknowledgements are listed, once for each checkpoint in which executions are at home.

        Returns:
            The checkpoint that completed the epoch, by this call or another's; None where it is left to the task that
            waits, or where another party completed it and deleted the markers while this call looked for them.

        Raises:
            UnavailableError: the store did not answer.
            DocumentError: the pending document is broken.
        """

        def decide(head: Head, now_ms: int) -> Decision[int | None]:
            settled = settle.settle(self._files, head, now_ms)
            place = completed_epochs.where_is(self._files, settled, epoch)
            if not isinstance(place, EpochPending):
                completed = place.checkpoint if isinstance(place, EpochCompleted) else None
                return Decision(completed, changed(head, settled))
            entry = place.entry
            document = self._documents.of(entry)
            if not document.limits.at_least_once and any(stage in each.upstream for each in document.stages):
                return Decision(None, changed(head, settled))
            seen = settle.look(self._files, entry, document)
            if document.executions.keys() - seen.acknowledged or hook_documents.missing(self._files, document.hooks):
                return Decision(None, changed(head, settled))
            finished = settle.complete(self._files, settled, entry, now_ms, document, self._known)
            ended = finished.ended_by_id(entry.id)
            assert ended is not None
            return Decision(entry.id if ended.status is Status.COMPLETED else None, finished)

        checkpoint = self._heads.update(decide)[1]
        return None if checkpoint is None else EpochCompleted(epoch, checkpoint)

    def _outcome(self, head: Head, checkpoint: int, epoch: str | None) -> EpochCompleted | _NotCompleted:
        """Say what became of a checkpoint that is not pending; `epoch` if this call has seen it pending."""
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


def _quiet_until_ms(head: Head, document: PendingDocument) -> int:
    """Say until when nothing but a swap of the head changes what there is to say of a pending checkpoint.

    The task of the last stage completes it (`complete_if_last`), a task that fails reports it, and time ends it. What
    completes without a stage, waits for master hooks, or shares the job with savepoints or a stop is looked at anew.
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
    # However it ended, it goes on only when the pause is over; then what is waited for is a place.
    found = failed(newest)
    return replace(found, paused=found.tolerated and head.stopped is Stopped.PAUSED)


def _answer(ended: EndedEntry) -> EpochCompleted | _NotCompleted:
    if ended.status is Status.COMPLETED:
        return EpochCompleted(ended.epoch, ended.id)
    return _NotCompleted(f"{ended.reason}: {ended.detail}")
