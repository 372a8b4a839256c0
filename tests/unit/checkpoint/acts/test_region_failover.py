"""A failure restarts its region, who has to write again, and all that read from these; no more (semantics F1)."""

from dataclasses import replace

import pytest

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.checkpoint.answers import (
    FailedOver,
    NothingToDo,
    Restarted,
    StageAcknowledged,
    Submit,
    UpstreamsNotReady,
)
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import Handover, StageSpec
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.reasons import AckAnswer, Reason
from airflow_cairn.checkpoint.store import acks
from airflow_cairn.storage.errors import UnavailableError
from tests.support.narrowing import expect
from tests.support.world.exchanges import ALL_PIPELINED, BLOCKING, CHAIN, DIAMOND
from tests.support.world.world import JOB, TIMEOUT, World
from tests.support.wrapped_stores import InterleavingStore


def _begun(world: World, stages: tuple[StageSpec, ...], *done: str) -> None:
    """An epoch of which these have acknowledged, each held by the try that has its name."""
    world.stages = stages
    world.run_epoch("z")
    world.trigger("a")
    for uid in done:
        world.drive(world.submit("a", uid, f"{uid}-1").handover)


def _failed(world: World, stage: str, claimant: str = "", detail: str = "boom") -> FailedOver:
    return expect(FailedOver, world.coordinator().fail("a", stage, claimant or f"{stage}-1", detail))


def _damage(world: World, handover: Handover, how: str) -> None:
    """Delete, shorten or alter what an execution wrote for its readers."""
    ack = acks.read_ack(world.files, handover.stage, handover.execution)
    (path,) = (h.path for s in acks.subtasks_of(world.files, ack) for h in s.handles if h.output == "exchange.rows")
    if how == "gone":
        world.files.delete([path])
    else:
        data = world.files.get(path, max_bytes=10_000).data
        world.memory.put(f"{JOB}/{path}", data[:-1] if how == "truncated" else data.swapcase()[::-1])


def test_a_region_of_one_restarts_alone(world: World) -> None:  # semantics F1, F2
    _begun(world, DIAMOND, "clean")
    world.submit("a", "routes", "routes-1")
    answer = _failed(world, "routes")
    assert answer.created
    assert answer.restarted == ()
    entry = world.coordinator().head().history[-1]
    assert (entry.reason, entry.detail, entry.restarted) == (Reason.JOB_FAILOVER_REGION, "routes: boom", ("routes",))
    assert world.run_epoch("a") == 3
    world.audit("z", "a")


def test_who_writes_to_it_by_a_pipelined_exchange_restarts_too(world: World) -> None:  # semantics F1
    _begun(world, CHAIN, "clean")
    world.submit("a", "routes", "routes-1")
    answer = _failed(world, "routes")
    assert answer.restarted == (Restarted("clean", "clean-1"),)
    assert world.coordinator().head().history[-1].restarted == ("clean", "routes")
    begin = world.coordinator().begin("a", "routes", "routes-2")
    assert begin == UpstreamsNotReady(3, 2, ("clean",), (Restarted("clean", "clean-1"),))
    assert world.run_stage("a", "clean") is AckAnswer.SUCCESS
    world.run_epoch("a")
    world.audit("z", "a")


def test_running_siblings_stop_and_their_late_writes_are_discarded(world: World) -> None:  # semantics F3, A2
    _begun(world, ALL_PIPELINED, "clean")
    world.submit("a", "routes", "routes-1")
    sibling = world.submit("a", "airports", "airports-1").handover
    answer = _failed(world, "routes")
    assert answer.restarted == (Restarted("airports", "airports-1"), Restarted("clean", "clean-1"))
    assert world.drive(sibling) is AckAnswer.DISCARDED
    world.run_epoch("a")
    world.audit("z", "a")


