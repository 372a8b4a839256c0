"""Answers of master hooks in an application, without a session."""

from dataclasses import replace
from typing import Any, cast

import pytest

from airflow_cairn.checkpoint import MasterHook, Runtime
from airflow_cairn.checkpoint.answers import Triggered
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.spark.epoch import Epoch
from tests.support.world.world import World


class Answers(MasterHook):
    def __init__(self, name: str, answer: Any) -> None:
        self._name = name
        self._answer = answer

    @property
    def name(self) -> str:
        return self._name

    def trigger(self, checkpoint: int, timestamp_ms: int) -> Any:
        return self._answer


def epoch_of(world: World, *hooks: MasterHook) -> Epoch:
    answer = world.coordinator().trigger(replace(world.request("a"), hooks=tuple(hook.name for hook in hooks)))
    assert isinstance(answer, Triggered)
    world.coordinator().ask_hooks(answer.pending, hooks)
    handover = world.submit("a", "clean").handover
    return Epoch(cast(Any, None), world.store, handover, Runtime(world.clock, world.new_token))


def test_an_application_learns_what_was_answered() -> None:  # semantics T7
    epoch = epoch_of(World(), Answers("ids", {"first": 11}), Answers("feed", b"\x00\xff"), Answers("mute", None))
    assert (epoch.hook("ids"), epoch.hook("feed"), epoch.hook("mute")) == ({"first": 11}, b"\x00\xff", None)


@pytest.mark.parametrize("hooks", [(), (Answers("ids", 1),)])
def test_a_hook_that_the_job_does_not_have(hooks: tuple[MasterHook, ...]) -> None:  # semantics T7
    names = ", ".join(hook.name for hook in hooks) or "none"
    with pytest.raises(InvalidStateError, match=f"the job has no master hook 'other'.*hooks=`{names}`"):
        epoch_of(World(), *hooks).hook("other")
