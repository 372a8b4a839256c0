"""A paused DAG: what was pending ends, and goes on by itself when the DAG is no longer paused (semantics S1)."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from airflow_cairn.checkpoint import Coordinator, RequestKind
from airflow_cairn.checkpoint.answers import Declined, EpochCompleted, Failed, StageAcknowledged, Triggered, Waiting
from airflow_cairn.checkpoint.documents.attempt import Owner
from airflow_cairn.checkpoint.documents.entries import Stopped
from airflow_cairn.checkpoint.reasons import AckAnswer, Reason
from tests.support.errors import raises_code
from tests.support.narrowing import expect
from tests.support.shut_down import shut_down
from tests.support.world.world import CONFIG, World


def busy(world: World) -> None:
    """Two stages of `a` have acknowledged, one is under way, and `b` waits in the line."""
    world.trigger("a")
    world.run_stage("a", "clean", "routes")
    world.coordinator().trigger(replace(world.request("b"), owner=Owner("d", "b")))


def test_a_pause_ends_and_drops_and_nothing_begins_while_it_lasts(world: World) -> None:  # semantics S1, T1
    busy(world)
    world.coordinator().pause()
    head = world.coordinator().head()
    assert (head.pending, head.waiting, head.stopped, head.failures) == ((), (), Stopped.PAUSED, 0)
    assert head.history[-1].detail == "the DAG is paused"
    declined = expect(Declined, world.coordinator().trigger(replace(world.request("b"), kind=RequestKind.PERIODIC)))
    assert declined.reason is Reason.PERIODIC_SCHEDULER_SHUTDOWN
    assert "the job is paused" in declined.detail
    found = expect(Failed, world.coordinator().go_on("a"))
    assert (found.tolerated, found.paused, found.job_failed) == (True, True, False)
    with raises_code("job_paused", match="the DAG was paused, which has stopped the job's checkpoints: unpause it"):
        world.coordinator().begin("a", "report", world.new_claimant())


def test_it_goes_on_where_it_was(world: World) -> None:  # semantics S1
    """A cleaner leaves what the next attempt takes over."""
    world.run_epoch("z")
    busy(world)
    world.coordinator().pause()
    world.coordinator().clean()
    world.coordinator().unpause()
    found = expect(Waiting, world.coordinator().go_on("a"))
    assert (found.attempt, found.acknowledged, found.missing) == (2, ("clean", "routes"), ("airports", "report"))
    assert isinstance(world.coordinator().begin("a", "clean", world.new_claimant()), StageAcknowledged)
    world.run_epoch("a", "b")
    world.audit("z", "a", "b")


def test_who_runs_when_it_begins_runs_to_its_end(world: World) -> None:  # semantics S1, A2
    world.trigger("a")
    clean = world.submit("a", "clean").handover
    world.coordinator().pause()
    standing = world.coordinator().standing(clean)
    assert standing.may_count, "it is awaited"
    assert world.drive(clean) is AckAnswer.SUCCESS
    world.coordinator().clean()
    world.coordinator().unpause()
    found = expect(Waiting, world.coordinator().go_on("a"))
    assert found.acknowledged == ("clean",)
    world.run_epoch("a")
    world.audit("a")


def test_all_had_acknowledged(world: World) -> None:  # semantics S1
    world.trigger("a")
    world.run_stages("a")
    world.coordinator().pause()
    world.coordinator().unpause()
    ready = world.coordinator().go_on("a")
    assert not isinstance(ready, Failed | EpochCompleted | Waiting)
    assert world.coordinator().complete(ready.checkpoint).checkpoint == 2
    world.audit("a")


def test_an_end_of_the_pause_lifts_nothing_else(world: World) -> None:  # semantics S1, P2
    coordinator = world.coordinator()
    shut_down(coordinator)
    coordinator.pause()
    assert coordinator.head().stopped is Stopped.SHUTDOWN
    coordinator.unpause()
    assert coordinator.head().stopped is Stopped.SHUTDOWN
    coordinator.resume()
    coordinator.pause()
    shut_down(coordinator)
    assert coordinator.head().stopped is Stopped.SHUTDOWN


@pytest.mark.parametrize("by", [shut_down, Coordinator.restore_latest], ids=["a stop", "a restore"])
def test_who_stops_or_restores_the_job_does_not_want_it_to_go_on(
    world: World, by: Callable[[Coordinator], object]
) -> None:  # semantics S1, R5
    busy(world)
    world.coordinator().pause()
    by(world.coordinator())
    world.coordinator().resume()
    found = expect(Failed, world.coordinator().go_on("a"))
    assert (found.tolerated, found.paused) == (False, False)
    assert isinstance(world.coordinator().trigger(world.request("a")), Triggered)
    world.run_epoch("a")
    world.audit("a")


def test_an_end_without_a_pause_changes_nothing(world: World) -> None:
    world.trigger("a")
    before = world.coordinator().head()
    world.coordinator().unpause()
    assert world.coordinator().head() == before


def test_its_time_does_not_run_while_it_lasts(world: World) -> None:  # semantics S1, D2
    busy(world)
    world.coordinator().pause()
    world.clock.advance(10 * CONFIG.timeout)
    world.coordinator().unpause()
    assert isinstance(world.coordinator().go_on("a"), Waiting)
    assert world.coordinator().head().failures == 0
