"""Opening an epoch's attempts: the first, the next after a failure, and taking up what others left (semantics T, F2, F5).

Order of one opening: the pending document under the next free id, then one swap of the head that makes exactly that id
pending. Before the swap nothing counts: the document is named by a token of its own, and the cleaner leaves ids alone
that the head has not handed out. After the swap everything is there. A failover is one such swap: the old attempt ends
and the new one begins in the same version of the head, so that no execution falls between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..storage.errors import GoneError
from ..storage.port import Lost
from . import acks, decisions, layout, restore
from .errors import InvalidConfigError
from .head import EndedEntry, Head, PendingEntry, RestoreRecord
from .head_store import Decision, HeadStore
from .job_files import JobFiles
from .model import (
    EpochCompletedDocument,
    EpochDocument,
    Execution,
    Handover,
    Owner,
    PendingDocument,
    Slice,
    StageSpec,
)
from .reasons import Reason
from .requests import (
    BeginAnswer,
    CheckpointConfig,
    Declined,
    EpochCompleted,
    FailAnswer,
    FailedOver,
    NothingToDo,
    StageAcknowledged,
    Submit,
    TriggerAnswer,
    Triggered,
    TriggerRequest,
    consumers,
)
from .runtime import Runtime


@dataclass(frozen=True, slots=True)
class _Opening:
    """What a new attempt is made of, apart from its id."""

    epoch: str
    slice: Slice
    stages: tuple[StageSpec, ...]
    config: CheckpointConfig
    owner: Owner | None
    attempt: int
    carried: Mapping[str, Execution]
    cause: str


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

    def trigger(self, request: TriggerRequest, abandoned: Callable[[Owner], bool]) -> TriggerAnswer:
        """Make a checkpoint pending for the epoch, or say why not (semantics T1, T5, T6, T8, T9).

        Args:
            request: the epoch, its input and its stages.
            abandoned: tells whether the DAG run that owns another pending epoch has ended; such an epoch is aborted
                with `JOB_FAILURE` instead of being waited for.
        """
        self._heads.ensure()
        fixed = self._fix_slice(request)
        if isinstance(fixed, EpochCompleted):
            return fixed

        def decide(head: Head, now_ms: int) -> Decision[TriggerAnswer]:
            head_now = decisions.expire(head, now_ms)
            completed = head_now.completion_of(request.epoch)
            if completed is not None:
                return Decision(EpochCompleted(request.epoch, completed))
            pending = head_now.pending_of_epoch(request.epoch)
            if pending is not None:
                return Decision(Triggered(self.document_of(pending), created=False))
            for other in head_now.pending:
                if other.owner is not None and abandoned(other.owner):
                    detail = f"its DAG run {other.owner.run_id} has ended"
                    head_now = decisions.abort(head_now, other, Reason.JOB_FAILURE, detail, now_ms)
            if len(head_now.pending) >= request.config.max_concurrent_checkpoints:
                settled = head_now if head_now != head else None
                return Decision(_too_many(head_now, request), settled)
            return self._reopen(head_now, request, fixed, now_ms)

        return self._heads.update(decide)[1]

    def begin(self, epoch: str, stage: str, claimant: str) -> BeginAnswer:
        """Claim the right to submit a stage's application; settle what an earlier try left (semantics F5).

        The claim is the create-once handover of the stage's current execution. Where another try holds it and has not
        acknowledged, that try is dead or a zombie: this is a failover, whether or not a callback ran before.

        Args:
            epoch: the epoch's name.
            stage: the stage's uid.
            claimant: who would submit, one per try.

        Raises:
            InvalidConfigError: no checkpoint was triggered for the epoch, or it does not expect the stage.
            TooMuchContentionError: others kept winning.
        """
        while True:
            head = self._heads.load()
            entry = head.pending_of_epoch(epoch)
            if entry is None or self._runtime.now_ms() >= entry.expires_at_ms:
                answer = self._take_up(epoch, stage)
                if isinstance(answer, EpochCompleted):
                    return answer
                continue
            document = self.document_of(entry)
            execution = self._execution(document, stage)
            if acks.has_acknowledged(self._files, stage, execution):
                return StageAcknowledged(document.checkpoint)
            handover = self._handover(document, stage, execution, claimant)
            key = layout.handover(execution.home, stage, execution.token)
            if isinstance(self._files.create(key, handover), Lost):
                standing, _ = self._files.read(Handover, key)
                if standing.claimant != claimant:
                    self.fail_over(epoch, stage, execution.token, "the try before ended without acknowledging")
                    continue
                handover = standing
            return Submit(handover, key)

    def fail(self, epoch: str, stage: str, claimant: str, detail: str) -> FailAnswer:
        """Report that a try of a stage failed (semantics F2, F5): idempotent, from any process, in any order.

        Args:
            epoch: the epoch's name.
            stage: the stage's uid.
            claimant: the try that failed, as it was given to `begin`.
            detail: the root cause in one line; a decline of the stage itself goes before it.
        """
        head = self._heads.load()
        entry = head.pending_of_epoch(epoch)
        if entry is None:
            completed = self.completed_epoch(head, epoch)
            if completed is not None:
                return EpochCompleted(epoch, completed)
            return NothingToDo("no attempt of the epoch is pending; the next try opens one")
        execution = self._execution(self.document_of(entry), stage)
        try:
            handover, _ = self._files.read(Handover, layout.handover(execution.home, stage, execution.token))
        except GoneError:
            return NothingToDo("the current attempt has not submitted this stage; the failure is settled already")
        if handover.claimant != claimant:
            return NothingToDo("another try holds the current attempt; the failure is settled already, or by its start")
        return self.fail_over(epoch, stage, execution.token, detail)

    def fail_over(self, epoch: str, stage: str, token: str, detail: str) -> FailAnswer:
        """Abort the epoch's attempt and open the next, if `token` is still the stage's current execution.

        The stage and everything that reads from it get new executions; those of all other stages carry over, running
        or acknowledged (semantics F1, F2).
        """

        def decide(head: Head, now_ms: int) -> Decision[FailAnswer]:
            entry = head.pending_of_epoch(epoch)
            if entry is None:
                completed = self.completed_epoch(head, epoch)
                if completed is not None:
                    return Decision(EpochCompleted(epoch, completed))
                return Decision(NothingToDo("the attempt has ended; the next try opens one"))
            document = self.document_of(entry)
            execution = self._execution(document, stage)
            if execution.token != token:
                return Decision(FailedOver(document, created=False))
            if acks.has_acknowledged(self._files, stage, execution):
                return Decision(NothingToDo(f"{stage} had acknowledged before it ended; nothing is lost"))
            declined = acks.read_decline(self._files, stage, execution)
            cause = f"{stage}: {declined.detail if declined else detail}"
            carried = _without(document.executions, stage, document.stages)
            done = sum(acks.has_acknowledged(self._files, uid, each) for uid, each in carried.items())
            aborted = decisions.abort(head, entry, Reason.JOB_FAILOVER_REGION, cause, now_ms, acks=done)
            opening = _Opening(
                epoch=epoch,
                slice=document.slice,
                stages=document.stages,
                config=_config_of(entry),
                owner=entry.owner,
                attempt=entry.attempt + 1,
                carried=carried,
                cause=cause,
            )
            opened, pending, damages = self._open(aborted, opening, entry, now_ms)
            return Decision(FailedOver(pending, created=True, damages=damages), opened)

        return self._heads.update(decide)[1]

    def document_of(self, entry: PendingEntry | EndedEntry) -> PendingDocument:
        """Read what an attempt expects (or expected).

        Raises:
            GoneError: the attempt is past and cleaned.
            DocumentError: the document is broken.
        """
        return self._files.read(PendingDocument, layout.pending(entry.id, entry.token))[0]

    def completed_epoch(self, head: Head, epoch: str) -> int | None:
        """Give the checkpoint that completed the epoch, however long ago."""
        known = head.completion_of(epoch)
        if known is not None:
            return known
        try:
            note, _ = self._files.read(EpochCompletedDocument, layout.epoch_completed(epoch))
        except GoneError:
            return None
        return note.checkpoint

    def _fix_slice(self, request: TriggerRequest) -> Slice | EpochCompleted:
        """Store the epoch's slice at its first trigger and give what is stored (semantics T8)."""
        completed = self.completed_epoch(self._heads.load(), request.epoch)
        if completed is not None:
            return EpochCompleted(request.epoch, completed)
        key = layout.epoch_slice(request.epoch)
        wanted = EpochDocument(self._files.job, request.epoch, request.slice)
        if isinstance(self._files.create(key, wanted), Lost):
            return self._files.read(EpochDocument, key)[0].slice
        return request.slice

    def _take_up(self, epoch: str, stage: str) -> EpochCompleted | None:
        """Open the epoch's next attempt where an earlier one ended without a successor (expired, aborted)."""

        def decide(head: Head, now_ms: int) -> Decision[EpochCompleted | None]:
            settled = decisions.expire(head, now_ms)
            if settled.pending_of_epoch(epoch) is not None:
                return Decision(None)
            completed = self.completed_epoch(settled, epoch)
            if completed is not None:
                return Decision(EpochCompleted(epoch, completed))
            newest = next(settled.ended_of_epoch(epoch), None)
            try:
                before = self.document_of(newest) if newest is not None else None
            except GoneError:
                before = None
            if before is None or newest is None:
                raise InvalidConfigError(
                    "no checkpoint is pending for the epoch and none can be taken up: run (or clear) the task that "
                    "triggers the checkpoint before this stage",
                    job=self._files.job,
                    epoch=layout.run_id_of(epoch),
                    stage=stage,
                )
            if settled.pending:
                raise InvalidConfigError(
                    "another epoch of the job is pending; clear this stage when that one has ended",
                    job=self._files.job,
                    stage=stage,
                    pending=settled.pending[0].id,
                )
            request = TriggerRequest(epoch, before.slice, before.stages, owner=before.owner)
            taken = self._reopen(settled, request, before.slice, now_ms, restart=stage)
            return Decision(None, taken.head)

        return self._heads.update(decide)[1]

    def _reopen(
        self, head: Head, request: TriggerRequest, fixed: Slice, now_ms: int, *, restart: str | None = None
    ) -> Decision[TriggerAnswer]:
        """Open the epoch's first attempt, or its next after one that ended without a successor."""
        before = next(head.ended_of_epoch(request.epoch), None)
        carried: dict[str, Execution] = {}
        usable = head.carryable(request.epoch)
        if usable is not None:
            document = self.document_of(usable)
            carried = {
                uid: execution
                for uid, execution in document.executions.items()
                if execution.token not in usable.rejected and document.stage(uid) in request.stages
            }
        if restart is not None and restart in carried and not self._acknowledged(restart, carried):
            carried = _without(carried, restart, request.stages)
        opening = _Opening(
            epoch=request.epoch,
            slice=fixed,
            stages=request.stages,
            config=request.config,
            owner=request.owner,
            attempt=before.attempt + 1 if before else 1,
            carried=carried,
            cause=f"{before.reason}: {before.detail}" if before else "",
        )
        opened, pending, damages = self._open(head, opening, None, now_ms)
        return Decision(Triggered(pending, created=True, damages=damages), opened)

    def _acknowledged(self, stage: str, carried: Mapping[str, Execution]) -> bool:
        return acks.has_acknowledged(self._files, stage, carried[stage])

    def _open(
        self, head: Head, opening: _Opening, before: PendingEntry | None, now_ms: int
    ) -> tuple[Head, PendingDocument, tuple[restore.Damage, ...]]:
        choice = restore.choose(self._files, head)
        restored_from = choice.pointer.checkpoint if choice.pointer else None
        latest = head.latest_completed()
        carried = dict(opening.carried)
        if before is not None and before.restored_from != restored_from:
            # What the other stages computed came from a checkpoint that has turned out damaged since.
            carried = {}
        checkpoint = head.next_id
        token = self._runtime.new_token()
        for uid in {stage.uid for stage in opening.stages} - set(carried):
            carried = _without(carried, uid, opening.stages)
        document = PendingDocument(
            job=self._files.job,
            checkpoint=checkpoint,
            token=token,
            epoch=opening.epoch,
            attempt=opening.attempt,
            slice=opening.slice,
            stages=opening.stages,
            executions={
                stage.uid: carried.get(stage.uid) or Execution(self._runtime.new_token(), checkpoint, opening.attempt)
                for stage in opening.stages
            },
            restore=choice.pointer,
            replay=choice.replay,
            owner=opening.owner,
            cause=opening.cause,
        )
        self._files.create(layout.pending(checkpoint, token), document)
        entry = PendingEntry(
            id=checkpoint,
            epoch=opening.epoch,
            attempt=opening.attempt,
            token=token,
            triggered_at_ms=now_ms,
            expires_at_ms=now_ms + opening.config.timeout_ms,
            restored_from=restored_from,
            base=latest.id if latest else None,
            owner=opening.owner,
            retained=opening.config.retained,
        )
        record = None
        if choice.pointer is not None:
            record = RestoreRecord(
                checkpoint=choice.pointer.checkpoint,
                into=checkpoint,
                at_ms=now_ms,
                took_ms=max(0, self._runtime.now_ms() - now_ms),
                why=opening.cause or "a new epoch",
                damages=tuple(str(damage) for damage in choice.damages[:10]),
            )
        return decisions.open_attempt(head, entry, record), document, choice.damages

    def _execution(self, document: PendingDocument, stage: str) -> Execution:
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

    def _handover(self, document: PendingDocument, stage: str, execution: Execution, claimant: str) -> Handover:
        spec = document.stage(stage)
        return Handover(
            job=document.job,
            checkpoint=execution.home,
            epoch=document.epoch,
            attempt=execution.attempt,
            stage=stage,
            token=execution.token,
            claimant=claimant,
            slice=document.slice,
            restore=document.restore,
            replay=document.replay,
            upstream={uid: document.executions[uid] for uid in (spec.upstream if spec else ())},
            parallelism=spec.parallelism if spec else None,
        )


def _without(executions: Mapping[str, Execution], uid: str, stages: tuple[StageSpec, ...]) -> dict[str, Execution]:
    """Leave out a stage and everything that reads, directly or not, what it writes (semantics F1)."""
    restart = {uid, *consumers(stages, uid)}
    return {name: execution for name, execution in executions.items() if name not in restart}


def _config_of(entry: PendingEntry) -> CheckpointConfig:
    return CheckpointConfig(
        timeout=timedelta(milliseconds=entry.expires_at_ms - entry.triggered_at_ms), retained=entry.retained
    )


def _too_many(head: Head, request: TriggerRequest) -> Declined:
    held = head.pending[0]
    whose = f" of DAG run {held.owner.run_id}" if held.owner else ""
    return Declined(
        Reason.TOO_MANY_CONCURRENT_CHECKPOINTS,
        f"checkpoint {held.id}{whose} is pending and max_concurrent_checkpoints is "
        f"{request.config.max_concurrent_checkpoints}",
    )
