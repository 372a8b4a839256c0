"""Triggers an epoch's checkpoint: makes an attempt pending, or answers why not (semantics T1 to T6, T8, T9).

The epoch's input is fixed before the swap that makes its attempt pending (`placement`). After a crash between the two,
the next trigger reads the same input.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import field, replace
from enum import Enum, auto
from functools import cached_property

from ...storage.errors import CairnError
from ...storage.records import dataclass
from ..answers import AlreadyRead, EpochCompleted, InputRefused, TriggerAnswer, Triggered, TriggerRequest
from ..config import AT_LEAST_ONCE
from ..documents.attempt import Limits, Owner, PendingDocument, Slice, window_read_by
from ..documents.entries import JobOwner, PendingEntry, TriggeringTask
from ..documents.head import MAX_TRIGGERING, Head
from ..errors import DamagedError
from ..reasons import Reason
from ..rules import admission, history, mirrors, partial_completion, restored_state, transitions
from ..rules.admission import StateOf, always_running, take_ownership, without_ended
from ..rules.history import EpochPending, EpochPlace, EpochUnknown
from ..rules.transitions import Ending
from ..sources.placement import Placement
from ..store import completed_epochs
from ..store.head_store import Decision, changed
from . import carry_over, opening
from .opening import Opener, Opening, cause_of
from .use_case import UseCase, end_overdue

log = logging.getLogger("airflow_cairn")


@dataclass(slots=True)
class _Call:
    """The state of one `trigger` call, kept while the call retries a lost swap."""

    request: TriggerRequest
    state_of: StateOf
    fixed: Slice | None = None
    """The epoch's input, once this call knows it; the sources are not asked again."""
    lines: list[str] = field(default_factory=list)
    """Log lines from the sources."""


