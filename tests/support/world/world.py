"""A job in a store, with a clock and ids that stand still, and drivers that fold epochs into state.

A state's file holds the names of the epochs folded into it, in order; so "exactly once" is a comparison of lists.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from airflow_cairn.checkpoint import CheckpointConfig, Coordinator, RunFacts, Runtime, TriggerRequest
from airflow_cairn.checkpoint.acts.acknowledgements import ExecutionReports
from airflow_cairn.checkpoint.answers import (
    AlreadyRead,
    Declined,
    EpochCompleted,
    Failed,
    InputRefused,
    StageAcknowledged,
    Submit,
    TriggerAnswer,
    Triggered,
    UpstreamsNotReady,
)
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import (
    AckDocument,
    DeclineDocument,
    Output,
    StateHandle,
    SubtaskAck,
)
from airflow_cairn.checkpoint.documents.attempt import (
    EpochDocument,
    Execution,
    Handover,
    Owner,
    PendingDocument,
    Slice,
    StageSpec,
)
from airflow_cairn.checkpoint.documents.entries import EndedEntry
from airflow_cairn.checkpoint.documents.head import MAX_RECORDED
from airflow_cairn.checkpoint.documents.metadata import HandleLine, HookLine, InFlightLine, Line, StageLine
from airflow_cairn.checkpoint.reasons import AckAnswer, Reason, Status
from airflow_cairn.checkpoint.store import acks, metadata_file
from airflow_cairn.checkpoint.store.attempt_documents import MAX_HELD_BYTES
from airflow_cairn.checkpoint.store.head_store import OpenJob
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.storage import Written
from airflow_cairn.storage.port import ObjectStore
from tests.support.acking import ack_of
from tests.support.memory_store import MemoryStore
from tests.support.world import grown_state, grown_table
from tests.support.world.parties import Ear, Ids, ledger
from tests.support.world.places import new_store

JOB = "flights"
STAGES = (
    StageSpec("clean"),
    StageSpec("routes", upstream=("clean",)),
    StageSpec("airports", upstream=("clean",)),
    StageSpec("report", upstream=("routes",), parallelism=2),
)
"""Four stages in two regions below one source."""

TIMEOUT = timedelta(minutes=10)
CONFIG = CheckpointConfig(timeout=TIMEOUT, retained=2)


@dataclass
class Clock:
    """A clock that only a test moves."""

    now_ms: int = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, by: timedelta) -> None:
        self.now_ms += by // timedelta(milliseconds=1)


def lent_by(coordinator: Coordinator) -> set[str]:
    """Give what the next attempt of an epoch is made from: the document, and which tasks had begun."""
    head = coordinator.head()
    found = set()
    for ended in filter(None, map(head.unfinished, {each.epoch for each in head.history})):
        found.add(layout.pending(ended.id, ended.token))
        document = coordinator.pending_document(ended)
        for uid, each in document.executions.items() if document else ():
            found |= {layout.handover(each.home, uid, each.token), layout.decline(each.home, uid, each.token)}
    return found


def in_flight_of(files: JobFiles, lines: Iterable[Line]) -> dict[tuple[str, str], list[str]]:
    """Give what executions of earlier epochs wrote that some stage has still to read, by upstream and token."""
    found: dict[tuple[str, str], list[str]] = {}
    at: InFlightLine | None = None
    for line in lines:
        if isinstance(line, InFlightLine):
            at = line
        elif isinstance(line, HandleLine) and at is not None:
            found[at.stage, at.execution.token] = json.loads(files.get(line.handle.path, max_bytes=10_000).data)
    return found


def totals_of(lines: Iterable[object]) -> dict[str, str]:
    """Give the file of each stage's state."""
    found, stage = {}, ""
    for line in lines:
        if isinstance(line, StageLine):
            stage = line.stage
        elif isinstance(line, HandleLine) and line.handle.output == "state.totals":
            found[stage] = line.handle.path
    return found


