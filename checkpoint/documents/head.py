"""`head.json`: the one mutable object of a job, as a value, and what must hold between one version and the next.

Only compare-and-swap changes the head (`head_store`), which checks the invariants first. The next version of the head
decides everything that may be decided only once: the ids that are pending, those that completed, and why one failed
(semantics D3, T5, W2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from itertools import pairwise

from ...storage.errors import CairnError, ErrorKind
from ...storage.records import dataclass
from ..errors import CheckpointError, NoCheckpointError
from ..reasons import Reason, Status
from .attempt import DocumentRef, RestartMemory, run_text
from .codec import CheckpointId, Count, Epoch, Job, Target, Token
from .entries import (
    MAX_FAILURES,
    CompletedEntry,
    Counters,
    DeclinedRequest,
    EndedEntry,
    ImportEntry,
    ImportRecord,
    Intervention,
    JobOwner,
    Notice,
    PendingEntry,
    RestoreRecord,
    RewindRecord,
    SavepointEntry,
    Stopped,
    TriggeringTask,
    WaitingRequest,
)
from .layout import run_id_of
from .mirrors import MirrorEntry, MirrorOf, Moved
from .read_windows import WindowText
from .strict_json import SPARSE
from .unread import Unread

MAX_HISTORY = 100
"""Ended checkpoints that the head remembers (semantics O1)."""

MAX_UNFINISHED = 16
"""Incomplete epochs whose executions are kept for a next attempt; as many as may be pending at once, if that is more.
16 is Airflow's default for active runs of a DAG. Later epochs push the oldest out (`left_behind`)."""

MAX_RESTORES = 20
"""Restores that the head remembers."""

MAX_INTERVENTIONS = 20
"""Interventions of people that the head remembers (semantics O1)."""

MAX_WAITING = 1_000
"""Requests that may wait (semantics T2)."""

MAX_TRIGGERING = 100
"""Tasks that may trigger at the same moment, each of another epoch; the oldest entries are dropped first (T10)."""

MAX_DECLINED = 20
"""Declined requests that the head remembers, for users to read (semantics T1)."""

MAX_NOTICES = 100
"""Notices that may wait for delivery, those of pending checkpoints included; with more, no checkpoint is triggered."""

MAX_IMPORTS = 20
"""Starts from savepoints that the head remembers, beside those whose checkpoint is retained."""

MAX_SAVEPOINTS = 200
"""Savepoints that the head remembers (semantics P3)."""

MAX_MIRRORS = 4
"""Mirrors of one job."""

MAX_HOLDS = 8
"""Passes to one mirror whose checkpoints the cleaner spares at once; a further pass drops the oldest hold."""

WRITE_LOG = 64
"""Write ids that the head remembers; a decision recognises an older write by its effect (semantics W2)."""

MAX_RESTARTED = 100
"""Stages that run again after a checkpoint whose names the head remembers, for users to read."""

MAX_LATE = 10
"""Late acknowledgements that the head remembers of a failed checkpoint, for users to read."""

MAX_RECORDED = 16
"""Newest failed checkpoints whose record the store keeps (semantics O3); each cleaning lists the record."""

MAX_OTHERS = 10
"""Failures beside the root failure that the head remembers of a checkpoint (semantics O1)."""


@dataclass(frozen=True, slots=True)
class CompletedNote:
    """A completed epoch that the history no longer remembers (semantics T9)."""

    epoch: Epoch
    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class Segment:
    """A list of epochs that completed long ago (`completed_epochs`)."""

    document: DocumentRef
    epochs: Count