class EpochTriggering(UseCase):
    """Triggers the checkpoints of one job."""

    @cached_property
    def _placement(self) -> Placement:
        return Placement(self._files, self._runtime.new_token)

    def trigger(self, request: TriggerRequest, state_of: StateOf = always_running) -> TriggerAnswer:
        """Make a checkpoint pending for the epoch, or say why not (semantics T1 to T6, T8, T9).

        A request that has to wait joins the queue. A free slot goes to the first request in the queue, even if that
        request asks later than others. Requests of ended DAG runs are skipped.

        A second trigger while the checkpoint is pending gets the same checkpoint. If the DAG's stages have changed
        since, or the checkpoint's document is lost, the attempt ends and the next one takes over the unchanged stages.

        Args:
            request: the epoch, its input and its stages.
            state_of: gives the state of the DAG run that owns another epoch. If that run has ended, its pending
                checkpoint is aborted with `JOB_FAILURE` and it leaves the queue. A run whose state is unknown only
                leaves the queue, and may join it again; a run known to be deleted counts as ended (W8).

        Raises:
            CheckpointError: the job belongs to another DAG or deployment (semantics W8), has moved, or is a mirror that
                nobody has activated (semantics M5); nothing has changed.
            NoCheckpointError: every retained checkpoint is damaged.
            InvalidStateError: the slice is too large, or not JSON; or the latest checkpoint holds state of a stage, or
                the position of a source, that the request does not have, and `allow_non_restored_state` is False
                (semantics R3).
            CallbackError: too many notices wait for listeners (semantics C4, D4).
        """
        self._heads.ensure()
        call = _Call(request, state_of)
        try:
            return self._heads.update(lambda head, now_ms: self._decide(call, head, now_ms), known=True)[1]
        except CairnError as error:
            self._note_failed(request, error)
            raise

    def _decide(self, call: _Call, head: Head, now_ms: int) -> Decision[TriggerAnswer]:
        """Answer the request. If its epoch cannot begin, the same swap fails a stop that waits for that epoch (P2)."""
        answered = self._answer(call, head, now_ms)
        why = admission.why_not_begun(answered.result)
        if why is None:
            return answered
        settled = history.refuse_savepoints(answered.head or head, call.request.epoch, *why, now_ms)
        return Decision(answered.result, changed(head, settled))

    def _answer(self, call: _Call, head: Head, now_ms: int) -> Decision[TriggerAnswer]:
        request = call.request
        mirrors.check_runs_here(head, self._files.store.uri)
        # Not by `_update_settled`: on a mirror, or for a DAG that does not own the job, nothing may be ended.
        settled = end_overdue(self._files, take_ownership(head, request.owner), now_ms)
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
        settled = admission.fail_stop_of_ended_run(settled, request, self._documents.readable, call.state_of, now_ms)
        verdict = admission.decide(settled, request, now_ms)
        if not isinstance(verdict, admission.Admit):
            # The swap records the place in the queue; a refused request loses the place it had.
            waiting = transitions.leave_queue(settled.waiting, request.epoch)
            if isinstance(verdict, admission.Wait):
                waiting = verdict.waiting
            settled = admission.noted(replace(settled, waiting=waiting), request, verdict, now_ms)
            return Decision(admission.answer(settled, request, verdict), changed(head, settled))
        choice = opening.choose_restored(self._files, settled)
        placed = self._placement.place(settled, request, call.fixed, choice)
        if isinstance(placed, AlreadyRead | InputRefused):
            return Decision(placed, changed(head, _refused(settled, request, placed, now_ms)))
        call.fixed, lines = placed
        answer, opened = self._open(call, settled, call.fixed, choice, now_ms)
        call.lines.extend(lines)
        gap = restored_state.gap_before(settled, choice, call.fixed, request.owner)
        return Decision(replace(answer, log=(*call.lines, *gap)), opened)

    def _open(
        self, call: _Call, head: Head, fixed: Slice, choice: restored_state.RestoreChoice, now_ms: int
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
            # A run that triggers again also runs its stages again, so only acknowledged executions are kept.
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
        """Record and count a failed trigger. If this write fails too, the raised error is the only record."""

        def decide(head: Head, now_ms: int) -> Decision[None]:
            after = admission.failed(head, request, error, now_ms)
            if not error.retry_cures:
                reason = admission.reason_of(error)
                after = history.refuse_savepoints(after, request.epoch, reason, error.message, now_ms)
            return Decision(None, changed(head, after))

        with suppress(CairnError):
            self._heads.update(decide)

    def _where_is(self, head: Head, request: TriggerRequest) -> EpochPlace:
        """Find the epoch of a request.

        If the list of completed epochs is damaged, the input slice alone decides whether the epoch has completed.
        """
        try:
            return completed_epochs.where_is(self._files, head, request.epoch)
        except DamagedError as error:
            remembered = window_read_by(request.slice) is not None
            if not (remembered or request.slice.again or any(source.positioned for source in request.sources)):
                raise
            log.warning("The list of completed epochs is damaged. The input of %s decides. %s", request.epoch, error)
            return EpochUnknown()


def _expects(document: PendingDocument, request: TriggerRequest) -> bool:
    return set(document.stages) == set(request.stages) and set(document.hook_names) == set(request.hooks)


def _replaced(head: Head, pending: PendingEntry, document: PendingDocument | None, now_ms: int) -> Head:
    ending = Ending(Reason.JOB_FAILOVER_REGION, "the stages or hooks of the DAG have changed")
    if document is None:
        ending = Ending(Reason.IO_EXCEPTION, "the checkpoint's document is gone or broken")
    return transitions.abort(head, pending, ending, now_ms)


def _refused(head: Head, request: TriggerRequest, refusal: AlreadyRead | InputRefused, now_ms: int) -> Head:
    """Remove a request without input from the queue. Record the reason if a source refused it."""
    head = replace(head, waiting=transitions.leave_queue(head.waiting, request.epoch))
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


# The right to trigger: only one task at a time may trigger an epoch's checkpoint (semantics T10).
#
# Two triggers make only one attempt (T9), but several processes would ask sources and master hooks at once. One process
# could reset a hook to the restored checkpoint while stages already use its answer: the hook would answer twice. And
# each process would count the same failure.
#
# The right is an entry of the head: one swap takes it, another gives it back. Airflow's state of the holder's task
# shows whether the holder lives, so no lease and no clock is needed. A waiting task occupies a worker slot, but waits
# for a running task only, so there is no deadlock.


class HolderState(Enum):
    """Airflow's state of the task that has the right."""

    RUNS = auto()
    COMES_BACK = auto()
    """Rescheduled, or up for retry."""
    FAILED = auto()
    """Failed; Airflow does not run the task again by itself."""
    OTHER = auto()
    """About to run, deferred, ended otherwise, or unknown."""


@dataclass(frozen=True, slots=True)
class HeldBy:
    """The task that holds the right, and its state."""

    task: TriggeringTask
    state: HolderState


class TriggerRight(UseCase):
    """Gives the right to trigger the epochs of one job."""

    def take(
        self, mine: TriggeringTask, owner: Owner, state_of: Callable[[TriggeringTask], HolderState], *, asked_for: bool
    ) -> HeldBy | None:
        """Take the right to trigger an epoch, if no other task has it.

        A task that already holds the right takes it again, so that another task that has asked Airflow about the
        earlier try loses the swap.

        Args:
            mine: the asking task, and the epoch.
            owner: the DAG run. If the job belongs to another owner, nothing is written; the later `trigger` raises
                (semantics W8).
            state_of: gives the state of another task that took the right; called for each version of the head.
            asked_for: a user started this try, or the epoch was overtaken since. The task then triggers even if
                another task's trigger has failed for good.

        Returns:
            None if the caller may trigger: the right is taken, or the job belongs to another owner. Otherwise the task
            that holds the right, or that has failed.
        """

        def decide(head: Head, _now_ms: int) -> Decision[HeldBy | None]:
            if head.owner not in (None, JobOwner(owner.dag_id, owner.deployment)):
                return Decision(None)
            held = next((each for each in head.triggering if each.epoch == mine.epoch), None)
            if held is not None and _names(held) != _names(mine):
                state = state_of(held)
                if _stands(held, state, asked_for=asked_for):
                    return Decision(HeldBy(held, state))
            others = [each for each in head.triggering if each.epoch != mine.epoch]
            return Decision(None, replace(head, triggering=(*others, mine)[-MAX_TRIGGERING:]))

        self._heads.ensure()
        return self._heads.update(decide)[1]

    def give_back(self, mine: TriggeringTask, *, failed: bool = False) -> None:
        """Give the right back; do nothing if another task, or another try of the same task, holds it by now.

        Args:
            mine: the task as it took the right.
            failed: the trigger has failed, and the tasks that wait for this one fail too.
        """

        def decide(head: Head, _now_ms: int) -> Decision[None]:
            held = next((each for each in head.triggering if _names(each) == _names(mine)), None)
            # Airflow may have begun the task's next try, which triggers now, while this one lives on as a zombie.
            if held is None or held.claimant != mine.claimant:
                return Decision(None)
            others = tuple(each for each in head.triggering if each != held)
            left = (*others, replace(mine, failed=True)) if failed else others
            return Decision(None, changed(head, replace(head, triggering=left)))

        self._heads.update(decide)


def _names(task: TriggeringTask) -> tuple[str, str, int]:
    return task.epoch, task.task_id, task.map_index


def _stands(held: TriggeringTask, state: HolderState, *, asked_for: bool) -> bool:
    """Tell whether the holder keeps the right."""
    if state is HolderState.RUNS:
        return True
    if not held.failed:
        return False
    return state is HolderState.COMES_BACK or (state is HolderState.FAILED and not asked_for)
