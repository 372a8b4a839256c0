"""Opens an attempt of an epoch: chooses the restored checkpoint and the carried executions, and makes the document.

The checkpoint to restore is the newest completed one that is whole (semantics R1, R2, R3). If a file of a checkpoint is
gone or altered, the search falls back to the checkpoint before, and the report names the file and the damage. A store
that does not answer is an error, never damage. The search writes and deletes nothing.

One swap of the head makes the next free id pending, together with the attempt's document. A document that is too large
for the head is written before the swap, as an object below that id (`attempt_documents`). A crash before the swap does
no harm: the object's name has its own token, and the cleaner leaves ids alone that the head has not handed out. After
the swap the attempt is whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...storage.clock import Runtime
from ...storage.errors import GoneError
from ...storage.records import dataclass
from ..answers import Damage
from ..documents import layout
from ..documents.attempt import (
    AttemptRef,
    BacklogEpoch,
    EpochDocument,
    Execution,
    HooksRef,
    Limits,
    Owner,
    PendingDocument,
    ReplayedEpoch,
    RestartRule,
    RestorePointer,
    Slice,
    StageSpec,
    execution_token,
    run_of_slice,
    window_text,
)
from ..documents.entries import CompletedEntry, EndedEntry, ImportRecord, PendingEntry
from ..documents.head import MAX_NOTICES, Head
from ..documents.strict_json import common
from ..errors import CallbackError, InvalidStateError, NoCheckpointError, RefusedError
from ..masking import one_line
from ..reasons import RequestKind, Status, cause_first
from ..rules import history, restored_state, rewinds, transitions
from ..rules.failures import Restart, left
from ..rules.restored_state import ALLOWING, RestoreChoice, check_claimed_by_hooks, check_claimed_by_stages
from ..store import attempt_documents
from ..store.job_files import JobFiles
from ..store.verification import verify
from . import carry_over
from .carry_over import NOTHING, CarryOver


@dataclass(frozen=True, slots=True)
class Opening:
    """Contents of a new attempt, apart from its id."""

    epoch: str
    slice: Slice
    stages: tuple[StageSpec, ...]
    limits: Limits
    owner: Owner | None
    kind: RequestKind | None = None
    """Kind of the request that opens an epoch's first attempt; later attempts keep that kind."""
    before: PendingEntry | EndedEntry | None = None
    """The attempt before; None for an epoch's first."""
    carried: CarryOver = NOTHING
    """Executions to take over from the attempt before, if both restore the same checkpoint."""
    cause: str = ""
    """Why the attempt is opened, for people; empty for an epoch's first."""
    restart: Restart | None = None
    """Verdict of the restart strategy on the failed try before; None: its count starts at zero (semantics F4)."""
    listeners: tuple[str, ...] = ()
    """Names of the listeners that are notified of the attempt's end (semantics C4, D4)."""
    hooks: tuple[str, ...] = ()
    """Master hooks that have to answer (semantics T7)."""
    allow_non_restored_state: bool = True
    """Whether state that no stage claims may be left behind. Only the trigger sets this: later attempts have the same
    stages, or the author's permission already (semantics R3, F2)."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A new attempt, and the head to swap in, which makes the attempt pending."""

    head: Head
    pending: PendingDocument
    damages: tuple[Damage, ...]


