"""Further accounts of an auditor: of requests and the line, of counted failures, of what a source has read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_cairn.checkpoint import RequestKind
from airflow_cairn.checkpoint.answers import TriggerRequest
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import EpochDocument, PendingDocument
from airflow_cairn.checkpoint.documents.entries import CompletedEntry, PendingEntry, Stopped
from airflow_cairn.checkpoint.documents.head import Head
from airflow_cairn.checkpoint.reasons import Reason, Status

if TYPE_CHECKING:
    from tests.protocol.simulation.auditor import Auditor
    from tests.protocol.simulation.processes import Job


@dataclass(frozen=True)
class Asking:
    """A trigger that a process is about."""

    epoch: str
    kind: RequestKind


class RequestAccount:
    """Account of admission and waiting, and of a stopped job, which stands still (semantics T2, T3, T4, S1).

    Args:
        auditor: takes the violations.
        job: says what the process asks for whose write has just landed, and whose DAG run has ended.
    """

    def __init__(self, auditor: Auditor, job: Job) -> None:
        self._auditor = auditor
        self._check = auditor.check
        self._job = job
        self._config = job.config
        self.waited = 0
        """Number of vain looks whether it is their turn."""

    def swapped(self, old: Head, new: Head) -> None:
        """Look at a version of the head and the next."""
        if new.stopped is Stopped.SHUTDOWN:
            self._check(not new.pending, "something is pending though the job was shut down (S1)", new.pending)
        writer = self._job.hub.current
        if writer is None:
            return  # it lands late: what was asked for is not known any more
        kind = writer.asking.kind if writer.asking else None
        before = {entry.id for entry in old.pending}
        fresh = [entry for entry in new.pending if entry.id not in before]
        # An attempt that follows another in the same swap takes its place.
        opened = [entry for entry in fresh if old.pending_of_epoch(entry.epoch) is None]
        for entry in opened:
            fits = len(new.pending) <= max(self._config.max_concurrent_checkpoints, len(old.pending))
            self._check(fits, "more are pending than may be (T2)", entry.epoch)
            if kind is RequestKind.PERIODIC:
                self._pause(old, entry)
        if old.stopped is not None and old.stopped is new.stopped:
            self._check(not (opened and kind is RequestKind.PERIODIC), "a stopped job is triggered (T1)", opened)
            brought_back = [entry.epoch for entry in opened if kind is None and _suspended(old, entry.epoch)]
            self._check(not brought_back, "what was stopped is taken up (S1)", brought_back)
        if writer.asking is not None and new.stopped is None:
            self._line(old, new, writer.asking.epoch)

    def told_to_wait(self, request: TriggerRequest, now_ms: int) -> None:
        """Look at an answer that says that it is not the request's turn yet, with nothing else going on (T2, T3)."""
        head = self._auditor.head
        self.waited += 1
        held = sum(now_ms < entry.expires_at_ms for entry in head.pending)
        free = self._config.max_concurrent_checkpoints - held
        first = [place.epoch for place in head.waiting[: max(0, free)] if place.kind is request.kind]
        latest = head.latest_completed()
        saved = [entry.ended_at_ms for entry in head.savepoints if entry.status is Status.COMPLETED]
        over = latest is None or now_ms >= max(latest.completed_at_ms, *saved, 0) + self._config.min_pause_ms
        due = head.stopping() is None and request.epoch in first and (over or request.kind is not RequestKind.PERIODIC)
        self._check(not due, "told to wait though it is its turn (T2, T3)", request.epoch)

    def _pause(self, old: Head, entry: PendingEntry) -> None:
        latest = old.latest_completed()
        if latest is not None and old.import_of(latest.id) is not None:
            return  # what was made from a savepoint took nobody's time
        stopping = old.stopping()
        if stopping is not None and stopping.epoch == entry.epoch:
            return  # the job stops after it
        since = entry.triggered_at_ms - (latest.completed_at_ms if latest else 0)
        self._check(since >= self._config.min_pause_ms, "the pause was not kept (T3)", f"{entry.epoch}: {since} ms")

    def _line(self, old: Head, new: Head, asks: str) -> None:
        """Nobody loses a place but by being admitted, by asking for something else, or by having ended."""
        gone = {place.epoch for place in old.waiting} - {place.epoch for place in new.waiting} - {asks}
        lost = gone - {entry.epoch for entry in new.pending} - self._job.ever_ended
        self._check(not lost, "somebody lost a place in the line (T2)", sorted(lost))
        places = [place.epoch for place in new.waiting]
        stayed = [place.epoch for place in old.waiting if place.epoch in places and place.epoch != asks]
        self._check(stayed == [epoch for epoch in places if epoch in stayed], "the line was reordered (T2)", places)