def test_a_blocking_sibling_is_not_touched(world: World) -> None:  # semantics F1
    _begun(world, CHAIN, "clean", "routes")
    sibling = world.submit("a", "airports", "airports-1").handover
    world.submit("a", "report", "report-1")
    before = world.trigger("a").pending.executions
    answer = _failed(world, "report")
    assert answer.restarted == ()
    assert {uid for uid in before if before[uid] != answer.pending.executions[uid]} == {"report"}
    assert world.drive(sibling) is AckAnswer.SUCCESS
    assert isinstance(world.coordinator().begin("a", "routes", "any"), StageAcknowledged)


def test_all_that_read_from_a_restarted_region_restart(world: World) -> None:  # semantics F1
    _begun(world, CHAIN, "clean", "airports")
    world.submit("a", "routes", "routes-1")
    assert _failed(world, "routes").restarted == (Restarted("airports", "airports-1"), Restarted("clean", "clean-1"))
    assert world.coordinator().head().history[-1].restarted == ("airports", "clean", "routes")
    world.run_epoch("a")
    world.audit("z", "a")


@pytest.mark.parametrize("how", ["gone", "truncated", "altered"])
@pytest.mark.parametrize("who", ["the report", "the next try"])
def test_output_that_does_not_stand_pulls_its_writer_in(world: World, how: str, who: str) -> None:  # semantics F1, R1
    _begun(world, CHAIN[:3])
    written = world.submit("a", "clean", "clean-1").handover
    world.drive(written)
    routes = world.submit("a", "routes", "routes-1").handover
    world.drive(routes)
    world.submit("a", "report", "report-1")
    if who == "the report":
        _damage(world, routes, how)
        answer = _failed(world, "report")
        restarted = answer.restarted
    else:
        assert _failed(world, "report").restarted == ()
        _damage(world, routes, how)
        begin = expect(UpstreamsNotReady, world.coordinator().begin("a", "report", "report-2"))
        assert begin.upstreams == ("routes",)
        restarted = begin.restarted
    # Pipelined with it, the first stage is of the same region.
    assert restarted == (Restarted("clean", "clean-1"), Restarted("routes", "routes-1"))
    world.run_epoch("a")
    world.audit("z", "a")


@pytest.mark.parametrize("who", ["the report", "the sensor"])
def test_output_that_a_driver_could_not_read_is_missing(world: World, who: str) -> None:  # semantics F1
    """It is there, unaltered since it was written, and broken all the same; another upstream is fine."""
    _begun(world, BLOCKING, "clean", "routes", "airports")
    world.decline(world.submit("a", "report", "report-1").handover, unreadable=("routes",))
    if who == "the report":
        assert _failed(world, "report").restarted == (Restarted("routes", "routes-1"),)
    else:
        world.coordinator().progress("a")
        begin = expect(UpstreamsNotReady, world.coordinator().begin("a", "report", "report-2"))
        assert begin.restarted == (Restarted("routes", "routes-1"),)
    world.run_epoch("a")
    world.audit("z", "a")


def test_output_that_nobody_reads_again_is_not_looked_at(world: World) -> None:  # semantics F1
    _begun(world, CHAIN[:3], "clean")
    routes = world.submit("a", "routes", "routes-1").handover
    world.drive(routes)
    world.drive(world.submit("a", "report", "report-1").handover)
    _damage(world, routes, "gone")
    assert isinstance(world.coordinator().fail("a", "report", "report-1", "late"), NothingToDo)
    assert isinstance(world.coordinator().begin("a", "report", "report-2"), StageAcknowledged)


def test_a_store_that_does_not_answer_makes_nothing_missing(world: World) -> None:  # semantics R1, F1
    _begun(world, CHAIN[:3], "clean", "routes")
    world.submit("a", "report", "report-1")
    head = world.coordinator().head()

    def fails() -> None:
        raise UnavailableError("SlowDown")

    store = InterleavingStore(world.store, "list", 0, fails, suffix="/state/")
    with pytest.raises(UnavailableError):
        world.coordinator(store).fail("a", "report", "report-1", "boom")
    assert world.coordinator().head() == head


