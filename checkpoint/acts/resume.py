"""Resumes an epoch whose attempt ended without a successor.

The attempt expired, was aborted, was overtaken (C2), or failed within the limit (D5). A stage's next try resumes the
epoch because the stage is about to run; `wait_for_checkpoint` does so if the epoch goes on by itself. Both open the
next attempt in one swap and carry over executions from the one before (semantics F2). If no place is free, both wait in
the queue, as the oldest request of their kind (T2).
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto

from ..answers import EpochCompleted, Failed, Queued, TriggerFirst, failed
from ..documents import layout
from ..documents.attempt import PendingDocument
from ..documents.entries import EndedEntry, Stopped
from ..documents.head import Head, run_of_head
from ..errors import AlreadyReadError, InvalidConfigError, NotTriggeredError, RetryLaterError
from ..rules import mirrors, transitions
from ..rules.admission import StateOf, always_running, without_ended
from ..rules.failures import Exhausted
from ..rules.history import EpochEnded, EpochPending, EpochUnknown
from ..store import completed_epochs
from ..store.head_store import Decision
from . import carry_over, failover
from .opening import Opener, Opening, cause_of
from .use_case import UseCase


class Resumed(Enum):
    """Outcome of resuming an epoch that goes on by itself."""

    PENDING = auto()
    """An attempt is pending, or the epoch has completed, by this call or another."""
    WAITS = auto()
    """No place is free for the epoch yet, or the job is stopped."""
    TRIGGER_FIRST = auto()
    """Only the task that triggers can open the next attempt."""


class Resumption(UseCase):
    """Resumes the epochs of one job."""

    def resume_for(
        self,
        epoch: str,
        stage: str,
        *,
        cleared_by_user: bool = False,
        state_of: StateOf = always_running,
        timeout_ms: int | None = None,
    ) -> EpochCompleted | Failed | Queued | TriggerFirst | None:
        """Open the epoch's next attempt where an earlier one ended without a successor (expired, aborted).

        Args:
            epoch: the epoch's name.
            stage: the stage's uid.
            cleared_by_user: a person has asked for this try, as far as Airflow tells; only such a try may go on after
                a final failure (semantics F4).
            state_of: gives the state of a DAG run whose place in the queue is before this one's.
            timeout_ms: timeout of the next attempt; None: as in the attempt before.

        Returns:
            None once an attempt is pending, by this call or another. Otherwise the answer that the epoch has completed
            or finally failed, or the thing that the next attempt waits for.

        Raises:
            InvalidConfigError: there is no attempt to follow, or the job was shut down, which has ended this epoch's
                attempt (semantics S1).
            RetryLaterError: the DAG was paused (semantics S1), and no task has seen it unpaused since.
            NoCheckpointError: every retained checkpoint is damaged.
            CheckpointError: the job has moved, or is a mirror that nobody has activated (semantics M5).
        """

        def decide(head: Head, now_ms: int) -> Decision[EpochCompleted | Failed | Queued | TriggerFirst | None]:
            place = completed_epochs.where_is(self._files, head, epoch)
            if isinstance(place, EpochPending):
                return Decision(None)
            if isinstance(place, EpochCompleted):
                return Decision(place)
            newest = place.newest if isinstance(place, EpochEnded) else None
            if (
                newest is not None
                and newest.for_good
                and not (cleared_by_user and self._asked_by_a_person(newest, stage))
            ):
                return Decision(failed(newest))
            if head.stopped is Stopped.SHUTDOWN and newest is not None:
                raise InvalidConfigError(
                    f"the job is shut down: let it go on (`cairn resume {self._files.job} "
                    f"{self._files.storage_option}`), then clear the task that triggers the checkpoint",
                    job=self._files.job,
                    epoch=run_of_head(head, epoch),
                    stage=stage,
                )
            newest, document = self._left_by(head, epoch, place)
            if head.stopped is Stopped.PAUSED:
                raise RetryLaterError(
                    "the DAG was paused, which has stopped the job's checkpoints: unpause it",
                    code="job_paused",
                    job=self._files.job,
                    epoch=run_of_head(head, epoch),
                    stage=stage,
                )
            if transitions.needs_trigger(head, newest, document):
                return Decision(TriggerFirst(newest.id))
            if timeout_ms is not None:
                # The DAG file's timeout applies: one that was too short would end the next attempt as well.
                document = replace(document, limits=replace(document.limits, timeout_ms=timeout_ms))
            head, queued = _turn(head, newest, document, state_of, now_ms)
            if queued is not None:
                return Decision(queued, head)
            try:
                after = self._next(head, newest, document, now_ms, restart=stage)
            except AlreadyReadError:
                return Decision(TriggerFirst(newest.id), head)
            over = after.ended_by_id(newest.id)
            return Decision(failed(over) if over is not None and over.for_good and not cleared_by_user else None, after)

        return self._update_settled(decide, known=True)[1]

    def check_known(self, epoch: str) -> None:
        """Check that the epoch has, or had, an attempt, by the head that this process has read last.

        For a stage that triggers if there is none. If another process has triggered since that read, the stage's own
        trigger finds the same attempt (semantics T9), so no second read has to confirm the error.

        Raises:
            NotTriggeredError: no attempt of the epoch is known.
            CheckpointError: the job has moved, or is a mirror that nobody has activated (semantics M5).
        """

        def look(head: Head, _now_ms: int) -> bool:
            mirrors.check_runs_here(head, self._files.store.uri)
            return isinstance(completed_epochs.where_is(self._files, head, epoch), EpochUnknown)

        if self._heads.observe(look, known=True):
            raise self._not_triggered(layout.run_id_of(epoch))

    def _asked_by_a_person(self, ended: EndedEntry, stage: str) -> bool:
        """Tell whether a person cleared this try after the failure, rather than the failover before it.

        Airflow does not record who cleared. A task that the failed attempt itself had cleared, and that had not begun
        when the attempt ended, begins afterwards as if a person had cleared it.
        """
        document = self._documents.readable(ended)
        return document is None or all(
            each.stage != stage for each in carry_over.restarts_waiting(self._files, document)
        )

    def resume(self, epoch: str, state_of: StateOf = always_running) -> Resumed:
        """Open the next attempt of an epoch that goes on by itself (semantics D5, S1, C2).

        Executions carry over, running or acknowledged, except those of declined stages and their downstream stages. No
        execution carries over if another epoch has completed since.

        Args:
            epoch: the epoch's name.
            state_of: gives the state of a DAG run whose place in the queue is before this one's.

        Raises:
            InvalidConfigError: the attempt before left no document.
            NoCheckpointError: every retained checkpoint is damaged.
            CheckpointError: the job has moved, or is a mirror that nobody has activated (semantics M5).
        """

        def decide(head: Head, now_ms: int) -> Decision[Resumed]:
            place = completed_epochs.where_is(self._files, head, epoch)
            if isinstance(place, EpochPending | EpochCompleted):
                return Decision(Resumed.PENDING)
            newest, document = self._left_by(head, epoch, place)
            if head.stopped is not None:
                return Decision(Resumed.WAITS)
            if transitions.needs_trigger(head, newest, document):
                return Decision(Resumed.TRIGGER_FIRST)
            head, queued = _turn(head, newest, document, state_of, now_ms)
            if queued is not None:
                return Decision(Resumed.WAITS, head)
            try:
                return Decision(Resumed.PENDING, self._next(head, newest, document, now_ms))
            except AlreadyReadError:
                # The task that triggers works out the input that is left (semantics T8).
                return Decision(Resumed.TRIGGER_FIRST, head)

        return self._update_settled(decide)[1]

    def _left_by(self, head: Head, epoch: str, place: EpochEnded | EpochUnknown) -> tuple[EndedEntry, PendingDocument]:
        """Give the epoch's newest attempt, which has ended, and its document, for the next to follow."""
        mirrors.check_runs_here(head, self._files.store.uri)
        if isinstance(place, EpochEnded) and place.rewind is not None:
            # The checkpoint that it restored may be gone, and so may its files: only a trigger starts the epoch anew.
            raise NotTriggeredError(
                f"{place.rewind.said} after the epoch's last attempt: clear the whole run, "
                "or the task that triggers the checkpoint before this one",
                code="rewound",
                job=self._files.job,
                epoch=run_of_head(head, epoch),
            )
        # Decided by the head alone, so that it makes no difference whether a cleaner has run since.
        document = self._documents.readable(head.unfinished(epoch))
        if document is None or not isinstance(place, EpochEnded):
            raise self._not_triggered(run_of_head(head, epoch))
        return place.newest, document

    def _not_triggered(self, run: str) -> NotTriggeredError:
        return NotTriggeredError(
            "no checkpoint is pending for the epoch and none can be taken up: run (or clear) the task that triggers "
            "the checkpoint before this one",
            job=self._files.job,
            epoch=run,
        )

    def _next(
        self, head: Head, newest: EndedEntry, document: PendingDocument, now_ms: int, *, restart: str | None = None
    ) -> Head:
        """Open the attempt that follows the epoch's newest one, and give the head in which it is pending.

        If the restart strategy allows no further attempt, give the head in which the newest one has finally failed
        (semantics F4).
        """
        verdict = failover.attempt_after_end(self._files, head, newest, document, now_ms)
        if isinstance(verdict, Exhausted):
            return failover.fail_permanently(head, newest, verdict.why)
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
    """Describe the wait of an epoch's next attempt, and give it a place in the queue; None where it may be opened.

    While the job is being stopped with a savepoint, no epoch begins (P2). Otherwise the epoch is the oldest request of
    its kind (T2), and only requests of a higher kind come before it.
    """
    epoch, places = document.epoch, document.limits.max_concurrent
    stopping = head.kept_from(epoch)
    if stopping is not None:
        detail = f"the job is being stopped with the savepoint {stopping.uri}; it goes on only if that fails"
        return head, Queued(newest.id, detail)
    head = without_ended(head, state_of, document.owner, epoch, places, now_ms)
    waiting = transitions.rejoin_queue(head.waiting, newest, document.owner, now_ms)
    position = transitions.place_of(waiting, epoch)
    if position <= places - len(head.pending):
        return head, None
    if document.owner is not None:
        # Only a request with an owner keeps a place: an abandoned one would hold up all behind it.
        head = replace(head, waiting=waiting)
    held = f"checkpoint {head.pending[0].id} is pending" if head.pending else f"{waiting[0].epoch} is before it"
    detail = f"{held}, max_concurrent_checkpoints is {places}, and the epoch has place {position} in the queue"
    return head, Queued(newest.id, detail)