@dataclass(frozen=True, slots=True)
class Head(Unread):
    """One version of a job's head."""

    UNREAD = ("history", "noted", "restores")

    job: Job
    revision: Count = 0
    next_id: CheckpointId = 1
    pending: tuple[PendingEntry, ...] = ()
    completed: tuple[CompletedEntry, ...] = ()
    history: tuple[EndedEntry, ...] = ()
    restores: tuple[RestoreRecord, ...] = ()
    """The last restores, newest last."""
    notices: tuple[Notice, ...] = ()
    """Notices of ended checkpoints that listeners have not received yet, by id."""
    counters: Counters = field(default_factory=Counters)
    waiting: tuple[WaitingRequest, ...] = ()
    """The queue of waiting requests, in the order of admission (semantics T2)."""
    stopped: Stopped | None = None
    """None: the job takes every request."""
    owner: JobOwner | None = None
    """Recorded at the first trigger; None before, and in a job of version 0.1 (semantics W8)."""
    declined: tuple[DeclinedRequest, ...] = ()
    """The last declined requests, newest last; the newest of each epoch."""
    failures: Count = 0
    """Counted failures in a row since the newest success, or since the job failed because of them (semantics D5)."""
    restart_memory: RestartMemory | None = None
    """Failed tries of all epochs that the restart strategy remembers (semantics F4)."""
    interventions: tuple[Intervention, ...] = field(default=(), metadata=SPARSE)
    """Interventions of known persons, newest last."""
    rewinds: tuple[RewindRecord, ...] = field(default=(), metadata=SPARSE)
    """Rewinds, oldest first, without those that a later one covers; they do not overlap."""
    importing: ImportEntry | None = None
    """The savepoint that is being copied into the job."""
    imports: tuple[ImportRecord, ...] = field(default=(), metadata=SPARSE)
    """Savepoints that the job was started from, newest last: the last ones, and those whose checkpoint is retained."""
    savepoint_target: Target | None = None
    """Default place for savepoints, as of the last trigger (semantics P1)."""
    savepoints: tuple[SavepointEntry, ...] = field(default=(), metadata=SPARSE)
    """Savepoints by id; of the ended ones the newest, until they are disposed of."""
    forgotten: Count = field(default=0, metadata=SPARSE)
    """Number of forgotten savepoints whose folder may not be empty yet; names of later folders include it, so that no
    folder is used twice."""
    noted: tuple[CompletedNote, ...] = field(default=(), metadata=SPARSE)
    """Completed epochs that the history has forgotten and that are not in a segment yet (semantics T9)."""
    segments: tuple[Segment, ...] = field(default=(), metadata=SPARSE)
    """Lists of epochs that completed longer ago, oldest first; at most two."""
    notes_below: CheckpointId | None = None
    """Notes of version 0.1 count if they name a checkpoint below this one; None: that version wrote this head."""
    triggering: tuple[TriggeringTask, ...] = field(default=(), metadata=SPARSE)
    """Tasks with the right to trigger, of epochs that begin with several stages, newest last; one per epoch (T10)."""
    mirrors: tuple[MirrorEntry, ...] = field(default=(), metadata=SPARSE)
    """Mirrors of the job, in the order of their first passes."""
    mirror_of: MirrorOf | None = None
    """The job that this one is a mirror of, or was until it was activated."""
    moved: Moved | None = None
    """The activated mirror in which the job goes on; this one takes no trigger any more."""
    writes: tuple[Token, ...] = ()
    """Ids of the last writes, newest last, by which a writer whose answer was lost finds its outcome (semantics W2)."""

    def pending_of_epoch(self, epoch: str) -> PendingEntry | None:
        """Give the pending attempt of an epoch; there is at most one."""
        return next((entry for entry in self.pending if entry.epoch == epoch), None)

    def pending_by_id(self, checkpoint: int) -> PendingEntry | None:
        """Give a pending checkpoint by id."""
        return next((entry for entry in self.pending if entry.id == checkpoint), None)

    def retained(self, checkpoint: int, *, so: str = "") -> CompletedEntry:
        """Give the entry of a retained checkpoint.

        Args:
            checkpoint: its id.
            so: consequence for the caller if it is not retained, for the message.

        Raises:
            NoCheckpointError: the checkpoint is not retained.
        """
        entry = self.completed_by_id(checkpoint)
        if entry is None:
            raise NoCheckpointError(
                f"the checkpoint is not retained{so}",
                job=self.job,
                checkpoint=checkpoint,
                retained=", ".join(str(each.id) for each in self.completed) or "none",
            )
        return entry

    def completed_by_id(self, checkpoint: int) -> CompletedEntry | None:
        """Give a retained completed checkpoint by id."""
        return next((entry for entry in self.completed if entry.id == checkpoint), None)

    def latest_completed(self) -> CompletedEntry | None:
        """Give the newest completed checkpoint."""
        return self.completed[-1] if self.completed else None

    def latest_id(self) -> int | None:
        """Give the id of the newest completed checkpoint."""
        latest = self.latest_completed()
        return latest.id if latest else None

    def ended_by_id(self, checkpoint: int) -> EndedEntry | None:
        """Give an ended checkpoint by id while the history remembers it."""
        return next((entry for entry in self.history if entry.id == checkpoint), None)

    def ended_of_epoch(self, epoch: str) -> Iterator[EndedEntry]:
        """Yield the epoch's ended attempts, newest first, as far as the history remembers them."""
        return (entry for entry in reversed(self.history) if entry.epoch == epoch)

    def incomplete(self) -> list[str]:
        """Give the epochs whose newest ended attempt has not completed, as far as the history remembers them."""
        newest = {each.epoch: each.status for each in self.history}
        return [epoch for epoch, status in newest.items() if status is not Status.COMPLETED]

    def recorded(self) -> dict[int, EndedEntry]:
        """Give the failed checkpoints whose record the store keeps, by id (semantics O3)."""
        failed = sorted((each.id, each) for each in self.history if each.status is Status.FAILED)
        return dict(failed[-MAX_RECORDED:])

    def window_of(self, epoch: str) -> WindowText | None:
        """Give an epoch's window of time, as far as the head remembers it; None where the epoch reads none."""
        newest = next(self.ended_of_epoch(epoch), None)
        held = next((each for each in self.completed if each.epoch == epoch), None)
        saved = next((each for each in self.savepoints if each.epoch == epoch and each.source is not None), None)
        waits = next((each for each in self.waiting if each.epoch == epoch), None)
        return next((each.window for each in (self.pending_of_epoch(epoch), newest, held, saved, waits) if each), None)

    def import_of(self, checkpoint: int | None) -> ImportRecord | None:
        """Give the savepoint that a checkpoint was made from; None for a checkpoint of an epoch."""
        return next((each for each in self.imports if each.checkpoint == checkpoint), None)

    def left_out_of(self, checkpoint: int) -> tuple[str, ...]:
        """Give the stages that a completed checkpoint left out, as far as the head remembers it (semantics B3, F6)."""
        entry = self.completed_by_id(checkpoint) or self.ended_by_id(checkpoint)
        return entry.left_out if entry else ()

    def notices_waiting(self) -> int:
        """Count the notices that wait and those that the pending checkpoints will leave."""
        return len(self.notices) + sum(bool(entry.listeners) for entry in self.pending)

    def carryable(self, epoch: str) -> EndedEntry | None:
        """Give the ended attempt whose executions a new attempt of the epoch may carry over (semantics F2).

        This is the epoch's newest attempt, if none is pending, the epoch has not completed, and no checkpoint has
        completed since the attempt was triggered: its executions were computed from the state that the new attempt
        restores, too. An attempt that ended because the job was stopped or restored (R5) lends no executions: its epoch
        starts over; a pause of the DAG does not count as a stop. Nor does an attempt that ended before a rewind, even
        if the rewind goes back to its base. An attempt that is not carryable never becomes so again; the cleaner relies
        on that.
        """
        newest = self.unfinished(epoch)
        return newest if newest is not None and newest.base == self.latest_id() else None

    def savepoint_by_request(self, request: str) -> SavepointEntry | None:
        """Give the savepoint of a request id, as far as the head remembers it."""
        return next((entry for entry in self.savepoints if entry.request == request), None)

    def stopping(self) -> SavepointEntry | None:
        """Give the savepoint that stops the job; None while none does (semantics P2)."""
        return next((entry for entry in self.savepoints if entry.stops and not entry.ended), None)

    def drains(self, epoch: str) -> bool:
        """Tell whether an epoch is the last one of a job that is being stopped (semantics P2)."""
        entry = self.stopping()
        return entry is not None and entry.drains and self.stops_after(epoch)

    def stops_after(self, epoch: str) -> bool:
        """Tell whether a job that is being stopped waits for an epoch to complete (semantics P2)."""
        entry = self.stopping()
        return entry is not None and entry.waits and not entry.next_whole and entry.epoch == epoch

    def kept_from(self, epoch: str) -> SavepointEntry | None:
        """Give the savepoint that stops the job, if it keeps an epoch from beginning (semantics P2).

        The epoch that the savepoint waits for goes on, whatever becomes of its attempts. A savepoint that waits for any
        next epoch keeps none from beginning.
        """
        entry = self.stopping()
        return None if entry is None or entry.waits_for_next or self.stops_after(epoch) else entry

    def undelivered_completions(self) -> tuple[Notice, ...]:
        """Give the waiting notices of completed checkpoints, whose sinks have not committed yet (semantics C4)."""
        return tuple(each for each in self.notices if each.status is Status.COMPLETED)

    def savepoint_by_id(self, savepoint: int) -> SavepointEntry | None:
        """Give a savepoint by id, as far as the head remembers it."""
        return next((entry for entry in self.savepoints if entry.id == savepoint), None)

    def remembers_all(self) -> bool:
        """Tell whether the head still knows every checkpoint of the job: each id is pending, or in the history."""
        return len(self.history) + len(self.pending) == self.next_id - 1

    def unfinished(self, epoch: str) -> EndedEntry | None:
        """Give an epoch's ended attempt that another may follow, by itself or because a person clears a stage (F4).

        This is the epoch's newest attempt, if it has ended without completing. It need not lend executions: if another
        checkpoint has completed since, all stages that had begun run again (F2). Attempts that ended because the job
        was stopped or restored, that ended before a rewind, or that were left behind do not qualify. An attempt that is
        not unfinished never becomes so again: a later one has begun, the history has forgotten it, it was left behind,
        or the job was rewound.
        """
        newest = next(self.ended_of_epoch(epoch), None)
        if newest is None or newest.status is Status.COMPLETED or self.pending_of_epoch(epoch) is not None:
            return None
        if self.rewound_since(newest) is not None or newest.left_behind:
            return None
        if newest.reason is Reason.CHECKPOINT_COORDINATOR_SUSPEND and not newest.paused:
            return None
        return newest

    def resumable(self, epoch: str) -> EndedEntry | None:
        """Give an epoch's ended attempt after which the epoch goes on by itself: tolerated, paused or overtaken."""
        newest = self.unfinished(epoch)
        return newest if newest is not None and newest.tolerated else None

    def rewind_of(self, checkpoint: int) -> RewindRecord | None:
        """Give the rewind because of which a checkpoint no longer counts, whether or not it had completed."""
        return next((rewind for rewind in self.rewinds if rewind.covers(checkpoint)), None)

    def rewound_since(self, ended: EndedEntry) -> RewindRecord | None:
        """Give the newest rewind if an attempt had ended before it; then only a trigger opens the epoch's next one."""
        newest = self.rewinds[-1] if self.rewinds else None
        return newest if newest is not None and ended.id <= newest.through else None

    @property
    def is_mirror(self) -> bool:
        """Whether this is the head of a mirror that nobody has activated (semantics M5)."""
        return self.mirror_of is not None and not self.mirror_of.activated_at_ms

    def completions(self) -> dict[str, int]:
        """Give the epochs known to have completed, each with its checkpoint.

        Rewound epochs are missing until they have completed again. A checkpoint made from a savepoint completed no
        epoch of this job.
        """
        noted = {each.epoch: each.checkpoint for each in self.noted if self.rewind_of(each.checkpoint) is None}
        replayed = {epoch: entry.id for entry in self.completed for epoch in entry.replayed}
        retained = {entry.epoch: entry.id for entry in self.completed if self.import_of(entry.id) is None}
        counting = (entry for entry in self.history if self.rewind_of(entry.id) is None)
        ended = {entry.epoch: entry.id for entry in counting if entry.status is Status.COMPLETED}
        return noted | replayed | retained | ended