class World:
    """One job and everyone who acts on it.

    Args:
        store: where it lies; by default where worlds do (`places.py`), mostly in memory.
        config: how it makes checkpoints.
        stages: what it runs.
        job: its name; `JOB` by default.
    """

    def __init__(
        self,
        store: ObjectStore | None = None,
        config: CheckpointConfig = CONFIG,
        stages: tuple[StageSpec, ...] = STAGES,
        job: str | None = None,
    ) -> None:
        self.store = store or new_store()
        self.job = job or JOB
        self.config = config
        self.stages = stages
        self.clock = Clock()
        self._tokens = itertools.count(1)
        self._claimants = itertools.count(1)
        self.ears: tuple[Ear, ...] = ()
        """Listeners of the checkpoints that are triggered from now on."""
        self.hooks: tuple[Ids, ...] = ()
        """Master hooks that are asked at each trigger from now on."""
        self._cleared = False
        self._come_in: itertools.count[int] | None = None
        """Count of the numbers that have come in; None: the job has no source."""
        self.slices: dict[str, Slice] = {}
        """Slices of the epochs that read a window of time."""
        self.bulky = False
        """Whether epochs have so much to say that the head does not hold the documents of their attempts."""
        self.appends = False
        """Whether `report` appends the epochs that it folds in to a table, a file each, in the partition of its name,
        and has two states that grow by a run an epoch.
        """

    def listen(self, *names: str) -> None:
        """Let these be told of all checkpoints that are triggered from now on."""
        self.ears = tuple(next((ear for ear in self.ears if ear.name == name), Ear(name)) for name in names)

    def hook(self) -> None:
        """Give the job a master hook that gives each epoch ten ids."""
        self.hooks = (Ids(),)

    def count(self) -> None:
        """Give the job a source; one more number comes in each time that somebody asks for an epoch."""
        self._come_in = itertools.count(1)

    def read_days(self, *epochs: str) -> None:
        """Let these epochs read a day each, from the first of January 2026 on."""
        first = datetime(2026, 1, 1, tzinfo=UTC)
        for number, epoch in enumerate(epochs):
            start = first + timedelta(days=number)
            self.slices[epoch] = Slice(start.isoformat(), (start + timedelta(days=1)).isoformat())

    def fork(self) -> World:
        """Copy of the world that goes on by itself."""
        twin = World(self.memory.fork(), self.config, self.stages, self.job)
        twin.clock.now_ms = self.clock.now_ms
        twin._tokens, twin._claimants = copy.copy(self._tokens), copy.copy(self._claimants)
        twin.ears, twin._come_in = copy.deepcopy(self.ears), copy.copy(self._come_in)
        twin.hooks = copy.deepcopy(self.hooks)
        twin.bulky, twin.slices = self.bulky, dict(self.slices)
        twin.appends = self.appends
        return twin

    @property
    def memory(self) -> MemoryStore:
        assert isinstance(self.store, MemoryStore)
        return self.store

    @property
    def files(self) -> JobFiles:
        return JobFiles(self.store, self.job)

    def new_token(self) -> str:
        return f"{next(self._tokens):016x}"

    def new_claimant(self) -> str:
        """A new try of some task."""
        return f"try-{next(self._claimants)}"

    def coordinator(self, store: ObjectStore | None = None) -> Coordinator:
        """A process of its own, on the world's store or on one that wraps it."""
        return Coordinator(store or self.store, self.job, Runtime(self.clock, self.new_token))

    def reports(self, store: ObjectStore | None = None) -> ExecutionReports:
        """A driver of its own, on the world's store or on one that wraps it."""
        return ExecutionReports(OpenJob(store or self.store, self.job, Runtime(self.clock, self.new_token)))

    def request(self, epoch: str, owner: Owner | None = None) -> TriggerRequest:
        return TriggerRequest(
            epoch,
            self.slices.get(epoch)
            or Slice(detail={"of": epoch, **({"bulk": "x" * MAX_HELD_BYTES} if self.bulky else {})}),
            self.stages,
            self.config,
            owner,
            listeners=tuple(ear.name for ear in self.ears),
            hooks=tuple(hook.name for hook in self.hooks),
            sources=(ledger(next(self._come_in)),) if self._come_in else (),
            run=RunFacts(epoch) if self._come_in else None,
        )

    def ask(self, epoch: str, store: ObjectStore | None = None) -> TriggerAnswer:
        """Ask for a checkpoint, and then the hooks, as the task that triggers does."""
        coordinator = self.coordinator(store)
        answer = coordinator.trigger(self.request(epoch))
        if isinstance(answer, Triggered):
            coordinator.ask_hooks(answer.pending, self.hooks)
        return answer

    def trigger(self, epoch: str, store: ObjectStore | None = None) -> Triggered:
        answer = self.ask(epoch, store)
        assert isinstance(answer, Triggered), answer
        return answer

    def submit(self, epoch: str, stage: str, claimant: str | None = None) -> Submit:
        answer = self.coordinator().begin(epoch, stage, claimant or self.new_claimant())
        assert isinstance(answer, Submit), answer
        return answer

    def run_stage(self, epoch: str, *stages: str) -> AckAnswer | None:
        """Run stages in order, by default all: start each as a new try and let its driver run to its end.

        What a stage is to read and is not there is run before it, as by somebody who clears those tasks. Gives what
        the last one was answered; None if there was nothing to do.
        """
        answers = [self._run_stage(epoch, stage) for stage in stages or [each.uid for each in self.stages]]
        return answers[-1]

    def _run_stage(self, epoch: str, stage: str) -> AckAnswer | None:
        answer = self.coordinator().begin(epoch, stage, self.new_claimant())
        if isinstance(answer, Failed):
            # A person clears what failed for good.
            answer = self.coordinator().begin(epoch, stage, self.new_claimant(), cleared_by_user=True)
        if isinstance(answer, UpstreamsNotReady):
            self._cleared = True
            for uid in answer.upstreams:
                self.run_stage(epoch, uid)
            answer = self.coordinator().begin(epoch, stage, self.new_claimant())
        if isinstance(answer, StageAcknowledged | EpochCompleted):
            return None
        assert isinstance(answer, Submit), answer
        return self.drive(answer.handover)

    def run_stages(self, epoch: str) -> None:
        """Trigger an epoch, if that is still to do, and run all its stages in order."""
        self.ask(epoch)
        self.run_stage(epoch)

    def finish(self, epoch: str) -> None:
        """Run all stages of a pending epoch and complete its checkpoint."""
        self.run_stage(epoch)
        self.coordinator().complete(self.pending_id(epoch))

    def settle(self, *epochs: str) -> list[str]:
        """Bring epochs to their end, whatever stands: first what is pending, then who waits, then the rest.

        Gives those whose input another epoch has read, so that nothing is left of them to do.
        """
        coordinator = self.coordinator()
        coordinator.resume()
        refused = []
        left = list(epochs)
        for _ in range(3 * len(epochs)):
            head = coordinator.head()
            due = [*(entry.epoch for entry in head.pending), *(place.epoch for place in head.waiting), *left]
            epoch = due[0]
            answer = self.ask(epoch)
            if isinstance(answer, Declined):
                continue  # its attempt has expired, and somebody waits
            if isinstance(answer, AlreadyRead | InputRefused):
                refused.append(epoch)
            else:
                self.run_epoch(epoch)
            left = [each for each in left if each != epoch]
            if not left:
                return refused
        raise AssertionError(f"{left} cannot be brought to their end: {coordinator.head()}")

    def run_epoch(self, *epochs: str) -> int:
        """Bring epochs to their end, from wherever they stand; gives the checkpoint that completed the last one."""
        return [self._run_epoch(epoch) for epoch in epochs][-1]

    def _run_epoch(self, epoch: str) -> int:
        answer = self.ask(epoch)
        if isinstance(answer, EpochCompleted):
            return answer.checkpoint
        assert isinstance(answer, Triggered), answer
        self._cleared = False
        self.run_stage(epoch)
        if self._cleared:
            self.run_stage(epoch)
        checkpoint = self.pending_id(epoch)
        assert self.coordinator().complete(checkpoint) == EpochCompleted(epoch, checkpoint)
        self.coordinator().clean()
        return checkpoint

    def pending_id(self, epoch: str) -> int:
        entry = self.coordinator().head().pending_of_epoch(epoch)
        assert entry is not None, f"{epoch} is not pending"
        return entry.id

    def next_attempt(self, epoch: str) -> PendingDocument:
        """Let who waits for an epoch that goes on by itself look, and give what its next attempt expects."""
        self.coordinator().go_on(epoch)
        (entry,) = (each for each in self.coordinator().head().pending if each.epoch == epoch)
        document = self.coordinator().pending_document(entry)
        assert document is not None
        return document

    def write(self, handover: Handover, *, run: str | None = None, store: ObjectStore | None = None) -> AckDocument:
        """Do a driver's work before its acknowledgement: read, compute, write its files."""
        files = JobFiles(store or self.store, self.job)
        run = run or self.new_token()
        owed = [each.epoch for each in handover.backlog if each.slice is not None]
        new = [*owed, *(each.epoch for each in handover.replay), handover.epoch]
        self.read_upstreams(files, handover, new)
        before, lookup = self._restored(files, handover)
        outputs: list[Output] = []
        handles: list[StateHandle] = []

        def put(kind: str, name: str, content: object) -> None:
            folder = layout.output_folder(
                handover.checkpoint, handover.stage, handover.attempt, handover.token, run, f"{kind}.{name}"
            )
            data = json.dumps(content).encode()
            outputs.append(Output(kind, name, folder))
            handles.append(self.put_file(files, f"{kind}.{name}", f"{folder}part-0", data))

        put("state", "totals", [*before, *new])
        put("exchange", "rows", new)
        if handover.stage == "report":
            put("table", "league", [*before, *new])
            if self.appends:
                log, listed = grown_table.append(self, files, handover, run, new)
                outputs.append(log)
                handles.extend(listed)
                changed = grown_state.changes(before, new)
                for output, named, _ in grown_state.grow(self.put_file, files, handover, run, changed):
                    outputs.append(output)
                    handles.extend(named)
        if handover.stage == "airports":
            if lookup is None:
                put("state", "lookup", "written once")
            else:  # unchanged: the file of an older checkpoint is named again
                outputs.append(lookup[0])
                handles.append(lookup[1])
        return ack_of(
            handover,
            (SubtaskAck(0, tuple(handles)), SubtaskAck(1)),
            run=run,
            outputs=tuple(outputs),
            values={"seen": len(before) + len(new)},
        )

    def put_file(self, files: JobFiles, output_id: str, path: str, data: bytes) -> StateHandle:
        """Write a file of an output, and describe it as version 0.1 did: by its size and the store's tag."""
        written = files.create_bytes(path, data)
        assert isinstance(written, Written)
        return StateHandle(output_id, path, len(data), written.etag)

    def read_upstreams(self, files: JobFiles, handover: Handover, new: list[str]) -> None:
        """See that what each upstream wrote covers the epochs that are to be folded in."""
        in_flight = self.in_flight(files, handover)
        for uid, execution in handover.upstream.items():
            read = [in_flight[uid, owed.inputs[uid].token] for owed in handover.backlog if uid in owed.inputs]
            read.append(self.written(files, uid, execution))
            assert [epoch for part in read for epoch in part] == new, "each upstream covers what is to be folded in"

    def written(self, files: JobFiles, uid: str, execution: Execution) -> list[str]:
        """Epochs that an execution has folded into the output that others read."""
        ack = acks.read_ack(files, uid, execution)
        handle = next(h for s in acks.subtasks_of(files, ack) for h in s.handles if h.output == "exchange.rows")
        found: list[str] = json.loads(files.get(handle.path, max_bytes=10_000).data)
        return found

    def drive(self, handover: Handover, store: ObjectStore | None = None) -> AckAnswer:
        """A driver from its start to its acknowledgement."""
        return self.coordinator(store).acknowledge(self.write(handover, store=store))

    def decline(
        self,
        handover: Handover,
        detail: str = "ValueError: bad row",
        store: ObjectStore | None = None,
        unreadable: tuple[str, ...] = (),
        server: str = "",
        reason: Reason = Reason.CHECKPOINT_DECLINED,
        of_store: bool = False,
        incurable: bool = False,
    ) -> None:
        self.coordinator(store).decline(
            DeclineDocument(
                job=self.job,
                checkpoint=handover.checkpoint,
                epoch=handover.epoch,
                stage=handover.stage,
                token=handover.token,
                reason=reason,
                detail=detail,
                unreadable=unreadable,
                server=server,
                of_store=of_store,
                incurable=incurable,
            )
        )

    def in_flight(self, files: JobFiles, handover: Handover) -> dict[tuple[str, str], list[str]]:
        """Output of executions of earlier epochs that some stage has still to read, by upstream and token."""
        return in_flight_of(files, metadata_file.read(files, handover.restore.metadata) if handover.restore else ())

    def _restored(self, files: JobFiles, handover: Handover) -> tuple[list[str], tuple[Output, StateHandle] | None]:
        if handover.restore is None:
            return [], None
        stage = ""
        outputs: dict[str, Output] = {}
        handles: dict[str, StateHandle] = {}
        for line in metadata_file.read(files, handover.restore.metadata):
            if isinstance(line, StageLine):
                stage = line.stage
                if stage == handover.stage:
                    outputs = {output.id: output for output in line.outputs}
            elif isinstance(line, HandleLine) and stage == handover.stage:
                handles[line.handle.output] = line.handle
        if "state.totals" not in handles:
            return [], None
        folded = json.loads(files.get(handles["state.totals"].path, max_bytes=10_000).data)
        if "state.lookup" not in handles:
            return folded, None
        return folded, (outputs["state.lookup"], handles["state.lookup"])

    # Views for an auditor.

    def folded(self, checkpoint: int | None = None) -> dict[str, list[str]]:
        """The epochs folded into each stage's state, in a retained checkpoint (the newest by default)."""
        head = self.coordinator().head()
        entry = head.latest_completed() if checkpoint is None else head.completed_by_id(checkpoint)
        assert entry is not None
        totals = totals_of(metadata_file.read(self.files, entry.metadata))
        return {stage: json.loads(self.files.get(path, max_bytes=10_000).data) for stage, path in totals.items()}

    def counting(self) -> list[EndedEntry]:
        """The completed checkpoints of the history, oldest first, without those that were rewound."""
        head = self.coordinator().head()
        completed = (entry for entry in head.history if entry.status is Status.COMPLETED)
        return [entry for entry in completed if head.rewind_of(entry.id) is None]

    def owed(self, checkpoint: int | None = None) -> dict[str, list[str]]:
        """The epochs whose slices each stage owes, in a retained checkpoint (the newest by default)."""
        head = self.coordinator().head()
        entry = head.latest_completed() if checkpoint is None else head.completed_by_id(checkpoint)
        assert entry is not None
        lines = [line for line in metadata_file.read(self.files, entry.metadata) if isinstance(line, StageLine)]
        assert entry.left_out == tuple(sorted(line.stage for line in lines if line.left_out))
        return {line.stage: [each.epoch for each in line.owes if each.slice is not None] for line in lines}

    def referred(self) -> set[str]:
        """Each key of a checkpoint folder that the head or a retained checkpoint names, and failed ones' records."""
        head = self.coordinator().head()
        failed = sorted(entry.id for entry in head.history if entry.status is Status.FAILED)[-MAX_RECORDED:]
        found = {each.document.key for each in head.segments}
        found |= {key for key in self.standing() if layout.record_of(key) in failed}
        for entry in self.coordinator().head().completed:
            found.add(entry.metadata.key)
            for line in metadata_file.read(self.files, entry.metadata):
                if isinstance(line, HandleLine):
                    found |= {line.handle.path, *metadata_file.led_to(self.files, line.handle)}
        return found

    def awaited(self) -> set[str]:
        """Objects to which only a waiting notice refers: documents and markers of attempts that were aborted."""
        notices = self.coordinator().head().notices
        aborted = [each for each in notices if each.status is Status.FAILED]
        found = {layout.pending(each.checkpoint, each.token) for each in aborted} & self.standing()
        for key in list(found):
            document, _ = self.files.read(PendingDocument, key)
            found |= {layout.ack(each.home, uid, each.token) for uid, each in document.executions.items()}
        return found - self.referred()

    def lent(self) -> set[str]:
        """Keys of `lent_by` to which no checkpoint refers."""
        return lent_by(self.coordinator()) - self.referred()

    def standing(self) -> set[str]:
        """Every key below the checkpoint folders."""
        return {found.key for found in self.files.listing("") if found.key.startswith("chk-")}

    def audit(self, *epochs: str) -> None:
        """Nothing is pending; each epoch was folded in once, in order; no orphan, no dangling reference; quiet."""
        coordinator = self.coordinator()
        coordinator.clean()
        head = coordinator.head()
        assert (head.pending, head.waiting) == ((), ()), "nobody waits for ever"
        folded, owed = self.folded(), self.owed()
        assert {uid: folded.get(uid, []) + owed[uid] for uid in owed} == {
            each.uid: list(epochs) for each in self.stages
        }
        ended = [entry.id for entry in head.history]
        assert len(ended) == len(set(ended)), "each id has one outcome"
        without = set(range(1, head.next_id)) - set(ended)
        assert not without or head.savepoints, "every id handed out has an outcome, or was a savepoint's"
        if self.appends:
            assert grown_table.appended(self) == [*epochs], "each epoch was appended once, in order"
            grown_state.check(self, epochs)
        completed = self.counting()
        assert [entry.epoch for entry in completed] == list(epochs), "each epoch completed once"
        assert all(found.whole for found in coordinator.verify()), "no dangling reference"
        report = coordinator.clean()
        assert (report.deleted, report.failures) == (0, ()), "cleaning again has nothing to do"
        compactions = grown_state.to_adopt(self.files, self.referred()) if self.appends else set()
        assert self.standing() - self.awaited() - self.lent() - compactions == self.referred(), "no orphan"
        for entry in completed:
            assert coordinator.complete(entry.id) == EpochCompleted(entry.epoch, entry.id)
        assert coordinator.head() == head, "a second settling changes nothing"
        self._audit_notices(coordinator)
        self._audit_source(completed)
        self._audit_hooks(len(completed))

    def _audit_notices(self, coordinator: Coordinator) -> None:
        """Each listener has heard of every checkpoint what the history says, or hears of it now."""
        coordinator.deliver(self.ears)
        head = coordinator.head()
        outcomes = {(entry.id, entry.status, entry.reason) for entry in head.history}
        for ear in self.ears:
            assert {(each.checkpoint, each.status, each.reason) for each in ear.heard} == outcomes, ear.name
        assert not {name for each in head.notices for name in each.listeners} & {ear.name for ear in self.ears}

    def _audit_source(self, completed: list[EndedEntry]) -> None:
        """The epochs have read what came in, each number once, in order."""
        if self._come_in is None:
            return
        # The slice of an epoch that no retained checkpoint holds is gone; those of the others go on where it ended.
        held = {epoch for each in self.coordinator().head().completed for epoch in (*each.replayed, each.epoch)}
        for each in completed:
            stands = any(found.key == layout.epoch_slice(each.epoch) for found in self.files.listing(layout.EPOCHS))
            assert stands == (each.epoch in held), each.epoch
        last = [each for each in completed if each.epoch in held]
        slices = [self.files.read(EpochDocument, layout.epoch_slice(each.epoch))[0].slice for each in last]
        parts = [part for each in slices if each.sources and isinstance(part := each.sources["ledger"], dict)]
        assert len(parts) == len(last)
        folded = [number for part in parts for number in part["read"]]
        begin = folded[0] if folded else 0
        assert folded == list(range(begin, begin + len(folded)))
        assert folded or len(completed) > len(last)
        assert begin == 0 or len(completed) > len(last)

    def _audit_hooks(self, epochs: int) -> None:
        """Each epoch that completed had the ten ids after those of the one before."""
        latest = self.coordinator().head().latest_completed()
        if not self.hooks or latest is None:
            return
        found = [line.answer for line in metadata_file.read(self.files, latest.metadata) if isinstance(line, HookLine)]
        last = 10 * epochs
        assert [(each.name, each.value) for each in found] == [("ids", {"first": last - 9, "next": last + 1})]
