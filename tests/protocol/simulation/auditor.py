"""Watches the store from outside, without faults, and keeps its own account of what may never happen.

It looks at every version of the head as it lands, at every deletion before it happens, and at what processes are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument, CompactionDocument
from airflow_cairn.checkpoint.documents.attempt import DocumentRef, Execution, PendingDocument
from airflow_cairn.checkpoint.documents.entries import CompletedEntry, EndedEntry, PendingEntry
from airflow_cairn.checkpoint.documents.head import MAX_RECORDED, Head
from airflow_cairn.checkpoint.documents.metadata import HandleLine
from airflow_cairn.checkpoint.reasons import AckAnswer, Status
from airflow_cairn.checkpoint.store import acks, attempt_documents, metadata_file
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.storage import GoneError
from tests.protocol.simulation.accounts import FailureAccount, RequestAccount, SourceAccount
from tests.protocol.simulation.held import held
from tests.protocol.simulation.kinds import Kind
from tests.protocol.simulation.notice_account import NoticeAccount
from tests.protocol.simulation.owner_account import OwnerAccount
from tests.protocol.simulation.savepoint_account import SavepointAccount
from tests.protocol.simulation.sequence import HookAccount
from tests.protocol.simulation.state_account import StateAccount
from tests.support.memory_store import MemoryStore
from tests.support.world import grown_state


class ViolationError(AssertionError):
    """Something happened that may never happen."""


class Auditor:
    """Keeps the account of one job.

    Args:
        memory: the store itself.
        job: the job's name.
        kind: what the job has.
    """

    def __init__(self, memory: MemoryStore, job: str, kind: Kind) -> None:
        self.files = JobFiles(memory, job)
        self.head = Head(job=job)
        self.folded: list[str] = []
        """Epochs in the order in which they completed, as far as they count."""
        self.ever_folded: set[str] = set()
        """All that ever completed."""
        self.held_at: dict[int, tuple[list[str], int]] = {}
        """By completed checkpoint, the epochs that counted by then, and how much of a source was read."""
        self.outcomes: dict[int, Status] = {}
        self._seen_pending: dict[int, str] = {}
        self._documents: dict[int, PendingDocument] = {}
        """Documents of pending attempts."""
        self._live: dict[tuple[int, str, str], PendingDocument] = {}
        self._listed_until: dict[str, int] = {}
        """The last revision of the head at which an execution was listed by a pending attempt."""
        self._completed_with: dict[str, int] = {}
        """By the token of an execution, the checkpoint that completed with it."""
        self._begun: dict[str, int] = {}
        """By its handover's key, the revision of the head at which an execution had begun."""
        self._attempts: dict[str, PendingDocument] = {}
        """Of each epoch the newest attempt."""
        self.discarded: set[str] = set()
        self.problem: ViolationError | None = None
        self.requests: RequestAccount | None = None
        self.failures: FailureAccount | None = None
        self.notices = NoticeAccount(self)
        self.source = SourceAccount(self) if kind.has_source else None
        self.hooks = HookAccount(self) if kind.hooked else None
        self.states = StateAccount(self, kind)
        self.savepoints = SavepointAccount(self) if kind.saved else None
        self.owner = OwnerAccount(self) if kind.owned else None
        self.damaged: dict[str, frozenset[str]] = {}
        """Metadata of checkpoints that were damaged from outside, and what still stands of what it names."""

    def fail(self, rule: str, what: object) -> None:
        """Note the first violation; it may happen in any process, so the run's own loop raises it."""
        violation = ViolationError(f"{rule}: {what}")
        self.problem = self.problem or violation
        raise violation

    def check(self, holds: object, rule: str, what: object) -> None:
        if not holds:
            self.fail(rule, what)

    # Reports to the auditor.

    def written(self, key: str) -> None:
        """Look at what has just been written."""
        bare = self.files.bare(key)
        if self.hooks is not None:
            self.hooks.written(bare)
        if "/handover/" in bare:
            self._begun.setdefault(bare, self.head.revision)
        if bare == layout.compaction_of(bare):
            self.states.grown["given up"] += self.files.read(CompactionDocument, bare)[0].given_up
        if bare == layout.HEAD:
            self._swapped(self.files.read(Head, layout.HEAD, max_bytes=1 << 24)[0])

    def deleting(self, keys: Iterable[str], run: str | None, actor: str) -> None:
        """Look at what is about to be deleted: nothing that is referred to (semantics C3)."""
        referred = self.referred() | (self.notices.needed(self.files) if run is None else set())
        for full in keys:
            key = self.files.bare(full)
            self.check(key not in referred, "deleted what is referred to (C3)", f"{key} by {actor}")
            if layout.execution_of(key) in self._live:
                own = run is not None and f"/{run}/" in key
                self.check(own, "deleted what a pending attempt may name (C3)", f"{key} by {actor}")
            if self.head.importing is not None:
                copied = layout.checkpoint_of(key) == self.head.importing.home
                self.check(not copied, "deleted what a job is being started from (C3, R6)", f"{key} by {actor}")
        if self.savepoints is not None:
            self.savepoints.deleting(list(keys), actor)

    def aborting(self, key: str) -> None:
        """Look at an upload that is about to be aborted (semantics W7)."""
        bare = self.files.bare(key)
        self.check(layout.execution_of(bare) not in self._live, "aborted a living driver's upload (W7)", bare)

    def answered(self, ack: AckDocument, answer: AckAnswer, asked_at: int) -> None:
        """Look at what a driver is told (semantics A2)."""
        if answer is AckAnswer.SUCCESS:
            listed = self._listed_until.get(ack.token, -1) >= asked_at
            known = listed or ack.token in self._completed_with or ack.epoch in self.ever_folded
            # If the head could only be read, the next attempt finds the marker and takes the execution over.
            self.check(
                known or self._may_be_taken_over(ack),
                "told SUCCESS to an execution that nobody lists (A2, W4)",
                ack.token,
            )
            if known and not listed:
                self.states.counted(ack)
        elif answer in (AckAnswer.DISCARDED, AckAnswer.UNKNOWN):
            self.discarded.add(ack.token)
            counted = self._completed_with.get(ack.token)
            undone = counted is not None and self.head.rewind_of(counted) is not None
            self.check(counted is None or undone, "told DISCARDED, and it counted (A2)", ack.token)

    def completed(self, epoch: str, checkpoint: int) -> None:
        """Look at an answer that says `completed` (semantics D3)."""
        known = self.outcomes.get(checkpoint) is Status.COMPLETED and epoch in self.ever_folded
        self.check(known, "said completed of what is not (D3)", f"{epoch} in {checkpoint}")

    def not_completed(self, checkpoint: int) -> None:
        """Look at an answer that says that a checkpoint failed (semantics D3)."""
        self.check(
            self.outcomes.get(checkpoint) is not Status.COMPLETED, "said failed of what completed (D3)", checkpoint
        )

    # Versions of the head.

    def _swapped(self, new: Head) -> None:
        old, self.head = self.head, new
        self.check(new.revision == old.revision + 1, "a swap was lost (W2)", f"{old.revision} -> {new.revision}")
        self.check(new.next_id >= old.next_id, "ids go back (T5)", f"{old.next_id} -> {new.next_id}")
        self.notices.swapped(old, new)
        if self.hooks is not None:
            self.hooks.swapped(new)
        if self.savepoints is not None:
            self.savepoints.swapped(old, new)
        if self.owner is not None:
            self.owner.swapped(old, new)
        if self.failures is not None:
            self.failures.swapped(old, new)
        if self.requests is not None:
            self.requests.swapped(old, new)
        before = {entry.id: entry for entry in old.pending}
        documents, self._documents = self._documents, {}
        for entry in new.pending:
            token = self._seen_pending.setdefault(entry.id, entry.token)
            self.check(token == entry.token, "an id is used again (T5)", entry.id)
            self.check(entry.id not in self.outcomes, "an ended checkpoint is pending again (D3)", entry.id)
            self.check(entry.epoch not in self.folded, "a completed epoch is pending again (T9)", entry.epoch)
            self._documents[entry.id] = self._document(entry)
            if entry.id not in before:
                self._opened(self._documents[entry.id])
                self._runs_again(self._documents[entry.id], old.revision)
        self._live = {
            (execution.home, uid, execution.token): document
            for document in [*self._documents.values(), *self._paused(new)]
            for uid, execution in document.executions.items()
        }
        for _, _, token in self._live:
            self._listed_until[token] = new.revision
        for ended in new.history:
            known = self.outcomes.setdefault(ended.id, ended.status)
            self.check(known is ended.status, "two outcomes of one checkpoint (D3)", ended.id)
        for entry_id in before:
            there = entry_id in self.outcomes or entry_id in self._documents
            self.check(there, "a pending checkpoint vanished without an outcome (D3)", entry_id)
        retained = {entry.id for entry in old.completed}
        for done in new.completed:
            record = new.import_of(done.id) if self.owner is not None else None
            if done.id not in retained and self.owner is not None and record is not None:
                self.owner.imported(done, record)
            elif done.id not in retained:
                self.check(done.id in before, "completed what was not pending (D3)", done.id)
                self._completed(done, documents[done.id])
        for ended in new.history:
            if ended.id in before and ended.status is Status.FAILED:
                # The process that goes on from it, or is told of it, reads what it expected.
                stands = self._stands(layout.pending(ended.id, ended.token))
                self.check(stands, "an attempt ended and left no document (F2, D4, D5)", ended.id)

    def _paused(self, head: Head) -> Iterator[PendingDocument]:
        """Yield what a pause has ended: all of it goes on to its end, and the next attempt takes it over (S1)."""
        for epoch in dict.fromkeys(ended.epoch for ended in head.history if ended.paused):
            ended = head.carryable(epoch)
            if ended is not None and ended.paused:
                yield self.files.read(PendingDocument, layout.pending(ended.id, ended.token))[0]

    def _may_be_taken_over(self, ack: AckDocument) -> bool:
        """Tell whether an attempt that has ended lends the execution to the next one, which has not been opened."""
        ended = self.head.carryable(ack.epoch)
        if ended is None or ack.token in ended.rejected:
            return False
        lent = self.files.read(PendingDocument, layout.pending(ended.id, ended.token))[0].executions
        return ack.token in {each.token for each in lent.values()}

    def _document(self, entry: PendingEntry) -> PendingDocument:
        try:
            return attempt_documents.read(self.files, entry)
        except GoneError:
            self.fail("a pending checkpoint's document is gone (C3)", entry.id)
            raise

    def _opened(self, document: PendingDocument) -> None:
        """Executions taken over have all their files, and none has been discarded (semantics F2)."""
        if self.source is not None:
            self.source.opened(document)
        if self.hooks is not None:
            self.hooks.opened(document)
        if self.owner is not None:
            self.owner.opened(document)
        for uid, execution in document.executions.items():
            if execution.home == document.checkpoint:
                continue
            self.check(execution.token not in self.discarded, "carried what was discarded (A2, F2)", execution.token)
            for key in self._named_by(uid, execution):
                self.check(self._stands(key), "carried an execution whose files are gone (F2)", key)

    def _runs_again(self, document: PendingDocument, decided_on: int) -> None:
        """Of two stages that a pipelined exchange joins, neither runs again without the other (semantics F1).

        Who had not begun has nothing to run again; one that begins while the attempt is opened is fenced instead.
        """
        before = self._attempts.get(document.epoch)
        self._attempts[document.epoch] = document
        if before is None:
            return
        for spec in document.stages:
            for uid in spec.pipelined:
                for one, other in ((spec.uid, uid), (uid, spec.uid)):
                    was = before.executions[one]
                    begun = self._begun.get(layout.handover(was.home, one, was.token), decided_on) < decided_on
                    torn = document.executions[one] != was and document.executions[other] == before.executions[other]
                    self.check(not (begun and torn), "half a region runs again (F1)", (document.checkpoint, one))

    def _completed(self, entry: CompletedEntry, document: PendingDocument) -> None:
        self.check(entry.epoch not in self.folded, "an epoch completed twice (T9)", entry.epoch)
        self.folded.append(entry.epoch)
        self.ever_folded.add(entry.epoch)
        if self.source is not None:
            self.source.completed(entry, document)
        self.note(entry.id)
        try:
            found = held(self.files, entry.metadata)
        except GoneError as error:
            self.fail("a completed checkpoint names what is gone (C3)", error)
            raise
        self.states.completed(entry, document, found)
        self.notices.completed(entry, found)
        if self.hooks is not None:
            self.hooks.completed(document, found)
        tokens = {uid: execution.token for uid, execution in document.executions.items()}
        for uid in tokens.keys() - set(entry.left_out):
            line, token = found.stages[uid], tokens[uid]
            self._completed_with[token] = entry.id
            self.check(line.execution.token == token, "completed with another execution (W4)", uid)
            self.check(token not in self.discarded, "completed with what was discarded (A2)", uid)
            read = line.values.get("read")
            current = isinstance(read, dict) and read == {up: tokens[up] for up in read}
            self.check(current or document.limits.at_least_once, "a stage read from what was run again (F1)", uid)
        for key in self._refs(entry.metadata):
            self.check(self._stands(key), "a completed checkpoint names what is gone (C3)", key)

    def note(self, checkpoint: int) -> None:
        """Note what a completed checkpoint holds."""
        self.held_at[checkpoint] = (list(self.folded), self.source.folded if self.source is not None else 0)

    def go_back(self, folded: list[str], numbers: int) -> None:
        """Let nothing count but these epochs, and what they have read of a source."""
        self.folded = list(folded)
        if self.source is not None:
            self.source.folded = numbers

    # References to objects.

    def referred(self) -> set[str]:
        """Every key that a retained or a pending checkpoint refers to."""
        found = {each.document.key for each in self.head.segments}
        for entry in self.head.completed:
            found.update(self._refs(entry.metadata))
        for savepoint in self.head.savepoints:
            if savepoint.source is not None and not savepoint.ended:
                found.update(self._refs(savepoint.source.metadata))
        held = {entry.id: entry.document is not None for entry in self.head.pending}
        for document in self._documents.values():
            if not held.get(document.checkpoint):
                found.add(layout.pending(document.checkpoint, document.token))
            if document.restore is not None:
                found.update(self._refs(document.restore.metadata))
            if document.hooks is not None and self.hooks is not None:
                found.update(self.hooks.kept(document.hooks))
            for uid, execution in document.executions.items():
                found.update(self._named_by(uid, execution))
        return found

    def damage(self, entry: CompletedEntry, gone: str) -> None:
        """Take note that a completed checkpoint loses a file from outside: its metadata, or what that names."""
        self.damaged[entry.metadata.key] = self._refs(entry.metadata) - {gone}

    def names(self, entry: CompletedEntry) -> frozenset[str]:
        """Give the keys of a completed checkpoint's metadata and of what it names."""
        return self._refs(entry.metadata)

    def was_damaged(self, checkpoint: int) -> bool:
        """Tell whether a checkpoint was damaged, retained or not."""
        return any(layout.checkpoint_of(key) == checkpoint for key in self.damaged)

    def is_damaged(self, checkpoint: int) -> bool:
        """Tell whether a retained checkpoint was damaged."""
        entry = self.head.completed_by_id(checkpoint)
        return entry is not None and entry.metadata.key in self.damaged

    def _refs(self, ref: DocumentRef) -> frozenset[str]:
        if ref.key in self.damaged:
            return self.damaged[ref.key]
        try:
            return self._refs_of(ref.key, ref)
        except GoneError:
            self.fail("a retained checkpoint's metadata is gone (C3)", ref.key)
            raise

    @lru_cache(maxsize=64)  # noqa: B019 - lives as long as one run
    def _refs_of(self, key: str, ref: DocumentRef) -> frozenset[str]:
        lines = metadata_file.read(self.files, ref)
        return frozenset({key, *(line.handle.path for line in lines if isinstance(line, HandleLine))})

    def _named_by(self, uid: str, execution: Execution) -> set[str]:
        """The marker of an execution and what it names, if it has acknowledged."""
        try:
            ack = acks.read_ack(self.files, uid, execution)
        except GoneError:
            return set()
        marker = layout.ack(execution.home, uid, execution.token)
        return {marker, *(handle.path for subtask in ack.subtasks for handle in subtask.handles)}

    def _stands(self, key: str) -> bool:
        try:
            self.files.stat(key)
        except GoneError:
            return False
        return True

    def _lent(self, ended: EndedEntry) -> Iterator[str]:
        """Yield what an attempt that the next one follows leaves behind: its document, and who had begun (C2, S1)."""
        yield layout.pending(ended.id, ended.token)
        document = attempt_documents.read(self.files, ended)
        for uid, execution in document.executions.items():
            yield layout.handover(execution.home, uid, execution.token)
            yield layout.decline(execution.home, uid, execution.token)

    def at_rest(self, standing: set[str], uploads: int) -> None:
        """Nothing is left over once everything has ended and was cleaned (semantics C3, D4, W7)."""
        self.check(not self.head.pending, "something is pending at rest", self.head.pending)
        referred = self.referred()
        failed = [self.head.unfinished(epoch) for epoch in {ended.epoch for ended in self.head.history}]
        # The epoch's next attempt is made from it, and the history forgets it in time (semantics D5).
        kept = {key for ended in failed if ended is not None for key in self._lent(ended)}
        kept |= grown_state.to_adopt(self.files, referred)
        recorded = sorted(ended.id for ended in self.head.history if ended.status is Status.FAILED)[-MAX_RECORDED:]
        kept |= {key for key in standing if layout.record_of(key) in recorded}
        self.check(standing - kept <= referred, "orphans at rest", sorted(standing - kept - referred))
        self.check(referred <= standing, "dangling references at rest (C3)", sorted(referred - standing))
        self.check(uploads == 0, "uploads are left over (W7)", uploads)
        self.check(not self.head.waiting, "somebody waits for ever (T2)", self.head.waiting)
        self.notices.at_rest()
        ended = set(self.outcomes)
        if self.savepoints is not None:
            self.savepoints.at_rest()
            ended |= self.savepoints.ids
        if self.owner is not None:
            ended |= self.owner.ids
        self.check(ended == set(range(1, self.head.next_id)), "an id has no outcome (D3)", ended)
