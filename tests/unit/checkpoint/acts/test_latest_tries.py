"""Latest tries of tasks whose stage had acknowledged, clears by a person, failures reported late (semantics F5)."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from airflow_cairn.checkpoint.answers import (
    BeginAnswer,
    EpochCompleted,
    FailedOver,
    NothingToDo,
    Restarted,
    StageAcknowledged,
    Submit,
    UpstreamsNotReady,
    Waiting,
)
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import Handover
from airflow_cairn.checkpoint.reasons import AckAnswer, Reason
from tests.support.narrowing import expect, known
from tests.support.world.exchanges import BLOCKING, CHAIN
from tests.support.world.world import World
from tests.support.wrapped_stores import InterleavingStore


@dataclass
class Task:
    """A stage's task as Airflow counts its tries: one number for each, over retries and clears."""

    world: World
    stage: str
    try_number: int = 1
    first_try: int = 1

    @property
    def claimant(self) -> str:
        return f"{self.stage}-{self.try_number}"

    def begin(self) -> BeginAnswer:
        return self.world.coordinator().begin(
            "a", self.stage, self.claimant, try_number=self.try_number, first_try=self.first_try
        )

    def run(self) -> None:
        """Submit, and let the driver acknowledge."""
        answer = expect(Submit, self.begin())
        assert self.world.drive(answer.handover) is AckAnswer.SUCCESS

    def retry(self) -> BeginAnswer:
        self.try_number += 1
        return self.begin()

    def cleared(self) -> BeginAnswer:
        """A person clears the task, and its next try begins."""
        self.try_number += 1
        self.first_try = self.try_number
        return self.begin()


@pytest.fixture
def tasks(world: World) -> Callable[[str], Task]:
    """The tasks of an epoch of `clean` ~ `routes`, of which `clean` has acknowledged and `routes` has begun."""
    world.stages = CHAIN
    world.run_epoch("z")
    world.trigger("a")
    found = {spec.uid: Task(world, spec.uid) for spec in CHAIN}
    found["clean"].run()
    found["routes"].begin()
    return found.__getitem__


def holder(world: World, stage: str) -> Handover:
    entry = known(world.coordinator().head().pending_of_epoch("a"))
    document = known(world.coordinator().pending_document(entry))
    execution = document.executions[stage]
    return world.files.read(Handover, layout.handover(execution.home, stage, execution.token))[0]


def handover_key(world: World) -> str:
    standing = holder(world, "clean")
    return layout.handover(standing.checkpoint, "clean", standing.token)


def fail(world: World, task: Task) -> FailedOver:
    return expect(FailedOver, world.coordinator().fail("a", task.stage, task.claimant, "boom"))


def test_of_two_later_tries_the_latest_stands(world: World, tasks: Callable[[str], Task]) -> None:
    """semantics W4: the second comes in between the first one's look and its swap."""
    second = Task(world, "clean", try_number=3)
    interleaved = InterleavingStore(world.store, "replace", 0, second.begin, suffix=handover_key(world))
    answer = world.coordinator(interleaved).begin("a", "clean", "clean-2", try_number=2, first_try=1)
    assert isinstance(answer, StageAcknowledged)
    assert holder(world, "clean").claimant == "clean-3"
    assert Task(world, "clean", try_number=2).begin() == StageAcknowledged(2), "a zombie, that wakes up after it"
    assert holder(world, "clean").claimant == "clean-3"


def test_a_try_replaced_during_its_record_claims_the_new_execution(world: World, tasks: Callable[[str], Task]) -> None:
    """A failover comes between its look and its swap: it must not end as a success that did nothing."""
    routes = tasks("routes")
    interleaved = InterleavingStore(world.store, "replace", 0, lambda: fail(world, routes), suffix=handover_key(world))
    answer = expect(Submit, world.coordinator(interleaved).begin("a", "clean", "clean-2", try_number=2, first_try=1))
    assert answer.handover.attempt == 2
    assert "clean" not in world.coordinator().unclaimed("a")
    assert "routes" in world.coordinator().unclaimed("a"), "its own retry comes"


