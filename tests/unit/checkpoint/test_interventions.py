"""Interventions of people: the head names act and actor, in the same swap (semantics O1)."""

from airflow_cairn.checkpoint.documents.entries import Intervention, InterventionKind
from airflow_cairn.checkpoint.documents.head import MAX_INTERVENTIONS
from airflow_cairn.checkpoint.masking import MAX_DETAIL
from airflow_cairn.checkpoint.reasons import Reason
from tests.support.shut_down import shut_down
from tests.support.world.world import World

SUSPEND = Reason.CHECKPOINT_COORDINATOR_SUSPEND


def test_each_is_recorded_with_its_actor(world: World) -> None:
    world.run_epoch("a", "b")
    world.trigger("c")
    coordinator = world.coordinator()
    assert coordinator.abort(3, SUSPEND, "given up", actor="ada")
    coordinator.rewind(1, actor="ben")
    shut_down(coordinator)
    coordinator.resume(actor="cleo\nof the night shift")
    now_ms = world.clock.now_ms
    assert coordinator.head().interventions == (
        Intervention(InterventionKind.GIVE_UP, "ada", now_ms, 3),
        Intervention(InterventionKind.REWIND, "ben", now_ms, 1),
        Intervention(InterventionKind.RESUME, "cleo of the night shift", now_ms),
    )


def test_what_changed_nothing_or_was_done_by_no_person_is_not_recorded(world: World) -> None:
    world.run_epoch("a")
    world.trigger("b")
    coordinator = world.coordinator()
    coordinator.resume(actor="ada")
    coordinator.rewind(1, actor="ada")
    assert not coordinator.abort(9, SUSPEND, "given up", actor="ada")
    assert coordinator.abort(2, SUSPEND, "expired")
    assert coordinator.head().interventions == ()


def test_the_last_ones_are_kept(world: World) -> None:
    world.run_epoch("a")
    coordinator = world.coordinator()
    for number in range(MAX_INTERVENTIONS + 3):
        shut_down(coordinator)
        coordinator.resume(actor=f"ada {number}" + "x" * 1_000)
    kept = coordinator.head().interventions
    assert len(kept) == MAX_INTERVENTIONS
    assert kept[0].actor.startswith("ada 3x")
    assert len(kept[-1].actor) == MAX_DETAIL
