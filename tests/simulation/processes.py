"""The processes of a simulated job: tries, drivers, callbacks, sensors, triggers, cleaners, the command line.

Each acts through a `Coordinator` of its own, as the operators do. A driver keeps as state the list of epochs folded in,
and notes which executions it read, so that an epoch lost or doubled, or an input replaced, shows in the result.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta

from airflow_cairn.checkpoint import (
    CheckpointConfig,
    Coordinator,
    RequestKind,
    RunFacts,
    Runtime,
    TriggerRequest,
    acks,
    layout,
    metadata,
)
from airflow_cairn.checkpoint.errors import CheckpointError, CheckpointFailedError, InvalidStateError
from airflow_cairn.checkpoint.fixing import Refused
from airflow_cairn.checkpoint.job_files import JobFiles
from airflow_cairn.checkpoint.metadata import HandleLine, StageLine
from airflow_cairn.checkpoint.model import (
    AckDocument,
    DeclineDocument,
    Handover,
    Output,
    Owner,
    Slice,
    StageSpec,
    StateHandle,
    SubtaskAck,
)
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.requests import EpochCompleted, Ready, Submit, Waiting
from airflow_cairn.storage import DocumentError, GoneError, Lost, UnavailableError
from tests.checkpoint.parties import ledger
from tests.simulation import outside
from tests.simulation.accounts import FailureAccount, RequestAccount, SourceAccount
from tests.simulation.auditor import Auditor
from tests.simulation.hub import Hub, Plan
from tests.simulation.sim_store import SimStore
from tests.support.memory_store import MemoryStore

JOB = "sim"
STAGES = (StageSpec("clean"), StageSpec("routes", ("clean",)), StageSpec("report", ("routes", "clean")))
UPSTREAM = {stage.uid: stage.upstream for stage in STAGES}
EXPECTED = (CheckpointError, UnavailableError, GoneError, DocumentError)
"""What may go wrong in a process of a sound job. An `InvalidStateError` or a defect of Cairn's own may not."""