def test_a_clear_by_a_person_is_a_new_attempt(world: World, tasks: Callable[[str], Task]) -> None:
    """semantics F5: the stage's acknowledgement is replaced, and the stages that read from it run again."""
    tasks("airports").run()
    answer = expect(Submit, tasks("clean").cleared())
    assert (answer.handover.attempt, answer.handover.claimant) == (2, "clean-2")
    assert answer.restarted == (Restarted("airports", "airports-1"), Restarted("routes", "routes-1"))
    ended = world.coordinator().head().history[-1]
    assert ended.reason is Reason.JOB_FAILOVER_REGION
    assert ended.detail == "clean: its task was cleared after the stage had acknowledged, so it runs again"
    world.drive(answer.handover)
    world.run_epoch("a")
    world.audit("z", "a")


def test_a_clear_while_it_runs_is_no_restart(world: World) -> None:
    """semantics F4, F5: also where no API can be asked about its driver; a retry is one."""
    world.stages = BLOCKING
    world.trigger("a")
    routes = Task(world, "routes")
    Task(world, "clean").run()
    for answer, why in (
        (routes.begin, None),
        (routes.cleared, "routes: its task was cleared while its driver ran, so it runs again"),
        (routes.retry, "routes: the try before ended without acknowledging"),
    ):
        expect(Submit, answer())
        assert [each.detail for each in world.coordinator().head().history[-1:]] == ([why] if why else [])


def test_a_clear_that_crashed_before_it_was_heard_is_heard_by_the_retry(
    world: World, tasks: Callable[[str], Task]
) -> None:
    """The first try after the clear died before it could do anything; Airflow retries it."""
    clean = tasks("clean")
    clean.try_number = clean.first_try = 2  # it did not live to ask
    answer = expect(Submit, clean.retry())
    assert answer.handover.attempt == 2


def test_a_clear_is_heard_once(world: World, tasks: Callable[[str], Task]) -> None:
    """Later tries after the same clear find what the first one acknowledged."""
    clean = tasks("clean")
    answer = expect(Submit, clean.cleared())
    world.drive(answer.handover)
    assert clean.retry() == StageAcknowledged(3, (Restarted("routes", "routes-1"),))
    assert isinstance(clean.cleared(), Submit), "a second clear is heard again"


def test_our_own_clear_is_no_persons(world: World, tasks: Callable[[str], Task]) -> None:  # semantics F4, F5
    """Cairn's clear comes after the swap that replaced the execution: the try claims, and opens no other attempt."""
    clean = tasks("clean")
    fail(world, tasks("routes"))
    restarts = world.coordinator().head().pending[0].restarts
    answer = expect(Submit, clean.cleared())
    assert answer.handover.attempt == 2
    world.drive(answer.handover)
    assert isinstance(clean.retry(), StageAcknowledged)
    assert expect(Submit, clean.cleared()).handover.attempt == 3, "a person's is one"
    assert world.coordinator().head().pending[0].restarts == restarts, "and uses up none"


def test_a_stage_beside_it_is_not_touched(world: World) -> None:  # semantics F1
    world.stages = BLOCKING
    world.trigger("a")
    routes, airports = Task(world, "routes"), Task(world, "airports")
    Task(world, "clean").run()
    routes.run()
    airports.run()
    answer = expect(Submit, routes.cleared())
    assert answer.restarted == ()
    assert airports.retry() == StageAcknowledged(2)


def test_a_completed_epoch_is_not_run_again(world: World, tasks: Callable[[str], Task]) -> None:
    """semantics T9: a second run would fold its input in twice."""
    checkpoint = world.run_epoch("a")
    assert tasks("clean").cleared() == EpochCompleted("a", checkpoint)


