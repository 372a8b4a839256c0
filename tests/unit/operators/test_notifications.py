"""Notifiers hear how checkpoints ended, whatever becomes of them (semantics C4, D4)."""

import logging
from typing import Any

import pytest
from airflow.sdk import BaseNotifier

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.extensions.contracts import check_listeners
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.operators import CheckpointNotifications
from airflow_cairn.storage.errors import InvalidKeyError
from tests.support.world.world import World

SAID: list[str] = []


class Says(BaseNotifier):
    """A notifier with a template, as those of providers."""

    template_fields = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Any) -> None:
        SAID.append(self.text)


@pytest.fixture(autouse=True)
def said() -> list[str]:
    SAID.clear()
    return SAID


def listening(listener: CheckpointNotifications) -> World:
    """Give a job whose checkpoints leave notices for the listener."""
    world = World()
    world.listen(listener.name)
    return world


def fail_over(world: World, epoch: str) -> None:
    """Let a stage fail once, so that a second attempt follows."""
    world.trigger(epoch)
    world.run_stage(epoch, "clean")
    routes = world.submit(epoch, "routes")
    world.decline(routes.handover)
    world.coordinator().fail(epoch, "routes", routes.handover.claimant, "the driver died")


def test_each_checkpoint_is_told_of_in_words_of_its_own(said: list[str]) -> None:
    listener = CheckpointNotifications(completed=Says("{{ checkpoint.id }} of {{ checkpoint.run_id }} completed"))
    world = listening(listener)
    for epoch in ("a", "b"):
        world.run_epoch(epoch)
        world.coordinator().deliver([listener])
    assert said == ["1 of a completed", "2 of b completed"]
    assert world.coordinator().deliver([listener]) == 0, "each once, where nothing dies"


@pytest.mark.parametrize("failovers", [False, True])
def test_a_pause_is_no_failure(said: list[str], failovers: bool) -> None:  # semantics S1
    text = Says("{{ checkpoint.id }}: {{ checkpoint.reason }}")
    listener = CheckpointNotifications(failed=[text], failovers=failovers)
    world = listening(listener)
    world.trigger("a")
    world.coordinator().pause()
    world.coordinator().deliver([listener])
    assert said == (["1: CHECKPOINT_COORDINATOR_SUSPEND"] if failovers else [])
    assert world.coordinator().head().notices == ()


@pytest.mark.parametrize("failovers", [False, True])
def test_a_failover_is_told_of_where_it_is_asked_for(said: list[str], failovers: bool) -> None:
    text = Says("{{ checkpoint.id }}: {{ checkpoint.status }} {{ checkpoint.reason }}")
    listener = CheckpointNotifications(failed=[text], failovers=failovers)
    world = listening(listener)
    fail_over(world, "a")
    world.coordinator().abort(2, Reason.JOB_FAILURE, "by hand")
    assert world.coordinator().deliver([listener]) == 2, "what is not told of leaves no notice either"
    failover = ["1: FAILED JOB_FAILOVER_REGION"] if failovers else []
    assert said == [*failover, "2: FAILED JOB_FAILURE"]


def test_one_that_fails_is_logged_and_keeps_nothing(said: list[str], caplog: pytest.LogCaptureFixture) -> None:
    def broken(context: Any) -> None:
        raise ConnectionError("the mail server is down")

    listener = CheckpointNotifications(completed=[broken, Says("told")])
    world = listening(listener)
    world.run_epoch("a")
    with caplog.at_level(logging.ERROR):
        assert world.coordinator().deliver([listener]) == 1
    assert said == ["told"], "the others are called"
    assert "could not tell how checkpoint 1 ended: COMPLETED" in caplog.text
    assert "the mail server is down" in caplog.text
    assert world.coordinator().head().notices == ()


def test_it_is_a_listener_of_the_group() -> None:
    listener = CheckpointNotifications(failed=print, name="mail")
    assert check_listeners([listener]) == (listener,)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, InvalidConfigError, r"notifies no one.*listener=`notifications`"),
        ({"failed": ["mail"]}, InvalidConfigError, r"a notifier is a function of the context.*option=`failed`.*mail"),
        ({"completed": "mail"}, InvalidConfigError, r"option=`completed` found=`'?mail"),
        ({"failed": 3}, InvalidConfigError, r"option=`failed` found=`3`"),
        ({"failed": print, "name": "a/b"}, InvalidKeyError, "a/b"),
    ],
)
def test_what_cannot_be_is_refused_at_parse(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        CheckpointNotifications(**options)
