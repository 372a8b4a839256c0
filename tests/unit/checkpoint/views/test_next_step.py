"""Next step that a person takes about a checkpoint: the exact command (semantics O1)."""

import re
import shlex
from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_cairn.checkpoint.reasons import Reason, Status
from airflow_cairn.checkpoint.remedies import LEFT_BEHIND, NOTHING_LEFT, REMEDIES
from airflow_cairn.checkpoint.views.checkpoint_list import Shown, checkpoints
from airflow_cairn.checkpoint.views.details import details
from airflow_cairn.checkpoint.views.next_step import FollowedBy, next_step
from airflow_cairn.cli.main import parser
from tests.support.world.world import JOB, World

LAKE = "s3://lake/cairn"


def typed(said: str) -> list[str]:
    """Give the commands of a text, each of which the command line takes."""
    found = re.findall(r"`(cairn [^`]*)`", said)
    for command in found:
        parser().parse_args(shlex.split(command)[1:])
    return found


def expired() -> World:
    """A job whose first checkpoint has expired."""
    world = World()
    world.trigger("a")
    world.clock.advance(timedelta(minutes=11))
    world.coordinator().restore_latest()
    return world


def test_a_failed_one_has_the_way_out_of_its_reason_with_its_own_id() -> None:
    world = expired()
    found = details(world.coordinator(), 1)
    assert found.row.reason == Reason.CHECKPOINT_EXPIRED
    assert typed(found.next_step(LAKE)) == [f"cairn show {JOB} 1 --storage {LAKE}"]
    assert "Raise" in found.next_step(LAKE)
    assert found.as_json(storage=LAKE)["next_step"] == found.next_step(LAKE)


def test_one_that_another_attempt_has_followed_leads_to_that(busy: World) -> None:
    found = details(busy.coordinator(), 3)
    assert found.followed_by == FollowedBy(4, Shown.IN_PROGRESS)
    assert typed(found.next_step(LAKE)) == [f"cairn show {JOB} 4 --storage {LAKE}"]
    assert details(busy.coordinator(), 4).followed_by is None
    assert typed(details(busy.coordinator(), 4).next_step(LAKE)) == [f"cairn show {JOB} 4 --watch --storage {LAKE}"]


@pytest.mark.parametrize(
    ("said", "begins"),
    [
        (Shown.COMPLETED, "Nothing: checkpoint 4 of the same DAG run has completed."),
        (Shown.IN_PROGRESS, "Nothing: checkpoint 4 of the same DAG run goes on."),
        (Shown.FAILED, "Checkpoint 4, the newest of the same DAG run, has failed too: "),
        (Shown.PAUSED, "Checkpoint 4, the newest of the same DAG run, was ended by a pause: "),
    ],
)
def test_one_is_asked_nothing_of_only_where_a_later_attempt_goes_on(busy: World, said: Shown, begins: str) -> None:
    row = details(busy.coordinator(), 3).row
    found = next_step(row, JOB, LAKE, FollowedBy(4, said))
    assert found.startswith(begins)
    assert typed(found) == [f"cairn show {JOB} 4 --storage {LAKE}"]


def test_a_completed_one_asks_nothing_until_it_was_rewound(busy: World) -> None:
    row = next(each for each in checkpoints(busy.coordinator()) if each.id == 2)
    assert typed(next_step(row, JOB, LAKE)) == [f"cairn verify {JOB} 2 --storage {LAKE}"]
    assert next_step(replace(row, retained=False), JOB, LAKE).startswith("Nothing")
    assert "rewound to checkpoint 1" in next_step(replace(row, rewound_to=1), JOB, LAKE)


def _expected(reason: str, checkpoint: int) -> str:
    if reason in Reason.__members__:
        return REMEDIES[Reason(reason)].action_for(JOB, LAKE, checkpoint)
    return f"`cairn show {JOB} {checkpoint} --storage {LAKE}` shows what failed."


@pytest.mark.parametrize("reason", [*Reason, "SOMETHING_OF_A_NEWER_CAIRN"])
def test_every_reason_has_a_step_whose_commands_are_taken(busy: World, reason: str) -> None:
    row = replace(checkpoints(busy.coordinator())[0], status=Status.FAILED, reason=reason)
    said = next_step(row, JOB, LAKE)
    assert typed(said) == typed(expected := _expected(reason, row.id))
    assert said == expected


def test_one_of_which_nothing_is_kept_is_triggered_anew() -> None:
    world = expired()
    row = replace(details(world.coordinator(), 1).row, left_behind=True)
    assert next_step(row, JOB, LAKE) == LEFT_BEHIND


@pytest.mark.parametrize("content", [None, b'{"half'], ids=["gone", "broken"])
def test_one_whose_record_is_lost_is_triggered_anew(content: bytes | None) -> None:  # semantics O1, T8
    world = expired()
    assert "Raise" in details(world.coordinator(), 1).next_step(LAKE)
    (record,) = (each for each in world.memory.all_keys() if "/pending-" in each)
    world.memory.delete([record])
    if content is not None:
        world.memory.create(record, content)
    assert details(world.coordinator(), 1).next_step(LAKE) == NOTHING_LEFT


def test_one_that_failed_before_a_rewind_is_triggered_anew() -> None:  # semantics O1, R5
    world = World()
    world.run_epoch("first", "a")
    world.trigger("b")
    world.clock.advance(timedelta(minutes=11))
    world.coordinator().restore_latest()
    world.coordinator().rewind(1)
    assert details(world.coordinator(), 3).next_step(LAKE) == NOTHING_LEFT


def test_one_whose_window_another_run_has_read_asks_nothing() -> None:  # semantics T8
    world = World()
    world.read_days("a", "b")
    world.slices["b"] = world.slices["a"]
    world.trigger("a")
    world.clock.advance(timedelta(minutes=11))
    world.coordinator().restore_latest()
    assert "Raise" in details(world.coordinator(), 1).next_step(LAKE)
    world.run_epoch("b")
    said = details(world.coordinator(), 1).next_step(LAKE)
    assert said.startswith("Nothing: checkpoint 2 of the run b has read its window")
    assert typed(said) == [f"cairn show {JOB} 2 --storage {LAKE}"]
