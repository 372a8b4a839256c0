"""The processes of a simulated job: tries, drivers, callbacks, sensors, triggers, cleaners, the command line.

Each acts through a `Coordinator` of its own, as the operators do.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

from airflow_cairn.checkpoint import Coordinator, RequestKind, RunFacts, Runtime, TriggerRequest
from airflow_cairn.checkpoint.answers import (
    AlreadyRead,
    EpochCompleted,
    InputRefused,
    Ready,
    Submit,
    TriggerAnswer,
    Triggered,
    Waiting,
)
from airflow_cairn.checkpoint.documents.attempt import Handover, Owner, Slice, StageSpec
from airflow_cairn.checkpoint.documents.head import Head
from airflow_cairn.checkpoint.errors import (
    CheckpointError,
    CheckpointFailedError,
    CheckpointNotReadyError,
    InvalidStateError,
    RefusedError,
)
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.rules.admission import RunState
from airflow_cairn.storage import DocumentError, GoneError, UnavailableError
from airflow_cairn.tasks import metrics
from tests.protocol.simulation import growing, outside, owner
from tests.protocol.simulation.accounts import FailureAccount, RequestAccount
from tests.protocol.simulation.auditor import Auditor
from tests.protocol.simulation.drivers import Driver
from tests.protocol.simulation.hub import Hub, Plan
from tests.protocol.simulation.kinds import config_of
from tests.protocol.simulation.sequence import Ids
from tests.protocol.simulation.sim_store import SimStore
from tests.support.memory_store import MemoryStore
from tests.support.world.parties import ledger

JOB = "sim"
STAGES = (StageSpec("clean"), StageSpec("routes", ("clean",)), StageSpec("report", ("routes", "clean")))
"""Stages of a job whose exchanges are all blocking."""
UPSTREAM = {stage.uid: stage.upstream for stage in STAGES}
EXPECTED = (CheckpointError, UnavailableError, GoneError, DocumentError)
"""Errors of a process of a sound job. An `InvalidStateError` or a defect of Cairn's own is none of them."""


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
        self.auditor = Auditor(self.memory, JOB, plan.kind)
        self.store = SimStore(self.memory, self.hub, self.auditor)
        self.rng = self.hub.rng
        self._tokens = random.Random(f"tokens {plan.seed}")
        self._numbers = 0
        self._tries: set[tuple[str, str]] = set()
        """Stages with a try that Airflow believes to be alive."""
        self.config = config_of(plan.seed)
        self.stages = tuple(
            replace(stage, pipelined=stage.upstream[:1]) if stage.uid == plan.kind.pipelined else stage
            for stage in STAGES
        )
        self.told: set[int] = set()
        """Versions of the head whose writer was told that it had won the swap."""
        self.overtaken: set[str] = set()
        """Epochs whose input another one has read."""
        self.ended: set[str] = set()
        """Epochs whose DAG run has ended before its time."""
        self.ever_ended: set[str] = set()
        self.compacted: Counter[str] = Counter()
        """Outcomes of compactions, as their processes were told."""
        self.auditor.requests = RequestAccount(self.auditor, self)
        self.auditor.failures = FailureAccount(self.auditor, self.config.tolerable_failed_checkpoints)

    def coordinator(self) -> Coordinator:
        """A process of its own."""
        runtime = Runtime(lambda: self.hub.now_ms, self.new_token)
        return Coordinator(self.store, JOB, runtime, after_swap=self._told)

    def _told(self, old: Head, new: Head) -> None:
        """See that each swap is told once, by who has won it, and that its events are those that the head counts."""
        assert new.revision == old.revision + 1
        assert new.revision not in self.told, "two processes were told that they had won one swap"
        self.told.add(new.revision)
        found, before, after = metrics.changes_between(old, new), old.counters, new.counters
        assert (
            found.triggered,
            len(found.completed),
            len(found.failed) + len(found.failed_triggers),
            len(found.restores),
        ) == (
            after.triggered - before.triggered,
            after.completed - before.completed,
            after.failed - before.failed,
            after.restored - before.restored,
        )

    def new_token(self) -> str:
        return f"{self._tokens.getrandbits(64):016x}"

    def request(self, epoch: str, kind: RequestKind = RequestKind.MANUAL) -> TriggerRequest:
        return TriggerRequest(
            epoch,
            Slice(detail={"of": epoch}),
            self.stages,
            self.config,
            Owner("dag", epoch),
            kind,
            listeners=outside.LISTENERS if self.plan.kind.listened else (),
            sources=(ledger(1 + self.hub.step // 50),) if self.plan.kind.has_source else (),
            run=RunFacts(epoch) if self.plan.kind.has_source else None,
            hooks=("ids",) if self.plan.kind.hooked else (),
        )

    def trigger(
        self, coordinator: Coordinator, request: TriggerRequest, state_of: Callable[[Owner], RunState]
    ) -> TriggerAnswer:
        """Ask for the checkpoint, then ask the hooks, as the task that triggers does."""
        answer = coordinator.trigger(request, state_of)
        if isinstance(answer, EpochCompleted):
            self.auditor.completed(answer.epoch, answer.checkpoint)
        elif isinstance(answer, AlreadyRead | InputRefused):
            self.auditor.check(self.auditor.source, "refused without a source (T8)", answer)
            self.overtaken.add(request.epoch)
        elif isinstance(answer, Triggered):
            coordinator.ask_hooks(answer.pending, [Ids(self.hub)] if request.hooks else [])
        return answer

    def state_of(self, owner: Owner) -> RunState:
        """Tell whether the DAG run has ended, as Airflow would."""
        ended = owner.run_id in self.ended or owner.run_id in self.auditor.folded
        return RunState.ENDED if ended else RunState.RUNNING

    def open_epoch(self) -> str:
        """Draw one of the first epochs that have not completed: one more of them than may be pending at once."""
        return self.rng.choice(list(itertools.islice(self._due(), self.plan.kind.concurrent + 1)))

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
            (2, lambda: outside.wait(self, self.open_epoch())),
            (1, self._verify),
            (1, self._abort),
            (1, self._restore),
            (1, lambda: outside.stop(self)),
            (2, lambda: outside.resume(self)),
            (1, lambda: outside.end_run(self, self.open_epoch())),
            (6 if self.plan.kind.grown else 0, lambda: growing.compact(self)),
            (3 if self.plan.kind.listened else 0, lambda: outside.notify(self)),
            (3, lambda: outside.damage(self)),
            (2 if self.plan.kind.saved else 0, lambda: outside.savepoint(self)),
            *((weight if self.plan.kind.owned else 0, partial(act, self)) for weight, act in owner.ACTS),
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
        mine = [epoch for epoch in self.auditor.folded if epoch.startswith("e")]
        if mine:
            outside.trigger(self, self.rng.choice(mine))

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
            coordinator = self.coordinator()
            choice = coordinator.restore_latest()
            found = [each for each in choice.damages if not self.auditor.was_damaged(each.checkpoint)]
            self.auditor.check(not found, "restore found damage (C3)", found)
            if self.plan.kind.hooked:
                coordinator.restore_hooks(choice, [Ids(self.hub)])

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
        final = self.plan.kind.leaves_out and self.rng.random() < 0.4

        def body() -> None:
            answer = self.coordinator().fail(epoch, stage, claimant, "it failed", final=final)
            if isinstance(answer, EpochCompleted):
                self.auditor.completed(answer.epoch, answer.checkpoint)

        self.process(f"callback {epoch} {stage}", body)

    def _run_try(self, epoch: str, stage: str, claimant: str) -> None:
        coordinator = self.coordinator()
        progress = coordinator.progress(epoch)
        if isinstance(progress, Waiting):
            waits = not self.plan.kind.early and set(UPSTREAM[stage]) & set(progress.missing)
            if waits or stage in progress.acknowledged:
                return
        elif self.rng.random() < 0.8:
            return  # most often it is a sensor or a trigger that finds an ended attempt
        answer = coordinator.begin(epoch, stage, claimant)
        while isinstance(answer, Submit) and not self.drive(coordinator, answer.handover, hasty=self.rng.random()):
            if not (coordinator.was_overtaken(answer.handover) or coordinator.was_missed(answer.handover)):
                return
            answer = coordinator.begin(epoch, stage, claimant, rescheduled=True)

    def drive(self, coordinator: Coordinator, handover: Handover, *, hasty: float = 1.0) -> bool:
        """A driver, from its start to its acknowledgement or decline; False if its first look at the head stops it."""
        if self.auditor.hooks is not None:
            self.auditor.hooks.began(handover)
        try:
            return Driver(self, coordinator, handover).drive(hasty)
        finally:
            self.hub.run = None

    def settle(self, epoch: str) -> None:
        """Bring an epoch to its end when nothing goes wrong any more, from wherever it stands."""
        coordinator = self.coordinator()
        coordinator.resume()
        for _ in range(5):
            answer = self.trigger(coordinator, self.request(epoch), lambda owner: RunState.ENDED)
            if isinstance(answer, EpochCompleted):
                counts = epoch in self.auditor.folded
                self.auditor.check(counts, "said completed of what counts no more (R5, T9)", answer)
            if isinstance(answer, AlreadyRead | EpochCompleted | InputRefused):
                return
            # Another epoch may have completed in between: then nothing carries over, and it all runs again. What is
            # restored may have been damaged: then the attempt that follows has hooks of its own to be asked.
            with suppress(CheckpointFailedError, CheckpointNotReadyError, RefusedError, GoneError, DocumentError):
                for stage in STAGES:
                    self._numbers += 1
                    begun = coordinator.begin(epoch, stage.uid, f"settler-{self._numbers}")
                    if isinstance(begun, Submit):
                        self.drive(coordinator, begun.handover)
                progress = coordinator.progress(epoch)
                if isinstance(progress, Ready):
                    coordinator.complete(progress.checkpoint)
        self.auditor.fail("an epoch cannot be brought to its end", epoch)