def test_an_attempt_that_ended_by_a_decline_takes_the_region_along(world: World) -> None:  # semantics D1, F1
    """The sensor settles the decline before the failed task reports."""
    _begun(world, CHAIN[:2], "clean")
    world.decline(world.submit("a", "routes", "routes-1").handover)
    world.coordinator().progress("a")
    assert isinstance(world.coordinator().fail("a", "routes", "routes-1", "boom"), NothingToDo)
    begin = world.coordinator().begin("a", "routes", "routes-2")
    assert begin == UpstreamsNotReady(3, 2, ("clean",), (Restarted("clean", "clean-1"),))
    assert world.coordinator().head().history[-1].restarted == ("clean", "routes")


def test_who_never_began_takes_nobody_along(world: World) -> None:  # semantics F1, D2
    _begun(world, CHAIN[:2], "clean")
    world.clock.advance(TIMEOUT)
    answer = world.coordinator().begin("a", "routes", "routes-1")
    assert isinstance(answer, Submit), "its writer has acknowledged and stands"
    assert answer.handover.attempt == 2
    assert world.drive(answer.handover) is AckAnswer.SUCCESS


def test_who_triggers_again_keeps_a_region_that_is_half_done_and_not_begun(world: World) -> None:  # semantics F1, T9
    _begun(world, CHAIN[:2], "clean")
    world.clock.advance(TIMEOUT)
    world.coordinator().progress("a")
    document = world.trigger("a").pending
    assert document.executions["clean"].home == 2
    world.submit("a", "routes", "routes-1")
    world.clock.advance(TIMEOUT)
    world.coordinator().progress("a")
    document = world.trigger("a").pending
    assert document.executions["clean"].home == 4, "its reader had begun"


def test_what_is_still_to_be_run_again_outlives_who_replaced_it(world: World) -> None:  # semantics F2, F5
    """The process that recorded the failover dies; a second callback, the next try and a later failover find it."""
    _begun(world, CHAIN, "clean")
    world.submit("a", "routes", "routes-1")
    other = world.submit("a", "airports", "airports-1").handover
    _failed(world, "routes")
    due = (Restarted("airports", "airports-1"), Restarted("clean", "clean-1"))
    again = _failed(world, "routes")
    assert (again.created, again.restarted) == (False, due)
    assert _failed(world, "airports", detail="fenced").restarted == due
    assert world.drive(other) is AckAnswer.DISCARDED
    world.drive(world.submit("a", "clean", "clean-2").handover)
    assert _failed(world, "routes").restarted == due[:1], "who has begun since is done"
    world.submit("a", "routes", "routes-2")
    assert _failed(world, "routes", "routes-2").restarted == (due[0], Restarted("clean", "clean-2"))
    world.run_epoch("a")
    world.audit("z", "a")


def test_a_restarted_stage_that_fails_is_not_named_again(world: World) -> None:  # semantics F5
    _begun(world, CHAIN[:2], "clean")
    world.submit("a", "routes", "routes-1")
    _failed(world, "routes")
    world.submit("a", "clean", "clean-2")
    assert _failed(world, "clean", "clean-2").restarted == ()
    begin = world.coordinator().begin("a", "routes", "routes-2")
    by_itself = Restarted("clean", "")
    assert begin == UpstreamsNotReady(4, 3, ("clean",), (by_itself,)), "Airflow tries it again, unless it has passed"


def test_two_failures_of_one_region_at_once_are_one_failover(world: World) -> None:  # semantics F5
    _begun(world, DIAMOND, "clean")
    world.submit("a", "routes", "routes-1")
    world.submit("a", "airports", "airports-1")

    def also() -> None:
        assert _failed(world, "airports").created

    store = InterleavingStore(world.store, "replace", 0, also)
    answer = expect(FailedOver, world.coordinator(store).fail("a", "routes", "routes-1", "boom"))
    assert (answer.created, answer.restarted) == (False, (Restarted("routes", "routes-1"),))
    assert world.pending_id("a") == 3


