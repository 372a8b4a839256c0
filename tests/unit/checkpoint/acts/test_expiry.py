"""What has expired, and that it makes no difference who sees it first (semantics D2, F6, T7)."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from airflow_cairn.checkpoint.answers import EpochCompleted, Submit, Waiting
from airflow_cairn.checkpoint.errors import CheckpointFailedError
from airflow_cairn.checkpoint.reasons import Reason, Status
from airflow_cairn.storage import CairnError
from tests.support.narrowing import expect, known
from tests.support.world.lagging import ALIGNMENT, REGIONAL, UNALIGNED, run_some
from tests.support.world.parties import Ids
from tests.support.world.saved import saved
from tests.support.world.savepoints import take
from tests.support.world.world import CONFIG, TIMEOUT, World

Look = Callable[[World], object]

LOOKS: dict[str, Look] = {
    "the sensor": lambda world: world.coordinator().progress("b"),
    "go on": lambda world: world.coordinator().go_on("b"),
    "complete": lambda world: world.coordinator().complete(2),
    "abort": lambda world: world.coordinator().abort(2, Reason.JOB_FAILURE, "by hand"),
    "the same trigger": lambda world: world.ask("b"),
    "another trigger": lambda world: world.ask("c"),
    "the next try": lambda world: world.coordinator().begin("b", "clean", "a new try"),
    "a callback": lambda world: world.coordinator().fail("b", "report", "the last try", "killed"),
    "pause": lambda world: world.coordinator().pause(),
    "unpause": lambda world: world.coordinator().unpause(),
    "resume": lambda world: world.coordinator().resume(),
    "restore by hand": lambda world: world.coordinator().restore_latest(),
    "a rewind": lambda world: world.coordinator().rewind(1, abort_pending=True),
    "the plan of a rewind": lambda world: world.coordinator().rewind_plan(1),
    "a savepoint": take,
    "a start from a savepoint": lambda world: world.coordinator().start_from(saved(world)),
    "the plan of a start": lambda world: world.coordinator().start_plan(saved(world)),
}


def _second(config: object = CONFIG, *stages: str) -> World:
    """A job whose first epoch is complete, and of whose second these stages have acknowledged."""
    world = World(config=config)  # type: ignore[arg-type]
    world.run_epoch("a")
    run_some(world, "b", *(stages or [each.uid for each in world.stages[:-1]]))
    if not stages:
        answer = expect(Submit, world.coordinator().begin("b", "report", "the last try"))
        world.drive(answer.handover)
    world.clock.advance(10 * TIMEOUT)
    return world


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize(
    ("second", "facts"),
    [
        ((), {"status": Status.COMPLETED, "acks": 4, "left_out": ()}),
        ((REGIONAL, "clean", "routes", "report"), {"status": Status.COMPLETED, "left_out": ("airports",)}),
        ((CONFIG, "clean"), {"reason": Reason.CHECKPOINT_EXPIRED, "acks": 1}),
    ],
    ids=["all have acknowledged", "it may do without the silent stage", "it lacks a stage"],
)
def test_how_a_late_checkpoint_ends_whoever_looks(look: Look, second: Any, facts: Any) -> None:  # semantics D2, F6
    world = _second(*second)
    with suppress(CairnError):
        look(world)
    world.coordinator().resume()
    head = world.coordinator().head()
    ended = known(head.ended_by_id(2))
    assert {name: getattr(ended, name) for name in facts} == facts
    assert second or head.failures == 0


def test_what_could_do_without_a_stage_that_lags_can_so_at_the_end_too() -> None:  # semantics D2, B3
    """The alignment timeout was over long before the checkpoint's, and nobody looked."""
    world = _second(UNALIGNED, "clean", "routes", "report")
    assert ALIGNMENT < TIMEOUT
    assert world.coordinator().progress("b") == EpochCompleted("b", 2)
    assert world.coordinator().head().left_out_of(2) == ("airports",)


def test_the_ack_that_makes_it_whole_counts_though_it_is_late() -> None:  # semantics D2, A2
    world = World()
    run_some(world, "a", "clean", "routes", "airports")
    last = world.submit("a", "report").handover
    world.clock.advance(TIMEOUT)
    assert world.drive(last) == "SUCCESS"
    assert world.coordinator().progress("a") == EpochCompleted("a", 1)


@pytest.mark.parametrize("seen", [False, True], ids=["first seen by the hook", "seen by another before"])
def test_an_answer_of_a_hook_after_the_timeout_counts_for_nothing(seen: bool) -> None:  # semantics D2, T7
    class Slow(Ids):
        """One that answers when its checkpoint has expired."""

        slow = True

        def trigger(self, checkpoint: int, timestamp_ms: int) -> object:
            if self.slow:
                world.clock.advance(TIMEOUT)
                if seen:
                    world.coordinator().progress("a")
            self.slow = False
            return super().trigger(checkpoint, timestamp_ms)

    world = World(config=replace(CONFIG, tolerable_failed_checkpoints=1))
    world.hooks = (Slow(),)
    with pytest.raises(CheckpointFailedError, match="ended while its master hooks were being asked"):
        world.ask("a")
    ended = known(world.coordinator().head().ended_by_id(1))
    assert ended.reason is Reason.CHECKPOINT_EXPIRED
    found = expect(Waiting, world.coordinator().go_on("a"))
    assert found.hooks == ("ids",), "they are asked again"
    world.run_epoch("a")
    world.audit("a")