def test_a_number_that_is_not_known_is_not_written(world: World) -> None:
    """semantics C5: a handover is as version 0.1 wrote it; a task that was never cleared has nothing to submit."""
    world.stages = CHAIN
    world.trigger("a")
    world.drive(world.submit("a", "clean", "clean-1").handover)
    assert b"try_number" not in world.files.get(handover_key(world), max_bytes=100_000).data
    assert Task(world, "clean").retry() == StageAcknowledged(1)


# A failure that is reported late. The task's process was killed and its driver lives on. The callback runs in the dag
# processor; beside it the next try finds the acknowledgement, and succeeds. Nobody would run the stage again, had the
# callback replaced its execution.

ITSELF = Restarted("routes", "")


@pytest.fixture
def driver(world: World) -> Handover:
    """Handover of the driver of `routes`, submitted by a try whose process is dead."""
    world.stages = CHAIN
    world.trigger("a")
    world.run_stage("a", "clean")
    return world.submit("a", "routes", "routes-1").handover


def late_report(world: World, driver: Handover, *, meanwhile: bool = True) -> FailedOver:
    """Report the dead try; right before the swap the driver acknowledges and the next try asks."""

    def others() -> None:
        assert world.drive(driver) is AckAnswer.SUCCESS
        answer = world.coordinator().begin("a", "routes", "routes-2", try_number=2, first_try=1)
        assert isinstance(answer, StageAcknowledged)

    store = InterleavingStore(world.store, "replace", 0, others if meanwhile else list, suffix="head.json")
    return expect(FailedOver, world.coordinator(store).fail("a", "routes", "routes-1", "killed"))


def test_a_stage_whose_next_try_has_passed_runs_again(world: World, driver: Handover) -> None:
    # semantics F5
    assert ITSELF in late_report(world, driver).restarted
    assert "routes" in world.coordinator().unclaimed("a")
    waiting = expect(Waiting, world.coordinator().progress("a"))
    assert ITSELF in waiting.restarted, "who waits is told, if the report dies right after its swap"
    world.run_stage("a", "clean")
    assert ITSELF in expect(UpstreamsNotReady, world.coordinator().begin("a", "report", "report-1")).restarted
    world.run_epoch("a")
    assert world.coordinator().unclaimed("a") == frozenset()
    world.audit("a")


def test_a_reader_that_came_and_went_before_the_swap_is_named(world: World, driver: Handover) -> None:
    # semantics F5
    def reads() -> None:
        assert world.drive(driver) is AckAnswer.SUCCESS
        world.run_stage("a", "report")

    store = InterleavingStore(world.store, "replace", 0, reads, suffix="head.json")
    answer = expect(FailedOver, world.coordinator(store).fail("a", "routes", "routes-1", "killed"))
    assert "report" in {each.stage for each in answer.restarted if each.claimant}
    assert "report" in world.coordinator().unclaimed("a")
    world.run_epoch("a")
    world.audit("a")


def test_a_stage_that_is_tried_again_by_itself_is_not_named_by_its_report(world: World, driver: Handover) -> None:
    # semantics F1, F5
    assert ITSELF not in late_report(world, driver, meanwhile=False).restarted


def test_the_end_of_a_cleared_try_is_reported_under_the_id_of_the_next(world: World) -> None:
    # semantics F5
    """Airflow gives a task that is cleared while it runs a new id, and reports the end of the old try under it."""
    world.trigger("a")
    assert isinstance(world.coordinator().begin("a", world.stages[0].uid, "next", try_number=3), Submit)
    before = world.coordinator().head()
    late = world.coordinator().fail("a", world.stages[0].uid, "next", "killed", try_number=2)
    assert late == NothingToDo("try 3 holds the current attempt; the failure is settled already")
    assert world.coordinator().head() == before
    assert isinstance(world.coordinator().fail("a", world.stages[0].uid, "next", "killed", try_number=3), FailedOver)
