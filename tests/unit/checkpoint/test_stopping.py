"""A job stops with a savepoint: no epoch begins in between, and if it fails the job goes on (semantics P2, S1)."""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from airflow_cairn.checkpoint import RequestKind
from airflow_cairn.checkpoint.answers import Declined, EpochCompleted, Failed, Queued, Triggered, Waiting
from airflow_cairn.checkpoint.documents.attempt import Owner
from airflow_cairn.checkpoint.documents.entries import SavepointEntry, Stopped
from airflow_cairn.checkpoint.errors import CheckpointError, InvalidConfigError
from airflow_cairn.checkpoint.reasons import Reason, Status
from airflow_cairn.checkpoint.rules.admission import turn_of
from airflow_cairn.checkpoint.savepoints.savepoint_request import ImportOptions
from airflow_cairn.storage import UnavailableError
from airflow_cairn.storage.port import ObjectStore
from tests.support.errors import raises_code
from tests.support.narrowing import expect, known
from tests.support.parsed_once import parsed_once
from tests.support.world.saved import saved
from tests.support.world.savepoints import asked, assert_whole, folder, standing, take
from tests.support.world.world import CONFIG, World
from tests.support.wrapped_stores import Crashed, Fault, FaultyStore, InterleavingStore, RecordingStore

LAST = "drain-1"


@pytest.fixture
def world() -> World:
    """A job with one completed epoch."""
    world = World()
    world.run_epoch("e1")
    return world


def stop(world: World, request: str = "upgrade", *, store: ObjectStore | None = None, **more: Any) -> SavepointEntry:
    return take(world, asked(request, stop=True, **more), store)


def ask(world: World, epoch: str, kind: RequestKind = RequestKind.MANUAL) -> object:
    request = replace(world.request(epoch, Owner("flights", epoch)), kind=kind)
    return world.coordinator().trigger(request)


def test_an_idle_job_stops_at_once(world: World) -> None:  # semantics P2
    entry = stop(world)
    assert_whole(world, entry)
    head = world.coordinator().head()
    assert (head.stopped, head.stopping()) == (Stopped.SHUTDOWN, None)
    for kind in RequestKind:
        answer = expect(Declined, ask(world, "e2", kind))
        assert (answer.reason, answer.position) == (Reason.CHECKPOINT_COORDINATOR_SHUTDOWN, None)
        assert "is to be resumed first" in answer.detail
    assert stop(world) == entry, "asked again"


def test_the_job_starts_from_it_and_has_lost_nothing(world: World) -> None:  # semantics P2, R6, T9
    entry = stop(world)
    found = world.coordinator().start_from(folder(world, entry), ImportOptions(give_up=False))
    assert found.created
    assert world.coordinator().head().stopped is None
    assert isinstance(world.ask("e1"), EpochCompleted)
    world.run_epoch("e2")
    assert world.folded()["clean"] == ["e1", "e2"]


def test_the_running_epoch_finishes_and_no_other_begins(world: World) -> None:  # semantics P2, T2
    world.trigger("e2")
    assert stop(world).waits
    for kind in RequestKind:
        answer = expect(Declined, ask(world, "e3", kind))
        assert answer.reason is Reason.CHECKPOINT_COORDINATOR_SUSPEND
        assert answer.position == 1, "it keeps its place, because the stop may fail"
        assert answer.detail.startswith("the job is being stopped with the savepoint s3://elsewhere/savepoints/")
    request = replace(world.request("e3", Owner("flights", "e3")), kind=RequestKind.MANUAL)
    assert world.coordinator().still_waits(turn_of(request)) is not None
    world.run_epoch("e2")
    assert isinstance(ask(world, "e3"), Declined), "also while its files are copied"
    entry = stop(world)
    assert_whole(world, entry)
    assert entry.epoch == "e2"
    head = world.coordinator().head()
    assert (head.stopped, head.waiting) == (Stopped.SHUTDOWN, ())
    assert world.coordinator().still_waits(turn_of(request)) is None


def test_what_failed_within_the_limit_is_not_taken_up(world: World) -> None:  # semantics D5, P2
    world.config = replace(CONFIG, tolerable_failed_checkpoints=3)
    world.trigger("e2")
    world.decline(world.submit("e2", "clean").handover)
    found = expect(Failed, world.coordinator().progress("e2"))
    assert found.tolerated
    world.coordinator().head()
    entry = FaultyStop(world).begun()
    assert entry.source is not None, "nothing is pending: it is made of what there is"
    assert isinstance(world.coordinator().go_on("e2"), Failed)
    answer = expect(Queued, world.coordinator().begin("e2", "clean", world.new_claimant()))
    assert "the job is being stopped with the savepoint" in answer.detail
    assert world.coordinator().head().pending == ()