class InvariantError(CairnError):
    """A decision would have broken the head; nothing was written. This is a defect of Cairn: please report it."""

    kind = ErrorKind.INTERNAL


def check_invariants(old: Head, new: Head) -> None:
    """Check the invariants between a version of the head and the next, before it is written.

    Raises:
        InvariantError: an invariant is broken; the text names it.
    """
    for name, holds in _invariants(old, new):
        if not holds:
            raise InvariantError(
                f"nothing was written, because this would no longer hold: {name}. Please report it",
                job=new.job,
                revision=old.revision,
            )


def check_no_mirror(head: Head, storage: str) -> None:
    """Refuse an operation of the job in a mirror that nobody has activated.

    Raises:
        CheckpointError: the head is that of such a mirror.
    """
    if head.is_mirror and head.mirror_of is not None:
        raise CheckpointError(
            f"this is a mirror of the job in {head.mirror_of.uri}, and nobody has activated it. If that storage is "
            f"down, or the job is to move, type: `cairn activate {head.job} --storage {storage}`",
            code="mirror_not_activated",
            job=head.job,
        )


def _invariants(old: Head, new: Head) -> Iterator[tuple[str, bool]]:
    pending, completed = {e.id: e for e in new.pending}, {e.id: e for e in new.completed}
    was_pending, was_completed = {e.id: e for e in old.pending}, {e.id: e for e in old.completed}
    ended = {e.id: e.status for e in new.history}
    yield "the job never changes", new.job == old.job
    yield "ids never go back (T5)", new.next_id >= old.next_id
    yield "every id was handed out (T5)", all(0 < i < new.next_id for i in (*pending, *completed, *ended))
    yield "only new ids become pending (T5)", all(i >= old.next_id for i in pending.keys() - was_pending.keys())
    yield (
        "what is pending never changes",
        all(pending[i] == was_pending[i] for i in pending.keys() & was_pending.keys()),
    )
    yield "completed and pending exclude each other (D3)", not pending.keys() & (completed.keys() | ended.keys())
    yield "an epoch has one pending attempt", len({e.epoch for e in new.pending}) == len(new.pending)
    yield "completed checkpoints are in order", [e.id for e in new.completed] == sorted(completed)
    yield (
        "what has completed never changes",
        all(completed[i] == was_completed[i] for i in completed.keys() & was_completed.keys()),
    )
    yield "an outcome never changes (D3)", all(ended.get(e.id, e.status) is e.status for e in old.history)
    yield "what was pending is pending or has an outcome (D3)", all(i in pending or i in ended for i in was_pending)
    imported = {e.checkpoint for e in new.imports} - {e.checkpoint for e in old.imports}
    yield (
        "only what was pending completes, or was imported (D3)",
        completed.keys() - was_completed.keys() <= was_pending.keys() | imported,
    )
    yield (
        "what is imported completes at once, under an id of its own (T5)",
        imported <= completed.keys()
        and all(i >= old.next_id or (old.importing is not None and i == old.importing.home) for i in imported),
    )
    yield "an import has an id of its own (T5)", new.importing is None or new.importing.home < new.next_id
    yield "the imports are bounded", sum(not e.claimed for e in new.imports) <= MAX_IMPORTS + len(new.completed)
    yield "no epoch completes twice (T9)", not ({e.epoch for e in new.pending} & old.completions().keys())
    spans = [(each.to, each.through) for each in new.rewinds]
    yield (
        "rewinds are in order and apart",
        all(to < through < new.next_id for to, through in spans)
        and all(before[1] < after[0] for before, after in pairwise(spans)),
    )
    yield (
        "what was rewound stays so",
        all(any(to <= e.to and e.through <= through for to, through in spans) for e in old.rewinds),
    )
    yield "what was rewound is not restored (R5)", not any(new.rewind_of(i) for i in completed)
    listened = {e.id for e in old.pending if e.listeners} - pending.keys()
    yield "every listener is notified (C4, D4)", listened <= {notice.checkpoint for notice in new.notices}
    yield "the notices are bounded", new.notices_waiting() <= max(MAX_NOTICES, old.notices_waiting())
    yield "notes of version 0.1 are judged by one bound", old.notes_below in (None, new.notes_below)
    yield "the history is bounded", len(new.history) <= MAX_HISTORY and len(new.restores) <= MAX_RESTORES
    remembered = new.restart_memory.times_ms if new.restart_memory else ()
    yield "the failures that are remembered are bounded (F4)", len(remembered) <= MAX_FAILURES
    yield from _of_savepoints(old, new)
    waiting = [e.epoch for e in new.waiting]
    ranks = [e.kind.rank for e in new.waiting]
    yield "no epoch waits twice (T2)", len(set(waiting)) == len(waiting)
    yield "waiting and pending exclude each other (T9)", not set(waiting) & {e.epoch for e in new.pending}
    yield "the line is in order (T2)", ranks == sorted(ranks)
    yield "the line is bounded (T2)", len(waiting) <= MAX_WAITING
    triggering = [e.epoch for e in new.triggering]
    yield "one task triggers an epoch (T10)", len(set(triggering)) == len(triggering)
    yield "the tasks that trigger are bounded (T10)", len(triggering) <= MAX_TRIGGERING
    yield "the declined are bounded (T1)", len(new.declined) <= MAX_DECLINED
    yield (
        "the mirrors are bounded",
        all(len(e.holds) <= MAX_HOLDS for e in new.mirrors) and len(new.mirrors) <= MAX_MIRRORS,
    )
    yield "nothing begins in a job that has moved", not new.moved or not new.pending
    yield "the interventions are bounded (O1)", len(new.interventions) <= MAX_INTERVENTIONS


