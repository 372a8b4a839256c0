"""Settles a pending checkpoint: completed or aborted, once (semantics C1 to C3, D1 to D3).

Order of completing: read every acknowledgement, write the metadata, one swap of the head, then clean. Before the swap
everything can be undone, by nobody doing anything: the metadata's name belongs to this checkpoint and its content does
not depend on who wrote it. After the swap everything can be redone: what is left is to delete what nothing refers to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..storage.errors import DocumentError
from ..storage.port import Lost
from . import acks, decisions, layout, metadata
from .attempts import Attempts
from .errors import CheckpointFailedError
from .head import Head, PendingEntry
from .head_store import Decision, HeadStore
from .job_files import JobFiles, reference
from .metadata import HandleLine, Line, MetadataHeader, StageLine
from .model import AckDocument, DocumentRef, PendingDocument
from .reasons import Reason
from .requests import EpochCompleted, Failed, Progress, Ready, Waiting

IN_CHECKPOINT = frozenset({"state", "table"})
"""Kinds of output that belong to a checkpoint; an exchange is dropped when its epoch completes."""


@dataclass(slots=True)
class _Summary:
    acks: int = 0
    size_bytes: int = 0


class Finishing:
    """Completes and aborts the checkpoints of one job.

    Args:
        files: the job's files.
        heads: the job's head.
        attempts: reads the documents of attempts.
    """

    def __init__(self, files: JobFiles, heads: HeadStore, attempts: Attempts) -> None:
        self._files = files
        self._heads = heads
        self._attempts = attempts

    def progress(self, epoch: str) -> Progress:
        """Say how far the epoch's checkpoint is; settle it if it has expired or a stage has declined (D1, D2).

        Costs one read of the head, one of the pending document and two listings for each checkpoint that executions
        were carried over from; acknowledgements themselves are not read.
        """
        head = self._settle_expired()
        entry = head.pending_of_epoch(epoch)
        if entry is None:
            return self._ended(head, epoch)
        document = self._attempts.document_of(entry)
        homes = {execution.home for execution in document.executions.values()}
        acknowledged = acks.marks(self._files, homes, "acks")
        done = {
            uid for uid, execution in document.executions.items() if acks.Mark(uid, execution.token) in acknowledged
        }
        declined = acks.marks(self._files, homes, "declines")
        for uid, execution in document.executions.items():
            if uid not in done and acks.Mark(uid, execution.token) in declined:
                found = acks.read_decline(self._files, uid, execution)
                reason = found.reason if found else Reason.CHECKPOINT_DECLINED
                self.abort(entry.id, reason, f"{uid}: {found.detail if found else 'declined'}", acknowledged=len(done))
                return self._ended(self._heads.load(), epoch)
        if len(done) == len(document.executions):
            return Ready(entry.id)
        missing = tuple(sorted(set(document.executions) - done))
        return Waiting(entry.id, entry.attempt, tuple(sorted(done)), missing)

    def abort(self, checkpoint: int, reason: Reason, detail: str, *, acknowledged: int = 0) -> bool:
        """End a pending checkpoint; True if this call ended it, False if it had an outcome already (semantics D3)."""

        def decide(head: Head, now_ms: int) -> Decision[bool]:
            entry = head.pending_by_id(checkpoint)
            if entry is None:
                return Decision(result=False)
            return Decision(result=True, head=decisions.abort(head, entry, reason, detail, now_ms, acks=acknowledged))

        return self._heads.update(decide)[1]

    def complete(self, checkpoint: int) -> EpochCompleted:
        """Complete a checkpoint whose every stage has acknowledged (semantics C1).

        Returns:
            The epoch and the checkpoint that completed it, whether by this call or by another party before.

        Raises:
            CheckpointFailedError: it has ended without completing, or cannot complete; the text says why.
            GoneError: a stage has not acknowledged.
        """

        def decide(head: Head, now_ms: int) -> Decision[EpochCompleted]:
            settled = decisions.expire(head, now_ms)
            entry = settled.pending_by_id(checkpoint)
            if entry is None:
                # An expiry found here must be stored even though this call then fails: D2.
                return Decision(self._completed_before(settled, checkpoint), settled if settled != head else None)
            latest = settled.latest_completed()
            if (latest.id if latest else None) != entry.base:
                detail = f"checkpoint {latest.id if latest else 0} completed after this one had restored {entry.base}"
                aborted = decisions.abort(settled, entry, Reason.CHECKPOINT_SUBSUMED, detail, now_ms)
                return Decision(EpochCompleted(entry.epoch, 0), aborted)
            document = self._attempts.document_of(entry)
            try:
                stages = self._acknowledgements(document)
                summary = _Summary()
                ref = self._write_metadata(document, entry, stages, summary)
            except DocumentError as error:
                aborted = decisions.abort(
                    settled, entry, Reason.IO_EXCEPTION, f"an acknowledgement is broken: {error}", now_ms
                )
                return Decision(EpochCompleted(entry.epoch, 0), aborted)
            completed = decisions.complete(
                settled,
                entry,
                metadata=ref,
                acks=summary.acks,
                size_bytes=summary.size_bytes,
                tables=_tables(stages),
                now_ms=now_ms,
            )
            return Decision(EpochCompleted(entry.epoch, checkpoint), completed)

        head, answer = self._heads.update(decide)
        if answer.checkpoint == 0:
            ended = head.ended_by_id(checkpoint)
            raise CheckpointFailedError(
                f"checkpoint {checkpoint} failed: {ended.reason if ended else 'unknown'}: "
                f"{ended.detail if ended else 'it is not in the history'}",
                job=self._files.job,
                checkpoint=checkpoint,
            )
        return answer

    def _settle_expired(self) -> Head:
        def decide(head: Head, now_ms: int) -> Decision[None]:
            settled = decisions.expire(head, now_ms)
            return Decision(None, settled if settled != head else None)

        return self._heads.update(decide)[0]

    def _ended(self, head: Head, epoch: str) -> Progress:
        completed = self._attempts.completed_epoch(head, epoch)
        if completed is not None:
            return EpochCompleted(epoch, completed)
        newest = next(head.ended_of_epoch(epoch), None)
        if newest is None:
            return Failed(0, 0, Reason.TRIGGER_CHECKPOINT_FAILURE, "no checkpoint was ever triggered for the epoch")
        return Failed(newest.id, newest.attempt, newest.reason or Reason.JOB_FAILURE, newest.detail)

    def _completed_before(self, head: Head, checkpoint: int) -> EpochCompleted:
        ended = head.ended_by_id(checkpoint)
        if ended is not None and ended.reason is None:
            return EpochCompleted(ended.epoch, checkpoint)
        return EpochCompleted(ended.epoch if ended else "", 0)

    def _acknowledgements(self, document: PendingDocument) -> list[AckDocument]:
        found = []
        owners: dict[str, str] = {}
        for spec in document.stages:
            ack = acks.read_ack(self._files, spec.uid, document.executions[spec.uid])
            if spec.parallelism is not None and ack.parallelism != spec.parallelism:
                raise DocumentError(
                    "the stage acknowledged with another parallelism",
                    stage=spec.uid,
                    expected=spec.parallelism,
                    found=ack.parallelism,
                )
            for output in ack.outputs:
                if output.kind == "table" and owners.setdefault(output.name, spec.uid) != spec.uid:
                    raise DocumentError(
                        "two stages publish a table of the same name; rename one",
                        table=output.name,
                        stages=f"{owners[output.name]}, {spec.uid}",
                    )
            found.append(ack)
        return found

    def _write_metadata(
        self, document: PendingDocument, entry: PendingEntry, stages: list[AckDocument], summary: _Summary
    ) -> DocumentRef:
        data = metadata.encode(self._lines(document, stages, summary))
        key = layout.metadata(entry.id, entry.token)
        ref = reference(key, data)
        if isinstance(self._files.create_bytes(key, data), Lost):
            standing = self._files.store.get(self._files.full(key), max_bytes=len(data) + 1)
            if reference(key, standing.data) != ref:
                raise DocumentError("the metadata stands already and differs", key=self._files.full(key))
        return ref

    def _lines(self, document: PendingDocument, stages: list[AckDocument], summary: _Summary) -> Iterator[Line]:
        yield MetadataHeader(
            job=document.job,
            checkpoint=document.checkpoint,
            epoch=document.epoch,
            attempt=document.attempt,
            slice=document.slice,
            stages=tuple(spec.uid for spec in document.stages),
            restored_from=document.restore.checkpoint if document.restore else None,
        )
        for ack in stages:
            outputs = tuple(output for output in ack.outputs if output.kind in IN_CHECKPOINT)
            kept = {output.id for output in outputs}
            yield StageLine(
                stage=ack.stage,
                execution=document.executions[ack.stage],
                parallelism=ack.parallelism,
                outputs=outputs,
                values=ack.values,
                metrics=ack.metrics,
            )
            for subtask in acks.subtasks_of(self._files, ack):
                summary.acks += 1
                for handle in subtask.handles:
                    if handle.output in kept:
                        summary.size_bytes += handle.size_bytes
                        yield HandleLine(subtask.index, handle)


def _tables(stages: list[AckDocument]) -> dict[str, str]:
    return {output.name: output.folder for ack in stages for output in ack.outputs if output.kind == "table"}