class FaultyStop:
    """A stop that dies before its first file is copied."""

    def __init__(self, world: World) -> None:
        self._world = world

    def begun(self) -> SavepointEntry:
        """Give what it leaves in the head."""
        recording = RecordingStore(self._world.fork().store)
        twin = self._world.fork()
        twin.store = recording.inner
        stop(twin, store=recording)
        first = next(at for at, write in enumerate(recording.writes) if "/state/" in write.key)
        with suppress(Crashed):
            stop(self._world, store=FaultyStore(self._world.store, first, Fault.CRASH_BEFORE))
        return known(self._world.coordinator().head().stopping())


def test_if_it_does_not_end_in_time_the_job_goes_on(world: World) -> None:  # semantics P2, D2
    FaultyStop(world).begun()
    assert isinstance(ask(world, "e2"), Declined)
    world.clock.advance(timedelta(hours=2))
    assert isinstance(ask(world, "e2"), Triggered)
    assert stop(world).status is Status.FAILED
    assert world.coordinator().head().stopped is None


def test_if_its_state_is_damaged_the_job_goes_on(world: World) -> None:  # semantics P2
    world.files.delete([next(key for key in world.referred() if "/state/" in key)])
    entry = stop(world)
    assert entry.status is Status.FAILED
    assert standing(world, entry) == []
    head = world.coordinator().head()
    assert (head.stopped, head.stopping()) == (None, None)


def test_whoever_resumes_the_job_gives_the_stop_up(world: World) -> None:  # semantics S1
    FaultyStop(world).begun()
    world.coordinator().resume()
    entry = stop(world)
    assert (entry.status, entry.detail) == (Status.FAILED, "the job was resumed before it had stopped")
    assert standing(world, entry) == []
    assert world.run_epoch("e2") == 3


def test_whoever_goes_back_gives_the_stop_up(world: World) -> None:  # semantics R5, P2
    world.run_epoch("e2")
    twin = world.fork()
    for job in (world, twin):
        FaultyStop(job).begun()
    world.coordinator().rewind(1)
    twin.coordinator().start_from(saved(twin, checkpoint=1))
    for job, detail in ((world, "rewound to checkpoint 1"), (twin, "started from a savepoint, as checkpoint 4")):
        entry = stop(job)
        assert (entry.status, entry.detail) == (Status.FAILED, f"the job was {detail}")
        assert job.coordinator().head().stopped is None
        job.run_epoch("e2")
        assert job.folded()["clean"] == ["e1", "e2"]


def test_it_stops_once(world: World) -> None:
    entry = FaultyStop(world).begun()
    with raises_code("savepoint_refused", match=r"being stopped with another savepoint already.*request=`upgrade`"):
        stop(world, "another")
    with raises_code("savepoint_refused", match=r"already, with which the job stops\. Choose another"):
        take(world, asked("upgrade"))
    nightly = take(world, asked("nightly"))
    with raises_code("savepoint_refused", match="already, with which the job does not stop"):
        stop(world, "nightly")
    assert nightly.status is Status.COMPLETED, "one that stops nothing is in nobody's way"
    assert stop(world).id == entry.id


def test_of_several_that_run_the_first_to_complete_is_the_last(world: World) -> None:  # semantics P2, S1
    world.config = replace(CONFIG, max_concurrent_checkpoints=2)
    world.trigger("e2")
    late = world.trigger("e3").pending.checkpoint
    stop(world)
    world.run_epoch("e2")
    entry = stop(world)
    assert (entry.status, entry.epoch) == (Status.COMPLETED, "e2")
    ended = known(world.coordinator().head().ended_by_id(late))
    assert ended.reason is Reason.CHECKPOINT_SUBSUMED
    assert world.coordinator().head().waiting == ()
    assert isinstance(world.coordinator().go_on("e3"), Failed), "the job is stopped"
    world.coordinator().resume()
    assert isinstance(world.coordinator().go_on("e3"), Waiting)


