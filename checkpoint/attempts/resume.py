"""Taking up an epoch whose attempt ended without a successor.

It expired, was aborted, was overtaken (C2), or failed within the limit (D5). A stage's next try takes it up, because it
is about to run; who waits for the checkpoint does where the epoch goes on by itself. Both open the next attempt in one
swap, with what the one before can lend (semantics F2). Where no place is free both wait in the queue, as the oldest of
their kind (T2).
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto

from ..answers import EpochCompleted, Failed, Queued, TriggerFirst, failed
from ..completion import settle
from ..decisions import overtaken, queue
from ..decisions.abandoned import StateOf, always_running, without_ended
from ..decisions.epoch import EpochEnded, EpochPending, EpochUnknown
from ..documents.attempt import PendingDocument
from ..documents.entries import EndedEntry, Stopped
from ..documents.head import Head
from ..documents.run_window import run_of_head
from ..errors import AlreadyReadError, InvalidConfigError, JobPausedError, NotTriggeredError, RewoundError
from ..executions import carry_over, restarted_stages
from ..failures.restarts import Exhausted
from ..open_job import UseCase
from ..store import completed_epochs
from ..store.head_store import Decision, changed
from . import next_attempt
from .opening import Opener, Opening, cause_of


class Resumed(Enum):
    """What became of an epoch that is to go on by itself."""

    PENDING = auto()
    """An attempt is pending, or the epoch has completed, by this call or another's."""
    WAITS = auto()
    """There is no free place for it yet, or the job is stopped."""
    TRIGGER_FIRST = auto()
    """Only the task that triggers can open the next attempt."""