class Opener:
    """Opens attempts of one job."""

    def __init__(self, files: JobFiles, runtime: Runtime) -> None:
        self._files = files
        self._runtime = runtime

    def open(
        self, head: Head, opening: Opening, now_ms: int, choice: restored_state.RestoreChoice | None = None
    ) -> Opened:
        """Make the document of an attempt and give the head that makes it pending (semantics T5, T6, R1, R5).

        Args:
            head: the version decided on; the attempt before has ended in it.
            opening: the attempt's contents.
            now_ms: the time, milliseconds since 1970 UTC.
            choice: the checkpoint to restore, if the caller has chosen it already.

        Raises:
            RefusedError: another epoch has completed since the positions of the sources were worked out.
            AlreadyReadError: another epoch has read part of the window since this one was triggered (semantics T8).
            InvalidStateError: the checkpoint holds state of a stage that the job no longer has (semantics R3); or a
                stage cannot be restored at its parallelism (semantics R4), or the slice or the stages are too large for
                a document.
        """
        self._check_room(head, opening)
        fixed_on = opening.slice.base
        if fixed_on is not None and fixed_on != (head.latest_id() or 0):
            raise RefusedError(
                "another epoch has completed since this one's input was placed: run (or clear) the task that triggers "
                "the checkpoint, which checks that nothing is read twice",
                code="source_moved",
                job=self._files.job,
                epoch=run_of_slice(opening.epoch, opening.slice),
                placed_on=fixed_on,
                newest=head.latest_id(),
            )
        choice = choice or choose_restored(self._files, head)
        restored_from = choice.pointer.checkpoint if choice.pointer else None
        came_from = head.import_of(restored_from)
        # The person who started the job from a savepoint may have allowed it, but only for that restore.
        if not opening.allow_non_restored_state and not (came_from and came_from.allow_non_restored_state):
            self._check_claimed(choice, opening, came_from)
        read = restored_state.read_after(choice, opening.epoch, opening.slice, job=self._files.job)
        restart = opening.restart or Restart(0, memory=head.restart_memory)
        head = replace(head, restart_memory=restart.memory)
        draining = head.drains(opening.epoch)
        carried = self._carried(head, opening, restored_from, draining=draining)
        hooks = carried.hooks
        if hooks is None and opening.hooks:
            hooks = HooksRef(opening.hooks, head.next_id, self._runtime.new_token())
        token = self._runtime.new_token()
        executions = self._executions(head, opening, carried, token)
        anew = carry_over.restarted_by(carried, executions)
        document = PendingDocument(
            job=self._files.job,
            checkpoint=head.next_id,
            token=token,
            epoch=opening.epoch,
            attempt=opening.before.attempt + 1 if opening.before else 1,
            slice=opening.slice,
            stages=opening.stages,
            executions=executions,
            limits=opening.limits,
            restore=choice.pointer,
            replay=choice.replay,
            owner=opening.owner,
            cause=one_line(opening.cause),
            listeners=opening.listeners,
            max_parallelism=self._max_parallelism(choice, opening.stages),
            hooks=hooks,
            backlogs=_backlogs(choice, opening.stages),
            restarted=carry_over.restart_claimants(self._files, carried, executions),
            draining=draining,
            read=read,
        )
        held = attempt_documents.write(self._files, head, document)
        entry = PendingEntry(
            **common(document, AttemptRef),
            triggered_at_ms=now_ms,
            # The stages do not start before the delay is over.
            expires_at_ms=now_ms + restart.delay_ms + opening.limits.timeout_ms,
            restored_from=restored_from,
            base=head.latest_id(),
            owner=opening.owner,
            retained=opening.limits.retained,
            stages=len(opening.stages),
            replayed=tuple(replayed.epoch for replayed in choice.replay),
            listeners=opening.listeners,
            kind=opening.kind if opening.before is None else opening.before.kind,
            tolerable=opening.limits.tolerable,
            regional=opening.limits.leave_out.max_consecutive_failures if opening.limits.leave_out else 0,
            restarts=restart.count,
            restart_at_ms=now_ms + restart.delay_ms if restart.delay_ms else 0,
            restarts_left=_restarts_left(head, opening.limits.restart, restart.count, now_ms),
            draining=draining,
            window=window_text(opening.slice),
            places=opening.limits.max_concurrent if opening.limits.max_concurrent > 1 else 0,
            document=held,
        )
        record = choice.record(
            document.cause or "a new epoch", now_ms, self._runtime.now_ms(), into=document.checkpoint
        )
        if opening.before is not None:
            head = history.note_restarted(head, opening.before.id, anew)
        return Opened(transitions.open_attempt(head, entry, record), document, choice.damages)

    def _check_room(self, head: Head, opening: Opening) -> None:
        if opening.listeners and head.notices_waiting() >= MAX_NOTICES:
            waiting = sorted({name for notice in head.notices for name in notice.listeners})
            raise CallbackError(
                "too many notices wait for listeners; none was dropped and no checkpoint is opened until some are "
                "delivered. Find out why these listeners fail; one that no longer exists is given up by "
                f"`cairn forget-listener {self._files.job} NAME {self._files.storage_option}`",
                code="undelivered_notices",
                job=self._files.job,
                waiting=len(head.notices),
                limit=MAX_NOTICES,
                listeners=", ".join(waiting) or ", ".join(opening.listeners),
            )

    def _check_claimed(
        self, choice: restored_state.RestoreChoice, opening: Opening, came_from: ImportRecord | None
    ) -> None:
        if choice.pointer is None:
            return
        job, checkpoint, stages = self._files.job, choice.pointer.checkpoint, opening.stages
        allowing = ALLOWING
        if came_from is not None:
            allowing += (
                f". For this restore alone: `cairn resume {job} --from {came_from.origin.uri} "
                f"--allow-non-restored-state {self._files.storage_option}`"
            )
        check_claimed_by_hooks(choice.hooks, opening.hooks, job=job, checkpoint=checkpoint)
        check_claimed_by_stages(choice.stages, stages, allowing, job=job, checkpoint=checkpoint)
        unread = sorted(set(_inputs(choice)) - {(stage.uid, uid) for stage in stages for uid in stage.upstream})
        if unread:
            raise InvalidStateError(
                "the checkpoint holds data that a stage has still to read, and the stage no longer reads from there. "
                "Put the edge between the two back until the stage has caught up, or leave the data behind by "
                f"{allowing}",
                code="non_restored_state",
                job=job,
                checkpoint=checkpoint,
                unread=", ".join(f"{stage} from {uid}" for stage, uid in unread),
            )

    def _max_parallelism(self, choice: restored_state.RestoreChoice, stages: tuple[StageSpec, ...]) -> dict[str, int]:
        if choice.pointer is None:
            return restored_state.match((), stages)
        return restored_state.match(choice.stages, stages, job=self._files.job, checkpoint=choice.pointer.checkpoint)

    def _carried(self, head: Head, opening: Opening, restored_from: int | None, *, draining: bool) -> CarryOver:
        """Give the executions to take over; none where the attempt starts from other state than the one before."""
        before, carried = opening.before, opening.carried
        if before is not None and (before.restored_from, before.base) != (restored_from, head.latest_id()):
            # The other stages computed from another checkpoint, or without an epoch that completed in between. A region
            # cannot be restored by itself, so the whole job fails over (semantics F2).
            return carried.nothing()
        if carried.before is not None and carried.before.draining != draining:
            # A draining stage emits rows that wait for later input, so its state differs from that of another stage.
            return carried.nothing()
        if set(carried.hooks.names if carried.hooks else ()) != set(opening.hooks):
            # The executions were computed with the answers of other hooks, or of a hook that then failed.
            return carried.nothing()
        return carried

    def _executions(self, head: Head, opening: Opening, carried: CarryOver, token: str) -> dict[str, Execution]:
        attempt = opening.before.attempt + 1 if opening.before else 1
        return {
            stage.uid: carried.executions.get(stage.uid)
            or Execution(execution_token(token, stage.uid), head.next_id, attempt)
            for stage in opening.stages
        }