def test_the_last_epoch_is_told_that_it_is_the_last(world: World) -> None:  # semantics P2
    world.trigger("e2")
    entry = stop(world, drain=LAST)
    assert (entry.waits, entry.epoch) == (True, LAST)
    assert world.submit("e2", "clean").handover.draining is False
    world.run_epoch("e2")
    assert stop(world, drain=LAST).waits, "the epoch that ran is not the last one"
    assert isinstance(ask(world, "e3"), Declined)
    assert world.trigger(LAST).pending.draining
    assert world.submit(LAST, "clean").handover.draining
    world.run_epoch(LAST)
    entry = stop(world, drain=LAST)
    assert_whole(world, entry)
    assert entry.epoch == LAST
    assert world.coordinator().head().stopped is Stopped.SHUTDOWN


def test_a_drained_job_that_does_not_stop_goes_on_from_its_last_checkpoint(world: World) -> None:  # semantics P2
    stop(world, drain=LAST)
    world.run_stages(LAST)
    drained = world.pending_id(LAST)
    world.clock.advance(timedelta(minutes=9))
    world.coordinator().resume()
    ended = known(world.coordinator().head().ended_by_id(drained))
    assert ended.reason is Reason.CHECKPOINT_COORDINATOR_SUSPEND
    assert ended.detail == "the job was to stop after this epoch, and goes on: its savepoint has failed"
    with pytest.raises(CheckpointError, match="did not complete"):
        world.coordinator().complete(drained)
    again = world.trigger(LAST).pending
    assert (again.draining, again.restore and again.restore.checkpoint) == (False, 1)
    assert world.submit(LAST, "clean").handover.draining is False, "nothing that was drained is taken over"


def test_what_was_drained_is_not_taken_over(world: World) -> None:  # semantics P2, F2
    world.config = replace(CONFIG, tolerable_failed_checkpoints=3)
    stop(world, drain=LAST)
    world.trigger(LAST)
    world.run_stage(LAST, "clean")
    world.decline(world.submit(LAST, "airports").handover)
    world.coordinator().progress(LAST)
    assert world.coordinator().head().carryable(LAST) is not None
    world.coordinator().resume()
    again = world.trigger(LAST).pending
    assert (again.draining, again.executions["clean"].home) == (False, again.checkpoint)


def test_the_last_epoch_ends_with_its_savepoint(world: World) -> None:  # semantics P2, D2
    world.config = replace(CONFIG, timeout=timedelta(days=1))
    stop(world, drain=LAST)
    world.run_stages(LAST)
    drained = world.pending_id(LAST)
    world.clock.advance(timedelta(hours=2))
    with pytest.raises(CheckpointError, match="goes on: its savepoint has failed"):
        world.coordinator().complete(drained)
    assert world.coordinator().head().latest_id() == 1


def test_a_last_epoch_needs_a_stop() -> None:
    with pytest.raises(InvalidConfigError, match="give stop too"):
        asked("x", drain=LAST)


def _stopped_or_going_on(world: World) -> None:
    """The next to ask brings it to its end; if the job has stopped, the savepoint holds all that has completed."""
    entry = stop(world)
    head = world.coordinator().head()
    if entry.waits:
        world.run_epoch(entry.epoch)
        entry, head = stop(world), world.coordinator().head()
    if entry.status is Status.COMPLETED:
        assert_whole(world, entry)
        assert entry.source is not None
        assert (head.stopped, head.latest_id()) == (Stopped.SHUTDOWN, entry.source.checkpoint), "no epoch in between"
        assert head.pending == ()
    else:
        assert head.stopped is None
    world.coordinator().clean()
    world.coordinator().resume()
    world.run_epoch("e9")
    assert len(set(world.folded()["clean"])) == len(world.folded()["clean"])


@pytest.mark.large
@pytest.mark.parametrize("running", [False, True], ids=["idle", "running"])
def test_whoever_asks_again_stops_it(running: bool) -> None:  # semantics P2, W2, T6
    with parsed_once():
        _strike(running=running)


def _strike(*, running: bool) -> None:
    start = World()
    start.run_epoch("e1")
    if running:
        start.trigger("e2")
        stop(start)
        start.run_epoch("e2")
    recording = RecordingStore(start.fork().store)
    stop(start.fork(), store=recording)
    for at, write in enumerate(recording.writes):
        for fault in Fault:
            world = start.fork()
            store = FaultyStore(world.store, at, fault)
            with suppress(Crashed, UnavailableError):
                stop(world, store=store)
            assert store.struck, write
            _stopped_or_going_on(world)
        world = start.fork()
        before = sum(each.verb == write.verb for each in recording.writes[:at])
        entry = stop(world, store=InterleavingStore(world.store, write.verb, before, partial(ask, world, "e5")))
        assert not entry.waits or entry.epoch == "e5", "it began before the job was stopping"
        _stopped_or_going_on(world)