class Job:
    """One simulated job.

    Args:
        plan: what decides the run.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.trace: list[str] = []
        self.hub = Hub(plan, self.trace.append)
        self.memory = MemoryStore()
        self.auditor = Auditor(self.memory, JOB)
        self.store = SimStore(self.memory, self.hub, self.auditor)
        self.rng = self.hub.rng
        self._tokens = random.Random(f"tokens {plan.seed}")
        self._numbers = 0
        self._tries: set[tuple[str, str]] = set()
        """Stages with a try that Airflow believes to be alive."""
        self.config = CheckpointConfig(
            timeout=timedelta(minutes=10),
            retained=1 + plan.seed % 3,
            max_concurrent_checkpoints=plan.concurrent,
            min_pause=timedelta(seconds=plan.seed % 5),
            tolerable_failed_checkpoints=plan.seed // 2 % 3,
        )
        self.overtaken: set[str] = set()
        """Epochs whose input another one has read."""
        self.ended: set[str] = set()
        """Epochs whose DAG run has ended before its time."""
        self.ever_ended: set[str] = set()
        self.auditor.requests = RequestAccount(self.auditor, self)
        self.auditor.failures = FailureAccount(self.auditor, self.config.tolerable_failed_checkpoints)
        if plan.has_source:
            self.auditor.source = SourceAccount(self.auditor)

    def coordinator(self) -> Coordinator:
        """A process of its own."""
        return Coordinator(self.store, JOB, Runtime(lambda: self.hub.now_ms, self.new_token))

    def new_token(self) -> str:
        return f"{self._tokens.getrandbits(64):016x}"

    def request(self, epoch: str, kind: RequestKind = RequestKind.MANUAL) -> TriggerRequest:
        return TriggerRequest(
            epoch,
            Slice(detail={"of": epoch}),
            STAGES,
            self.config,
            Owner("dag", epoch),
            kind,
            listeners=outside.LISTENERS if self.plan.listened else (),
            sources=(ledger(1 + self.hub.step // 50),) if self.plan.has_source else (),
            run=RunFacts(epoch) if self.plan.has_source else None,
        )

    def has_ended(self, owner: Owner) -> bool:
        """Tell whether the DAG run has ended, as Airflow would."""
        return owner.run_id in self.ended or owner.run_id in self.auditor.folded

    def open_epoch(self) -> str:
        """One of the first epochs that have not completed: one more of them than may be pending at once."""
        return self.rng.choice(list(itertools.islice(self._due(), self.plan.concurrent + 1)))

    def next_epoch(self) -> str:
        """The first that has not completed."""
        return next(self._due())

    def _due(self) -> Iterator[str]:
        done = {*self.auditor.folded, *self.overtaken}
        return (name for name in map("e{:04d}".format, itertools.count(1)) if name not in done)

    def spawn(self) -> None:
        """Start one more process, as the dice say."""
        kinds: list[tuple[int, Callable[[], None]]] = [
            (50, self._try),
            (25, self._sensor),
            (14, lambda: outside.trigger(self, self.open_epoch())),
            (4, self._clean),
            (2, self._old_trigger),
            (1, self._verify),
            (1, self._abort),
            (1, self._restore),
            (1, lambda: outside.stop(self)),
            (2, lambda: outside.resume(self)),
            (1, lambda: outside.end_run(self, self.open_epoch())),
            (3 if self.plan.listened else 0, lambda: outside.notify(self)),
            (3, lambda: outside.damage(self)),
        ]
        weights = [weight for weight, _ in kinds]
        self.rng.choices([kind for _, kind in kinds], weights)[0]()

    def process(self, name: str, body: Callable[[], None], ended: Callable[[bool], None] = lambda _: None) -> None:
        """Start a process; `ended` learns whether it ended well."""
        well = False

        def guarded() -> None:
            nonlocal well
            try:
                body()
                well = True
            except InvalidStateError:
                raise
            except EXPECTED as error:
                self.trace.append(f"  {name}: {type(error).__name__}")

        self._numbers += 1
        name = f"{name}#{self._numbers}"
        self.hub.spawn(name, guarded, lambda crash: ended(well and crash is None))

    def _old_trigger(self) -> None:
        if self.auditor.folded:
            outside.trigger(self, self.rng.choice(self.auditor.folded))

    def _sensor(self) -> None:
        epoch = self.open_epoch()

        def body() -> None:
            coordinator = self.coordinator()
            answer = coordinator.go_on(epoch)
            if isinstance(answer, Ready):
                try:
                    answer = coordinator.complete(answer.checkpoint)
                except CheckpointFailedError as error:
                    if "forgotten" not in error.message:
                        self.auditor.not_completed(answer.checkpoint)
                    return
                self.auditor.completed(answer.epoch, answer.checkpoint)
                coordinator.clean()
            elif isinstance(answer, EpochCompleted):
                self.auditor.completed(answer.epoch, answer.checkpoint)

        self.process(f"sensor {epoch}", body)

    def _clean(self) -> None:
        self.process("cleaner", lambda: self._check_clean(self.coordinator()))

    def _check_clean(self, coordinator: Coordinator) -> None:
        report = coordinator.clean()
        self.auditor.check(self.auditor.damaged or not report.failures, "a cleaner found damage", report.failures)

    def _verify(self) -> None:
        def body() -> None:
            for found in self.coordinator().verify():
                sound = found.whole or self.auditor.was_damaged(found.checkpoint)
                self.auditor.check(sound, "a retained checkpoint is damaged (C3)", found.damages)

        self.process("verify", body)

    def _restore(self) -> None:
        def body() -> None:
            choice = self.coordinator().restore_latest()
            found = [each for each in choice.damages if not self.auditor.was_damaged(each.checkpoint)]
            self.auditor.check(not found, "restore found damage (C3)", found)

        self.process("restore", body)

    def _abort(self) -> None:
        def body() -> None:
            coordinator = self.coordinator()
            for entry in coordinator.head().pending:
                coordinator.abort(entry.id, Reason.JOB_FAILURE, "by hand")

        self.process("abort", body)

    def _try(self) -> None:
        """A try of a stage that may run; now and then of one whose try Airflow wrongly believes to be dead."""
        epoch = self.open_epoch()
        stage = self.rng.choice(STAGES).uid
        if (epoch, stage) in self._tries and self.rng.random() > 0.05:
            return
        self._tries.add((epoch, stage))
        self._numbers += 1
        claimant = f"try-{self._numbers}"

        def ended(well: bool) -> None:
            self._tries.discard((epoch, stage))
            if not well:
                for _ in range(self.rng.choice((0, 1, 1, 2))):
                    self._callback(epoch, stage, claimant)

        redelivered = self.rng.random() < 0.05
        for _ in range(2 if redelivered else 1):
            self.process(f"{claimant} {epoch} {stage}", lambda: self._run_try(epoch, stage, claimant), ended)

    def _callback(self, epoch: str, stage: str, claimant: str) -> None:
        def body() -> None:
            answer = self.coordinator().fail(epoch, stage, claimant, "it failed")
            if isinstance(answer, EpochCompleted):
                self.auditor.completed(answer.epoch, answer.checkpoint)

        self.process(f"callback {epoch} {stage}", body)

    def _run_try(self, epoch: str, stage: str, claimant: str) -> None:
        coordinator = self.coordinator()
        progress = coordinator.progress(epoch)
        if isinstance(progress, Waiting):
            if stage in progress.acknowledged or set(UPSTREAM[stage]) & set(progress.missing):
                return
        elif self.rng.random() < 0.8:
            return  # most often it is a sensor or a trigger that finds an ended attempt
        answer = coordinator.begin(epoch, stage, claimant)
        if isinstance(answer, Submit):
            self.drive(coordinator, answer.handover, hasty=self.rng.random())

    def drive(self, coordinator: Coordinator, handover: Handover, *, hasty: float = 1.0) -> None:
        """A driver: read, compute, write, and acknowledge or decline."""
        run = self.new_token()
        if self.hub.current is not None:
            self.hub.current.run = run
        if hasty < 0.03:
            self._decline(coordinator, handover)
            return
        ack = self._written(coordinator, handover, run, leaves_upload=hasty < 0.06)
        if hasty < 0.06:
            # It fails after it has written: it deletes what is its own, and declines (semantics A5).
            own = [handle.path for each in ack.subtasks for handle in each.handles if f"/{run}/" in handle.path]
            coordinator.files.delete(own)
            self._decline(coordinator, handover)
            return
        asked_at = self.auditor.head.revision
        self.auditor.answered(ack, coordinator.acknowledge(ack), asked_at)

    def _decline(self, coordinator: Coordinator, handover: Handover) -> None:
        it = handover
        reason = Reason.CHECKPOINT_DECLINED
        coordinator.decline(DeclineDocument(JOB, it.checkpoint, it.epoch, it.stage, it.token, reason, "a bad row"))

    def _written(self, coordinator: Coordinator, it: Handover, run: str, *, leaves_upload: bool) -> AckDocument:
        files = coordinator.files
        for uid, execution in it.upstream.items():
            acks.read_ack(files, uid, execution)
        before: list[str] = []
        lookup: tuple[Output, StateHandle] | None = None
        stage = ""
        outputs_of: dict[str, Output] = {}
        for line in metadata.read(files, it.restore.metadata) if it.restore else ():
            if isinstance(line, StageLine):
                stage = line.stage
                outputs_of = {output.id: output for output in line.outputs}
            elif isinstance(line, HandleLine) and stage == it.stage:
                if line.handle.output == "state.totals":
                    before = _folded(files, line.handle.path)
                else:
                    lookup = outputs_of[line.handle.output], line.handle
        outputs: list[Output] = []
        handles: list[StateHandle] = []

        def put(kind: str, name: str, content: object) -> None:
            folder = layout.output_folder(it.checkpoint, it.stage, it.attempt, it.token, run, f"{kind}.{name}")
            data = json.dumps(content).encode()
            if leaves_upload:
                self.memory.begin_upload(files.full(f"{folder}part-1"))
            written = files.create_bytes(f"{folder}part-0", data)
            etag = written.etag
            assert etag is not None or isinstance(written, Lost)
            outputs.append(Output(kind, name, folder))
            handles.append(StateHandle(f"{kind}.{name}", f"{folder}part-0", len(data), etag or ""))

        put("state", "totals", [*before, *(each.epoch for each in it.replay), it.epoch])
        if it.stage == "clean":
            put("exchange", "rows", [run])
        if it.stage == "routes":
            if lookup is None:
                put("state", "lookup", "written once")
            else:  # unchanged: the file of an older checkpoint is named again
                outputs.append(lookup[0])
                handles.append(lookup[1])
        return AckDocument(
            job=JOB,
            checkpoint=it.checkpoint,
            epoch=it.epoch,
            attempt=it.attempt,
            stage=it.stage,
            token=it.token,
            run=run,
            parallelism=1,
            outputs=tuple(outputs),
            values={"read": {uid: execution.token for uid, execution in it.upstream.items()}},
            subtasks=(SubtaskAck(0, tuple(handles)),),
        )

    def settle(self, epoch: str) -> None:
        """Bring an epoch to its end when nothing goes wrong any more, from wherever it stands."""
        coordinator = self.coordinator()
        coordinator.resume()
        for _ in range(5):
            answer = coordinator.trigger(self.request(epoch), lambda owner: True)
            if isinstance(answer, EpochCompleted):
                self.auditor.completed(answer.epoch, answer.checkpoint)
                return
            if isinstance(answer, Refused):
                self.auditor.check(self.auditor.source, "refused without a source (T8)", answer)
                self.overtaken.add(epoch)
                return
            # Another epoch may have completed in between: then nothing carries over, and it all runs again.
            with suppress(CheckpointFailedError, GoneError, DocumentError):
                for stage in STAGES:
                    self._numbers += 1
                    begun = coordinator.begin(epoch, stage.uid, f"settler-{self._numbers}")
                    if isinstance(begun, Submit):
                        self.drive(coordinator, begun.handover)
                progress = coordinator.progress(epoch)
                if isinstance(progress, Ready):
                    coordinator.complete(progress.checkpoint)
        self.auditor.fail("an epoch cannot be brought to its end", epoch)


def _folded(files: JobFiles, path: str) -> list[str]:
    """What an application reads of its state; one that was altered makes it fail."""
    try:
        found: list[str] = json.loads(files.get(path, max_bytes=1 << 20).data)
    except json.JSONDecodeError as error:
        raise DocumentError("the state was altered", key=path) from error
    return found