def _restarts_left(head: Head, rule: RestartRule | None, count: int, now_ms: int) -> int | None:
    return None if rule is None else left(rule, head.restart_memory, count, now_ms)


def _inputs(choice: restored_state.RestoreChoice) -> Iterator[tuple[str, str]]:
    return ((stage, uid) for stage, unread in choice.backlogs.items() for each in unread for uid in each.inputs)


def _backlogs(
    choice: restored_state.RestoreChoice, stages: tuple[StageSpec, ...]
) -> dict[str, tuple[BacklogEpoch, ...]]:
    """Give the backlogs of the stages; unclaimed backlogs are left behind, as the author allowed (semantics R3)."""
    return {
        stage.uid: tuple(
            replace(unread, inputs={uid: each for uid, each in unread.inputs.items() if uid in stage.upstream})
            for unread in choice.backlogs[stage.uid]
        )
        for stage in stages
        if stage.uid in choice.backlogs
    }


def cause_of(head: Head, before: EndedEntry | None) -> str:
    """Say for people why an attempt follows the one before; empty for an epoch's first."""
    if before is None:
        return ""
    if before.status is Status.COMPLETED:
        return rewinds.undone(head, before)
    return cause_first(before.detail, before.reason)


def choose_restored(files: JobFiles, head: Head) -> RestoreChoice:
    """Find the newest completed checkpoint that is whole.

    Raises:
        NoCheckpointError: every completed checkpoint is damaged, or the input of a damaged one is gone. Starting empty
            would lose their state, so a user has to decide.
    """
    damages: list[Damage] = []
    bypassed: list[CompletedEntry] = []
    for entry in reversed(head.completed):
        found = verify(files, entry)
        if found.whole:
            # A bypassed checkpoint may itself have replayed epochs, which are lost with it.
            lost = [epoch for each in reversed(bypassed) for epoch in each.folded]
            replay = tuple(_replayed(files, epoch) for epoch in lost)
            pointer = RestorePointer(entry.id, entry.metadata)
            return RestoreChoice(
                pointer, replay, tuple(damages), found.stages, found.hooks, found.slice, found.backlogs, found.read
            )
        damages.extend(found.damages)
        record = head.import_of(entry.id)
        if record is not None:
            raise NoCheckpointError(
                f"the job was started from a savepoint, as checkpoint {entry.id}, and that is damaged: "
                f"{found.damages[0]}. The job cannot go back to what came before it. Put the file back, or start from "
                f"a savepoint again: `cairn resume {files.job} --from PATH --again {files.storage_option}`",
                job=files.job,
                checkpoint=entry.id,
                savepoint=record.origin.uri,
                damages=len(damages),
            )
        bypassed.append(entry)
    if bypassed:
        raise NoCheckpointError(
            f"no retained checkpoint can be restored: {damages[0]}; put the file back, or run the job under another "
            "name to start empty",
            job=files.job,
            retained=len(bypassed),
            damages=len(damages),
        )
    return RestoreChoice(None)


def _replayed(files: JobFiles, epoch: str) -> ReplayedEpoch:
    key = layout.epoch_slice(epoch)
    try:
        document, _ = files.read(EpochDocument, key)
    except GoneError as error:
        raise NoCheckpointError(
            "the newest checkpoint is damaged, and the input of the epoch that it held is not known any more; put the "
            "checkpoint's file or the epoch's document back",
            job=files.job,
            epoch=layout.run_id_of(epoch),
            key=files.full(key),
        ) from error
    # The checkpoint before holds the positions.
    return ReplayedEpoch(epoch, replace(document.slice, positions=None))
