"""What a stage's application asks of the coordinator: acknowledge, decline, drop the discarded (semantics A, D1)."""

from __future__ import annotations

from ..storage.errors import GoneError
from . import acks, decisions, layout, metadata
from .attempts import Attempts
from .head import EndedEntry, Head
from .head_store import Decision, HeadStore
from .job_files import JobFiles
from .metadata import StageLine
from .model import AckDocument, DeclineDocument, PendingDocument
from .reasons import AckAnswer


class StageSide:
    """The coordinator as one execution of one stage sees it.

    Args:
        files: the job's files.
        heads: the job's head.
        attempts: reads the documents of attempts.
    """

    def __init__(self, files: JobFiles, heads: HeadStore, attempts: Attempts) -> None:
        self._files = files
        self._heads = heads
        self._attempts = attempts

    def acknowledge(self, ack: AckDocument) -> AckAnswer:
        """Acknowledge all subtasks of an execution; what was written for nothing is deleted (semantics A2).

        Files are deleted only where the head shows that this execution can never count again: the epoch's pending
        attempt runs the stage anew, or this call has noted the rejection in the head. Whatever is less certain is left
        to the cleaner.

        Raises:
            UnavailableError: it is not known whether the acknowledgement arrived; nothing was deleted.
        """
        if not acks.write_ack(self._files, ack):
            return AckAnswer.DUPLICATE
        answer = self._judge(ack)
        if answer in (AckAnswer.DISCARDED, AckAnswer.UNKNOWN):
            self._delete_execution(ack)
        return AckAnswer.SUCCESS if answer is None else answer

    def decline(self, decline: DeclineDocument) -> None:
        """Say that an execution will not acknowledge, and why; the first decline stays (semantics D1)."""
        acks.write_decline(self._files, decline)

    def _judge(self, ack: AckDocument) -> AckAnswer | None:
        """Judge by the head; None where the epoch has completed with this very acknowledgement."""

        def decide(head: Head, now_ms: int) -> Decision[AckAnswer | None]:
            settled = decisions.expire(head, now_ms)
            entry = settled.pending_of_epoch(ack.epoch)
            if entry is not None:
                return Decision(acks.judge(settled, self._attempts.document_of(entry), ack))
            if self._completed_with(settled, ack):
                return Decision(None)
            ended = settled.carryable(ack.epoch)
            if ended is None or ack.token not in self._tokens(ended):
                return Decision(acks.judge(settled, None, ack), settled if settled != head else None)
            rejected = decisions.reject(settled, ended, ack.token)
            return Decision(AckAnswer.DISCARDED, rejected if rejected != head else None)

        return self._heads.update(decide)[1]

    def _tokens(self, ended: EndedEntry) -> set[str]:
        try:
            document: PendingDocument = self._attempts.document_of(ended)
        except GoneError:
            return set()
        return {execution.token for execution in document.executions.values()}

    def _completed_with(self, head: Head, ack: AckDocument) -> bool:
        """Tell whether the epoch has completed with this execution; True also where that can no longer be told.

        A checkpoint that completed and left the store may have passed this execution's files on to the next one.
        """
        completed = self._attempts.completed_epoch(head, ack.epoch)
        if completed is None:
            return False
        entry = head.completed_by_id(completed)
        if entry is None:
            return True
        return any(
            isinstance(line, StageLine) and line.stage == ack.stage and line.execution.token == ack.token
            for line in metadata.read(self._files, entry.metadata)
        )

    def _delete_execution(self, ack: AckDocument) -> None:
        """Delete the files and then the marker of an execution that can never count again."""
        folder = layout.execution_folder(ack.checkpoint, ack.stage, ack.attempt, ack.token)
        self._files.delete([found.key for found in self._files.listing(folder)])
        self._files.delete([layout.ack(ack.checkpoint, ack.stage, ack.token), *(part.key for part in ack.parts)])
