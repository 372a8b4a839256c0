"""An epoch's attempts: the first, the next after a failure, and taking up what others left (semantics T, F2, F5).

A failover is one swap: the old attempt ends and the new one begins in the same version of the head, so that no
execution falls between the two.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from ...storage.errors import CairnError, DocumentError, GoneError
from ...storage.names import check_name
from ...storage.port import Lost
from ..answers import (
    AlreadyRead,
    EpochCompleted,
    FailAnswer,
    FailedOver,
    NothingToDo,
    Refused,
    TriggerAnswer,
    Triggered,
    failed,
)
from ..completion import restore, settle
from ..config import AT_LEAST_ONCE
from ..decisions import (
    admission,
    last_epoch,
    partial_completion,
    queue,
    restore_choice,
    rewinds,
    savepoint_waits,
    transitions,
)
from ..decisions.abandoned import StateOf, without_ended
from ..decisions.ownership import take_ownership
from ..decisions.state_assignment import ALLOWING, check_claimed_by_sources
from ..documents import layout, run_window
from ..documents.attempt import EpochDocument, Execution, Limits, PendingDocument, Slice, StageSpec
from ..documents.entries import EndedEntry, PendingEntry
from ..documents.head import Head
from ..documents.strict_json import Json
from ..errors import AlreadyReadError, CompletedEpochsLostError, InvalidConfigError
from ..executions import claimants
from ..executions.carry_over import NOTHING, Carried, carry
from ..failures.restarts import Exhausted, Restart
from ..reasons import Reason, Status
from ..request import TriggerRequest
from ..runtime import Runtime
from ..source import RunFacts
from ..sources import already_read, placement
from ..store import acks, attempt_documents, completed_epochs, newer_documents
from ..store.head_store import Decision, HeadStore, changed
from ..store.job_files import JobFiles
from ..store.side_lists import JobShelf
from . import cancellation, give_up, next_attempt
from .opening import Opener, Opening

log = logging.getLogger(__name__)


class Attempts:
    """Opens attempts of one job.

    Args:
        files: the job's files.
        heads: the job's head.
        runtime: clock and ids.
    """

    def __init__(self, files: JobFiles, heads: HeadStore, runtime: Runtime) -> None:
        self._files = files
        self._heads = heads
        self._runtime = runtime
        self._opener = Opener(files, runtime)
        self._documents: dict[str, PendingDocument] = {}
        """The document read last, by its token: made once, it is not read twice. Which one counts, the head says."""

    def trigger(self, request: TriggerRequest, state_of: StateOf) -> TriggerAnswer:
        """Make a checkpoint pending for the epoch, or say why not (semantics T1 to T6, T8, T9).

        A request that has to wait takes a place in the line; who has ended is passed over. What is free belongs to the
        first in the line, however late it asks.

        Triggering again while it is pending gives the same checkpoint, unless the DAG's stages have changed since, or
        its document is lost: then the attempt ends and the next one begins, which takes over what has not changed.

        Args:
            request: the epoch, its input and its stages.
            state_of: tells what is known of the DAG run that owns another epoch. One that has ended is not waited for:
                its pending checkpoint is aborted with `JOB_FAILURE`, its place in the line is given up. One that is
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
        fixed: Slice | None = None
        epoch = request.epoch
        notes: list[str] = []

        def decide(head: Head, now_ms: int) -> Decision[TriggerAnswer]:
            answered = ask(head, now_ms)
            why = last_epoch.why_not_begun(answered.result)
            if why is None:
                return answered
            settled = savepoint_waits.refused(answered.head or head, epoch, *why, now_ms)
            return Decision(answered.result, changed(head, settled))

        def ask(head: Head, now_ms: int) -> Decision[TriggerAnswer]:
            nonlocal fixed
            settled = settle.settle(self._files, take_ownership(head, request.owner), now_ms)
            completed = self._completed_before(settled, request)
            if completed is not None:
                return Decision(EpochCompleted(request.epoch, completed), changed(head, settled))
            pending = settled.pending_of_epoch(request.epoch)
            if pending is not None:
                document = self.readable(pending)
                if document is not None and _expects(document, request):
                    return Decision(Triggered(document, created=False))
                settled = _replaced(settled, pending, document, now_ms)
            places = request.config.max_concurrent_checkpoints
            settled = without_ended(settled, state_of, request.owner, epoch, places, now_ms)
            settled = last_epoch.given_up_where_over(settled, request, self.readable, state_of, now_ms)
            verdict = admission.decide(settled, request, now_ms)
            if not isinstance(verdict, admission.Admit):
                # A place in the line is kept by being swapped in; one that is refused loses the place it had.
                line = verdict.line if isinstance(verdict, admission.Wait) else queue.leave(settled.waiting, epoch)
                settled = admission.noted(replace(settled, waiting=line), request, verdict, now_ms)
                return Decision(admission.answer(settled, request, verdict), changed(head, settled))
            choice = restore.choose(self._files, settled)
            placed = self._place(settled, request, fixed, choice)
            if isinstance(placed, AlreadyRead | Refused):
                settled = replace(settled, waiting=queue.leave(settled.waiting, epoch))
            if isinstance(placed, AlreadyRead):
                return Decision(placed, changed(head, settled))
            if isinstance(placed, Refused):
                refusal = admission.Decline(Reason.TRIGGER_CHECKPOINT_FAILURE, f"{placed.source}: {placed.detail}")
                settled = admission.noted(settled, request, refusal, now_ms)
                return Decision(placed, changed(head, settled))
            fixed, log = placed
            before = next(settled.ended_of_epoch(request.epoch), None)
            limits = _limits_of(request)
            opening = Opening(
                epoch=request.epoch,
                slice=fixed,
                stages=request.stages,
                limits=limits,
                owner=request.owner,
                kind=request.kind,
                before=before,
                # A run that triggers again runs the stages again; only what has acknowledged is worth keeping.
                carried=self.carried_by(
                    settled, epoch, request.stages, running=False, at_least_once=limits.at_least_once
                ),
                cause=cause_of(settled, before),
                listeners=request.listeners,
                hooks=request.hooks,
                allow_non_restored_state=request.config.allow_non_restored_state,
            )
            opened = self._opener.open(settled, opening, now_ms, choice)
            notes.extend(log)
            lines = (*notes, *already_read.gap_before(choice, fixed))
            answer = Triggered(opened.pending, created=True, damages=opened.damages, log=lines)
            return Decision(answer, replace(opened.head, savepoint_target=request.config.savepoint_target))

        try:
            return self._heads.update(decide, known=True)[1]
        except CairnError as error:
            self._note_failed(request, error)
            raise

    def _note_failed(self, request: TriggerRequest, error: CairnError) -> None:
        """Keep and count a failed trigger; where that cannot be written either, the error alone says so."""

        def decide(head: Head, now_ms: int) -> Decision[None]:
            after = admission.failed(head, request, error, now_ms)
            if not error.retry_cures:
                reason = admission.reason_of(error)
                after = savepoint_waits.refused(after, request.epoch, reason, error.message, now_ms)
            return Decision(None, changed(head, after))

        with suppress(CairnError):
            self._heads.update(decide)

    def fail_over(
        self,
        epoch: str,
        stage: str,
        token: str,
        detail: str,
        *,
        final: bool = False,
        missing: frozenset[str] = frozenset(),
        curable: bool = True,
        anew: bool = False,
        again: bool = False,
    ) -> FailAnswer:
        """Abort the epoch's attempt and open the next, if `token` is still the stage's current execution.

        The stage's region, those that read from it, and those that have to write again what is gone get new executions,
        and so do the regions of stages that have declined; those of all others carry over, running or acknowledged
        (semantics F1, F2, F5).

        Args:
            epoch: the epoch's name.
            stage: the stage's uid.
            token: of the execution that failed.
            detail: the root cause in one line; a decline of the stage itself goes before it.
            final: no other try follows by itself. Where stages may be left out nothing is opened then: the checkpoint
                goes on without the stage's region if that may fail (F6), and has failed if not.
            missing: stages that this one reads from, of which what they wrote is known to be gone or altered.
            curable: False: another try would fail alike. So would one that the restart strategy does not allow: the
                checkpoint has failed, unless it may go on without the stage's region, and nothing is opened (F4).
            anew: the stage was given up, and a person has asked for another try all the same: the next attempt is
                opened, and the count of restarts starts anew (F4, F6).
            again: nothing has failed. A person has cleared the stage's task after it had acknowledged, so it runs again
                all the same (F5); no restart is counted.

        Raises:
            InvalidConfigError: the pending checkpoint does not expect the stage.
            NoCheckpointError: every retained checkpoint is damaged.
            UnavailableError: the store did not answer, so what has to run again is not known; nothing has changed.
        """

        def decide(head: Head, now_ms: int) -> Decision[FailAnswer]:
            settled = settle.settle(self._files, head, now_ms)
            entry = settled.pending_of_epoch(epoch)
            if entry is None:
                completed = self.completed_epoch(settled, epoch)
                if completed is not None:
                    return Decision(EpochCompleted(epoch, completed), changed(head, settled))
                newest = next(settled.ended_of_epoch(epoch), None)
                if newest is not None and (newest.for_good or newest.reason is Reason.CHECKPOINT_SUBSUMED):
                    return Decision(failed(newest), changed(head, settled))
                why = "the attempt has ended; the next try opens one"
                return Decision(NothingToDo(why), changed(head, settled))
            document = self.document_of(entry)
            execution = self.execution_of(document, stage)
            if execution.token != token:
                still = claimants.waiting(self._files, document)
                return Decision(FailedOver(document, created=False, restarted=still))
            carried = carry(self._files, document, document.stages, restart=stage, again=again, missing=missing)
            if stage in carried.acknowledged:
                return Decision(NothingToDo(f"{stage} had acknowledged before it ended; nothing is lost"))
            declined = acks.why_declined(self._files, stage, execution)
            why = declined[1] if declined else detail
            cause = f"{stage}: {why}"
            done = len(carried.acknowledged)
            may_leave_out = document.limits.leave_out is not None
            # Where stages may be left out, each speaks for itself alone: its region is left out, not another's.
            also = frozenset[str]() if may_leave_out else carried.declined - {stage}
            restarts = entry.restarts if again else 0
            verdict: Restart | Exhausted = Restart(restarts, memory=settled.restart_memory)
            if not anew and not again:
                verdict = next_attempt.after_failure(
                    self._files, settled, entry, document, stage, now_ms, declined=also, curable=curable
                )
            if may_leave_out and (final or isinstance(verdict, Exhausted)):
                given_up = give_up.give_up(self._files, settled, entry, document, stage, why)
                if given_up is not None:
                    return Decision(given_up, changed(head, settled))
            if isinstance(verdict, Exhausted) or (may_leave_out and final):
                for_good = isinstance(verdict, Exhausted)
                if isinstance(verdict, Exhausted):
                    cause = f"{verdict.why}: {cause}"
                # A failed task, which is no failure of checkpoints (D5). Its driver is dead: nothing carries it over.
                aborted = transitions.abort(
                    settled, entry, Reason.JOB_FAILURE, cause, now_ms, acks=done, rejected=(token,), for_good=for_good
                )
                ended = aborted.ended_by_id(entry.id)
                assert ended is not None
                return Decision(failed(ended), aborted)
            others = cancellation.told(
                cancellation.causes(self._files, document.executions, carried.declined - {stage})
            )
            after = transitions.abort(
                settled, entry, Reason.JOB_FAILOVER_REGION, cause, now_ms, acks=done, others=others
            )
            opening = Opening(
                epoch=epoch,
                slice=document.slice,
                stages=document.stages,
                limits=document.limits,
                owner=entry.owner,
                before=entry,
                carried=carried,
                cause=cause,
                restart=verdict,
                listeners=entry.listeners,
                hooks=document.hook_names,
            )
            try:
                opened = self._opener.open(after, opening, now_ms)
            except AlreadyReadError as error:
                # Another run has read its window since; until it ends it is in the way of others.
                aborted = transitions.abort(
                    settled, entry, Reason.CHECKPOINT_SUBSUMED, error.message, now_ms, acks=done
                )
                return Decision(failed(next(aborted.ended_of_epoch(epoch))), aborted)
            restarted = claimants.of(opened.pending)
            return Decision(FailedOver(opened.pending, True, opened.damages, restarted), opened.head)

        return self._heads.update(decide)[1]

    def document_of(self, entry: PendingEntry | EndedEntry) -> PendingDocument:
        """Read what an attempt expects (or expected).

        Raises:
            GoneError: the attempt is past and cleaned.
            DocumentError: the document is broken, or another checkpoint's.
        """
        # One look: a driver's threads ask the same coordinator, and another may put its document there meanwhile.
        known = self._documents.get(entry.token)
        if known is not None:
            return known
        document = attempt_documents.read(self._files, entry, self._heads.held(entry.token))
        if isinstance(entry, PendingEntry):
            self._documents = {entry.token: document}
        return document

    def readable(self, entry: PendingEntry | EndedEntry | None) -> PendingDocument | None:
        """Read the document of an attempt; one that is gone or broken lends nothing to the next."""
        try:
            return self.document_of(entry) if entry is not None else None
        except (GoneError, DocumentError):
            return None

    def lent_by(self, ended: EndedEntry | None) -> PendingDocument | None:
        """Read what an attempt that has ended lends to the next; None where it lends nothing.

        What was left behind may be being deleted, so it lends nothing although it may be there still.
        """
        return None if ended is None or ended.left_behind else self.readable(ended)

    def execution_of(self, document: PendingDocument, stage: str) -> Execution:
        """Give a stage's execution in an attempt.

        Raises:
            InvalidConfigError: the attempt does not expect the stage.
        """
        try:
            return document.executions[stage]
        except KeyError:
            raise InvalidConfigError(
                "the pending checkpoint does not expect this stage: the DAG has changed since it was triggered; clear "
                "the task that triggers the checkpoint",
                job=document.job,
                checkpoint=document.checkpoint,
                stage=stage,
                expected=", ".join(sorted(document.executions)),
            ) from None

    def completed_epoch(self, head: Head, epoch: str) -> int | None:
        """Give the checkpoint that completed the epoch, however long ago.

        What was rewound since means nothing.

        Raises:
            CompletedEpochsLostError: it is not known, because a list of completed epochs is lost.
            InvalidNameError: what is asked for is no name of an epoch (semantics W1).
        """
        check_name("epoch", epoch)
        known = head.completions().get(epoch)
        if known is not None or head.remembers_all():
            return known
        if head.pending_of_epoch(epoch) is not None or next(head.ended_of_epoch(epoch), None) is not None:
            return None  # attempts are opened before an epoch completes, and forgotten before that is
        noted = completed_epochs.find(self._files, head, epoch)
        return noted if noted is None or head.rewind_of(noted) is None else None

    def _completed_before(self, head: Head, request: TriggerRequest) -> int | None:
        """Give the checkpoint that completed the epoch of a request, as far as that has to be known.

        Where the list of completed epochs is lost, an epoch whose input is remembered in the state is judged by that.
        """
        try:
            return self.completed_epoch(head, request.epoch)
        except CompletedEpochsLostError as error:
            remembered = run_window.window_read_by(request.slice) is not None
            if not (remembered or request.slice.again or any(source.positioned for source in request.sources)):
                raise
            log.warning("Whether %s has completed is judged by its input alone. %s", request.epoch, error)
            return None

    def is_new(self, head: Head, epoch: str) -> bool:
        """Tell whether no run has asked for the epoch's checkpoint yet, as far as head, history and notes know.

        Raises:
            InvalidNameError: what is asked for is no name of an epoch (semantics W1).
        """
        check_name("epoch", epoch)
        asked = head.pending_of_epoch(epoch) is not None or queue.holds(head.waiting, epoch)
        if asked or epoch in head.completions() or next(head.ended_of_epoch(epoch), None) is not None:
            return False
        return completed_epochs.find(self._files, head, epoch) is None

    def _fix_slice(self, head: Head, request: TriggerRequest) -> Slice:
        """Store the epoch's slice at its first trigger and give what is stored (semantics T8)."""
        key = layout.epoch_slice(request.epoch)
        wanted = EpochDocument(self._files.job, request.epoch, request.slice)
        if isinstance(self._files.create(key, wanted), Lost):
            self._say_if_restored(head, request.epoch)
            return self._files.read(EpochDocument, key)[0].slice
        return request.slice

    def _say_if_restored(self, head: Head, epoch: str) -> None:
        """Where a slice stands of which the head knows nothing, that may be because the head is an older one (W9)."""
        if next(head.ended_of_epoch(epoch), None) is None:
            newer_documents.say_if_completed_later(self._files, head, epoch)

    def _place(
        self, head: Head, request: TriggerRequest, fixed: Slice | None, choice: restore_choice.RestoreChoice
    ) -> tuple[Slice, tuple[str, ...]] | AlreadyRead | Refused:
        """Fix what the epoch reads, if nothing has, and move the sources' positions over it (semantics T8).

        A window that the restored state has read is not read again, and a position that no source claims is an error.
        """
        if not request.sources:
            # First of all: a run that reads nothing leaves nothing behind.
            read_before = already_read.judge(head, choice, request.epoch, request.slice)
            if read_before is not None and not head.drains(request.epoch):
                return read_before
            if read_before is not None:
                # It is there to let out what waits, and what its interval holds has been read (semantics P2).
                request = replace(request, slice=replace(request.slice, start=request.slice.end))
        self._check_sources(head, request, choice)
        placed = self._placed(head, request, fixed, choice)
        if isinstance(placed, Refused):
            return placed
        # What the epoch's first trigger has fixed counts, which may be something else.
        return already_read.judge(head, choice, request.epoch, placed[0]) or placed

    def _check_sources(self, head: Head, request: TriggerRequest, choice: restore_choice.RestoreChoice) -> None:
        came_from = head.import_of(choice.pointer.checkpoint) if choice.pointer else None
        if request.config.allow_non_restored_state or (came_from and came_from.allow_non_restored_state):
            return
        positions = (choice.slice.positions or {}) if choice.slice else {}
        check_claimed_by_sources(
            [name for name, position in positions.items() if position is not None],
            [source.name for source in request.sources],
            ALLOWING,
            job=self._files.job,
            checkpoint=choice.pointer.checkpoint if choice.pointer else None,
        )

    def _placed(
        self, head: Head, request: TriggerRequest, fixed: Slice | None, choice: restore_choice.RestoreChoice
    ) -> tuple[Slice, tuple[str, ...]] | Refused:
        shelf = JobShelf(self._files, request.epoch, head.next_id, self._runtime.new_token)
        positions = placement.positions_at(choice, request.sources, shelf)
        if isinstance(positions, Refused):
            return positions
        positions = placement.claimed(positions, request.sources, already_read.read_by(choice))
        log: tuple[str, ...] = ()
        placed: Slice | Refused | None = None
        if request.run is None:
            fixed = fixed or self._fix_slice(head, request)
            if not positions and not fixed.sources:
                return fixed, ()
        else:
            read = self._read_once(head, request, request.run, fixed, positions, shelf)
            if isinstance(read, Refused):
                return read
            fixed, log, placed = read
        placed = placed or placement.place(fixed, request.sources, positions, head.latest_id(), shelf)
        return placed if isinstance(placed, Refused) else (placed, log)

    def _read_once(
        self,
        head: Head,
        request: TriggerRequest,
        run: RunFacts,
        fixed: Slice | None,
        positions: Mapping[str, Json],
        shelf: JobShelf,
    ) -> tuple[Slice, tuple[str, ...], Slice | None] | Refused:
        """Ask the sources what the epoch reads, unless that stands already; give also the slice as placed, if known."""
        if fixed is None:
            fixed = self._stored_slice(request.epoch)
            if fixed is not None:
                self._say_if_restored(head, request.epoch)
        if fixed is not None:
            return fixed, (), None
        asked = placement.read(request.slice, request.sources, replace(run, shelf=shelf), positions)
        if isinstance(asked, Refused):
            return asked
        wanted, log = asked
        placed = placement.place(wanted, request.sources, positions, head.latest_id(), shelf)
        if isinstance(placed, Refused):
            return placed
        # Without positions: they belong to an attempt, and what they stand on may change until the next.
        fixed = self._fix_slice(head, replace(request, slice=wanted))
        return fixed, log, placed if fixed is wanted else None

    def _stored_slice(self, epoch: str) -> Slice | None:
        try:
            return self._files.read(EpochDocument, layout.epoch_slice(epoch))[0].slice
        except GoneError:
            return None

    def carried_by(
        self,
        head: Head,
        epoch: str,
        stages: tuple[StageSpec, ...],
        *,
        restart: str | None = None,
        running: bool = True,
        at_least_once: bool | None = None,
    ) -> Carried:
        """Choose what the epoch's next attempt takes over from the one before, which has ended (semantics F2).

        Args:
            head: the version decided on.
            epoch: the epoch's name.
            stages: what the next attempt expects.
            at_least_once: whether its stages read what is there (semantics B2); None: as in the one before.
            restart: a stage to run again unless it has acknowledged.
            running: whether executions that have not acknowledged are taken over too.
        """
        ended = next(head.ended_of_epoch(epoch), None)
        document = self.lent_by(ended)
        if ended is None or document is None:
            return NOTHING
        carried = carry(self._files, document, stages, rejected=ended.rejected, restart=restart, running=running)
        if head.carryable(epoch) is None or at_least_once not in (None, document.limits.at_least_once):
            # An acknowledgement says what was read in the one mode alone; the other would take all for read.
            return carried.nothing()
        return carried


def _expects(document: PendingDocument, request: TriggerRequest) -> bool:
    return set(document.stages) == set(request.stages) and set(document.hook_names) == set(request.hooks)


def _replaced(head: Head, pending: PendingEntry, document: PendingDocument | None, now_ms: int) -> Head:
    if document is None:
        return transitions.abort(head, pending, Reason.IO_EXCEPTION, "its document is gone or broken", now_ms)
    return transitions.abort(
        head, pending, Reason.JOB_FAILOVER_REGION, "the stages or hooks of the DAG have changed", now_ms
    )


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


def cause_of(head: Head, before: EndedEntry | None) -> str:
    """Say for people why an attempt follows the one before; empty for an epoch's first."""
    if before is None:
        return ""
    if before.status is Status.COMPLETED:
        return rewinds.undone(head, before)
    return f"{before.reason}: {before.detail}"
