"""Epochs that another run has overtaken: they go on by themselves, on the new base (semantics C2, D5, S1, T2)."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from airflow_cairn.checkpoint import RequestKind
from airflow_cairn.checkpoint.answers import (
    Declined,
    EpochCompleted,
    Failed,
    Queued,
    Restarted,
    Submit,
    Triggered,
    TriggerFirst,
    UpstreamsNotReady,
    Waiting,
)
from airflow_cairn.checkpoint.documents import head as documents_head
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import Owner
from airflow_cairn.checkpoint.documents.head import Head
from airflow_cairn.checkpoint.documents.programs import Program
from airflow_cairn.checkpoint.errors import CheckpointFailedError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.rules import history
from airflow_cairn.checkpoint.rules.admission import RunState
from tests.support.narrowing import expect, known
from tests.support.world.world import CONFIG, TIMEOUT, World

pytestmark = pytest.mark.usefixtures("parsed_documents")

TWO = replace(CONFIG, max_concurrent_checkpoints=2)


def _owner(epoch: str) -> Owner:
    return Owner("dag", epoch)


def _overlapping(*stages: str) -> World:
    """Two epochs from one base: the first has completed, and of the second these stages have acknowledged."""
    world = World(config=TWO)
    world.trigger("a")
    world.trigger("b")
    for stage in stages:
        world.submit("b", stage, f"{stage} of b")
        world.drive(world.submit("b", stage, f"{stage} of b").handover)
    world.run_epoch("a")
    return world


def _paused(world: World) -> None:
    world.coordinator().pause()
    world.coordinator().unpause()


def _expired(world: World) -> None:
    world.clock.advance(TIMEOUT)
    world.coordinator().progress("a")


ENDS: dict[str, Callable[[World], None]] = {"a pause": _paused, "a tolerated expiry": _expired}


@pytest.fixture(params=list(ENDS.values()), ids=list(ENDS))
def interrupted(request: pytest.FixtureRequest) -> World:
    """An epoch of which one stage has acknowledged and one runs, has ended within the limit; another run is pending."""
    world = World(config=replace(CONFIG, tolerable_failed_checkpoints=1))
    world.trigger("a")
    world.submit("a", "clean", "clean of a")
    world.drive(world.submit("a", "clean", "clean of a").handover)
    world.submit("a", "routes", "routes of a")
    end: Callable[[World], None] = request.param
    end(world)
    world.trigger("b")
    return world


def test_what_had_run_is_named_to_be_cleared_also_after_a_cleaner() -> None:  # semantics C2, C3, F1
    world = _overlapping("clean", "routes")
    assert world.coordinator().progress("b").__class__ is Failed, "settled, and not taken up yet"
    world.coordinator().clean()
    found = expect(Waiting, world.coordinator().go_on("b"))
    assert (found.attempt, found.acknowledged) == (2, ())
    ended = known(world.coordinator().head().ended_by_id(2))
    assert (ended.reason, ended.acks) == (Reason.CHECKPOINT_SUBSUMED, 2)
    assert found.restarted == (Restarted("clean", "clean of b"), Restarted("routes", "routes of b"))
    world.submit("b", "clean")
    again = expect(Waiting, world.coordinator().go_on("b"))
    assert [each.stage for each in again.restarted] == ["routes"], "who has begun is not cleared again"
    world.run_epoch("b")
    world.audit("a", "b")


def test_a_full_history_keeps_what_waits_in_the_line(monkeypatch: pytest.MonkeyPatch) -> None:  # semantics O1, C2
    """However many checkpoints end while its tasks wait for a worker, the overtaken epoch goes on by itself."""
    for module in (history, documents_head):
        monkeypatch.setattr(module, "MAX_HISTORY", 2)
    world = World(config=TWO)
    for epoch in ("a", "b"):
        world.coordinator().trigger(world.request(epoch, _owner(epoch)))
    world.run_epoch("a")
    world.coordinator().progress("b")
    world.run_epoch("c", "d", "e")
    head = world.coordinator().head()
    assert ([each.epoch for each in head.waiting], [each.epoch for each in head.history]) == (["b"], ["b", "e"])
    assert isinstance(world.coordinator().go_on("b"), Waiting)
    world.run_epoch("b")
    assert {tuple(epochs) for epochs in world.folded().values()} == {("a", "c", "d", "e", "b")}


def test_an_attempt_that_is_completed_too_late_leaves_its_epoch_a_place() -> None:  # semantics C2, T2
    world = World(config=TWO)
    for epoch in ("older", "newer"):
        world.coordinator().trigger(world.request(epoch, _owner(epoch)))
    world.run_stage("newer")
    world.run_epoch("older")
    with pytest.raises(CheckpointFailedError, match="CHECKPOINT_SUBSUMED"):
        world.coordinator().complete(2)
    assert [each.epoch for each in world.coordinator().head().waiting] == ["newer"]


def test_a_full_history_keeps_what_a_pause_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:  # semantics O1, S1
    """Pending and waiting epochs go on after the pause, however many end before they look."""
    for module in (history, documents_head):
        monkeypatch.setattr(module, "MAX_HISTORY", 3)
    world = World(config=replace(CONFIG, max_concurrent_checkpoints=3))
    for epoch in ("a", "b", "c"):
        world.coordinator().trigger(world.request(epoch, _owner(epoch)))
    world.run_epoch("a")
    world.coordinator().progress("b")
    world.coordinator().go_on("c")
    _paused(world)
    world.run_epoch("d", "e", "f")
    assert [each.epoch for each in world.coordinator().head().waiting] == ["c", "b"]
    for epoch in ("c", "b"):
        world.coordinator().go_on(epoch)
        world.run_epoch(epoch)
    assert {tuple(epochs) for epochs in world.folded().values()} == {("a", "d", "e", "f", "c", "b")}


def test_who_waits_for_an_overtaken_epoch_learns_of_a_pause() -> None:  # semantics C2, S1
    """Only a task may ask whether the pause is over, so the task that waits must know that it is to ask."""
    world = World(config=TWO)
    for epoch in ("a", "b"):
        world.coordinator().trigger(world.request(epoch, _owner(epoch)))
    world.run_epoch("b")
    world.coordinator().pause()
    found = expect(Failed, world.coordinator().go_on("a"))
    assert (found.reason, found.tolerated, found.paused) == (Reason.CHECKPOINT_SUBSUMED, True, True)
    world.coordinator().unpause()
    assert isinstance(world.coordinator().go_on("a"), Waiting)
    world.run_epoch("a")
    world.audit("b", "a")


def test_no_stage_of_a_doomed_attempt_is_submitted() -> None:  # semantics C2
    world = _overlapping("clean")
    answer = world.coordinator().begin("b", "routes", "routes of b")
    assert isinstance(answer, UpstreamsNotReady), "the next attempt is open, and clean has to run first"
    assert (answer.attempt, answer.restarted) == (2, (Restarted("clean", "clean of b"),))
    handover = world.submit("b", "clean").handover
    assert known(handover.restore).checkpoint == 1


@pytest.mark.parametrize("program", [None, Program()], ids=["a block", "a program"])
def test_an_overtaken_claim_is_stopped_by_its_driver(program: Program | None) -> None:  # semantics C2, W4
    """A driver looks when its block begins. Where there is none, the try looks before it submits."""
    world = World(config=TWO)
    world.trigger("a")
    world.trigger("b")
    world.run_stage("a")

    class Overtaking:
        """A cluster that is asked for whether drivers outlive their tasks, and takes its time."""

        def outlive(self) -> bool:
            if world.coordinator().head().pending_of_epoch("a") is not None:
                world.coordinator().complete(1)
            return False

        def driver_loss_reason(self, handover: object) -> str | None:
            return "gone"

    begin = partial(world.coordinator().begin, "b", "clean", "clean of b")
    answer = expect(Submit, begin(drivers=Overtaking(), program=program))
    if program is None:
        assert not world.reports().standing(answer.handover).may_count
        assert world.coordinator().was_overtaken(answer.handover), "its task begins anew"
        answer = expect(Submit, begin(rescheduled=True))
    assert (answer.handover.checkpoint, answer.handover.attempt) == (3, 2)


def test_running_stages_are_told_at_once() -> None:  # semantics C2, F3
    world = World(config=TWO)
    world.trigger("a")
    world.trigger("b")
    handover = world.submit("b", "clean").handover
    assert world.coordinator().standing(handover).may_count
    world.run_epoch("a")
    standing = world.coordinator().standing(handover)
    assert not standing.may_count, "it is not settled yet"
    assert standing.over == (
        "attempt 1, checkpoint 2, is overtaken: checkpoint 1 completed after this one had started from 0"
    )
    world.coordinator().go_on("b")
    assert world.coordinator().standing(handover).over == "attempt 2, checkpoint 3, runs the stage anew"
    assert not world.coordinator().standing(handover).may_count
    assert world.drive(handover) == "DISCARDED"
    world.run_epoch("b")
    world.audit("a", "b")


def test_a_waiting_epoch_is_queued_behind_a_pending_run(interrupted: World) -> None:
    # semantics D5, S1, T2, C2
    world = interrupted
    for _ in range(3):
        assert isinstance(world.coordinator().begin("a", "report", "a try"), Queued), "no try is used up"
        found = expect(Failed, world.coordinator().go_on("a"))
        assert (found.tolerated, found.trigger_first) == (True, False)
    world.run_epoch("b")
    assert expect(Waiting, world.coordinator().go_on("a")).restarted == (
        Restarted("clean", "clean of a"),
        Restarted("routes", "routes of a"),
    )
    world.run_epoch("a")
    world.audit("b", "a")


def test_a_stage_that_comes_first_learns_what_is_to_run_before_it(interrupted: World) -> None:  # semantics S1, F1
    world = interrupted
    world.run_epoch("b")
    answer = expect(UpstreamsNotReady, world.coordinator().begin("a", "airports", "airports of a"))
    assert answer.restarted == (Restarted("clean", "clean of a"), Restarted("routes", "routes of a"))


@pytest.mark.parametrize("has", ["source", "hooks"])
def test_what_only_the_trigger_can_open_says_so(has: str) -> None:  # semantics T7, T8, S1
    world = World(config=replace(CONFIG, tolerable_failed_checkpoints=1))
    world.count() if has == "source" else world.hook()
    world.trigger("a")
    world.run_stage("a", "clean")
    _paused(world)
    world.run_epoch("b")
    assert world.coordinator().begin("a", "routes", "routes of a") == TriggerFirst(1)
    found = expect(Failed, world.coordinator().go_on("a"))
    assert (found.trigger_first, found.tolerated) == (True, True)
    assert world.coordinator().head().pending == (), "a place that nobody can use is left to others"


# The line (semantics T2).


def _all_but(gone: str) -> Callable[[Owner], RunState]:
    """Every DAG run is running but this one."""
    return lambda owner: RunState.ENDED if owner.run_id == gone else RunState.RUNNING


def _ask(world: World, epoch: str, kind: RequestKind, gone: str = "") -> object:
    request = replace(world.request(epoch, _owner(epoch)), kind=kind)
    return world.coordinator().trigger(request, _all_but(gone))


def _two_wait(mine: RequestKind, theirs: RequestKind) -> World:
    """A tolerated failure has freed the only place, and another request waits in the line."""
    world = World(config=replace(CONFIG, tolerable_failed_checkpoints=1))
    assert isinstance(_ask(world, "a", mine), Triggered)
    assert isinstance(_ask(world, "b", theirs), Declined)
    world.decline(world.submit("a", "clean").handover)
    return world


@pytest.mark.parametrize(
    ("mine", "theirs", "first"),
    [
        (RequestKind.PERIODIC, RequestKind.MANUAL, "b"),
        (RequestKind.PERIODIC, RequestKind.PERIODIC, "a"),
        (RequestKind.MANUAL, RequestKind.PERIODIC, "a"),
        (RequestKind.MANUAL, RequestKind.MANUAL, "a"),
    ],
)
@pytest.mark.parametrize("earlier", ["a", "b"])
def test_the_free_place_belongs_to_the_higher_kind_and_then_to_the_oldest(
    mine: RequestKind, theirs: RequestKind, first: str, earlier: str
) -> None:  # semantics T2, D5
    world = _two_wait(mine, theirs)
    world.coordinator().go_on("a")
    for _ in range(2):
        for epoch in ("a", "b") if earlier == "a" else ("b", "a"):
            world.coordinator().go_on("a") if epoch == "a" else _ask(world, "b", theirs)
    assert [entry.epoch for entry in world.coordinator().head().pending] == [first]


def test_a_waiting_request_whose_run_has_ended_holds_nobody_up() -> None:  # semantics T2
    world = _two_wait(RequestKind.PERIODIC, RequestKind.MANUAL)
    assert isinstance(world.coordinator().go_on("a"), Failed)
    assert isinstance(world.coordinator().go_on("a", _all_but("b")), Waiting)


def test_a_pending_epoch_whose_run_has_ended_holds_nobody_up() -> None:  # semantics T2, D2
    world = World(config=replace(CONFIG, tolerable_failed_checkpoints=1))
    assert isinstance(_ask(world, "a", RequestKind.PERIODIC), Triggered)
    _paused(world)
    assert isinstance(_ask(world, "b", RequestKind.MANUAL), Triggered)
    assert isinstance(world.coordinator().begin("a", "clean", "a try"), Queued)
    assert isinstance(world.coordinator().begin("a", "clean", "a try", state_of=_all_but("b")), Submit)


def test_an_overtaken_epoch_keeps_its_place_before_those_that_wait() -> None:  # semantics C2, T2
    world = World(config=TWO)
    for epoch in "ab":
        assert isinstance(_ask(world, epoch, RequestKind.PERIODIC), Triggered)
    for epoch in "cd":
        assert isinstance(_ask(world, epoch, RequestKind.PERIODIC), Declined)
    world.run_stage("a")
    assert world.coordinator().complete(1) == EpochCompleted("a", 1)
    assert isinstance(_ask(world, "c", RequestKind.PERIODIC), Triggered)
    assert isinstance(_ask(world, "d", RequestKind.PERIODIC), Declined), "the second place is b's"
    assert isinstance(world.coordinator().go_on("b"), Waiting)


def test_an_unsettled_head_keeps_what_the_overtaken_attempt_wrote() -> None:  # semantics C3
    world = _overlapping("clean")
    head: Head = world.coordinator().head()
    (entry,) = head.pending
    world.coordinator().clean()
    document = known(world.coordinator().pending_document(entry))
    clean = document.executions["clean"]
    assert layout.handover(clean.home, "clean", clean.token) in world.standing()
