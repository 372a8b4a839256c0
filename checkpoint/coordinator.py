"""The checkpoint coordinator of one job: Flink's CheckpointCoordinator for processes that live shorter than a job.

Any process may hold one at any moment: an Airflow task, a callback, a trigger, the command line, a Spark driver. A
coordinator keeps no state: each decision is one conditional write of the head, where the next process finds it.

The acts do the work. Where one act suffices, its bound method is an attribute of the coordinator, and is documented
where the act defines it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from ..storage.clock import Runtime, system_runtime
from ..storage.port import ObjectStore
from .acts import acknowledgements, carry_over, opening
from .acts.acknowledgements import ExecutionReports
from .acts.claims import ClaimRequest, Claims, Drivers
from .acts.completion import Completion
from .acts.failover import Failover, FailureReport
from .acts.interventions import Ownership, Rewinding
from .acts.trigger import EpochTriggering, TriggerRight
from .acts.use_case import UseCase
from .answers import BeginAnswer, EpochCompleted, FailAnswer, FilesProgress, Progress, Waiting
from .cleaner import Cleaner
from .documents import unread
from .documents.acknowledgement import StateHandle
from .documents.attempt import Handover
from .documents.entries import InterventionKind
from .documents.head import Head
from .documents.programs import Program
from .errors import NoCheckpointError
from .extensions.contracts import MasterHook
from .extensions.listeners import Notices
from .extensions.master_hooks import HookAnswers
from .mirrors.activation import Activating, GivingUp
from .mirrors.mirror_pass import Mirroring
from .rules import admission, restored_state, transitions
from .rules.admission import StateOf, always_running
from .rules.history import EpochUnknown
from .savepoints.start_from import Importing
from .savepoints.take import Savepoints
from .store import completed_epochs, verification
from .store.head_store import AfterSwap, Decision, OpenJob

R = TypeVar("R")


class Coordinator(UseCase):
    """Triggers, completes, aborts, restores and cleans the checkpoints of one job.

    Args:
        store: the storage root.
        job: the job's name (semantics W1).
        runtime: clock and ids; the system's by default.
        after_swap: called with each version of the head that this coordinator has written (`head_store.AfterSwap`).

    Raises:
        InvalidKeyError: the job's name does not match the grammar.
    """

    def __init__(
        self,
        store: ObjectStore,
        job: str,
        runtime: Runtime | None = None,
        *,
        after_swap: AfterSwap | None = None,
    ) -> None:
        opened = OpenJob(store, job, runtime or system_runtime(), after_swap)
        super().__init__(opened)
        self.files = opened.files
        self.ownership = Ownership(opened)
        """Checks and changes the job's owner (semantics W8)."""
        self.pending_document = opened.documents.readable

        self._trigger = EpochTriggering(opened)
        self.trigger = self._trigger.trigger
        self.trigger_right = TriggerRight(opened)
        """Lets one task at a time trigger an epoch (semantics T10)."""
        self._failover = Failover(opened)
        self._claims = Claims(opened)
        self.unclaimed = self._claims.unclaimed
        self.stand_in = self._claims.stand_in

        reports = ExecutionReports(opened)
        self.acknowledge = reports.acknowledge
        self.decline = reports.decline
        self.standing = reports.standing
        self.over = reports.over
        self.completed_with = reports.completed_with

        completion = Completion(opened)
        self.progress = completion.progress
        self.go_on = completion.go_on
        self.complete = completion.complete
        self.complete_if_last = completion.complete_if_last
        self.abort = completion.abort
        cleaner = Cleaner(opened)
        self.clean = cleaner.clean
        self.leftovers = cleaner.leftovers

        notices = Notices(opened)
        self.deliver = notices.deliver
        self.run_again = notices.run_again
        self.forget_listener = notices.forget
        self.mirror = Mirroring(opened).run
        self.give_up_mirror = GivingUp(opened).give_up
        activating = Activating(opened)
        self.activation_plan = activating.plan
        self.activate = activating.activate
        self._hook_answers = HookAnswers(opened)
        self.ask_hooks = self._hook_answers.ask

        rewinding = Rewinding(opened)
        self.rewind_plan = rewinding.plan
        self.rewind = rewinding.rewind
        savepoints = Savepoints(opened)
        self.savepoint = savepoints.take
        self.open_savepoint = savepoints.open
        self.go_on_with_savepoint = savepoints.go_on
        self.savepoints_to_go_on_with = savepoints.to_go_on_with
        self.check_savepoint = savepoints.check
        self.look_for_savepoint = savepoints.look
        self.awaited_by = savepoints.awaited_by
        self.held_by_listeners = savepoints.held_by_listeners
        self.give_up_stop = savepoints.give_up_stop
        importing = Importing(opened)
        self.start_plan = importing.plan
        self.start_from = importing.start

    @property
    def job(self) -> str:
        """The job's name."""
        return self.files.job

    @property
    def revision(self) -> int:
        """Revision of the head that this process has seen last; 0 before the first look."""
        return self._heads.revision

    def head(self) -> Head:
        """Read the job's head; empty for a job that never ran."""
        return self._heads.load()

    def known_head(self) -> Head:
        """Give the head as this process has seen it last, without a request; read it if it has seen none."""
        return self._heads.known_or_read()

    def observe(self, look: Callable[[Head], R]) -> R:
        """Call `look` on the head, and again if the head changed during the call; see `HeadStore.observe`."""
        return self._heads.observe(lambda head, _now_ms: look(head))

    def is_unchanged(self, found: Progress) -> bool:
        """Tell, for one request to the store, whether an epoch's progress is still as the last look found it.

        Args:
            found: the progress that this coordinator's last look has found.

        Returns:
            False if the progress has changed, or if this one request cannot tell.
        """
        quiet = isinstance(found, Waiting) and self._runtime.now_ms() < found.quiet_until_ms
        return quiet and not self._heads.has_changed()

    def still_waits(self, turn: admission.Turn) -> admission.StillWaits | None:
        """Tell, for one read of the head, whether a request still waits; see `admission.still_waits`."""
        return self._heads.observe(lambda head, now_ms: admission.still_waits(head, turn, now_ms))

    def held_up_by(self, turn: admission.Turn) -> admission.HeldUp:
        """Name the DAG runs that hold up a waiting request; see `admission.held_up_by`."""
        return self._heads.observe(lambda head, _now_ms: admission.held_up_by(head, turn))

    def restore_hooks(
        self,
        choice: restored_state.RestoreChoice,
        hooks: Sequence[MasterHook],
        *,
        allow_non_restored_state: bool = False,
    ) -> None:
        """Let master hooks go back to the restored checkpoint; see `HookAnswers.restore`."""
        self._hook_answers.restore(choice.pointer, hooks, allow_non_restored_state=allow_non_restored_state)

    def begin(
        self,
        epoch: str,
        stage: str,
        claimant: str,
        *,
        cleared_by_user: bool = False,
        rescheduled: bool = False,
        drivers: Drivers | None = None,
        try_number: int = 0,
        first_try: int = 0,
        state_of: StateOf = always_running,
        timeout_ms: int | None = None,
        program: Program | None = None,
        after_success: bool = False,
        triggers: bool = False,
    ) -> BeginAnswer:
        """Claim the right to submit a stage's application; see `Claims.begin`."""
        return self._claims.begin(
            ClaimRequest(
                epoch,
                stage,
                claimant,
                cleared_by_user,
                rescheduled,
                drivers,
                try_number,
                first_try,
                state_of,
                timeout_ms,
                program,
                after_success,
                triggers,
            )
        )

    def why_unacknowledged(self, epoch: str, stage: str) -> str:
        """Say why a stage has not acknowledged although its task has ended, as far as the store tells.

        Args:
            epoch: the epoch's name.
            stage: the stage's uid.

        Raises:
            UnavailableError: the store did not answer.
        """

        def look(head: Head) -> str:
            entry = head.pending_of_epoch(epoch)
            document = self._documents.readable(entry)
            if document is None or stage not in document.executions:
                return "its attempt has ended since"
            return acknowledgements.describe_unacknowledged(self.files, head, document, stage)

        return self.observe(look)

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
        try_number: int = 0,
        server: str = "",
        of_store: bool = False,
    ) -> FailAnswer:
        """Report that a try of a stage failed; see `Failover.fail`."""
        report = FailureReport(
            epoch,
            stage,
            detail,
            final=final,
            curable=curable,
            try_number=try_number,
            server=server,
            of_store=of_store,
        )
        return self._failover.fail(report, claimant, unknown=unknown)

    def was_overtaken(self, handover: Handover) -> bool:
        """Tell whether an execution was overtaken, so that it counts no more; see `transitions.was_overtaken`."""
        return self._heads.observe(lambda head, _now_ms: transitions.was_overtaken(head, handover))

    def was_missed(self, handover: Handover) -> bool:
        """Tell whether an attempt has replaced an execution without seeing its claim; see `carry_over.was_missed`."""

        def look(head: Head, _now_ms: int) -> bool:
            document = self._documents.readable(head.pending_of_epoch(handover.epoch))
            return document is not None and carry_over.was_missed(self.files, document, handover)

        return self._heads.observe(look)

    def pause(self) -> None:
        """Stop periodic requests because the DAG is paused; abort pending checkpoints, drop waiting requests (S1).

        Aborted epochs go on after `unpause`. A second call changes nothing.
        """
        self._heads.ensure()
        self._update_settled(lambda head, now_ms: Decision(None, transitions.pause(head, now_ms)))

    def unpause(self) -> None:
        """Take periodic requests again because the DAG is unpaused; a job stopped in another way stays stopped (S1).

        An epoch whose checkpoint the pause has aborted is resumed by `wait_for_checkpoint` (`go_on`), or by the
        next try of one of its stages (`begin`).
        """
        self._update_settled(lambda head, _now_ms: Decision(None, transitions.unpause(head)))

    def resume(self, *, actor: str = "") -> None:
        """Take all requests again; change nothing if the job is not stopped (semantics S1).

        A stop with a savepoint that is under way is given up: the savepoint fails (semantics P2).

        Args:
            actor: the person who resumes, for the record; empty where unknown.
        """

        def decide(head: Head, now_ms: int) -> Decision[None]:
            after = replace(head, stopped=None)
            after = transitions.give_up_stop(after, "the job was resumed before it had stopped", now_ms)
            after = transitions.done_by(actor, InterventionKind.RESUME, head, after, now_ms)
            return Decision(None, after)

        self._update_settled(decide)

    def restore_latest(self, *, required: bool = False) -> restored_state.RestoreChoice:
        """Abort pending checkpoints, find the newest completed checkpoint that is whole, and record it (R1, R2, R5).

        Args:
            required: raise where there is no checkpoint, instead of starting empty.

        Raises:
            NoCheckpointError: a checkpoint is required and there is none, or every retained one is damaged.
        """

        def choose(head: Head, now_ms: int) -> Decision[restored_state.RestoreChoice]:
            found = opening.choose_restored(self.files, head)
            record = found.record("restored manually", now_ms, self._runtime.now_ms())
            return Decision(found, transitions.record_restore(head, record) if record else None)

        self._update_settled(
            lambda head, now_ms: Decision(None, transitions.suspend_pending(head, "the job is being restored", now_ms))
        )
        choice = self._heads.update(choose)[1]
        if required and choice.pointer is None:
            raise NoCheckpointError(
                "the job has no completed checkpoint and one is required; let an epoch complete first, or do not "
                "require one",
                job=self.job,
            )
        return choice

    def is_new_epoch(self, epoch: str) -> bool:
        """Tell whether no run has asked for the epoch's checkpoint yet, as far as head, history and notes know.

        Raises:
            InvalidKeyError: `epoch` is not a valid name of an epoch (semantics W1).
        """

        def look(head: Head) -> bool:
            waits = transitions.has_place(head.waiting, epoch)
            return not waits and completed_epochs.where_is(self.files, head, epoch) == EpochUnknown()

        return self.observe(look)

    def completed_in(self, epoch: str) -> int | None:
        """Give the checkpoint in which an epoch completed, however long ago; None if none has, or a rewind undid it.

        Raises:
            DamagedError: a list of completed epochs is lost, so the answer is unknown.
            InvalidKeyError: `epoch` is not a valid name of an epoch (semantics W1).
        """

        def look(head: Head) -> int | None:
            place = completed_epochs.where_is(self.files, head, epoch)
            return place.checkpoint if isinstance(place, EpochCompleted) else None

        return self.observe(look)

    def verify(
        self,
        checkpoint: int | None = None,
        *,
        deep: bool = False,
        on_progress: Callable[[FilesProgress], None] = lambda _: None,
    ) -> list[verification.Verification]:
        """Check the files of one retained checkpoint, or of all, newest first (semantics R1, W9).

        Args:
            checkpoint: its id; None for all.
            deep: read every file, instead of trusting the store's checksum.
            on_progress: called with each file that has been checked.

        Raises:
            NoCheckpointError: the checkpoint asked for is not retained.
        """

        def look(head: Head, _now_ms: int) -> list[verification.Verification]:
            unread.read_all(head)
            entries = head.completed[::-1] if checkpoint is None else (head.retained(checkpoint),)
            size_bytes = sum(entry.size_bytes for entry in entries)
            done = bytes_done = 0

            def checked(handle: StateHandle) -> None:
                nonlocal done, bytes_done
                done, bytes_done = done + 1, bytes_done + handle.size_bytes
                on_progress(FilesProgress(0, done, size_bytes, bytes_done))

            return [verification.verify(self.files, entry, deep=deep, on_checked=checked) for entry in entries]

        return self._heads.observe(look, doubt=lambda found: not all(each.whole for each in found))

    def verify_lists(self, *, deep: bool = False) -> dict[str, str]:
        """Give the problem of each damaged list of epochs that completed long ago, by its key (semantics T9, W9).

        Args:
            deep: read the lists, too.
        """
        return self._heads.observe(
            lambda head, _now_ms: completed_epochs.damaged(self.files, head, deep=deep), doubt=bool
        )

    def completed_later(self) -> dict[int, str | None]:
        """Find checkpoints that a head newer than the stored one had completed; see `verification.completed_later`."""
        return self._heads.observe(lambda head, _now_ms: verification.completed_later(self.files, head), doubt=bool)
