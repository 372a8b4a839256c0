"""A job's restart strategy: each failed try counts once, and the last one ends the epoch (semantics F4)."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cairn.checkpoint import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RegionalCheckpoints,
)
from airflow_cairn.checkpoint.answers import (
    AbandonedRegion,
    Failed,
    FailedOver,
    NothingToDo,
    Ready,
    Submit,
    UpstreamsNotReady,
)
from airflow_cairn.checkpoint.config import RestartStrategy
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.documents.entries import EndedEntry
from airflow_cairn.checkpoint.documents.programs import Program
from airflow_cairn.checkpoint.errors import CheckpointFailedError
from airflow_cairn.checkpoint.reasons import AckAnswer, Reason
from tests.support.narrowing import expect
from tests.support.world.exchanges import DIAMOND
from tests.support.world.lagging import run_some
from tests.support.world.world import CONFIG, TIMEOUT, World
from tests.support.wrapped_stores import InterleavingStore

pytestmark = pytest.mark.usefixtures("parsed_documents")

S = timedelta(seconds=1)
THREE = FixedDelayRestart(3, 10 * S)


def strict(strategy: RestartStrategy = THREE, **options: object) -> World:
    """A job with a strategy, of which one epoch has completed."""
    world = World(config=replace(CONFIG, restart_strategy=strategy, **options))  # type: ignore[arg-type]
    world.run_epoch("z")
    return world


def fail(world: World, epoch: str = "a", stage: str = "clean", detail: str = "boom") -> object:
    """Let a try of a stage begin and fail."""
    claimant = world.new_claimant()
    world.submit(epoch, stage, claimant)
    return world.coordinator().fail(epoch, stage, claimant, detail)


def newest(world: World, epoch: str = "a") -> EndedEntry:
    return next(world.coordinator().head().ended_of_epoch(epoch))


def test_twenty_failures_in_a_row_stop_at_the_limit() -> None:  # semantics F4
    world = strict()
    world.trigger("a")
    answers = []
    for _ in range(20):
        begun = world.coordinator().begin("a", "clean", claimant := world.new_claimant())
        submitted = isinstance(begun, Submit)
        answers.append(type(world.coordinator().fail("a", "clean", claimant, "boom") if submitted else begun))
    assert answers == [FailedOver] * 3 + [Failed] * 17
    ended = list(world.coordinator().head().ended_of_epoch("a"))
    assert [(each.reason, each.restarts, each.for_good, each.job_failed) for each in reversed(ended)] == [
        (Reason.JOB_FAILOVER_REGION, 0, False, False),
        (Reason.JOB_FAILOVER_REGION, 1, False, False),
        (Reason.JOB_FAILOVER_REGION, 2, False, False),
        (Reason.JOB_FAILURE, 3, True, True),
    ]
    assert ended[0].detail == "FixedDelayRestart allows 3 restarts of an epoch, and this was failure 4: clean: boom"
    assert world.coordinator().head().pending == ()
    world.run_epoch("b")
    assert [entry.restored_from for entry in world.coordinator().head().history][-1] == 1, "the last one, restorable"
    world.audit("z", "b")


def test_killed_tries_count_as_well_though_nobody_reports_them() -> None:  # semantics F4, F5
    world = strict()
    world.trigger("a")
    for _ in range(4):
        world.submit("a", "clean")
    answer = expect(Failed, world.coordinator().begin("a", "clean", world.new_claimant()))
    assert answer.job_failed
    assert newest(world).detail.endswith("failure 4: clean: the try before ended without acknowledging")
    assert world.coordinator().begin("a", "clean", world.new_claimant()) == answer, "killed before it could say so"


def test_failures_of_all_stages_count_together_and_those_of_an_epoch_alone() -> None:  # semantics F4
    world = strict(FixedDelayRestart(2))
    world.trigger("a")
    assert isinstance(fail(world), FailedOver)
    world.run_stage("a", "clean")
    assert isinstance(fail(world, stage="routes"), FailedOver)
    world.run_epoch("a")
    world.trigger("b")
    for _ in range(2):
        assert isinstance(fail(world, "b", "clean"), FailedOver)
    assert isinstance(fail(world, "b", "clean"), Failed)
    world.run_epoch("b")
    world.audit("z", "a", "b")


TEN = tuple(StageSpec(f"s{number}") for number in range(10))
LOST = {
    "exponential": ExponentialDelayRestart(20 * S, 60 * S, 2.0, 0.1, attempts=3),
    "fixed": FixedDelayRestart(3, 20 * S),
    "rate": FailureRateRestart(3, 3600 * S, 20 * S),
}


@pytest.mark.parametrize("strategy", LOST.values(), ids=LOST)
@pytest.mark.parametrize("declined", [False, True], ids=["reported", "settled by who waits"])
def test_a_cluster_that_is_lost_is_one_failure(strategy: RestartStrategy, declined: bool) -> None:  # semantics F4
    """Ten stages that have nothing to do with each other lose their drivers within ten seconds."""
    world = World(config=replace(CONFIG, restart_strategy=strategy, tolerable_failed_checkpoints=99), stages=TEN)
    world.trigger("a")
    tries = {stage.uid: world.submit("a", stage.uid) for stage in TEN}
    for uid, begun in tries.items():
        world.clock.advance(1 * S)
        if declined:
            world.decline(begun.handover)
            world.coordinator().go_on("a")
        else:
            assert isinstance(world.coordinator().fail("a", uid, begun.handover.claimant, "lost"), FailedOver)
    (pending,) = world.coordinator().head().pending
    assert pending.restarts == 1
    assert pending.restart_at_ms - world.clock.now_ms <= 24_000 - 9_000
    # A stage that was restarted and fails again is a failure of its own.
    world.clock.advance(60 * S)
    assert isinstance(fail(world, "a", "s0"), FailedOver)
    assert world.coordinator().head().pending[0].restarts == 2


def test_so_it_is_for_the_epochs_of_a_job_together(world: World) -> None:  # semantics F4
    strategy = ExponentialDelayRestart(20 * S, 60 * S, attempts=1)
    world.config = replace(CONFIG, restart_strategy=strategy, max_concurrent_checkpoints=2)
    tries = {}
    for epoch in ("a", "b"):
        world.trigger(epoch)
        tries[epoch] = world.submit(epoch, "clean")
    world.clock.advance(1 * S)
    for epoch, begun in tries.items():
        world.clock.advance(1 * S)
        assert isinstance(world.coordinator().fail(epoch, "clean", begun.handover.claimant, "lost"), FailedOver)
    assert [entry.restarts for entry in world.coordinator().head().pending] == [1, 1]


def test_the_count_and_what_remains_stand_in_the_head() -> None:  # semantics F4, O1
    world = strict()
    found = []
    world.trigger("a")
    for _ in range(3):
        (entry,) = world.coordinator().head().pending
        found.append((entry.restarts, entry.restarts_left, entry.restart_at_ms and entry.restart_at_ms - world.clock()))
        assert entry.expires_at_ms - entry.triggered_at_ms == TIMEOUT / (S / 1000) + (10_000 if entry.restarts else 0)
        fail(world)
    assert found == [(0, 3, 0), (1, 2, 10_000), (2, 1, 10_000)]


def test_a_clear_by_a_person_starts_the_count_anew() -> None:  # semantics F4
    world = strict(FixedDelayRestart(1))
    world.trigger("a")
    for _ in range(3):
        begun = world.coordinator().begin("a", "clean", claimant := world.new_claimant(), cleared_by_user=True)
        assert isinstance(begun, Submit)
        assert isinstance(world.coordinator().fail("a", "clean", claimant, "boom"), FailedOver)
        assert isinstance(fail(world), Failed)
    world.trigger("a")
    assert world.coordinator().head().pending[0].restarts == 0, "triggering again goes on too"
    world.run_epoch("a")
    world.audit("z", "a")


def test_only_a_person_goes_on_after_a_failure_for_good() -> None:  # semantics F4
    world = strict(NoRestart())
    run_some(world, "a", "clean")
    running = world.submit("a", "airports").handover
    assert isinstance(fail(world, stage="routes"), Failed)
    assert world.drive(running) is AckAnswer.DISCARDED
    for stage in ("airports", "routes", "report"):
        assert isinstance(world.coordinator().begin("a", stage, world.new_claimant()), Failed), stage
    assert isinstance(world.coordinator().fail("a", "airports", running.claimant, "replaced"), Failed)
    begun = expect(Submit, world.coordinator().begin("a", "routes", world.new_claimant(), cleared_by_user=True))
    world.drive(begun.handover)
    assert world.run_stage("a", "clean") is None, "what had acknowledged carries over"
    world.run_stage("a", "airports", "report")
    world.coordinator().complete(world.pending_id("a"))
    world.audit("z", "a")


def test_what_the_failover_itself_had_cleared_is_no_persons_wish() -> None:  # semantics F4
    """A sibling was cleared by the failover before the last failure, and begins after it: to Airflow, as by hand."""
    world = World(config=replace(CONFIG, restart_strategy=FixedDelayRestart(1)), stages=DIAMOND)
    run_some(world, "a", "clean")
    world.submit("a", "airports")
    over = expect(FailedOver, fail(world, stage="routes"))
    assert [each.stage for each in over.restarted] == ["airports"]
    assert isinstance(fail(world, stage="routes"), Failed)
    assert isinstance(world.coordinator().begin("a", "airports", world.new_claimant(), cleared_by_user=True), Failed)
    assert world.coordinator().head().pending == ()
    for stage in ("routes", "airports"):
        assert isinstance(world.coordinator().begin("a", stage, world.new_claimant(), cleared_by_user=True), Submit)


@pytest.mark.parametrize("program", [None, Program()], ids=["a block", "a program"])
def test_a_final_failure_during_a_begin_does_not_count_for_its_clear(program: Program | None) -> None:  # semantics F4
    world = strict(FixedDelayRestart(1))
    run_some(world, "a", "clean")
    assert isinstance(fail(world, stage="airports"), FailedOver)
    world.submit("a", "airports", "last")

    def also() -> None:
        assert isinstance(world.coordinator().fail("a", "airports", "last", "boom"), Failed)

    # Right before the claim of `routes` lands.
    store = InterleavingStore(world.store, "create", 0, also, ".json")
    mine = world.new_claimant()
    answer = world.coordinator(store).begin("a", "routes", mine, cleared_by_user=True, program=program)
    if program is None:
        handover = expect(Submit, answer).handover
        assert not world.reports().standing(handover).may_count, "its driver stops"
        assert not world.coordinator().was_missed(handover), "and its try has failed"
        answer = world.coordinator().begin("a", "routes", world.new_claimant())
    assert isinstance(answer, Failed)
    assert newest(world).for_good
    assert world.coordinator().head().pending == ()


def test_nor_is_what_fails_for_good_while_a_try_waits_for_its_upstreams() -> None:  # semantics F4
    """A person clears `routes`, which waits for `clean` to run again; then `airports` uses up the restarts."""
    world = strict(FixedDelayRestart(1))
    run_some(world, "a", "clean")
    (entry,) = world.coordinator().head().pending
    assert entry.document is not None
    home = layout.folder(entry.document.executions["clean"].home)
    world.files.delete([found.key for found in world.files.listing(f"{home}state/clean/")])
    cleared = world.new_claimant()
    world.submit("a", "airports", "last")
    world.submit("a", "routes", "first")
    world.coordinator().fail("a", "routes", "first", "boom")
    assert isinstance(world.coordinator().begin("a", "routes", cleared, cleared_by_user=True), UpstreamsNotReady)
    world.run_stage("a", "clean")
    assert isinstance(fail(world, stage="airports"), Failed)
    assert isinstance(world.coordinator().begin("a", "routes", cleared, cleared_by_user=True, rescheduled=True), Failed)
    assert world.coordinator().head().pending == ()
    begun = world.coordinator().begin("a", "routes", world.new_claimant(), cleared_by_user=True)
    assert isinstance(begun, Submit), "somebody has cleared it after that"


def test_output_that_is_lost_again_and_again_ends_a_try_by_hand_too() -> None:  # semantics F1, F4
    """The try comes back after its upstream has run again; to Airflow it is the same one, which a person asked for."""
    world = strict(FixedDelayRestart(2))
    run_some(world, "a", "clean")
    assert isinstance(fail(world, stage="routes"), FailedOver)
    claimant = world.new_claimant()
    answers: list[type] = []
    for _ in range(3):
        (entry,) = world.coordinator().head().pending
        assert entry.document is not None
        home = layout.folder(entry.document.executions["clean"].home)
        world.files.delete([found.key for found in world.files.listing(f"{home}state/clean/")])
        begun = world.coordinator().begin("a", "routes", claimant, cleared_by_user=True, rescheduled=bool(answers))
        answers.append(type(begun))
        if answers[-1] is Failed:
            break
        world.run_stage("a", "clean")
    assert answers == [UpstreamsNotReady, Failed]
    assert newest(world).for_good
    assert isinstance(
        world.coordinator().begin("a", "routes", world.new_claimant(), cleared_by_user=True), UpstreamsNotReady
    )


@pytest.mark.parametrize("tolerable", [0, 1, 5])
def test_what_others_settle_first_counts_as_well(tolerable: int) -> None:  # semantics F4, D5
    world = strict(FixedDelayRestart(2), tolerable_failed_checkpoints=tolerable)
    world.trigger("a")
    for number in range(3):
        answer = expect(Submit, world.coordinator().begin("a", "clean", claimant := world.new_claimant()))
        assert world.coordinator().head().pending[0].restarts == number
        world.decline(answer.handover)
        world.coordinator().go_on("a")  # who waits for the checkpoint sees the decline before it is reported
        assert isinstance(world.coordinator().fail("a", "clean", claimant, "boom"), NothingToDo | Failed)
    assert isinstance(world.coordinator().begin("a", "clean", world.new_claimant()), Failed)
    progress = expect(Failed, world.coordinator().go_on("a"))
    assert (progress.job_failed, progress.tolerated, progress.reason) == (True, False, Reason.CHECKPOINT_DECLINED)
    assert "FixedDelayRestart allows 2 restarts of an epoch, and this was failure 3: " in newest(world).detail
    begun = expect(Submit, world.coordinator().begin("a", "clean", world.new_claimant(), cleared_by_user=True))
    assert world.coordinator().head().pending[0].restarts == 0
    world.coordinator().fail("a", "clean", begun.handover.claimant, "over")
    world.run_epoch("a")
    world.audit("z", "a")


def test_an_expired_attempt_neither_counts_nor_forgets() -> None:  # semantics F4, D2
    world = strict(FixedDelayRestart(2), tolerable_failed_checkpoints=9)
    world.trigger("a")
    fail(world)
    world.clock.advance(2 * TIMEOUT)
    world.submit("a", "clean")
    assert world.coordinator().head().pending[0].restarts == 1


def test_a_failure_rate_counts_over_all_epochs() -> None:  # semantics F4
    world = strict(FailureRateRestart(2, 100 * S, 5 * S))
    for epoch in ("a", "b"):
        world.trigger(epoch)
        assert isinstance(fail(world, epoch), FailedOver)
        world.run_epoch(epoch)
    world.trigger("c")
    assert world.coordinator().head().pending[0].restarts_left == 0
    failed = expect(Failed, fail(world, "c"))
    assert failed.detail == "FailureRateRestart allows 2 failures in 0:01:40, and this was one more: clean: boom"
    assert world.coordinator().head().restart_memory is None, "the count starts anew once the job has failed"
    world.trigger("c")
    assert isinstance(fail(world, "c"), FailedOver)
    world.clock.advance(100 * S)
    for _ in range(2):
        assert isinstance(fail(world, "c"), FailedOver)
    assert isinstance(fail(world, "c"), Failed)


def test_two_reports_at_once_count_once() -> None:  # semantics F4, F5
    world = strict(FixedDelayRestart(1))
    world.trigger("a")
    fail(world)
    world.submit("a", "clean", "try-x")
    inner = []

    def also() -> None:
        inner.append(world.coordinator().fail("a", "clean", "try-x", "boom"))

    store = InterleavingStore(world.store, "replace", 0, also)
    answer = expect(Failed, world.coordinator(store).fail("a", "clean", "try-x", "boom"))
    assert inner == [answer]
    assert len(list(world.coordinator().head().ended_of_epoch("a"))) == 2


def test_an_incurable_failure_is_tried_again_by_nobody(world: World) -> None:  # semantics F4
    world.run_epoch("z")
    world.trigger("a")
    world.submit("a", "clean", "one")
    answer = world.coordinator().fail("a", "clean", "one", "AnalysisException: no column x", curable=False)
    why = "no retry cures this: clean: AnalysisException: no column x"
    assert answer == Failed(2, 1, Reason.JOB_FAILURE, why, job_failed=True, for_good=True)
    assert world.coordinator().fail("a", "clean", "one", "again") == answer
    assert isinstance(world.coordinator().begin("a", "clean", "two"), Failed)
    world.run_epoch("a")
    world.audit("z", "a")


def test_a_driver_that_says_so_and_is_then_killed_is_not_tried_again(world: World) -> None:  # semantics F4, D1
    world.trigger("a")
    world.decline(world.submit("a", "clean").handover, "AnalysisException: x", incurable=True)
    answer = expect(Failed, world.coordinator().begin("a", "clean", world.new_claimant()))
    assert answer.detail == "no retry cures this: clean: AnalysisException: x"


@pytest.mark.parametrize("tolerable", [0, 2])
def test_an_incurable_failure_ends_the_epoch_if_the_sensor_sees_it(tolerable: int) -> None:  # semantics F4
    world = World(config=replace(CONFIG, tolerable_failed_checkpoints=tolerable))
    world.trigger("a")
    world.decline(world.submit("a", "clean", "one").handover, "AnalysisException: x", incurable=True)
    progress = world.coordinator().go_on("a")
    assert isinstance(progress, Failed), "nobody would run the stage in the attempt that follows"
    assert (progress.job_failed, progress.tolerated, progress.reason) == (True, False, Reason.CHECKPOINT_DECLINED)
    assert progress.detail == "no retry cures this: clean: AnalysisException: x"
    assert world.coordinator().head().pending == ()
    assert world.coordinator().fail("a", "clean", "one", "boom", final=True, curable=False) == progress
    assert isinstance(world.coordinator().begin("a", "clean", "two"), Failed)
    assert isinstance(world.coordinator().begin("a", "clean", "three", cleared_by_user=True), Submit)


def test_an_incurable_failure_ends_the_epoch_after_another_report() -> None:  # semantics F4
    world = World()
    run_some(world, "a", "clean")
    world.decline(world.submit("a", "routes", "one").handover, "AnalysisException: x", incurable=True)
    answer = expect(Failed, fail(world, stage="airports"))
    assert answer.detail == "no retry cures what routes declined for: airports: boom"
    assert world.coordinator().fail("a", "routes", "one", "x", final=True, curable=False) == answer
    assert world.coordinator().head().pending == ()


@pytest.mark.parametrize("incurable", [True, False])
def test_a_region_that_may_fail_is_left_out_instead(incurable: bool) -> None:  # semantics F4, F6
    world = strict(FixedDelayRestart(1), regional=RegionalCheckpoints(0.5, 2))
    run_some(world, "a", "clean", "airports")
    if not incurable:
        assert isinstance(fail(world, stage="routes"), FailedOver)
    claimant = world.new_claimant()
    world.submit("a", "routes", claimant)
    assert isinstance(world.coordinator().fail("a", "routes", claimant, "boom", curable=not incurable), AbandonedRegion)
    progress = expect(Ready, world.coordinator().progress("a"))
    world.coordinator().complete(progress.checkpoint)
    world.audit("z", "a")


def test_only_a_person_runs_a_region_that_was_given_up(world: World) -> None:  # semantics F4, F6
    """An application that is wrong is mended and cleared while the checkpoint still waits for another stage."""
    world.config = replace(CONFIG, regional=RegionalCheckpoints(0.5, 2))
    run_some(world, "a", "clean")
    world.decline(world.submit("a", "routes", "one").handover, "AnalysisException: x", incurable=True)
    assert isinstance(world.coordinator().fail("a", "routes", "one", "x", final=True, curable=False), AbandonedRegion)
    with pytest.raises(CheckpointFailedError, match="the stage was given up, and the checkpoint goes on without it"):
        world.coordinator().begin("a", "routes", world.new_claimant())
    assert isinstance(world.coordinator().begin("a", "routes", world.new_claimant(), cleared_by_user=True), Submit)
    assert world.pending_id("a") == 2
    world.run_epoch("a")
    world.audit("a")


REPORTS: dict[str, Callable[[World, str], object]] = {
    "callback": lambda world, claimant: world.coordinator().fail("a", "clean", claimant, "boom"),
    "dag processor": lambda world, claimant: world.coordinator().fail("a", "clean", claimant, "killed", final=True),
    "who waits": lambda world, _: world.coordinator().go_on("a"),
    "cleaner": lambda world, _: world.coordinator().clean(),
}


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.lists(st.sampled_from(sorted(REPORTS)), max_size=4)), min_size=4, max_size=8),
    st.integers(0, 3),
)
def test_any_interleaving_of_reports_counts_each_failed_try_once(
    tries: list[tuple[bool, list[str]]], attempts: int
) -> None:  # semantics F4, F5
    strategy = FixedDelayRestart(attempts) if attempts else NoRestart()
    world = strict(strategy, tolerable_failed_checkpoints=100)
    world.trigger("a")
    claimants: list[str] = []
    begun = 0
    for declines, reports in tries:
        claimants.append(world.new_claimant())
        answer = world.coordinator().begin("a", "clean", claimants[-1])
        if isinstance(answer, Submit):
            begun += 1
            assert world.coordinator().head().pending[0].restarts == begun - 1, "one for each failed try before"
            if declines:
                world.decline(answer.handover)
        for report in reports:
            for claimant in claimants:  # those of long ago come late
                REPORTS[report](world, claimant)
    assert begun == min(len(tries), attempts + 1)
    world.run_epoch("a")
    world.audit("z", "a")
