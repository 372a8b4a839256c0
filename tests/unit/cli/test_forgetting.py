"""`cairn forget-listener` says what it would give up, and gives it up when it is told so (semantics C4, D4)."""

from functools import partial
from pathlib import Path

import pytest

from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.storage import open_store
from tests.support.command import Cairn, Call
from tests.support.world.world import JOB, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two notices wait for `warehouse`, one of them for `mail` too."""
    world = World(open_store(f"file://{tmp_path}"))
    world.listen("warehouse")
    world.run_epoch("a")
    world.listen("warehouse", "mail")
    world.trigger("b")
    world.coordinator().abort(2, Reason.CHECKPOINT_DECLINED, "bad row")
    return world


@pytest.fixture
def forget(cairn: Cairn, world: World) -> Call:
    """`cairn forget-listener` on the world's store."""
    return partial(cairn.on(world.store.uri), "forget-listener")


def waiting(world: World) -> list[tuple[int, tuple[str, ...]]]:
    return [(notice.checkpoint, notice.listeners) for notice in world.coordinator().head().notices]


def test_without_yes_it_only_says_what_it_would_do(world: World, forget: Call) -> None:
    before = world.coordinator().head()
    assert forget(JOB, "warehouse").lines == [
        "warehouse would never be notified how these checkpoints ended:",
        "  1, a: COMPLETED",
        "  2, b: FAILED (CHECKPOINT_DECLINED)",
        "Nothing was changed. What stages have staged for it would neither be committed nor dropped.",
        "Give --yes to give these notices up.",
    ]
    assert world.coordinator().head() == before


def test_with_yes_it_gives_up_the_notices_of_that_listener_alone(world: World, forget: Call) -> None:
    assert forget(JOB, "warehouse", "--yes").lines[0] == "warehouse is never notified how these checkpoints ended:"
    assert waiting(world) == [(2, ("mail",))]
    told = forget(JOB, "mail", "--yes", "--json").document
    notice = {"checkpoint": 2, "run_id": "b", "status": "FAILED", "reason": "CHECKPOINT_DECLINED"}
    assert told == {"job": JOB, "listener": "mail", "given_up": 1, "notices": [notice]}
    assert waiting(world) == []


@pytest.mark.parametrize("name", ["warehuose", "../x", ""])
def test_a_listener_that_nothing_waits_for_is_an_error(world: World, forget: Call, name: str) -> None:
    before = waiting(world)
    said = forget(JOB, name, "--yes", status=2)
    assert "no notice waits for this listener, so there is nothing to drop" in said.err
    assert "waiting=`mail, warehouse`" in said.err
    assert said.out == ""
    assert waiting(world) == before
    forget("nojob", "warehouse", "--yes", status=2)


def test_one_notice_alone_is_given_up(world: World, forget: Call) -> None:
    assert forget(JOB, "warehouse", "--checkpoint", "2").lines[:2] == [
        "warehouse would never be notified how these checkpoints ended:",
        "  2, b: FAILED (CHECKPOINT_DECLINED)",
    ]
    said = forget(JOB, "mail", "--checkpoint", "1", "--yes", status=2)
    assert "no notice of this checkpoint waits for the listener" in said.err
    assert waiting(world) == [(1, ("warehouse",)), (2, ("warehouse", "mail"))]
    forget(JOB, "warehouse", "--checkpoint", "2", "--yes")
    assert waiting(world) == [(1, ("warehouse",)), (2, ("mail",))]