def _suspended(head: Head, epoch: str) -> bool:
    newest = next(head.ended_of_epoch(epoch), None)
    return newest is not None and newest.reason is Reason.CHECKPOINT_COORDINATOR_SUSPEND and not newest.paused


class FailureAccount:
    """Counts failed checkpoints in a row once more, by the history alone (semantics D5).

    Args:
        auditor: takes the violations.
        tolerable: how many the job puts up with.
    """

    def __init__(self, auditor: Auditor, tolerable: int) -> None:
        self._check = auditor.check
        self._tolerable = tolerable
        self._known: set[int] = set()
        self._newest_success = self._count = 0
        self.triggers = 0
        """Triggers that failed and counted."""

    def swapped(self, old: Head, new: Head) -> None:
        """Look at a version of the head and the next."""
        for ended in new.history:
            if ended.id in self._known:
                continue
            self._known.add(ended.id)
            counts = ended.reason in _COUNTED and ended.id > self._newest_success
            self._count = 0 if ended.status is Status.COMPLETED else self._count + counts
            too_many = counts and self._count > self._tolerable
            self._check(ended.job_failed == too_many, "the job fails of the wrong checkpoint (D5)", ended)
            if too_many:
                self._count = 0
                left = {entry.id for entry in old.pending} & {entry.id for entry in new.pending}
                self._check(not left, "something stays pending though the job failed (D5)", left)
            if ended.status is Status.COMPLETED:
                self._newest_success = ended.id
        if new.failures != self._count:
            self._trigger_failed(old, new)
        self._check(new.failures == self._count, "failures are counted wrongly (D5)", (new.failures, self._count))

    def _trigger_failed(self, old: Head, new: Head) -> None:
        """Count a trigger that the storage failed: it has no id, and is the newest of what was declined."""
        if not new.declined or new.declined[-1].reason is not Reason.IO_EXCEPTION:
            return
        self._count += 1
        self.triggers += 1
        if self._count > self._tolerable:
            self._count = 0
            left = {entry.id for entry in old.pending} & {entry.id for entry in new.pending}
            self._check(not left, "something stays pending though the job failed (D5)", left)


_COUNTED = (
    Reason.CHECKPOINT_DECLINED,
    Reason.CHECKPOINT_ASYNC_EXCEPTION,
    Reason.CHECKPOINT_EXPIRED,
    Reason.IO_EXCEPTION,
)


class SourceAccount:
    """Account of the input: completed epochs read in order what came in, each number once (semantics T8).

    Args:
        auditor: takes the violations.
    """

    def __init__(self, auditor: Auditor) -> None:
        self._auditor = auditor
        self._check = auditor.check
        self.folded = 0
        """Number of numbers that the completed epochs have read."""

    def opened(self, document: PendingDocument) -> None:
        """A later attempt reads what the first one was to read."""
        fixed = self._auditor.files.read(EpochDocument, layout.epoch_slice(document.epoch))[0].slice
        same = document.slice.sources == fixed.sources
        self._check(same, "an attempt reads something else than the first (T8)", document.epoch)

    def completed(self, entry: CompletedEntry, document: PendingDocument) -> None:
        """The epoch's part begins where the last one ended."""
        part = (document.slice.sources or {})["ledger"]
        read = part["read"] if isinstance(part, dict) else []
        expected = list(range(self.folded, self.folded + len(read)))
        self._check(
            read == expected, "numbers are read twice or lost (T8)", f"{entry.epoch}: {read} after {self.folded}"
        )
        self.folded += len(read)
