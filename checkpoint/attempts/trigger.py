"""The trigger of an epoch's checkpoint: an answer why not, or an attempt that is pending (semantics T1 to T6, T8, T9).

What an epoch reads is fixed before the swap that makes its attempt pending (`placement`); a process that dies between
the two leaves it to the next trigger, which reads the same.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ...storage.errors import CairnError
from ..answers import AlreadyRead, EpochCompleted, InputRefused, TriggerAnswer, Triggered
from ..completion import restore, settle
from ..config import AT_LEAST_ONCE
from ..decisions import abandoned, admission, partial_completion, queue, restore_choice, savepoint_entries, transitions
from ..decisions.abandoned import StateOf, always_running, without_ended
from ..decisions.epoch import EpochPending, EpochPlace, EpochUnknown
from ..decisions.ownership import take_ownership
from ..decisions.transitions import Ending
from ..documents import run_window
from ..documents.attempt import Limits, PendingDocument, Slice
from ..documents.entries import PendingEntry
from ..documents.head import Head
from ..errors import CompletedEpochsLostError
from ..executions import carry_over
from ..open_job import OpenJob, UseCase
from ..reasons import Reason
from ..request import TriggerRequest
from ..sources import already_read
from ..sources.placement import Placement
from ..store import completed_epochs
from ..store.head_store import Decision, changed
from .opening import Opener, Opening, cause_of

log = logging.getLogger("airflow_cairn")


@dataclass(slots=True)
class _Call:
    """One call of `trigger`, over all versions of the head that it decides on."""

    request: TriggerRequest
    state_of: StateOf
    fixed: Slice | None = None
    """What the epoch reads, once this call knows it: the sources are not asked again."""
    lines: list[str] = field(default_factory=list)
    """What the sources had to say."""


class CheckpointTrigger(UseCase):
    """Triggers the checkpoints of one job."""

    def __init__(self, job: OpenJob) -> None:
        super().__init__(job)
        self._placement = Placement(job.files, job.runtime.new_token)

    def trigger(self, request: TriggerRequest, state_of: StateOf = always_running) -> TriggerAnswer:
        """Make a checkpoint pending for the epoch, or say why not (semantics T1 to T6, T8, T9).

        A request that has to wait takes a place in the queue; a DAG run that has ended is passed over. What is free
        belongs to the first in the queue, however late it asks.

        Triggering again while it is pending gives the same checkpoint, unless the DAG's stages have changed since, or
        its document is lost: then the attempt ends and the next one begins, which takes over what has not changed.

        Args:
            request: the epoch, its input and its stages.
            state_of: tells what is known of the DAG run that owns another epoch. One that has ended is not waited for:
                its pending checkpoint is aborted with `JOB_FAILURE`, its place in the queue is given up. One that is
                unknown loses its place only, which it takes again if it lives, unless it was surely deleted (W8).

        Raises:
            JobOwnedError: the job belongs to another DAG or deployment; nothing has changed (semantics W8).
            NoCheckpointError: every retained checkpoint is damaged.
            InvalidStateError: the slice is too large, or no JSON.
            NonRestoredStateError: the latest checkpoint holds state of a stage, or the position of a source, that the
                request lacks, and the config does not allow to leave it behind (semantics R3).
            UndeliveredNoticesError: too many notices wait for listeners (semantics C4, D4).
        """
        self._heads.ensure()
        call = _Call(request, state_of)
        try:
            return self._heads.update(lambda head, now_ms: self._decide(call, head, now_ms), known=True)[1]
        except CairnError as error:
            self._note_failed(request, error)
            raise

    def _decide(self, call: _Call, head: Head, now_ms: int) -> Decision[TriggerAnswer]:
        """Answer the request; where its epoch does not begin, a stop that waits for it fails in the same swap (P2)."""
        answered = self._answer(call, head, now_ms)
        why = abandoned.why_not_begun(answered.result)
        if why is None:
            return answered
        settled = savepoint_entries.refused(answered.head or head, call.request.epoch, *why, now_ms)
        return Decision(answered.result, changed(head, settled))

    def _answer(self, call: _Call, head: Head, now_ms: int) -> Decision[TriggerAnswer]:
        request = call.request
        settled = settle.settle(self._files, take_ownership(head, request.owner), now_ms)
        place = self._where_is(settled, request)
        if isinstance(place, EpochCompleted):
            return Decision(place, changed(head, settled))
        if isinstance(place, EpochPending):
            document = self._documents.readable(place.entry)
            if document is not None and _expects(document, request):
                return Decision(Triggered(document, created=False))
            settled = _replaced(settled, place.entry, document, now_ms)
        places = request.config.max_concurrent_checkpoints
        settled = without_ended(settled, call.state_of, request.owner, request.epoch, places, now_ms)
        settled = abandoned.given_up_where_over(settled, request, self._documents.readable, call.state_of, now_ms)
        verdict = admission.decide(settled, request, now_ms)
        if not isinstance(verdict, admission.Admit):
            # A place in the queue is kept by being swapped in; one that is refused loses the place it had.
            waiting = queue.leave(settled.waiting, request.epoch)
            if isinstance(verdict, admission.Wait):
                waiting = verdict.waiting
            settled = admission.noted(replace(settled, waiting=waiting), request, verdict, now_ms)
            return Decision(admission.answer(settled, request, verdict), changed(head, settled))
        choice = restore.choose(self._files, settled)
        placed = self._placement.place(settled, request, call.fixed, choice)
        if isinstance(placed, AlreadyRead | InputRefused):
            return Decision(placed, changed(head, _refused(settled, request, placed, now_ms)))
        call.fixed, lines = placed
        answer, opened = self._open(call, settled, call.fixed, choice, now_ms)
        call.lines.extend(lines)
        gap = already_read.gap_before(choice, call.fixed, request.owner.dag_id if request.owner else None)
        return Decision(replace(answer, log=(*call.lines, *gap)), opened)

    def _open(
        self, call: _Call, head: Head, fixed: Slice, choice: restore_choice.RestoreChoice, now_ms: int
    ) -> tuple[Triggered, Head]:
        request, limits = call.request, _limits_of(call.request)
        before = next(head.ended_of_epoch(request.epoch), None)
        opening = Opening(
            epoch=request.epoch,
            slice=fixed,
            stages=request.stages,
            limits=limits,
            owner=request.owner,
            kind=request.kind,
            before=before,
            # A run that triggers again runs the stages again; only what has acknowledged is worth keeping.
            carried=carry_over.carried_by(
                self._files,
                self._documents,
                head,
                request.epoch,
                request.stages,
                running=False,
                at_least_once=limits.at_least_once,
            ),
            cause=cause_of(head, before),
            listeners=request.listeners,
            hooks=request.hooks,
            allow_non_restored_state=request.config.allow_non_restored_state,
        )
        opened = Opener(self._files, self._runtime).open(head, opening, now_ms, choice)
        answer = Triggered(opened.pending, created=True, damages=opened.damages)
        return answer, replace(opened.head, savepoint_target=request.config.savepoint_target)

    def _note_failed(self, request: TriggerRequest, error: CairnError) -> None:
        """Keep and count a failed trigger; where that cannot be written either, the error alone says so."""

        def decide(head: Head, now_ms: int) -> Decision[None]:
            after = admission.failed(head, request, error, now_ms)
            if not error.retry_cures:
                reason = admission.reason_of(error)
                after = savepoint_entries.refused(after, request.epoch, reason, error.message, now_ms)
            return Decision(None, changed(head, after))

        with suppress(CairnError):
            self._heads.update(decide)

    def _where_is(self, head: Head, request: TriggerRequest) -> EpochPlace:
        """Say where the epoch of a request is, as far as that has to be known.

        Where the list of completed epochs is lost, an epoch whose input is remembered in the state is judged by that.
        """
        try:
            return completed_epochs.where_is(self._files, head, request.epoch)
        except CompletedEpochsLostError as error:
            remembered = run_window.window_read_by(request.slice) is not None
            if not (remembered or request.slice.again or any(source.positioned for source in request.sources)):
                raise
            log.warning("Whether %s has completed is judged by its input alone. %s", request.epoch, error)
            return EpochUnknown()


def _expects(document: PendingDocument, request: TriggerRequest) -> bool:
    return set(document.stages) == set(request.stages) and set(document.hook_names) == set(request.hooks)


def _replaced(head: Head, pending: PendingEntry, document: PendingDocument | None, now_ms: int) -> Head:
    ending = Ending(Reason.JOB_FAILOVER_REGION, "the stages or hooks of the DAG have changed")
    if document is None:
        ending = Ending(Reason.IO_EXCEPTION, "its document is gone or broken")
    return transitions.abort(head, pending, ending, now_ms)


def _refused(head: Head, request: TriggerRequest, refusal: AlreadyRead | InputRefused, now_ms: int) -> Head:
    """Take a request out of the queue whose epoch has nothing to read, and note why a source refused it."""
    head = replace(head, waiting=queue.leave(head.waiting, request.epoch))
    if isinstance(refusal, AlreadyRead):
        return head
    declined = admission.Decline(Reason.TRIGGER_CHECKPOINT_FAILURE, f"{refusal.source}: {refusal.detail}")
    return admission.noted(head, request, declined, now_ms)


def _limits_of(request: TriggerRequest) -> Limits:
    config = request.config
    return Limits(
        config.timeout_ms,
        config.retained,
        config.max_concurrent_checkpoints,
        config.tolerable_failed_checkpoints,
        partial_completion.rule_of(request),
        request.config.mode == AT_LEAST_ONCE,
        config.restart_strategy.rule() if config.restart_strategy else None,
        config.failover == "full",
    )