class Resumption(UseCase):
    """Resumes the epochs of one job."""

    def resume_for(
        self, epoch: str, stage: str, *, cleared_by_user: bool = False, state_of: StateOf = always_running
    ) -> EpochCompleted | Failed | Queued | TriggerFirst | None:
        """Open the epoch's next attempt where an earlier one ended without a successor (expired, aborted).

        Args:
            epoch: the epoch's name.
            stage: the stage's uid.
            cleared_by_user: a person has asked for this try, as far as Airflow says; only that follows a final failure
                (semantics F4).
            state_of: tells what is known of a DAG run that holds a place before this one.

        Returns:
            None once an attempt is pending, by this call or another's; or that the epoch has completed, or has finally
            failed; or what the next attempt waits for.

        Raises:
            InvalidConfigError: there is nothing to take up, or the job was shut down, which has ended
                this epoch's attempt (semantics S1).
            JobPausedError: the DAG was paused (semantics S1), and no task has said since that it no longer is.
            NoCheckpointError: every retained checkpoint is damaged.
        """

        def decide(head: Head, now_ms: int) -> Decision[EpochCompleted | Failed | Queued | TriggerFirst | None]:
            settled = settle.settle(self._files, head, now_ms)
            place = completed_epochs.where_is(self._files, settled, epoch)
            if isinstance(place, EpochPending):
                return Decision(None)
            if isinstance(place, EpochCompleted):
                return Decision(place, changed(head, settled))
            newest = place.newest if isinstance(place, EpochEnded) else None
            if (
                newest is not None
                and newest.for_good
                and not (cleared_by_user and self._asked_by_a_person(newest, stage))
            ):
                return Decision(failed(newest), changed(head, settled))
            if settled.stopped is Stopped.SHUTDOWN and newest is not None:
                raise InvalidConfigError(
                    f"the job is shut down: let it go on (`cairn resume {self._files.job}`), then clear the task that "
                    "triggers the checkpoint",
                    job=self._files.job,
                    epoch=run_of_head(settled, epoch),
                    stage=stage,
                )
            newest, document = self._left_by(settled, epoch, place)
            if settled.stopped is Stopped.PAUSED:
                raise JobPausedError(
                    "the DAG was paused, which has stopped the job's checkpoints: unpause it",
                    job=self._files.job,
                    epoch=run_of_head(settled, epoch),
                    stage=stage,
                )
            if overtaken.needs_trigger(settled, newest, document):
                return Decision(TriggerFirst(newest.id), changed(head, settled))
            settled, queued = _turn(settled, newest, document, state_of, now_ms)
            if queued is not None:
                return Decision(queued, changed(head, settled))
            try:
                after = self._next(settled, newest, document, now_ms, restart=stage)
            except AlreadyReadError:
                return Decision(TriggerFirst(newest.id), changed(head, settled))
            over = after.ended_by_id(newest.id)
            return Decision(failed(over) if over is not None and over.for_good and not cleared_by_user else None, after)

        return self._heads.update(decide)[1]

    def _asked_by_a_person(self, ended: EndedEntry, stage: str) -> bool:
        """Tell whether a try that follows a clear was cleared after the failure, and not by the failover before it.

        Airflow does not say who cleared. A task that the failed attempt itself had run again, and that had not begun by
        then, begins after the end as if a person had asked for it.
        """
        document = self._documents.readable(ended)
        return document is None or all(each.stage != stage for each in restarted_stages.waiting(self._files, document))

    def resume(self, epoch: str, state_of: StateOf = always_running) -> Resumed:
        """Open the epoch's next attempt where it goes on by itself (semantics D5, S1, C2).

        Executions carry over, running or acknowledged, except those that have declined and what reads from them. None
        does where another epoch has completed since.

        Args:
            epoch: the epoch's name.
            state_of: tells what is known of a DAG run that holds a place before this one.

        Raises:
            InvalidConfigError: the attempt before left no document.
            NoCheckpointError: every retained checkpoint is damaged.
        """

        def decide(head: Head, now_ms: int) -> Decision[Resumed]:
            settled = settle.settle(self._files, head, now_ms)
            place = completed_epochs.where_is(self._files, settled, epoch)
            if isinstance(place, EpochPending | EpochCompleted):
                return Decision(Resumed.PENDING, changed(head, settled))
            newest, document = self._left_by(settled, epoch, place)
            if settled.stopped is not None:
                return Decision(Resumed.WAITS, changed(head, settled))
            if overtaken.needs_trigger(settled, newest, document):
                return Decision(Resumed.TRIGGER_FIRST, changed(head, settled))
            settled, queued = _turn(settled, newest, document, state_of, now_ms)
            if queued is not None:
                return Decision(Resumed.WAITS, changed(head, settled))
            try:
                return Decision(Resumed.PENDING, self._next(settled, newest, document, now_ms))
            except AlreadyReadError:
                # The task that triggers says what is left to read (semantics T8).
                return Decision(Resumed.TRIGGER_FIRST, changed(head, settled))

        return self._heads.update(decide)[1]

    def _left_by(self, head: Head, epoch: str, place: EpochEnded | EpochUnknown) -> tuple[EndedEntry, PendingDocument]:
        """Give the epoch's newest attempt, which has ended, and what it expected."""
        if isinstance(place, EpochEnded) and place.rewind is not None:
            # What it restored may be gone, and so may what it left: only a trigger starts the epoch anew.
            raise RewoundError(
                f"{place.rewind.said} after the epoch's last attempt: clear the whole run, "
                "or the task that triggers the checkpoint before this one",
                job=self._files.job,
                epoch=run_of_head(head, epoch),
            )
        # By the head alone: whether a cleaner has come by since may decide nothing.
        document = self._documents.readable(head.unfinished(epoch))
        if document is None or not isinstance(place, EpochEnded):
            raise NotTriggeredError(
                "no checkpoint is pending for the epoch and none can be taken up: run (or clear) the task that "
                "triggers the checkpoint before this one",
                job=self._files.job,
                epoch=run_of_head(head, epoch),
            )
        return place.newest, document

    def _next(
        self, head: Head, newest: EndedEntry, document: PendingDocument, now_ms: int, *, restart: str | None = None
    ) -> Head:
        """Open the attempt that follows the epoch's newest one, and give the head in which it is pending.

        Or in which the newest one has finally failed, where the restart strategy allows no other (semantics F4).
        """
        verdict = next_attempt.after_ended(self._files, head, newest, document, now_ms)
        if isinstance(verdict, Exhausted):
            return next_attempt.fail_permanently(head, newest, verdict.why)
        opening = Opening(
            epoch=document.epoch,
            slice=document.slice,
            stages=document.stages,
            limits=document.limits,
            owner=document.owner,
            before=newest,
            carried=carry_over.carried_by(
                self._files, self._documents, head, document.epoch, document.stages, restart=restart
            ),
            cause=cause_of(head, newest),
            restart=verdict,
            listeners=document.listeners,
            hooks=document.hook_names,
        )
        return Opener(self._files, self._runtime).open(head, opening, now_ms).head


def _turn(
    head: Head, newest: EndedEntry, document: PendingDocument, state_of: StateOf, now_ms: int
) -> tuple[Head, Queued | None]:
    """Say whether an epoch's next attempt may be opened, and what it waits for if not, with a place in the queue.

    While the job is being stopped with a savepoint no epoch begins (P2). Otherwise it is the oldest request of its kind
    (T2), and only requests of a higher one come before it.
    """
    epoch, places = document.epoch, document.limits.max_concurrent
    stopping = head.kept_from(epoch)
    if stopping is not None:
        detail = f"the job is being stopped with the savepoint {stopping.uri}; it goes on only if that fails"
        return head, Queued(newest.id, detail)
    head = without_ended(head, state_of, document.owner, epoch, places, now_ms)
    waiting = queue.rejoin(head.waiting, newest, document.owner, now_ms)
    position = queue.position(waiting, epoch)
    if position <= places - len(head.pending):
        return head, None
    if document.owner is not None:
        # Only a request whose owner can be asked about keeps a place: an abandoned one would hold up all behind it.
        head = replace(head, waiting=waiting)
    held = f"checkpoint {head.pending[0].id} is pending" if head.pending else f"{waiting[0].epoch} is before it"
    detail = f"{held}, max_concurrent_checkpoints is {places}, and the epoch has place {position} in the queue"
    return head, Queued(newest.id, detail)