def _of_savepoints(old: Head, new: Head) -> Iterator[tuple[str, bool]]:
    if not (old.savepoints or new.savepoints):
        return
    now, before = {e.id: e for e in new.savepoints}, {e.id: e for e in old.savepoints}
    checkpoints = {e.id for e in new.pending} | {e.id for e in new.completed} | {e.id for e in new.history}
    yield "savepoints are in order (T5)", list(now) == sorted(now) and len(now) == len(new.savepoints)
    yield "only new ids become savepoints (T5)", all(old.next_id <= i < new.next_id for i in now.keys() - before.keys())
    yield "a savepoint's id is not a checkpoint's (T5)", not now.keys() & checkpoints
    yield "a request has one savepoint (P1)", len({e.request for e in new.savepoints}) == len(now)
    yield "a savepoint's end never changes (D3)", all(now.get(i, e) == e for i, e in before.items() if e.ended)
    yield "a savepoint under way is not forgotten", all(i in now for i, e in before.items() if not e.ended)
    yield (
        "a savepoint's source never changes",
        all(now[i].source == e.source for i, e in before.items() if i in now and e.source is not None),
    )
    yield "the savepoints are bounded (P3)", len(now) <= MAX_SAVEPOINTS
    yield "what is forgotten is counted (P3)", new.forgotten >= old.forgotten + (len(now) < len(before))


def run_of_head(head: Head, epoch: str) -> str:
    """Name the run of an epoch, with its window as far as the job's head remembers it."""
    return run_text(run_id_of(epoch), head.window_of(epoch))