def test_where_another_checkpoint_is_restored_all_run_again(world: World) -> None:  # semantics F2, R1
    """A region cannot go back by itself where what the others computed came from a checkpoint that is lost."""
    world.stages = CHAIN
    world.run_epoch("y")
    _begun(world, CHAIN, "clean", "airports")
    world.submit("a", "routes", "routes-1")
    world.drive(world.submit("a", "routes", "routes-1").handover)
    world.submit("a", "report", "report-1")
    entry = world.coordinator().head().completed[-1]
    world.files.delete([entry.metadata.key])
    assert [each.stage for each in _failed(world, "report").restarted] == ["airports", "clean", "routes"]
    world.run_epoch("a")
    world.audit("y", "z", "a")


def test_a_job_may_want_all_that_had_begun_to_run_again(world: World) -> None:  # semantics F1
    world.config = replace(world.config, failover="full")
    _begun(world, BLOCKING, "clean", "airports")
    world.submit("a", "routes", "routes-1")
    assert _failed(world, "routes").restarted == (Restarted("airports", "airports-1"), Restarted("clean", "clean-1"))
    assert world.coordinator().head().history[-1].restarted == ("airports", "clean", "routes")
    world.run_epoch("a")
    world.audit("z", "a")


def test_nothing_that_began_is_lost_where_nothing_failed(world: World) -> None:  # semantics F1, D2
    world.config = replace(world.config, failover="full")
    _begun(world, CHAIN[:2], "clean")
    world.clock.advance(TIMEOUT)
    answer = expect(Submit, world.coordinator().begin("a", "routes", "routes-1"))
    assert answer.handover.upstream["clean"].home == 2


def test_a_failover_is_of_the_region_or_full() -> None:  # semantics F1, S3
    with pytest.raises(InvalidConfigError, match="failover") as caught:
        CheckpointConfig(failover="all")  # type: ignore[arg-type]
    assert "region" in str(caught.value)
    assert "full" in str(caught.value)
    assert CheckpointConfig().failover == "region"


@pytest.mark.parametrize("content", [None, b'{"half'], ids=["deleted", "broken"])
def test_a_lost_handover_has_its_ended_task_cleared(
    world: World, content: bytes | None
) -> None:  # semantics W5, F2, F5
    """Which task held the stage is not known; that it has to run again is."""
    _begun(world, CHAIN[:2], "clean")
    execution = world.trigger("a").pending.executions["clean"]
    key = layout.handover(execution.home, "clean", execution.token)
    world.files.delete([key])
    if content is not None:
        world.memory.put(f"{JOB}/{key}", content)
    world.submit("a", "routes", "routes-1")
    assert _failed(world, "routes").restarted == (), "a callback compares with the holder"
    begin = world.coordinator().begin("a", "routes", "routes-2")
    assert begin == UpstreamsNotReady(3, 2, ("clean",), (Restarted("clean", ""),))
    assert world.coordinator().unclaimed("a") >= {"clean", "routes"}
    world.run_epoch("a")
    world.audit("z", "a")


@pytest.mark.parametrize("cleaned", [False, True])
def test_who_was_told_that_it_does_not_count_had_begun(world: World, cleaned: bool) -> None:  # semantics A2, F1
    """A cleaner takes what it wrote and its handover; its region runs again all the same."""
    _begun(world, CHAIN, "clean")
    late = world.submit("a", "routes").handover
    world.coordinator().abort(world.pending_id("a"), Reason.JOB_FAILURE, "by hand")
    assert world.drive(late) is AckAnswer.DISCARDED
    if cleaned:
        world.coordinator().clean()
    pending = world.trigger("a").pending
    assert {execution.home for execution in pending.executions.values()} == {pending.checkpoint}
    world.run_epoch("a")
    world.audit("z", "a")
